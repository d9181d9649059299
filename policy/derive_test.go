package policy

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files of this run")

func mustParse(t testing.TB, data string) *Document {
	t.Helper()
	d, err := Parse("policy.yml", []byte(data))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func mustCeiling(t testing.TB, data string) *Document {
	t.Helper()
	if data == "" {
		return nil
	}
	d, err := ParseCeiling("ceiling.yml", []byte(data))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// input completes a case to an input; edit changes the task before its snapshot
// is made.
func input(t testing.TB, policy, ceiling string, c testCase, edit func(*contract.Task)) Input {
	t.Helper()
	p, top := mustParse(t, policy), mustCeiling(t, ceiling)
	in, err := c.input(p, top)
	if err != nil {
		t.Fatal(err)
	}
	if edit != nil {
		edit(&in.Task)
		if in, err = sample(in.Task, p, top); err != nil {
			t.Fatal(err)
		}
	}
	return in
}

const testPolicy = `version: 1
default: test
profiles:
  test: {image: ci@` + digestA + `}
  big: {extends: test, limits: {memory: 32GiB, timeout: 12h}}
  claude:
    extends: test
    runtime: claude-code
    network:
      allow:
        - {host: model.internal, upstream: https://api.example.com, mode: gateway, methods: [POST], paths: [/v1/messages], inject: model-key}
    secrets: {model-key: {ref: vault://ci/model-key@v7, deliver: inject, as: header, name: x-api-key}}
    outputs: {kind: pull_request, push: trusted}
  web: {extends: test, network: {allow: [{host: a.example.com, port: 443, upload: 4MiB}]}}
  lan: {extends: test, network: {allow: [{host: nas.example.com, port: 443, private: true}]}}
  hosted: {extends: test, hosted_tools: [web_search]}
  tagged: {image: 'ci:1'}
  outside: {extends: test, image: 'ci@` + digestA + `', env: {A: b}}
rules:
  - {label: "run:test", profile: test}
  - {label: "run:big", profile: big, role: read}
  - {label: "run:claude", profile: claude, event: [pull_request, issue]}
  - {label: "run:web", profile: web}
  - {label: "run:lan", profile: lan}
  - {label: "run:hosted", profile: hosted}
  - {label: "run:tagged", profile: tagged}
  - {label: "fork:test", profile: test, fork: true}
  - {event: schedule, profile: web}
  - {event: issue, when: 'labels[0] == "ask"', profile: test}
  - {event: api, when: 'actor.login == "robot" && paths.all(p, p.startsWith("docs/"))', profile: test, role: none}
promotion:
  network: {approvers: {teams: [security]}, ttl: 30m}
  host_exec: {approvers: {role: admin}, ttl: 5m}
`

// TestDeriveChooses says of each task which profile it gets, or which refusal.
func TestDeriveChooses(t *testing.T) {
	pull := func(role string, labels ...string) testCase {
		return testCase{Event: caseEvent{Kind: "pull_request"}, Actor: caseActor{Role: roleName(role)}, Labels: labels, PR: casePR{Number: 1}}
	}
	event := func(kind, role string) testCase {
		return testCase{Event: caseEvent{Kind: eventKind(kind)}, Actor: caseActor{Role: roleName(role)}}
	}
	local := testCase{}
	fork := func(c testCase) testCase { c.PR.Fork = true; return c }
	named := func(c testCase, profile string) testCase { c.Profile = profile; return c }
	docs := func(c testCase, login string, paths ...string) testCase {
		c.Actor.Login, c.Paths = login, paths
		return c
	}
	labelled := func(c testCase, labels ...string) testCase { c.Labels = labels; return c }
	for _, c := range []struct {
		name string
		task testCase
		want string // a profile, or a refusal's code
	}{
		{"local, nothing said", local, "test"},
		{"local, a label", labelled(local, "run:claude"), "test"}, // the rule is for other events
		{"local, a label without event", labelled(local, "run:web"), "web"},
		{"local, a label nobody names", labelled(local, "run:wbe"), "test"},
		{"local, profile by name", named(local, "web"), "web"},
		{"local, a secret that nobody vouches for", named(local, "claude"), CodeSecret},
		{"local, a private address that nobody vouches for", named(local, "lan"), CodeNetwork},
		{"local, profile by a wrong name", named(local, "cluade"), CodeNoProfile},
		{"writer's label", pull("write", "run:test"), "test"},
		{"maintainer's label", pull("maintain", "run:test"), "test"},
		{"reader's label", pull("read", "run:test"), CodeNoRule},
		{"stranger's label", pull("none", "run:test"), CodeNoRule},
		{"reader's label where read is enough", pull("read", "run:big"), "big"},
		{"label in another case", pull("write", "Run:Test"), CodeNoRule},
		{"label that begins alike", pull("admin", "run:test2"), CodeNoRule},
		{"no label", pull("admin"), CodeNoRule},
		{"two labels, one profile named twice", pull("write", "run:test", "other"), "test"},
		{"two labels, two profiles", pull("write", "run:test", "run:big"), CodeRulesDisagree},
		{"two labels, one by a person without the role", pull("read", "run:test", "run:big"), "big"},
		{"profile by name, rule gives it", named(pull("write", "run:test"), "test"), "test"},
		{"profile by name, rule gives another", named(pull("admin", "run:test"), "big"), CodeNoRule},
		{"profile by name, no rule", named(pull("admin"), "test"), CodeNoRule},
		{"profile by name picks among rules", named(pull("write", "run:test", "run:big"), "big"), "big"},
		{"fork, label", fork(pull("admin", "run:test")), CodeFork},
		{"fork, rule for forks", fork(pull("write", "fork:test")), "test"},
		{"fork, rule for forks, reader", fork(pull("read", "fork:test")), CodeFork},
		{"no fork, rule for forks", pull("write", "fork:test"), CodeNoRule},
		{"fork, SHA typed by a writer", fork(event("comment", "write")), forkProfile},
		{"fork, SHA typed by a reader", fork(event("comment", "read")), CodeFork},
		{"fork, pushed", fork(event("push", "admin")), CodeFork},
		{"fork, default by name", named(fork(event("push", "admin")), "test"), CodeNoRule},
		{"push by a writer", event("push", "write"), "test"},
		{"push by a reader", event("push", "read"), CodeNoRule},
		{"dispatch by a writer", event("dispatch", "write"), "test"},
		{"comment by an admin", event("comment", "admin"), CodeNoRule},
		{"api by an admin", event("api", "admin"), CodeNoRule},
		{"schedule, its rule", event("schedule", "none"), "web"},
		{"condition holds", docs(event("api", "none"), "robot", "docs/a", "docs/b"), "test"},
		{"condition does not hold", docs(event("api", "none"), "robot", "docs/a", "src/b"), CodeNoRule},
		{"condition about another", docs(event("api", "admin"), "octocat", "docs/a"), CodeNoRule},
		{"condition that fails", event("issue", "write"), CodeCondition},
		{"condition that would fail is not reached", event("issue", "read"), CodeNoRule},
		{"tag on GitHub", pull("write", "run:tagged"), CodeImageUnpinned},
		{"tag at a terminal", named(local, "tagged"), "tagged"},
		{"private address without an owner's ceiling", pull("write", "run:lan"), CodeNetwork},
		{"secret without an owner's ceiling", pull("write", "run:claude"), CodeSecret},
		{"hosted tool without an owner's ceiling", pull("write", "run:hosted"), CodeTool},
		{"hosted tool at a terminal", named(local, "hosted"), "hosted"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := Derive(input(t, testPolicy, "", c.task, nil))
			got := chosen(d)
			if d.Refusal != nil {
				got = d.Refusal.Code
			}
			if got != c.want {
				t.Errorf("got %s, want %s\n%s", got, c.want, Explain(d))
			}
			if d.Refusal == nil {
				if _, err := contract.Seal(d.Contract); err != nil {
					t.Error(err)
				}
			} else if d.Contract.Schema != "" {
				t.Error("a refusal comes with a contract")
			}
		})
	}
}

// TestDeriveCaps says of each ceiling what becomes of one field.
func TestDeriveCaps(t *testing.T) {
	top := func(profile, keys string) string {
		return "version: 1\ndefault: m\nprofiles: {m: {" + profile + "}}\n" + keys
	}
	allow := func(entry string) string { return top("network: {allow: ["+entry+"]}", "") }
	const model = "allow_secrets: any\n"
	for _, c := range []struct {
		name, profile, ceiling, field, want string
	}{
		{"amount under the ceiling", "test", top("limits: {memory: 8GiB}", ""), "limits.memory_mb", "4096MiB"},
		{"amount over the ceiling", "big", top("limits: {memory: 8GiB}", ""), "limits.memory_mb", "8192MiB"},
		{"standard over the ceiling", "test", top("limits: {memory: 1GiB}", ""), "limits.memory_mb", "1024MiB"},
		{"amount the ceiling leaves out", "big", top("", ""), "limits.memory_mb", "16384MiB"},
		{"time over the ceiling", "big", top("limits: {timeout: 1h}", ""), "limits.timeout_sec", "3600s"},
		{"a ceiling without profiles", "big", "version: 1\n", "limits.timeout_sec", "21600s"},
		{"a namesake goes before the default", "big", "version: 1\ndefault: m\nprofiles: {m: {limits: {memory: 1GiB}}, big: {limits: {memory: 2GiB}}}\n", "limits.memory_mb", "2048MiB"},
		{"a ceiling's extends", "big", "version: 1\nprofiles: {m: {limits: {memory: 1GiB}}, big: {extends: m, limits: {cpu: 1}}}\n", "limits.memory_mb", "1024MiB"},
		{"neither namesake nor default", "big", "version: 1\nprofiles: {m: {}}\n", "", CodeCeiling},
		{"isolation raised", "test", top("", "isolation_min: runsc\n"), "isolation", "runsc"},
		{"isolation left", "test", top("", "isolation_min: runc\n"), "isolation", "runc"},
		{"any host", "web", top("network: {allow: any}", ""), "network.mode", "allowlist"},
		{"no network key", "web", top("", ""), "", CodeNetwork},
		{"empty allow", "web", top("network: {allow: []}", ""), "", CodeNetwork},
		{"the host", "web", allow("{host: a.example.com, port: 443}"), "network.mode", "allowlist"},
		{"a star over the host", "web", allow("{host: '*.example.com', port: 443}"), "network.mode", "allowlist"},
		{"a star two labels up", "web", allow("{host: '*.example.org', port: 443}"), "", CodeNetwork},
		{"another host", "web", allow("{host: b.example.com, port: 443}"), "", CodeNetwork},
		{"a host that ends alike", "web", allow("{host: xa.example.com, port: 443}"), "", CodeNetwork},
		{"another port", "web", allow("{host: a.example.com, port: 80}"), "", CodeNetwork},
		{"a tunnel where requests must be read", "web", allow("{host: a.example.com, port: 443, mode: inspect, methods: [GET], paths: [/**]}"), "", CodeNetwork},
		{"upload cut", "web", allow("{host: a.example.com, port: 443, upload: 1MiB}"), "upload", "1048576"},
		{"upload left", "web", allow("{host: a.example.com, port: 443}"), "upload", "4194304"},
		{"private where any is public", "lan", top("network: {allow: any}", ""), "", CodeNetwork},
		{"private allowed", "lan", top("network: {allow: any}", "private: true\n"), "network.mode", "allowlist"},
		{"private, entry is not", "lan", top("network: {allow: [{host: nas.example.com, port: 443}]}", "private: true\n"), "", CodeNetwork},
		{"private, entry is", "lan", top("network: {allow: [{host: nas.example.com, port: 443, private: true}]}", "private: true\n"), "network.mode", "allowlist"},
		{"gateway by its upstream", "claude", allow("{host: api.example.com, port: 443}") + model, "network.mode", "allowlist"},
		{"gateway by its inner name", "claude", allow("{host: x.internal, port: 80}") + model, "", CodeNetwork},
		{"gateway, same request", "claude", allow("{host: y.internal, upstream: 'https://api.example.com', mode: gateway, methods: [POST, GET], paths: [/v1/**]}") + model, "network.mode", "allowlist"},
		{"gateway, other method", "claude", allow("{host: y.internal, upstream: 'https://api.example.com', mode: gateway, methods: [GET], paths: [/v1/**]}") + model, "", CodeNetwork},
		{"gateway, other path", "claude", allow("{host: y.internal, upstream: 'https://api.example.com', mode: gateway, methods: [POST], paths: [/v2/**]}") + model, "", CodeNetwork},
		{"secret allowed by name", "claude", top("network: {allow: any}", "allow_secrets: ['vault://ci/model-key@v7']\n"), "network.mode", "allowlist"},
		{"secret allowed by prefix", "claude", top("network: {allow: any}", "allow_secrets: ['vault://ci/*']\n"), "network.mode", "allowlist"},
		{"secret in another place", "claude", top("network: {allow: any}", "allow_secrets: ['vault://cd/*']\n"), "", CodeSecret},
		{"secret of none", "claude", top("network: {allow: any}", "allow_secrets: []\n"), "", CodeSecret},
		{"push cut without trusted CI", "claude", top("network: {allow: any}, outputs: {push: trusted}", model), "outputs.push", "approved"},
		{"push with trusted CI", "claude", top("network: {allow: any}, outputs: {push: trusted}", model+"ci: trusted\n"), "outputs.push", "trusted"},
		{"push where the ceiling says nothing", "claude", top("network: {allow: any}", model+"ci: trusted\n"), "outputs.push", "approved"},
		{"push follows the kind", "claude", top("network: {allow: any}, outputs: {kind: patch}", model), "push", "never"},
		{"protected paths are joined", "test", top("outputs: {protected_paths: [Makefile]}", ""), "outputs.protected_paths", "**/.claude/** **/.gitattributes **/CODEOWNERS .github/** Makefile"},
		{"hosted tool named", "hosted", top("hosted_tools: [web_search]", ""), "hosted_tools", "web_search"},
		{"hosted tool absent", "hosted", top("", ""), "", CodeTool},
		{"hosted tool not named", "hosted", top("hosted_tools: [code]", ""), "", CodeTool},
		{"promotable none", "test", top("", ""), "promotable", "none"},
		{"promotable both", "test", top("", "promotable: [network, host_exec, path]\n"), "promotable", "host_exec network"},
		{"promotable one", "test", top("", "promotable: [network]\n"), "promotable", "network"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := Derive(input(t, testPolicy, c.ceiling, testCase{Profile: c.profile}, nil))
			if d.Refusal != nil {
				if c.field != "" || d.Refusal.Code != c.want {
					t.Errorf("refused (%s) %v, want %s %s", d.Refusal.Code, d.Refusal, c.field, c.want)
				}
				return
			}
			got := map[string]string{"push": d.Contract.Outputs.Push}
			if len(d.Contract.Network.Allow) > 0 {
				b, _ := json.Marshal(d.Contract.Network.Allow[0].UploadBytes)
				got["upload"] = string(b)
			}
			for _, r := range d.Reasons {
				if got[r.Field] == "" {
					got[r.Field] = r.Value
				}
			}
			if got[c.field] != c.want {
				t.Errorf("%s is %q, want %q\n%s", c.field, got[c.field], c.want, Explain(d))
			}
		})
	}
}

