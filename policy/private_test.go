package policy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-dev/countersign/policy/contract"
)

// TestVouched is about what a repository's policy takes of the machine it is
// used on: under the built-in ceiling a flag of the person there must say so.
func TestVouched(t *testing.T) {
	const (
		ownerCeiling = "version: 1\ndefault: m\nprofiles: {m: {network: {allow: any}}}\nprivate: true\nallow_secrets: any\n"
		model        = "vault://ci/model-key@v7"
	)
	secret := func(ref string) contract.Asked { return contract.Asked{Secrets: map[string]string{"model-key": ref}} }
	host := func(h string) contract.Asked { return contract.Asked{Allow: []string{h}} }
	for _, c := range []struct {
		name, profile, ceiling string
		asked                  contract.Asked
		byFile                 bool // the policy was given with --policy
		want                   string
	}{
		{"secret", "claude", "", contract.Asked{}, false, CodeSecret},
		{"secret by the same reference", "claude", "", secret(model), false, ""},
		{"secret by another reference", "claude", "", secret("vault://ci/other"), false, CodeAskedInvalid},
		{"another secret", "claude", "", contract.Asked{Secrets: map[string]string{"other": model}}, false, CodeSecret},
		{"secret under an owner's ceiling", "claude", ownerCeiling, contract.Asked{}, false, ""},
		{"secret of a policy given by file", "claude", "", contract.Asked{}, true, ""},
		{"another reference, policy given by file", "claude", "", secret("vault://ci/other"), true, CodeAskedInvalid},
		{"private address", "lan", "", contract.Asked{}, false, CodeNetwork},
		{"private address by name and port", "lan", "", host("nas.example.com:443"), false, ""},
		{"private address by another port", "lan", "", host("nas.example.com:80"), false, CodeNetwork},
		{"private address under an owner's ceiling", "lan", ownerCeiling, contract.Asked{}, false, ""},
		{"private address of a policy given by file", "lan", "", contract.Asked{}, true, ""},
		{"neither", "web", "", contract.Asked{}, false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := input(t, testPolicy, c.ceiling, testCase{Profile: c.profile}, func(task *contract.Task) { task.Asked = c.asked })
			if c.byFile {
				in.Snapshot.Policy.Ref = refFile
			}
			d := Derive(in)
			got := ""
			if d.Refusal != nil {
				got = d.Refusal.Code
			}
			if got != c.want {
				t.Errorf("got %q, want %q\n%s", got, c.want, Explain(d))
			}
		})
	}
}

// TestVouchedHint: what the refusal says to add is enough.
func TestVouchedHint(t *testing.T) {
	for profile, flag := range map[string]string{
		"claude": "--secret model-key=vault://ci/model-key@v7",
		"lan":    "--allow nas.example.com:443",
	} {
		d := Derive(input(t, testPolicy, "", testCase{Profile: profile}, nil))
		if d.Refusal == nil || !strings.Contains(d.Refusal.Hint, "add "+flag+",") {
			t.Errorf("%s: %v, want a hint to add %s", profile, d.Refusal, flag)
		}
	}
}

// TestPrivateCap says of a ceiling's private which rules may have private: true,
// and which hosts that --allow names get it.
func TestPrivateCap(t *testing.T) {
	const any = "version: 1\ndefault: m\nprofiles: {m: {network: {allow: any}}}\nallow_secrets: any\nprivate: "
	for _, c := range []struct {
		name, private, profile, allow string
		want                          string // a code, or the last rule and whether it is private
	}{
		{"none", "false", "lan", "", CodeNetwork},
		{"all", "true", "lan", "", "nas.example.com:443 private"},
		{"the host", "[nas.example.com]", "lan", "", "nas.example.com:443 private"},
		{"a star over it", "['*.example.com']", "lan", "", "nas.example.com:443 private"},
		{"another host", "[other.example.com]", "lan", "", CodeNetwork},
		{"no host", "[]", "lan", "", CodeNetwork},
		{"asked, none", "false", "test", "nas.example.com:443", "nas.example.com:443 public"},
		{"asked, all", "true", "test", "nas.example.com:443", "nas.example.com:443 public"},
		{"asked, the host", "[nas.example.com]", "test", "nas.example.com:443", "nas.example.com:443 private"},
		{"asked, a star over it", "['*.example.com']", "test", "nas.example.com:443", "nas.example.com:443 private"},
		{"asked, a star under it", "[nas.example.com]", "test", "*.example.com:443", "*.example.com:443 public"},
		{"asked, another host", "[other.example.com]", "test", "nas.example.com:443", "nas.example.com:443 public"},
		{"asked, the profile has it", "[a.example.com]", "web", "a.example.com:443", "a.example.com:443 public"},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := input(t, testPolicy, any+c.private+"\n", testCase{Profile: c.profile}, func(task *contract.Task) {
				if c.allow != "" {
					task.Asked.Allow = []string{c.allow}
				}
			})
			d := Derive(in)
			if got := lastRule(d); got != c.want {
				t.Errorf("got %q, want %q\n%s", got, c.want, Explain(d))
			}
		})
	}
}

func lastRule(d Derivation) string {
	if d.Refusal != nil {
		return d.Refusal.Code
	}
	r := d.Contract.Network.Allow[len(d.Contract.Network.Allow)-1]
	if r.Private {
		return targetText(r) + " private"
	}
	return targetText(r) + " public"
}

// TestAskedHost: --allow gives a tunnel and no more.
func TestAskedHost(t *testing.T) {
	d := Derive(input(t, testPolicy, "", testCase{}, func(task *contract.Task) { task.Asked.Allow = []string{"b.example.com:8443"} }))
	if d.Refusal != nil {
		t.Fatal(d.Refusal)
	}
	want := contract.NetRule{
		Host: "b.example.com", Port: 8443, Mode: contract.RuleOpaque, Methods: []string{}, Paths: []string{}, DenyBody: []string{},
		UploadBytes: 1 << 20, Coverage: contract.CoverageTunnel,
	}
	if got := d.Contract.Network.Allow; len(got) != 1 || !cmp.Equal(got[0], want) {
		t.Errorf("rules are %+v, want %+v", got, want)
	}
	text := Explain(d)
	for _, part := range []string{"b.example.com:8443 opaque (name-port-bytes), 1048576 bytes out", "· asked by --allow", "· within the ceiling: any"} {
		if !strings.Contains(text, part) {
			t.Errorf("explain does not say %q:\n%s", part, text)
		}
	}
}

// TestInjectedAs: what the policy says of a secret is what the rule injects.
func TestInjectedAs(t *testing.T) {
	for secret, want := range map[string]contract.Inject{
		"as: header, name: x-api-key": {Secret: "k", As: contract.InjectHeader, Name: "x-api-key"},
		"as: bearer":                  {Secret: "k", As: contract.InjectBearer},
		"as: basic":                   {Secret: "k", As: contract.InjectBasic},
	} {
		text := "version: 1\ndefault: a\nprofiles: {a: {image: ci, network: {allow: [{host: m.internal, upstream: 'https://api.example.com', mode: gateway, methods: [GET], paths: [/**], inject: k}]}," +
			" secrets: {k: {ref: 'env://K', deliver: inject, " + secret + "}}}}\n"
		d := Derive(input(t, text, "", testCase{}, func(task *contract.Task) { task.Asked.Secrets = map[string]string{"k": "env://K"} }))
		if d.Refusal != nil || *d.Contract.Network.Allow[0].Inject != want {
			t.Errorf("%s: %+v, want %+v", secret, d, want)
		}
	}
}
