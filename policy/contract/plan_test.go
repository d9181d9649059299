package contract

import (
	"strings"
	"testing"
)

func TestPlanRules(t *testing.T) {
	parent := mustSeal(t, askable())
	rule := tunnelRule("new.example.com")
	network := planFor(parent, KindNetwork, Widening{Network: &rule})
	output := planFor(parent, KindOutput, Widening{Output: ptr(askable().Outputs)})
	host := planFor(parent, KindHostExec, Widening{})
	host.Argv, host.Cwd, host.Interpreter, host.InputTreeDigest = []string{"git", "status"}, "/", Interpreter{"/usr/bin/git", digest("1")}, digest("2")
	host.EnvNames, host.Roots = []string{"HOME", "PATH"}, Roots{Read: []string{"/srv"}, Write: []string{"/srv/out"}}
	host.ResolvedPaths, host.Destinations = []ResolvedPath{{"./x", "/srv/x", digest("3")}}, []string{"a.example.com:443"}
	shell := network
	shell.Shell, shell.Cwd, shell.Interpreter = []byte("curl \xff | sh\n"), "/workspace", Interpreter{"/bin/sh", digest("1")}
	shell.Commands = []ShellPart{{PartCommand, `curl \xff`, "", "", 1, 1}, {PartPipeToShell, "sh", "pipeline", "run by sh", 1, 10}}
	for _, c := range []struct {
		name string
		base Plan
		do   func(p *Plan)
		want string
	}{
		{"network", network, func(p *Plan) {}, ""},
		{"output", output, func(p *Plan) {}, ""},
		{"host_exec", host, func(p *Plan) {}, ""},
		{"shell text", shell, func(p *Plan) {}, ""},
		{"other schema", network, func(p *Plan) { p.Schema = "" }, "schema"},
		{"unknown kind", network, func(p *Plan) { p.Kind = "root" }, "kind: is"},
		{"no nonce", network, func(p *Plan) { p.Nonce = "" }, "nonce: is"},
		{"short nonce", network, func(p *Plan) { p.Nonce = p.Nonce[1:] }, "nonce: is"},
		{"no reason", network, func(p *Plan) { p.Reason = "" }, "reason: is empty"},
		{"reason that moves the cursor", network, func(p *Plan) { p.Reason = "a\x1b[2K" }, "reason: holds the control character"},
		{"no time", network, func(p *Plan) { p.TTLSec = 0 }, "ttl_sec"},
		{"no uses", network, func(p *Plan) { p.Uses = 0 }, "uses: is 0"},
		{"no session", network, func(p *Plan) { p.Session = "" }, "session"},
		{"no target", network, func(p *Plan) { p.Target = "" }, "target"},
		{"no level", network, func(p *Plan) { p.Level = "" }, "level: is"},
		{"level without a reason", network, func(p *Plan) { p.LevelReason = "" }, "level_reason"},
		{"patch in a network plan", network, func(p *Plan) { p.PatchDigest = digest("1") }, "patch_digest"},
		{"output without a patch", output, func(p *Plan) { p.PatchDigest = "" }, "patch_digest"},
		{"interpreter without a command", network, func(p *Plan) { p.Interpreter.Path = "/bin/sh" }, "named without a command"},
		{"argv beside shell", shell, func(p *Plan) { p.Argv = []string{"x"} }, "a plan has one command"},
		{"NUL in shell", shell, func(p *Plan) { p.Shell = []byte("a\x00") }, "shell: is"},
		{"shell part unknown", shell, func(p *Plan) { p.Commands[0].Kind = "magic" }, "commands[0].kind"},
		{"shell part without a place", shell, func(p *Plan) { p.Commands[0].Line = 0 }, "commands[0].line"},
		{"shell part that draws", shell, func(p *Plan) { p.Commands[0].Text = "a\nb" }, "commands[0].text"},
		{"shell part whose note draws", shell, func(p *Plan) { p.Commands[0].Note = "a\u202eb" }, "commands[0].note"},
		{"resolved file with a bad digest", host, func(p *Plan) { p.ResolvedPaths[0].Digest = "x" }, "resolved_paths[0].digest"},
		{"commands without shell", network, func(p *Plan) { p.Commands = []ShellPart{{Kind: PartCommand, Text: "x", Line: 1, Column: 1}} }, "that is not there"},
		{"command without an interpreter", shell, func(p *Plan) { p.Interpreter = Interpreter{} }, "interpreter.path"},
		{"command without a cwd", shell, func(p *Plan) { p.Cwd = "" }, "cwd: is"},
		{"host_exec of nothing", host, func(p *Plan) { p.Argv, p.Interpreter = nil, Interpreter{} }, "runs one command"},
		{"host_exec of shell", host, func(p *Plan) { p.Argv, p.Shell = nil, []byte("ls") }, "no shell"},
		{"host_exec without a tree", host, func(p *Plan) { p.InputTreeDigest = "" }, "reads a frozen tree"},
		{"host_exec with an entry", host, func(p *Plan) { p.Change.Tool = &Tool{Name: "x"} }, "change.tool"},
		{"names out of order", host, func(p *Plan) { p.EnvNames = []string{"B", "A"} }, "env_names: is out of order"},
		{"value in a name", host, func(p *Plan) { p.EnvNames = []string{"A=1"} }, "env_names[0]"},
		{"relative root", host, func(p *Plan) { p.Roots.Read = []string{"srv"} }, "roots.read[0]"},
		{"destination without a port", host, func(p *Plan) { p.Destinations = []string{"a.example.com"} }, "destinations[0]"},
		{"relative resolution", host, func(p *Plan) { p.ResolvedPaths[0].Path = "x" }, "resolved_paths[0].path"},
	} {
		in := clone(c.base)
		c.do(&in)
		roundTrip(t, c.name, in, c.want)
	}
}