// TestDeriveAsked is about the flags of a person at a terminal.
func TestDeriveAsked(t *testing.T) {
	tight := "version: 1\ndefault: m\nprofiles: {m: {network: {allow: [{host: a.example.com, port: 443}]}, limits: {timeout: 1h}}}\nisolation_min: runc\nallow_secrets: ['file://*']\n"
	hard := strings.Replace(tight, "isolation_min: runc", "isolation_min: runsc", 1)
	for _, c := range []struct {
		name, ceiling string
		asked         contract.Asked
		want          string
	}{
		{"nothing", "", contract.Asked{}, ""},
		{"image by tag", "", contract.Asked{Image: "other:2"}, ""},
		{"longer", "", contract.Asked{TimeoutSec: 7200}, ""},
		{"longer than the ceiling", tight, contract.Asked{TimeoutSec: 3601}, CodeAskedTooMuch},
		{"as long as the ceiling", tight, contract.Asked{TimeoutSec: 3600}, ""},
		{"runsc", "", contract.Asked{Isolation: "runsc"}, ""},
		{"runc under a minimum of runsc", hard, contract.Asked{Isolation: "runc"}, CodeIsolation},
		{"host", "", contract.Asked{Allow: []string{"b.example.com:443"}}, ""},
		{"host within", tight, contract.Asked{Allow: []string{"a.example.com:443"}}, ""},
		{"host past the ceiling", tight, contract.Asked{Allow: []string{"b.example.com:443"}}, CodeNetwork},
		{"engine's port", "", contract.Asked{Allow: []string{"b.example.com:2375"}}, CodeAskedInvalid},
		{"secret", "", contract.Asked{Secrets: map[string]string{"k": "env://K"}}, ""},
		{"secret within", tight, contract.Asked{Secrets: map[string]string{"k": "file:///run/k"}}, ""},
		{"secret that climbs", tight, contract.Asked{Secrets: map[string]string{"k": "file:///run/../etc/shadow"}}, CodeSecret},
		{"secret past the ceiling", tight, contract.Asked{Secrets: map[string]string{"k": "env://K"}}, CodeSecret},
		{"the engine's socket as a secret", "", contract.Asked{Secrets: map[string]string{"k": "file:///run/docker.sock"}}, CodeSocket},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := Derive(input(t, testPolicy, c.ceiling, testCase{}, func(task *contract.Task) { task.Asked = c.asked }))
			got := ""
			if d.Refusal != nil {
				got = d.Refusal.Code
			}
			if got != c.want {
				t.Errorf("got %q, want %q\n%s", got, c.want, Explain(d))
			}
		})
		t.Run("on GitHub: "+c.name, func(t *testing.T) {
			if c.name == "nothing" {
				return
			}
			task := testCase{Event: caseEvent{Kind: "push"}, Actor: caseActor{Role: "admin"}}
			d := Derive(input(t, testPolicy, "", task, func(task *contract.Task) { task.Asked = c.asked }))
			if d.Refusal == nil || d.Refusal.Code != CodeAskedRole {
				t.Errorf("got %v, want the refusal %s", d.Refusal, CodeAskedRole)
			}
		})
	}
}

