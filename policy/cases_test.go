package policy

import (
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/policy/contract"
)

func TestRunCases(t *testing.T) {
	p := mustParse(t, testPolicy)
	for _, c := range []struct{ name, body, want string }{ // want: "" passes, else part of a failure
		{"passes", "event: local, expect: {profile: test}", ""},
		{"no event is local", "expect: {profile: test}", ""},
		{"action", "event: {kind: push, action: created}, actor: {role: write}, expect: {profile: test}", ""},
		{"wrong profile", "expect: {profile: big}", "profile is test, want big"},
		{"field", "expect: {contract: {level: L3, limits: {memory_mb: 4096, cpu: 2}, network: {mode: none, allow: []}}}", ""},
		{"wrong field", "expect: {contract: {limits: {memory_mb: 4095}}}", "limits.memory_mb is 4096, want 4095"},
		{"misspelt field", "expect: {contract: {limits: {memory: 4096}}}", "there is no field limits.memory"},
		{"text for a number", "expect: {contract: {limits: {memory_mb: '4096'}}}", `limits.memory_mb is 4096, want "4096"`},
		{"list in part", "profile: web, expect: {contract: {network: {allow: [{host: a.example.com}]}}}", ""},
		{"list too short", "profile: web, expect: {contract: {network: {allow: []}}}", "network.allow is [{"},
		{"refusal", "event: push, actor: {role: read}, expect: {refusal: no_rule}", ""},
		{"another refusal", "event: push, actor: {role: read}, expect: {refusal: fork}", "refused (no_rule), want the refusal fork"},
		{"refusal unexpected", "event: push, actor: {role: read}, expect: {profile: test}", "refused (no_rule)"},
		{"refusal missed", "expect: {refusal: no_rule}", "derived a contract with the profile test, want the refusal no_rule"},
	} {
		t.Run(c.name, func(t *testing.T) {
			results, err := RunCases(p, nil, "cases.yml", []byte("cases:\n  - {name: x, "+c.body+"}\n"))
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Join(results[0].Failures, "\n")
			if c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if results[0].Line != 2 || results[0].Name != "x" {
				t.Errorf("the case is placed at %d %q", results[0].Line, results[0].Name)
			}
		})
	}
}

func TestRunCasesDenies(t *testing.T) {
	p := mustParse(t, testPolicy)
	for _, c := range []struct{ name, in, want string }{
		{"nothing", "cases: []\n", "there is no case"},
		{"unknown key", "cases: [{nme: x}]\n", `(did you mean "name"?)`},
		{"event", "cases: [{name: x, event: pul_request}]\n", `c.yml:1:26: event cannot be "pul_request"`},
		{"refusal code", "cases: [{name: x, expect: {refusal: norule}}]\n", `(did you mean "no_rule"?)`},
		{"expects nothing", "cases: [{name: x}]\n", "expect is missing"},
		{"expects both", "cases: [{name: x, expect: {refusal: no_rule, profile: a}}]\n", "a refusal comes without"},
		{"base of a branch that cannot be", "cases: [{name: x, pr: {number: 1, base: 'a b'}, expect: {profile: a}}]\n", "c.yml:1:9: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := RunCases(p, nil, "c.yml", []byte(c.in))
			if _, ok := err.(Problems); !ok || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

// TestStarter holds the files of `countersign init` to what they say.
func TestStarter(t *testing.T) {
	p := mustParse(t, starter)
	results, err := RunCases(p, nil, "starter.yml", StarterCases())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if len(r.Failures) > 0 {
			t.Errorf("%s: %v", r.Name, r.Failures)
		}
	}
	uncommented := strings.NewReplacer("\n  # ", "\n  ", "\n# promotion", "\npromotion", "\n#   network", "\n  network", "\n#   output", "\n  output").Replace(starter)
	uncommented = strings.NewReplacer("\n  A fork's", "\n  # A fork's", "\n  An agent", "\n  # An agent").Replace(uncommented)
	d, err := Parse("starter, uncommented", []byte(uncommented))
	if err != nil {
		t.Fatalf("the commented examples are not sound: %v", err)
	}
	if !contains(d.Profiles(), "claude") || len(d.policy.Promotion) != 2 || len(d.policy.Rules) != 3 {
		t.Errorf("uncommenting reaches not all: %v", d.Profiles())
	}
}

func TestCheck(t *testing.T) {
	p := mustParse(t, testPolicy+"")
	got := map[string]Checked{}
	all, err := Check(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		got[c.Profile] = c
	}
	if c := got["tagged"]; !c.LocalOnly || c.Refusal != nil {
		t.Errorf("tagged: %+v, want local only", c)
	}
	if c := got["claude"]; c.LocalOnly || c.Level != contract.L4 { // push: trusted
		t.Errorf("claude: %+v, want L4", c)
	}
	tight := mustCeiling(t, "version: 1\n")
	all, err = Check(p, tight)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		if want := contains([]string{"web", "claude", "lan", "hosted"}, c.Profile); (c.Refusal != nil) != want {
			t.Errorf("%s under a ceiling of nothing: %v", c.Profile, c.Refusal)
		}
	}
	unsound := mustParse(t, "version: 1\nprofiles: {a: {image: ci, read_denied: [/workspace]}}\n")
	if all, err = Check(unsound, nil); err != nil || all[0].Refusal == nil || all[0].Refusal.Code != CodeContract {
		t.Errorf("a profile that hides its own workspace: %+v, %v", all, err)
	}
}
