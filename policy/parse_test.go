package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// at puts body where a profile's keys stand: its first line is line 5.
func inProfile(body string) string {
	return "version: 1\ndefault: a\nprofiles:\n  a:\n    image: ci@" + digestA + "\n    " + strings.ReplaceAll(body, "\n", "\n    ") + "\n"
}

const digestA = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

func TestParseDenies(t *testing.T) {
	head := "version: 1\ndefault: a\nprofiles: {a: {image: ci:1}}\n"
	for _, c := range []struct{ name, in, want string }{
		{"empty", "", "p:1:1: the file is empty"},
		{"only a comment", "# x\n", "p:1:1: the file is empty"},
		{"a list", "- a\n", "p:1:1: the file is a map of keys, not a list"},
		{"unknown key", head + "ruls: []\n", `p:4:1: unknown key "ruls" (did you mean "rules"?)`},
		{"unknown key in a profile", inProfile("limts: {}"), `p:6:5: unknown key "limts" in a (did you mean "limits"?)`},
		{"unknown key in limits", inProfile("limits: {memroy: 4GiB}"), `p:6:14: unknown key "memroy" in limits (did you mean "memory"?)`},
		{"ceiling key in a policy", head + "isolation_min: runc\n", `p:4:1: unknown key "isolation_min": only a ceiling has it`},
		{"duplicate key", head + "default: a\n", `p:4:1: key "default" stands here twice; the first is on line 2`},
		{"duplicate deep key", inProfile("env: {A: x, A: y}"), `p:6:17: key "A" stands here twice; the first is on line 6`},
		{"duplicate in other quotes", inProfile("env: {A: x, \"A\": y}"), `p:6:17: key "A" stands here twice`},
		{"anchor", inProfile("env: &e {A: x}"), "p:6:10: anchors and aliases are not allowed"},
		{"alias to nothing", head + "rev: *x\n", "p:4:6: anchors and aliases are not allowed"},
		{"merge key", inProfile("<<: {}"), "p:6:5: merge keys are not allowed"},
		{"tag", inProfile("env: {A: !!binary aGk=}"), "p:6:14: tags are not allowed"},
		{"key of a number", inProfile("env: {1: x}"), "p:6:11: key 1 is not text"},
		{"key of a list", "? [a]\n: b\n", "p:1:3: a key is one word of text"},
		{"second document", head + "---\na: b\n", "p:4:1: a second document begins here"},
		{"not YAML", "a: b: c\n", "p:1:1: not YAML: mapping values"},
		{"not YAML, parser's line", "version: 1\nprofiles: [a,\ndefault: x\n", "p:2:1: not YAML: did not find"},
		{"tab", "version: 1\nprofiles:\n\ta: {}\n", "p:3:2: not YAML"},
		{"not UTF-8", "version: 1\nrev: \xff\n", "p:2:6: byte 0xff is not UTF-8 text"},
		{"NUL", "version: 1\x00", "p:1:11: byte 0x00"},
		{"byte order mark", "\ufeffversion: 1\n", "p:1:1: byte 0xef"},
		{"oversize", strings.Repeat("#", maxBytes+1), "p:1:1: the file has 262145 bytes; the most is 262144"},
		{"deep", "a: " + strings.Repeat("[", 40) + strings.Repeat("]", 40), "nested deeper than 32 levels"},
		{"version 2", strings.Replace(head, "1", "2", 1), "p:1:10: version is 2"},
		{"no version", head[11:], "p:1:1: version is 0"},
		{"version of text", strings.Replace(head, "1", "'1'", 1), "p:1:10: version is a whole number"},
		{"no profiles", "version: 1\n", "p:1:1: there is no profile"},
		{"default of nothing", "version: 1\ndefault: tset\nprofiles: {test: {image: ci:1}}\n", `p:2:10: there is no profile "tset" (did you mean "test"?)`},
		{"extends nothing", inProfile("extends: b"), `p:6:14: there is no profile "b"`},
		{"extends itself", inProfile("extends: a"), "p:6:14: profile a extends itself: a → a"},
		{"extends in a circle", "version: 1\nprofiles:\n  a: {image: ci:1, extends: b}\n  b: {extends: a}\n", "p:3:29: profile a extends itself: a → b → a"},
		{"null", inProfile("limits:"), "limits has no value"},
		{"relative workdir", inProfile("workdir: workspace"), "p:6:14: workdir is"},
		{"GB", inProfile("limits: {memory: 4GB}"), `p:6:22: memory is a size such as 512KiB, 64MiB or 4GiB, not "4GB" (did you mean "4GiB"?)`},
		{"bare size", inProfile("limits: {memory: 512}"), `(did you mean "512MiB"?)`},
		{"KiB where MiB counts", inProfile("limits: {tmp: 100KiB}"), `is counted in whole MiB, and 100KiB is not (did you mean "1MiB"?)`},
		{"minutes in words", inProfile("limits: {timeout: 15min}"), `not "15min" (did you mean "15m"?)`},
		{"days", inProfile("limits: {timeout: 2d}"), `(did you mean "48h"?)`},
		{"bare duration", inProfile("limits: {timeout: 900}"), `(did you mean "900s"?)`},
		{"empty duration", inProfile("limits: {timeout: ''}"), `timeout is a duration`},
		{"cpu with a unit", inProfile("limits: {cpu: 500m}"), `cpu is a decimal number without a unit, not "500m"`},
		{"negative cpu", inProfile("limits: {cpu: -1}"), "cpu is a decimal number"},
		{"infinite cpu", inProfile("limits: {cpu: .inf}"), "cpu is a decimal number"},
		{"fraction of a process", inProfile("limits: {pids: 1.5}"), "pids is a whole number"},
		{"zero memory", inProfile("limits: {memory: 0MiB}"), "memory is zero"},
		{"number as text", inProfile("env: {CI: 1}"), `p:6:15: CI is text, and 1 is not: put it in quotes (did you mean "\"1\""?)`},
		{"bool as text", inProfile("env: {CI: true}"), "CI is text"},
		{"yes", head + "rules: [{label: x, fork: yes, profile: a}]\n", `fork is true or false, not "yes"`},
		{"isolation", inProfile("isolation: runscc"), `isolation cannot be "runscc": it is one of runc, runsc (did you mean "runsc"?)`},
		{"socket in writable", inProfile("writable: [/workspace, /var/run/docker.sock]"), "asks for the container engine's socket"},
		{"socket, other spelling", inProfile("writable: ['/run//Docker.Sock']"), "asks for the container engine's socket"},
		{"socket in a mount", inProfile("mounts: ['/var/run/docker.sock:/x']"), "asks for the container engine's socket"},
		{"socket in an unknown map", inProfile("read: {a: {b: unix:///run/podman/podman.sock}}"), "asks for the container engine's socket"},
		{"socket in the environment", inProfile("env: {DOCKER_HOST: 'unix:///var/run/docker.sock'}"), "asks for the container engine's socket"},
		{"socket as a secret", inProfile("secrets: {s: {ref: 'file:///var/run/docker.sock', deliver: file}}"), "asks for the container engine's socket"},
		{"engine's port", inProfile("network: {allow: [{host: d.example.com, port: 2375}]}"), "port 2375 is the container engine's"},
		{"privileged", inProfile("privileged: true"), "no run is privileged"},
		{"writable root", inProfile("writable: [/]"), "p:6:16: writable is"},
		{"writable relative", inProfile("writable: [tmp]"), "want an absolute path"},
		{"writable twice", inProfile("writable: [/tmp, /tmp]"), `"/tmp" stands here twice`},
		{"writable text", inProfile("writable: /tmp"), "writable is a list, not a single value"},
		{"env name", inProfile("env: {A-B: x}"), "A-B is"},
		{"host of a number", inProfile("network: {allow: [{host: 2130706433, port: 443}]}"), "host is text"},
		{"host in hex", inProfile("network: {allow: [{host: '0x7f.1', port: 443}]}"), "an address in some spelling"},
		{"host of a suffix", inProfile("network: {allow: [{host: '*.co.uk', port: 443}]}"), "public suffix"},
		{"no port", inProfile("network: {allow: [{host: a.example.com}]}"), "port is missing"},
		{"port of 70000", inProfile("network: {allow: [{host: a.example.com, port: 70000}]}"), "port is 70000"},
		{"port of zero", inProfile("network: {allow: [{host: a.example.com, port: 0}]}"), "port is 0"},
		{"paths on a tunnel", inProfile("network: {allow: [{host: a.example.com, port: 443, paths: [/x]}]}"), "p:6:63: paths cannot be enforced on a tunnel"},
		{"inspect without methods", inProfile("network: {allow: [{host: a.example.com, port: 443, mode: inspect, paths: [/**]}]}"), "methods are missing"},
		{"gateway outside .internal", inProfile("network: {allow: [{host: a.example.com, mode: gateway, upstream: 'https://b.example.com', methods: [GET], paths: [/**]}]}"), "ends in .internal"},
		{"the proxy's own name", inProfile("network: {allow: [{host: Canary.internal, port: 80}]}"), "host canary.internal is the proxy's own"},
		{"gateway over http", inProfile("network: {allow: [{host: a.internal, mode: gateway, upstream: 'http://b.example.com', methods: [GET], paths: [/**]}]}"), "want https://HOST"},
		{"upstream with a path", inProfile("network: {allow: [{host: a.internal, mode: gateway, upstream: 'https://b.example.com/v1', methods: [GET], paths: [/**]}]}"), "upstream"},
		{"CONNECT", inProfile("network: {allow: [{host: a.example.com, port: 443, mode: inspect, methods: [CONNECT], paths: [/**]}]}"), "no rule can allow"},
		{"two tunnels", inProfile("network: {allow: [{host: a.example.com, port: 443}, {host: A.example.com, port: 443}]}"), "has a rule already"},
		{"inject of nothing", inProfile("network: {allow: [{host: a.internal, mode: gateway, upstream: 'https://b.example.com', methods: [GET], paths: [/**], inject: k}]}"), `names the secret "k", which the profile does not have`},
		{"secret's value", inProfile("secrets: {k: {ref: sk-123, deliver: file}}"), "never the value"},
		{"secret injected nowhere", inProfile("secrets: {k: {ref: 'vault://a/b', deliver: inject}}"), "as is missing"},
		{"secret injected elsewhere", inProfile("secrets: {k: {ref: 'vault://a/b', deliver: inject, as: query}}"), "as cannot be \"query\": it is one of header, bearer, basic"},
		{"secret in a header without a name", inProfile("secrets: {k: {ref: 'vault://a/b', deliver: inject, as: header}}"), "name is missing"},
		{"bearer in a named header", inProfile("secrets: {k: {ref: 'vault://a/b', deliver: inject, as: bearer, name: x-key}}"), "name belongs to as: header"},
		{"secret undelivered", inProfile("secrets: {k: {ref: 'vault://a/b'}}"), "deliver is missing"},
		{"nothing to send", inProfile("network: {allow: [{host: a.example.com, port: 443, upload: 0KiB}]}"), "upload is outside"},
		{"no image", "version: 1\nprofiles: {a: {runtime: codex}}\n", "p:2:12: profile a has no image"},
		{"rule for all", head + "rules: [{profile: a}]\n", "the rule holds for everything"},
		{"rule without profile", head + "rules: [{label: x}]\n", "chooses no profile"},
		{"rule's profile", head + "rules: [{label: x, profile: aa}]\n", `p:4:29: there is no profile "aa" (did you mean "a"?)`},
		{"rule's event", head + "rules: [{event: pull-request, profile: a}]\n", `(did you mean "pull_request"?)`},
		{"rule's role", head + "rules: [{label: x, role: writer, profile: a}]\n", `(did you mean "write"?)`},
		{"when: unknown field", head + "rules: [{when: 'event.knd == \"push\"', profile: a}]\n", `p:4:17: in the condition: there is no "event.knd" (did you mean "event.kind"?)`},
		{"when: syntax", head + "rules: [{when: 'event.kind ==', profile: a}]\n", "in the condition: Syntax error"},
		{"when: types", head + "rules: [{when: 'pr.number == \"17\"', profile: a}]\n", "no matching overload"},
		{"when: not a bool", head + "rules: [{when: 'pr.number', profile: a}]\n", "a condition is true or false; this one is a int"},
		{"when: a clock", head + "rules: [{when: 'now() > timestamp(0)', profile: a}]\n", `there is no "now`},
		{"when: bad pattern", head + "rules: [{when: 'pr.base.matches(\"(\")', profile: a}]\n", "in the condition"},
		{"when: empty", head + "rules: [{label: x, when: '', profile: a}]\n", "in the condition"},
		{"when: too long", head + "rules: [{when: '" + strings.Repeat("true || ", 600) + "true', profile: a}]\n", "the condition has"},
		{"promotion of nothing", head + "promotion: {netwrok: {approvers: {role: write}, ttl: 1h}}\n", `(did you mean "network"?)`},
		{"promotion of no use", head + "promotion: {network: {approvers: {role: write}, ttl: 1h, uses: 0}}\n", "p:4:64: uses is 0, want 1 to 1000"},
		{"promotion by nobody", head + "promotion: {network: {approvers: {}, ttl: 1h}}\n", "nobody may approve network"},
		{"promotion by readers", head + "promotion: {network: {approvers: {role: read}, ttl: 1h}}\n", "approvers by role start at write"},
		{"promotion for ever", head + "promotion: {network: {approvers: {role: write}}}\n", "ttl is missing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse("p", []byte(c.in))
			if err == nil {
				t.Fatalf("accepted; want %s", c.want)
			}
			if _, ok := err.(Problems); !ok {
				t.Errorf("the error is a %T, want Problems", err)
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

func TestParseAllows(t *testing.T) {
	for _, c := range []struct{ name, in string }{
		{"least", "version: 1\nprofiles: {a: {image: ci}}\n"},
		{"JSON", `{"version": 1, "profiles": {"a": {"image": "ci"}}}`},
		{"document start", "---\nversion: 1\nprofiles: {a: {image: ci}}\n...\n"},
		{"a base without an image", "version: 1\nprofiles: {base: {env: {A: b}}, a: {extends: base, image: ci}}\n"},
		{"decimal cpu", inProfile("limits: {cpu: 0.5}")},
		{"longest duration form", inProfile("limits: {timeout: 1h30m10s, wait: 0s}")},
		{"loader variables", inProfile("env: {LD_PRELOAD: /workspace/x.so}")},
		{"denying the socket", inProfile("read_denied: [/var/run/docker.sock]")},
		{"two rules for one gateway", inProfile("network: {allow: [" +
			"{host: a.internal, mode: gateway, upstream: 'https://b.example.com', methods: [GET], paths: [/**]}," +
			"{host: a.internal, mode: gateway, upstream: 'https://b.example.com', methods: [POST], paths: [/v1]}]}")},
		{"labels and events as lists", "version: 1\nprofiles: {a: {image: ci}}\nrules: [{label: [x, y], event: [push, api], profile: a}]\n"},
		{"conditions", "version: 1\nprofiles: {a: {image: ci}}\nrules: [{when: 'paths.exists(p, p.startsWith(\"docs/\")) && !pr.draft', profile: a}]\n"},
		{"design's example", designExample},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := Parse("p", []byte(c.in)); err != nil {
				t.Error(err)
			}
		})
	}
}

// designExample is the policy of DESIGN §9.
const designExample = `version: 1
rev: p-2026-07
default: test
profiles:
  test:
    image: example/ci@` + digestA + `
    limits: {cpu: 2, memory: 4GiB, pids: 256, disk: 2GiB, home: 512MiB, tmp: 512MiB, shm: 64MiB, files: 200000, log: 64MiB, timeout: 15m, wait: 30m, cost_usd: 5}
    isolation: runc
    env: {CI: "1"}
    writable: [/workspace, /tmp]
    read_denied: [/var/run/secrets]
  claude:
    extends: test
    runtime: claude-code
    network:
      allow:
        - {host: model.internal, upstream: https://api.example.com, mode: gateway, api: anthropic-messages, methods: [POST], paths: [/v1/messages], inject: model-key}
        - {host: packages.example.com, port: 443, mode: opaque, upload: 1MiB, hold: 60s}
    secrets: {model-key: {ref: vault://ci/model-key@v7, deliver: inject, as: header, name: x-api-key}}
    outputs: {kind: pull_request, push: approved}
rules:
  - {label: "agent:claude", profile: claude, role: write}
  - {when: 'event.kind == "comment" && actor.role in ["admin", "maintain"]', profile: claude}
promotion:
  network: {approvers: {teams: [security]}, count: 1, ttl: 30m, uses: 1}
  output:  {approvers: {role: write}, count: 1, ttl: 72h}
`

func TestParseReportsEverything(t *testing.T) {
	_, err := Parse("p", []byte("version: 1\ndefalt: a\nprofiles:\n  a: {image: ci:1, limits: {memory: 4GB, cpu: x}}\n"))
	ps, ok := err.(Problems)
	if !ok || len(ps) != 3 {
		t.Fatalf("got %d problems, want 3: %v", len(ps), err)
	}
	for i, line := range []int{2, 4, 4} {
		if ps[i].Line != line {
			t.Errorf("problem %d stands on line %d, want %d: %v", i, ps[i].Line, line, ps[i])
		}
	}
}

// TestParseIsBounded feeds what makes naive readers explode.
func TestParseIsBounded(t *testing.T) {
	var bomb bytes.Buffer
	bomb.WriteString("a0: &a0 [x,x,x,x,x,x,x,x,x]\n")
	for i := 1; i < 12; i++ {
		fmt.Fprintf(&bomb, "a%d: &a%d [%s]\n", i, i, strings.Repeat(fmt.Sprintf("*a%d,", i-1), 9))
	}
	for name, in := range map[string]string{
		"aliases":     bomb.String(),
		"flow depth":  strings.Repeat("[", 9000),
		"keys":        strings.Repeat("? ", 5000),
		"many errors": "version: 1\nprofiles: {" + strings.Repeat("a-: {x: y}, ", 5000) + "}\n",
	} {
		_, err := Parse("p", []byte(in))
		if err == nil {
			t.Errorf("%s: accepted", name)
		}
		if ps := err.(Problems); len(ps) > maxProblems {
			t.Errorf("%s: %d problems reported, want %d at most", name, len(ps), maxProblems)
		}
	}
}

func TestParseCeiling(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"built in", builtinCeiling, ""},
		{"built in, local", builtinLocalCeiling, ""},
		{"least", "version: 1\n", ""},
		{"every key", "version: 1\ndefault: m\nprofiles: {m: {network: {allow: [{host: a.example.com, port: 443}]}, tools: [x], limits: {cpu: 1}, outputs: {push: never}}}\n" +
			"protected_refs: [release/1]\npromotable: [network]\nprivate: true\nallow_secrets: ['vault://ci/*']\nallow_workflows: [{job_workflow_ref: a/b/.github/workflows/c.yml@refs/heads/main, sha: " + strings.Repeat("c", 40) + "}]\nisolation_min: runsc\nci: trusted\n", ""},
		{"rules", "version: 1\nrules: []\n", `c:2:1: unknown key "rules": a ceiling chooses nothing`},
		{"image", "version: 1\nprofiles: {a: {image: ci}}\n", `unknown key "image"`},
		{"all", "version: 1\nprofiles: {a: {network: {allow: all}}}\n", `allow is a list, or the word any; "all" is neither (did you mean "any"?)`},
		{"private entry", "version: 1\nprofiles: {a: {network: {allow: [{host: a.b.example, port: 443, private: true}]}}}\n", "the ceiling's own private does not allow it"},
		{"private entry of a host that is not listed", "version: 1\nprivate: [c.b.example]\nprofiles: {a: {network: {allow: [{host: a.b.example, port: 443, private: true}]}}}\n", "the ceiling's own private does not allow it"},
		{"private entry of a listed host", "version: 1\nprivate: ['*.b.example']\nprofiles: {a: {network: {allow: [{host: a.b.example, port: 443, private: true}]}}}\n", ""},
		{"private of an address", "version: 1\nprivate: ['10.0.0.1']\n", "c:2:11: private is"},
		{"private in upper case", "version: 1\nprivate: [A.example]\n", "write a.example"},
		{"private of a word", "version: 1\nprivate: any\n", "private is true or false"},
		{"isolation", "version: 1\nisolation_min: docker\n", "isolation_min cannot be"},
		{"secret's value", "version: 1\nallow_secrets: [abc]\n", "allow_secrets is not a secret's reference"},
		{"workflow's sha", "version: 1\nallow_workflows: [{job_workflow_ref: x, sha: main}]\n", "sha is"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := ParseCeiling("c", []byte(c.in))
			if c.want == "" && err != nil {
				t.Error(err)
			}
			if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

// TestBuiltinAmounts holds the built-in ceilings' files to the numbers in code.
func TestBuiltinAmounts(t *testing.T) {
	c, err := ParseCeiling("c", BuiltinCeiling())
	if err != nil {
		t.Fatal(err)
	}
	p, err := Parse("p", BuiltinPolicy())
	if err != nil {
		t.Fatal(err)
	}
	top, own := c.maxima["max"].keys, p.profiles["sandbox"].keys
	for _, f := range limitFields {
		if v, ok := f.get(top.Limits); !ok || v != f.most {
			t.Errorf("builtin/ceiling.yml: %s is not %s", f.key, f.show(f.most))
		}
		if v, ok := f.get(own.Limits); f.key != "cost_usd" && (!ok || v != f.standard) {
			t.Errorf("builtin/policy.yml: %s is not %s", f.key, f.show(f.standard))
		}
	}
	if *top.Outputs.MaxFiles != topMaxFiles || *top.Outputs.MaxBytes != topMaxBytes {
		t.Error("builtin/ceiling.yml: outputs differ from the code")
	}
}

func TestJSONSchemaKnowsEveryKey(t *testing.T) {
	for name, data := range map[string][]byte{"policy": JSONSchema(), "ceiling": CeilingJSONSchema()} {
		var s struct {
			Properties map[string]any            `json:"properties"`
			Defs       map[string]map[string]any `json:"$defs"`
			Closed     *bool                     `json:"additionalProperties"`
			Required   []string                  `json:"required"`
		}
		if err := json.Unmarshal(data, &s); err != nil {
			t.Fatal(err)
		}
		if s.Closed == nil || *s.Closed {
			t.Errorf("%s: the schema lets unknown keys pass", name)
		}
		if !contains(s.Required, "version") {
			t.Errorf("%s: version is not required: %v", name, s.Required)
		}
		for def, d := range s.Defs {
			if d["type"] == "object" && d["additionalProperties"] == nil {
				t.Errorf("%s: %s lets unknown keys pass", name, def)
			}
		}
		text := string(data)
		for _, key := range []string{"profiles", "limits", "timeout", "protected_paths", "allow", "deny_body"} {
			if !strings.Contains(text, `"`+key+`"`) {
				t.Errorf("%s: the schema does not know %s", name, key)
			}
		}
	}
	if !strings.Contains(string(JSONSchema()), `"claude-code"`) {
		t.Error("the schema does not list the runtimes")
	}
}