func TestDeriveImages(t *testing.T) {
	const id, other = "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb", "sha256:cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc"
	for _, c := range []struct {
		name, ref string
		fact      *contract.ImageFact
		want      string // "kind digest", or a refusal's code
	}{
		{"missing", "ci:1", nil, CodeImageMissing},
		{"tag", "ci:1", &contract.ImageFact{ID: id}, "image_id " + id},
		{"tag that has a repository digest", "ci:1", &contract.ImageFact{ID: id, RepoDigests: []string{"ci@" + digestA}}, "image_id " + id},
		{"digest", "ci@" + digestA, &contract.ImageFact{ID: id, RepoDigests: []string{"ci@" + digestA}}, "repo " + digestA},
		{"tag and digest", "ci:1@" + digestA, &contract.ImageFact{ID: id, RepoDigests: []string{"ci@" + digestA}}, "repo " + digestA},
		{"digest the engine does not confirm", "ci@" + digestA, &contract.ImageFact{ID: id, RepoDigests: []string{"ci@" + other}}, CodeImageMismatch},
		{"digest that is only the image id", "ci@" + digestA, &contract.ImageFact{ID: digestA}, CodeImageMismatch},
		{"image id", digestA, &contract.ImageFact{ID: digestA}, "image_id " + digestA},
		{"image id of another", digestA, &contract.ImageFact{ID: id}, CodeImageMismatch},
		{"volume of the socket", "ci:1", &contract.ImageFact{ID: id, Volumes: []string{"/var/run/docker.sock"}}, CodeSocket},
		{"another volume", "ci:1", &contract.ImageFact{ID: id, Volumes: []string{"/data"}}, "image_id " + id},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := input(t, testPolicy, "", testCase{}, func(task *contract.Task) { task.Asked.Image = c.ref })
			in.Snapshot.Images = map[string]contract.ImageFact{}
			if c.fact != nil {
				c.fact.Platform = "linux/amd64"
				in.Snapshot.Images[c.ref] = *c.fact
			}
			d := Derive(in)
			got := d.Contract.Image.DigestKind + " " + d.Contract.Image.Digest
			if d.Refusal != nil {
				got = d.Refusal.Code
			}
			if got != c.want {
				t.Errorf("got %s, want %s\n%s", got, c.want, Explain(d))
			}
		})
	}
}