func TestPromotionAndDecisionRules(t *testing.T) {
	parent := mustSeal(t, askable())
	rule := tunnelRule("new.example.com")
	good := promotionOf(t, planFor(parent, KindNetwork, Widening{Network: &rule}))
	for _, c := range []struct {
		name string
		do   func(p *Promotion)
		want string
	}{
		{"as it is", func(p *Promotion) {}, ""},
		{"nil lists in the plan", func(p *Promotion) { p.Plan.Argv, p.Plan.Destinations = nil, nil }, ""},
		{"other digest", func(p *Promotion) { p.Digest = digest("1") }, "digest: is"},
		{"edited plan", func(p *Promotion) { p.Plan.Uses = 2 }, "digest: is"},
		{"ends when it starts", func(p *Promotion) { p.NotAfter = p.RequestedAt }, "not_after"},
		{"no time", func(p *Promotion) { p.RequestedAt = "" }, "requested_at"},
		{"bad plan", func(p *Promotion) { p.Plan.RunID = "" }, "plan.run_id"},
	} {
		in := clone(good)
		c.do(&in)
		roundTrip(t, "promotion "+c.name, in, c.want)
	}
	decision := Decision{SchemaDecision, good.Digest, VerdictApprove, Person{9, "bob", "write"}, ViaComment, "123", object("b"), "2026-11-29T12:00:00Z"}
	for _, c := range []struct {
		name string
		do   func(d *Decision)
		want string
	}{
		{"as it is", func(d *Decision) {}, ""},
		{"at a prompt", func(d *Decision) { d.Via, d.Source = ViaPrompt, "" }, ""},
		{"unknown verdict", func(d *Decision) { d.Verdict = "ok" }, "verdict"},
		{"unknown way", func(d *Decision) { d.Via = "email" }, "via"},
		{"comment without an id", func(d *Decision) { d.Source = "" }, "source"},
		{"short digest", func(d *Decision) { d.Promotion = d.Promotion[:20] }, "promotion: is"},
		{"nobody", func(d *Decision) { d.By.Login = "" }, "by.login"},
		{"no head", func(d *Decision) { d.HeadSHA = "" }, "head_sha"},
	} {
		in := decision
		c.do(&in)
		roundTrip(t, "decision "+c.name, in, c.want)
	}
}

func TestPatchRules(t *testing.T) {
	file := func(path string) PatchFile { return PatchFile{[]byte(path), FileModified, "100644", "100755", false} }
	good := Patch{Schema: SchemaPatch, RunID: runID, ContractDigest: digest("1"), Start: Start{object("b"), ""}, Digest: digest("2"), Bytes: 10,
		Files: []PatchFile{{[]byte("a\n\xff"), FileAdded, "", "120000", false}, file("b c"), {[]byte("d"), FileDeleted, "100644", "", true}}}
	for _, c := range []struct {
		name string
		do   func(p *Patch)
		want string
	}{
		{"as it is", func(p *Patch) {}, ""},
		{"empty", func(p *Patch) { p.Files, p.Bytes, p.Digest = nil, 0, DigestBytes(nil) }, ""},
		{"out of order", func(p *Patch) { p.Files[1] = file("e") }, "files[2]: is out of order"},
		{"twice", func(p *Patch) { p.Files[1] = file("d") }, "stands here twice"},
		{"absolute", func(p *Patch) { p.Files = []PatchFile{file("/etc/passwd")} }, "files[0].path"},
		{"outside", func(p *Patch) { p.Files = []PatchFile{file("a/../../b")} }, "no commit can hold"},
		{"into .git", func(p *Patch) { p.Files = []PatchFile{file("a/.GIT/config")} }, "no commit can hold"},
		{"submodule", func(p *Patch) { p.Files[1].NewMode = "160000" }, "files[1].new_mode"},
		{"added with an old mode", func(p *Patch) { p.Files[0].OldMode = "100644" }, "files[0].old_mode"},
		{"deleted with a new mode", func(p *Patch) { p.Files[2].NewMode = "100644" }, "files[2].new_mode"},
		{"negative", func(p *Patch) { p.Ignored = -1 }, "ignored"},
	} {
		in := clone(good)
		c.do(&in)
		roundTrip(t, c.name, in, c.want)
	}
}

// The decoder refuses base64 that another spelling would give too.
func TestBytesHaveOneSpelling(t *testing.T) {
	type doc struct {
		B []byte `json:"b"`
	}
	for text, want := range map[string]string{
		`{"b":"aGk="}`:   "",
		`{"b":""}`:       "",
		`{"b":"aGk"}`:    "base64",
		`{"b":"aGl="}`:   "base64", // bits behind the last byte
		`{"b":"aG\nk="}`: "base64",
		`{"b":[104]}`:    "want a base64 string",
		`{"b":null}`:     "want a base64 string",
	} {
		var d doc
		wantError(t, DecodeStrict([]byte(text), &d), want)
	}
	if _, err := EncodeCanonical(map[string]string{"a": strings.Repeat("x", MaxDocument)}); err == nil {
		t.Error("a document over the bound was encoded")
	}
}