// TestDeriveInputsBelongTogether changes one input behind the snapshot's back.
func TestDeriveInputsBelongTogether(t *testing.T) {
	for _, c := range []struct {
		name string
		edit func(*Input)
		want string
	}{
		{"as read", func(*Input) {}, ""},
		{"another policy", func(in *Input) { in.Policy = mustParse(t, designExample) }, CodeInputs},
		{"another ceiling", func(in *Input) { in.Ceiling = mustCeiling(t, "version: 1\n") }, CodeInputs},
		{"another task", func(in *Input) { in.Task.Argv = []string{"false"} }, CodeInputs},
		{"no policy", func(in *Input) { in.Policy = nil }, CodeInputs},
		{"no ceiling", func(in *Input) { in.Ceiling = nil }, CodeInputs},
		{"swapped", func(in *Input) { in.Policy, in.Ceiling = in.Ceiling, in.Policy }, CodeInputs},
		{"no time", func(in *Input) { in.Snapshot.Time = "" }, CodeInputs},
		{"policy absent, replaced by one of ours", func(in *Input) { in.Snapshot.Policy = contract.Source{Status: contract.SourceAbsent} }, CodeInputs},
		{"policy unreadable", func(in *Input) { in.Snapshot.Policy = contract.Source{Status: contract.SourceUnreadable} }, CodeNoPolicy},
		{"ceiling absent, replaced by the built-in one", func(in *Input) { in.Snapshot.Ceiling = contract.Source{Status: contract.SourceAbsent} }, ""},
		{"ceiling unreadable, replaced by the local one", func(in *Input) { in.Snapshot.Ceiling = contract.Source{Status: contract.SourceUnreadable} }, CodeInputs},
		{"ceiling called built in", func(in *Input) {
			in.Ceiling = mustCeiling(t, "version: 1\n")
			in.Snapshot.Ceiling = contract.Source{Status: contract.SourceBuiltin, Digest: in.Ceiling.Digest()}
		}, CodeInputs},
		{"policy built in, digest of another", func(in *Input) {
			in.Policy = mustParse(t, builtinPolicy)
			in.Snapshot.Policy = contract.Source{Status: contract.SourceBuiltin, Digest: digestA}
		}, CodeInputs},
		{"fields that no task has", func(in *Input) { in.Task.RunID = "x" }, CodeTask},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := input(t, testPolicy, "", testCase{}, nil)
			c.edit(&in)
			d := Derive(in)
			got := ""
			if d.Refusal != nil {
				got = d.Refusal.Code
			}
			if got != c.want {
				t.Errorf("got %q (%v), want %q", got, d.Refusal, c.want)
			}
		})
	}
	t.Run("the local ceiling for another event", func(t *testing.T) {
		task := testCase{Event: caseEvent{Kind: "push"}, Actor: caseActor{Role: "admin"}}
		d := Derive(input(t, testPolicy, builtinLocalCeiling, task, nil))
		if d.Refusal == nil || d.Refusal.Code != CodeInputs {
			t.Errorf("got %v, want the refusal %s", d.Refusal, CodeInputs)
		}
	})
}

// TestConditionsAreBounded gives a condition more work than it may do.
func TestConditionsAreBounded(t *testing.T) {
	p := "version: 1\nprofiles: {a: {image: ci}}\nrules: [{when: 'paths.all(p, paths.all(q, p != q || p == q))', profile: a}]\n"
	few := testCase{Paths: []string{"a", "b"}}
	if d := Derive(input(t, p, "", few, nil)); d.Refusal != nil {
		t.Errorf("two paths are too many: %v", d.Refusal)
	}
	many := testCase{}
	for i := range 2000 {
		many.Paths = append(many.Paths, fmt.Sprint("f", i))
	}
	if d := Derive(input(t, p, "", many, nil)); d.Refusal == nil || d.Refusal.Code != CodeCondition {
		t.Errorf("got %v, want the refusal %s", d.Refusal, CodeCondition)
	}
}

// TestExplainShowsNoControlCharacters plants them in everything a stranger
// chooses.
func TestExplainShowsNoControlCharacters(t *testing.T) {
	d := Derivation{Reasons: []Reason{{"argv", "a\x1b[2Jb\u202ec", []string{"x\ny"}}}, Refusal: &Refusal{CodeNoRule, "m\r", "h\u200b"}}
	for _, r := range strings.ReplaceAll(Explain(d), "\n", "") {
		if r < 0x20 || r == 0x202e || r == 0x200b {
			t.Errorf("%U reaches the terminal:\n%q", r, Explain(d))
		}
	}
	if got := strings.Count(Explain(d), "\n"); got != 4 {
		t.Errorf("%d lines, want 4: a value drew a line of its own", got)
	}
}

// TestDeriveForkIsBare wants of the built-in fork profile what DESIGN §4 says:
// nothing but the workspace.
func TestDeriveForkIsBare(t *testing.T) {
	rich := strings.Replace(testPolicy, "default: test", "default: web", 1)
	task := testCase{Event: caseEvent{Kind: "comment"}, Actor: caseActor{Role: "write"}, PR: casePR{Number: 1, Fork: true}}
	d := Derive(input(t, rich, "", task, nil))
	if d.Refusal != nil {
		t.Fatal(d.Refusal)
	}
	c := d.Contract
	if c.Network.Mode != contract.NetworkNone || len(c.SecretRefs)+len(c.Env)+len(c.Tools) > 0 || c.Outputs.Push != contract.PushNever || c.Level != contract.L1 {
		t.Errorf("a fork got more than the workspace:\n%s", Explain(d))
	}
}

// TestDeriveGolden compares whole contracts and their reasons.
func TestDeriveGolden(t *testing.T) {
	for _, c := range []struct {
		name, policy, ceiling string
		task                  testCase
	}{
		{"builtin-local", builtinPolicy, "", testCase{}},
		{"design-claude", designExample, "version: 1\ndefault: max\nprofiles:\n  max:\n    network: {allow: [{host: api.example.com, port: 443, upload: 64MiB}, {host: '*.example.com', port: 443}]}\n    limits: {memory: 2GiB}\nallow_secrets: ['vault://ci/*']\npromotable: [network]\nisolation_min: runsc\n",
			testCase{Event: caseEvent{Kind: "pull_request", Action: "labeled"}, Actor: caseActor{ID: 7, Role: "write"}, Labels: []string{"agent:claude", "bug"}, PR: casePR{Number: 17}, Repo: caseRepo{ID: 1}}},
		{"refused", designExample, "", testCase{Event: caseEvent{Kind: "comment"}, Actor: caseActor{ID: 7, Role: "admin"}, PR: casePR{Number: 17}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := input(t, c.policy, c.ceiling, c.task, nil)
			d := Derive(in)
			js, err := json.MarshalIndent(d.Contract, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			golden(t, c.name+".contract.json", string(js)+"\n")
			golden(t, c.name+".explain.txt", Explain(d))
			if diff := cmp.Diff(d, Derive(in), cmp.AllowUnexported(contract.Sealed{})); diff != "" {
				t.Errorf("a second derivation differs: %s", diff)
			}
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", "golden", name)
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// TestReasonsCoverTheContract wants a reason for every field of a contract that
// a policy decides.
func TestReasonsCoverTheContract(t *testing.T) {
	in := input(t, designExample, "", testCase{Profile: "claude"}, func(task *contract.Task) {
		task.Asked.Secrets = map[string]string{"model-key": "vault://ci/model-key@v7"}
	})
	d := Derive(in)
	if d.Refusal != nil {
		t.Fatal(d.Refusal)
	}
	var fields map[string]json.RawMessage
	js, _ := json.Marshal(d.Contract)
	if err := json.Unmarshal(js, &fields); err != nil {
		t.Fatal(err)
	}
	// Copied from the task as they are, or decided by nobody.
	copied := "schema run_id revision parent tenant repo base head pull_request start requested_by labels snapshot_digest prompt_digest"
	for name, value := range fields {
		if contains(strings.Fields(copied), name) || string(value) == "[]" || string(value) == "null" {
			continue
		}
		found := false
		for _, r := range d.Reasons {
			found = found || r.Field == name || strings.HasPrefix(r.Field, name+".") || strings.HasPrefix(r.Field, name+"[")
			if len(r.Because) == 0 {
				t.Errorf("%s has no cause", r.Field)
			}
		}
		if !found {
			t.Errorf("no reason for %s", name)
		}
	}
}

func BenchmarkDeriveSeal(b *testing.B) {
	b.Run("local", func(b *testing.B) {
		in := input(b, string(BuiltinPolicy()), string(BuiltinLocalCeiling()), testCase{}, nil)
		for b.Loop() {
			if d := Derive(in); d.Refusal != nil || d.Sealed.IsZero() {
				b.Fatal(d.Refusal)
			}
		}
	})
	for name, c := range map[string]testCase{
		"rule":      {Profile: "", Event: caseEvent{Kind: "pull_request"}, Actor: caseActor{Role: "write"}, Labels: []string{"run:web"}, PR: casePR{Number: 1}},
		"condition": {Event: caseEvent{Kind: "api"}, Actor: caseActor{Login: "robot"}, Paths: []string{"docs/a"}},
	} {
		b.Run(name, func(b *testing.B) {
			in := input(b, testPolicy, "", c, nil)
			for b.Loop() {
				if d := Derive(in); d.Refusal != nil || d.Sealed.IsZero() {
					b.Fatal(d.Refusal)
				}
			}
		})
	}
}
