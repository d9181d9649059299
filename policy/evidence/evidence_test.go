package evidence

import (
	"bytes"
	"crypto/ed25519"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/countersign-dev/countersign/policy"
	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/policy/ledger"
)

func TestGoodBundle(t *testing.T) {
	r := newRun(t)
	fsys := r.write()
	_, public := testKey(t, 1)
	_, other := testKey(t, 2)
	id, _ := ledger.KeyID(public)
	for _, c := range []struct {
		trusted []ed25519.PublicKey
		verdict Verdict
		summary string
	}{
		{[]ed25519.PublicKey{public}, Verified, "verified: signed by " + id},
		{[]ed25519.PublicKey{other, public}, Verified, "verified: signed by " + id},
		{nil, Consistent, "consistent, signer unknown: give the signer's public key with --key"},
	} {
		got := Verify(fsys, c.trusted)
		if got.Verdict != c.verdict || got.Summary != c.summary || !got.OK() {
			t.Errorf("%d keys: %s (%s); failed: %+v", len(c.trusted), got.Verdict, got.Summary, got.Failures())
		}
		if got.RunID != testRun || got.KeyID != id || got.Contract != r.sealed(0).Digest() {
			t.Errorf("report names run %s, key %s, contract %s", got.RunID, got.KeyID, got.Contract)
		}
	}
}

func TestForeignKey(t *testing.T) {
	_, other := testKey(t, 2)
	got := Verify(newRun(t).write(), []ed25519.PublicKey{other})
	if got.Verdict != Failed || failures(got) != "signature" || !strings.Contains(got.Failures()[0].Detail, "signed by another key") {
		t.Errorf("%s: %+v", got.Verdict, got.Failures())
	}
}

// TestSignerFileMustBeTheSigner: a trusted key signed, but the bundle names
// another as its own.
func TestSignerFileMustBeTheSigner(t *testing.T) {
	r := newRun(t)
	_, other := testKey(t, 2)
	r.files[ledger.FileSigner], _ = ledger.EncodePublicKey(other)
	_, public := testKey(t, 1)
	if got := Verify(r.write(), []ed25519.PublicKey{public}); got.Verdict != Failed || failures(got) != "signer" {
		t.Errorf("%s: %+v", got.Verdict, got.Failures())
	}
}

// TestEveryFileIsGuarded flips one bit at many places of every file, cuts it,
// makes it longer, empties it and removes it.
func TestEveryFileIsGuarded(t *testing.T) {
	good := newRun(t).write()
	_, public := testKey(t, 1)
	for name, file := range good {
		line := "file " + name
		switch name {
		case ledger.FileEvidence:
			line = "signature"
		case ledger.FileSigner:
			line = "" // may stop at its own line
		}
		spoil := func(what string, data []byte) {
			bad := clone(good)
			bad[name].Data = data
			got := Verify(bad, []ed25519.PublicKey{public})
			if got.Verdict != Failed {
				t.Fatalf("%s, %s: %s", name, what, got.Verdict)
			}
			if !strings.Contains(failures(got), line) {
				t.Fatalf("%s, %s: %q is not among the lines that failed: %s", name, what, line, failures(got))
			}
		}
		step := max(1, len(file.Data)/24)
		for i := 0; i < len(file.Data); i += step {
			data := bytes.Clone(file.Data)
			data[i] ^= 1 << (i % 8)
			spoil("a flipped bit", data)
		}
		if n := len(file.Data); n > 0 {
			spoil("cut", file.Data[:n-1])
			spoil("emptied", nil)
		}
		spoil("longer", append(bytes.Clone(file.Data), '\n'))
	}
}

func TestEveryFileIsNeeded(t *testing.T) {
	good := newRun(t).write()
	for name := range good {
		bad := clone(good)
		delete(bad, name)
		got := Verify(bad, nil)
		switch {
		case name == ledger.FileEvidence:
			if got.Verdict != Incomplete || got.OK() {
				t.Errorf("without %s: %s", name, got.Verdict)
			}
		case name == ledger.FileSigner:
			if got.Verdict != Failed || failures(got) != "signer.pem" {
				t.Errorf("without %s: %s, failed: %s", name, got.Verdict, failures(got))
			}
		case got.Verdict != Failed || !strings.Contains(failures(got), "file "+name):
			t.Errorf("without %s: %s, failed: %s", name, got.Verdict, failures(got))
		}
	}
}

func TestAddedFiles(t *testing.T) {
	good := newRun(t).write()
	for _, name := range []string{"x", "contracts/2.json", "inputs/extra", "promotions/" + strings.Repeat("a", 64) + ".json", "a/b/c/d", "evidence.json.bak"} {
		bad := clone(good)
		bad[name] = &fstest.MapFile{Data: []byte("{}")}
		if got := Verify(bad, nil); got.Verdict != Failed || failures(got) != "file "+name {
			t.Errorf("%s added: %s, failed: %s", name, got.Verdict, failures(got))
		}
	}
	for name, mode := range map[string]fs.FileMode{"link": fs.ModeSymlink, "pipe": fs.ModeNamedPipe, ledger.FileOutput: fs.ModeSymlink} {
		bad := clone(good)
		bad[name] = &fstest.MapFile{Data: []byte("/etc/passwd"), Mode: mode | 0o777}
		if got := Verify(bad, nil); got.Verdict != Failed || failures(got) != "bundle" {
			t.Errorf("%s as %v: %s, failed: %s", name, mode, got.Verdict, failures(got))
		}
	}
}

func TestAddedDirectories(t *testing.T) {
	good := newRun(t).write()
	for _, name := range []string{"empty", "inputs/empty", "promotions", "a\x1b[2J"} {
		bad := clone(good)
		bad[name] = &fstest.MapFile{Mode: fs.ModeDir | 0o755}
		if got := Verify(bad, nil); got.Verdict != Failed || failures(got) != "directory "+contract.Escape(name) {
			t.Errorf("%q added: %s, failed: %s", name, got.Verdict, failures(got))
		}
	}
	bad := clone(good)
	bad["a/b/c"] = &fstest.MapFile{Mode: fs.ModeDir | 0o755}
	if got := Verify(bad, nil); failures(got) != "directory a" {
		t.Errorf("nested ones: failed: %s", failures(got))
	}
}

// TestLedgerLines changes lines and then signs the bundle again as it is, with
// the right key, so that the chain itself must tell.
func TestLedgerLines(t *testing.T) {
	good := newRun(t).write()
	lines := strings.SplitAfter(string(good[ledger.FileLedger].Data), "\n")
	lines = lines[:len(lines)-1]
	at := func(order ...int) string {
		var b strings.Builder
		for _, i := range order {
			b.WriteString(lines[i])
		}
		return b.String()
	}
	for _, c := range []struct{ name, text, line, detail string }{
		{"removed", at(0, 1, 3, 4, 5), "ledger chain", "line 3: seq is 4"},
		{"first removed", at(1, 2, 3, 4, 5), "ledger chain", "line 1: seq is 2"},
		{"swapped", at(0, 2, 1, 3, 4, 5), "ledger chain", "line 2: seq is 3"},
		{"duplicated", at(0, 1, 1, 2, 3, 4, 5), "ledger chain", "line 3: seq is 2"},
		{"added", at(0, 1, 2, 3, 4, 5, 0), "ledger chain", "line 7: seq is 1"},
		{"last removed", at(0, 1, 2, 3, 4), "ledger head", ""},
		{"changed", strings.Replace(at(0, 1, 2, 3, 4, 5), `"uid":100000`, `"uid":100001`, 1), "ledger chain", "line 3: prev"},
		{"cut in a line", at(0, 1, 2, 3, 4, 5)[:100], "ledger chain", "line 1: the line is cut off"},
		{"cut newline", strings.TrimSuffix(at(0, 1, 2, 3, 4, 5), "\n"), "ledger chain", "line 6: the line is cut off"},
		{"empty", "", "ledger head", ""},
	} {
		bad := clone(good)
		bad[ledger.FileLedger].Data = []byte(c.text)
		resign(t, bad, func(*ledger.Predicate) {})
		got := Verify(bad, nil)
		if got.Verdict != Failed || failures(got) != c.line || !strings.Contains(got.Failures()[0].Detail, c.detail) {
			t.Errorf("%s: %s, failed: %+v; want %s: …%s…", c.name, got.Verdict, got.Failures(), c.line, c.detail)
		}
	}
}

// resign signs what is there again, with the key of newRun.
func resign(t *testing.T, fsys fstest.MapFS, change func(*ledger.Predicate)) {
	t.Helper()
	key, public := testKey(t, 1)
	s, _, err := ledger.OpenEnvelope(fsys[ledger.FileEvidence].Data, []ed25519.PublicKey{public})
	if err != nil {
		t.Fatal(err)
	}
	if s.Predicate.Files, err = ledger.FilesOf(fsys); err != nil {
		t.Fatal(err)
	}
	change(&s.Predicate)
	fsys[ledger.FileEvidence].Data = sign(t, s.Predicate, key)
}

// TestLies are bundles that the right key signed and that say what does not
// follow from the rest of them.
func TestLies(t *testing.T) {
	one, three := 1, 3
	for _, c := range []struct {
		name string
		lie  func(*run)
		line string
	}{
		{"a contract that the inputs do not derive", func(r *run) { r.contracts[0].Limits.MemoryMB *= 2; r.spec = specOf(r.contracts[0]) }, "derivation"},
		{"another command", func(r *run) { r.contracts[0].Argv = []string{"make", "deploy"} }, "derivation"},
		{"a variable that no policy sets", func(r *run) { r.contracts[0].Env["LD_PRELOAD"] = "/x" }, "derivation"},
		{"another policy", func(r *run) { r.policy = bytes.Replace(r.policy, []byte("256"), []byte("512"), 1) }, "derivation"},
		{"another ceiling", func(r *run) { r.ceiling = append(r.ceiling, "# x\n"...) }, "derivation"},
		{"a policy that does not parse", func(r *run) { r.policy = []byte("version: 2\n") }, "derivation"},
		{"another task", func(r *run) { r.task.Argv = []string{"true"} }, "task of the snapshot"},
		{"another snapshot", func(r *run) { r.snapshot.Dirty = true }, "contract 1"},
		{"no contract, though one follows", func(r *run) { r.contracts, r.spec, r.exit = nil, nil, refused("x") }, "derivation"},
		{"another image", func(r *run) { r.spec.Image = digest("9") }, "spec and contract"},
		{"more memory", func(r *run) { r.spec.MemoryBytes++ }, "spec and contract"},
		{"more processes", func(r *run) { r.spec.Pids = 0 }, "spec and contract"},
		{"root", func(r *run) { r.spec.UID = 0 }, "spec and contract"},
		{"another isolation", func(r *run) { r.spec.Isolation = contract.IsolationRunsc }, "spec and contract"},
		{"another program as init", func(r *run) { r.spec.Entrypoint[0] = "/bin/sh" }, "spec and contract"},
		{"a sandbox that waited, in another's name", func(r *run) { r.records = r.taken("warm_x") }, "spec and contract"},
		{"a sandbox that waited, and no word of it", func(r *run) { r.spec.Labels["countersign.sandbox"] = "warm_x" }, "spec and contract"},
		{"a sandbox that waited, of another spec", func(r *run) {
			r.spec.Labels["countersign.sandbox"] = "warm_x"
			r.records = r.taken("warm_x")
			r.spec.Seccomp = digest("6")
			r.state = func(p *ledger.Predicate) { p.Engine.SeccompDigest = digest("6") }
		}, "ledger between"},
		{"another run's container", func(r *run) { r.spec.Labels["countersign.sandbox"] = "run_x" }, "spec and contract"},
		{"the engine's socket", func(r *run) {
			r.spec.Mounts = append(r.spec.Mounts, mount{Kind: "bind", Target: "/var/run/docker.sock"})
		}, "spec and roots"},
		{"a writable bind", func(r *run) { r.spec.Mounts[0].ReadOnly = false }, "spec and roots"},
		{"a larger workspace", func(r *run) { r.spec.Mounts[2].Bytes *= 2 }, "spec and roots"},
		{"more files", func(r *run) { r.spec.Mounts[2].Inodes = 0 }, "spec and roots"},
		{"a volume elsewhere", func(r *run) { r.spec.Mounts[2].Target = "/etc" }, "spec and roots"},
		{"a mount over another", func(r *run) { r.spec.Mounts = append(r.spec.Mounts, r.spec.Mounts[4]) }, "spec and roots"},
		{"a denied path in view", func(r *run) { r.spec.MaskedPaths = nil }, "spec and denied paths"},
		{"a spec of another schema", func(r *run) { r.spec.Schema = "other/v1" }, "spec"},
		{"mounts hidden in the statement", func(r *run) { r.state = func(p *ledger.Predicate) { p.Mounts = p.Mounts[:1] } }, "spec and statement"},
		{"seccomp hidden in the statement", func(r *run) { r.state = func(p *ledger.Predicate) { p.Engine.SeccompDigest = digest("6") } }, "spec and statement"},
		{"another image in the statement", func(r *run) { r.state = func(p *ledger.Predicate) { p.Image.Digest = digest("9") } }, "contract 1"},
		{"another tenant in the statement", func(r *run) { r.state = func(p *ledger.Predicate) { p.Tenant = 9 } }, "ledger run, contract 1"},
		{"another contract in the statement", func(r *run) { r.state = func(p *ledger.Predicate) { p.Contracts[0] = digest("9") } }, "ledger begins, contract 1"},
		{"another run in the statement", func(r *run) { r.state = func(p *ledger.Predicate) { p.RunID = "run_01kb7v2q8tn4yfpm6s0ehr3wxe" } }, "ledger run, task run"},
		{"another task in the statement", func(r *run) { r.state = func(p *ledger.Predicate) { p.Task = digest("9") } }, "task digest"},
		{"a failure called a success", func(r *run) {
			r.state = func(p *ledger.Predicate) { p.Exit.State, p.Exit.ExitCode = contract.StateFailed, 1 }
		}, "ledger ends, outcome"},
		{"completed with another status", func(r *run) { r.exit.ExitCode, r.exit.WorkloadExit = 3, &three }, "ledger between, outcome"},
		{"the engine saw another status", func(r *run) { r.exit.State, r.exit.ExitCode, r.exit.WorkloadExit = contract.StateFailed, 1, &one }, "ledger between"},
		{"no such state", func(r *run) { r.exit.State = "fine" }, "outcome"},
		{"a wrong canary and a good end", func(r *run) { r.state = func(p *ledger.Predicate) { p.Canaries[1].OK = false } }, "outcome and canaries"},
		{"no canary before", func(r *run) { r.state = func(p *ledger.Predicate) { p.Canaries = p.Canaries[1:] } }, "outcome and canaries"},
		{"no canary after", func(r *run) { r.state = func(p *ledger.Predicate) { p.Canaries = p.Canaries[:1] } }, "outcome and canaries"},
		{"a workload without a container", func(r *run) { r.spec = nil; r.state = func(p *ledger.Predicate) { p.Canaries = passed() } }, "outcome and sandbox"},
		{"bytes that left without a way out", func(r *run) { r.state = func(p *ledger.Predicate) { p.Egress.BytesOut = 1 } }, "egress and statement"},
		{"a smaller patch", func(r *run) { r.state = func(p *ledger.Predicate) { p.Patch.Bytes = 1 } }, "size of the patch"},
		{"a smaller output", func(r *run) { r.state = func(p *ledger.Predicate) { p.Output.Bytes = 1 } }, "size of the output"},
		{"no admission in the ledger", func(r *run) { r.records = []record{{"x", empty()}, {ledger.TypeConcluded, r.exit}} }, "ledger begins"},
		{"no conclusion in the ledger", func(r *run) {
			r.records = []record{{ledger.TypeAdmitted, ledger.Admitted{Contract: r.sealed(0).Digest()}}, {"x", empty()}}
		}, "ledger ends"},
		{"another spec in the ledger", func(r *run) { r.records = r.withRecord(ledger.TypeCreating, map[string]any{"spec": digest("9")}) }, "ledger between"},
		{"another patch in the ledger", func(r *run) { r.records = r.withRecord(ledger.TypeCaptured, map[string]any{"patch": digest("9")}) }, "ledger between"},
		{"a promotion", func(r *run) { r.files["promotions/"+strings.Repeat("a", 64)+".json"] = []byte("{}") }, "layout"},
		{"a decision", func(r *run) { r.files["decisions/"+strings.Repeat("a", 64)+".json"] = []byte("{}") }, "layout"},
		{"a promotion in the statement", func(r *run) {
			r.state = func(p *ledger.Predicate) {
				p.Promotions = []contract.PromotionRef{{Digest: digest("a"), Kind: contract.KindNetwork, State: contract.PromotionUsed}}
			}
		}, "layout"},
		{"a file that no bundle has", func(r *run) { r.files["notes.txt"] = nil }, "layout"},
		{"a second contract", func(r *run) {
			next := r.contracts[0]
			next.Revision, next.Parent, next.Limits.MemoryMB = 2, r.sealed(0).Digest(), next.Limits.MemoryMB*2
			r.contracts = append(r.contracts, next)
			r.spec = specOf(next)
		}, "promotion of contract 2"},
		{"a second contract of another parent", func(r *run) {
			next := r.contracts[0]
			next.Revision, next.Parent = 2, digest("9")
			r.contracts = append(r.contracts, next)
		}, "parent of contract 2"},
		{"a container after the contract's end", func(r *run) {
			r.snapshot.Time = "2026-11-29T01:00:00Z"
			r.derive()
		}, "contract in time"},
		{"a workspace that the policy does not let be written", func(r *run) {
			r.policy = bytes.Replace(r.policy, []byte("    env:"), []byte("    writable: [/tmp]\n    env:"), 1)
			r.snapshot.Policy = contract.Source{Status: contract.SourceFound, Ref: "file", Digest: contract.DigestBytes(r.policy)}
			r.derive()
		}, "spec and roots"},
		{"an image that the snapshot saw under another id", func(r *run) {
			r.pinned()
			r.spec.Image = digest("9")
		}, "spec and contract"},
		{"refused for another reason", func(r *run) {
			delete(r.snapshot.Images, policy.BuiltinImage)
			r.contracts, r.spec, r.exit = nil, nil, refused("it was late")
		}, "derivation"},
		{"a task in another spelling", func(r *run) {
			text := append(r.encoded(r.task), '\n')
			r.files[ledger.FileTask] = text
			r.snapshot.TaskDigest = contract.DigestBytes(text)
			r.state = func(p *ledger.Predicate) { p.Task = contract.DigestBytes(text) }
		}, "task"},
		{"another signer.pem", func(r *run) {
			_, other := testKey(r.t, 2)
			r.files[ledger.FileSigner], _ = ledger.EncodePublicKey(other)
		}, "signature"},
	} {
		r := newRun(t)
		c.lie(r)
		got := Verify(r.write(), nil)
		if got.Verdict != Failed || failures(got) != c.line {
			t.Errorf("%s: %s, failed: %+v; want %s", c.name, got.Verdict, got.Failures(), c.line)
		}
	}
}

func empty() map[string]any { return map[string]any{} }

func passed() []ledger.Canary {
	return []ledger.Canary{{Stage: "before", OK: true}, {Stage: "after", OK: true}}
}

// withRecord is the usual ledger with one record in another's place.
func (r *run) withRecord(typ string, data any) []record {
	p := ledger.Predicate{Contracts: []string{r.sealed(0).Digest()}, Exit: r.exit, Spec: contract.DigestBytes(r.encoded(*r.spec))}
	records := r.usualRecords(&p)
	i := slices.IndexFunc(records, func(rec record) bool { return rec.typ == typ })
	records[i].data = data
	return records
}

// taken are the usual records of a run in a sandbox that was made before it.
func (r *run) taken(sandbox string) []record {
	records := r.withRecord(ledger.TypeCreating, nil)
	i := slices.IndexFunc(records, func(rec record) bool { return rec.typ == ledger.TypeCreating })
	records[i] = record{ledger.TypeTaken, map[string]any{"spec": contract.DigestBytes(r.encoded(*r.spec)), "sandbox": sandbox}}
	return records
}

func TestSandboxThatWaited(t *testing.T) {
	r := newRun(t)
	r.spec.Labels["countersign.sandbox"] = "warm_x"
	r.records = r.taken("warm_x")
	if got := Verify(r.write(), nil); !got.OK() {
		t.Errorf("%s: %s", got.Verdict, failures(got))
	}
}

func refused(why string) ledger.Exit {
	return ledger.Exit{State: contract.StateRefused, ExitCode: contract.ExitRefused, Reason: "refused: " + why}
}

// pinned has the policy name its image by manifest digest.
func (r *run) pinned() {
	ref := "ci.example.com/team/ci@" + digest("8")
	r.policy = bytes.Replace(r.policy, []byte(policy.BuiltinImage), []byte(ref), 1)
	r.snapshot.Policy = contract.Source{Status: contract.SourceFound, Ref: "file", Digest: contract.DigestBytes(r.policy)}
	r.snapshot.Images = map[string]contract.ImageFact{ref: {ID: digest("4"), RepoDigests: []string{"ci.example.com/team/ci@" + digest("8")}, Platform: "linux/amd64"}}
	r.derive()
	r.spec.Image = digest("4")
}

// TestOtherEndings are bundles of runs that did not complete and verify.
func TestOtherEndings(t *testing.T) {
	two := 2
	for _, c := range []struct {
		name string
		make func(*run)
	}{
		{"failed", func(r *run) {
			r.exit = ledger.Exit{State: contract.StateFailed, ExitCode: 2, WorkloadExit: &two, Reason: "exit: the workload exited with 2"}
			r.records = r.withRecord(ledger.TypeExited, map[string]any{"code": 2})
		}},
		{"an image pinned by its manifest", (*run).pinned},
		{"refused under a contract", func(r *run) { r.spec, r.exit, r.patch = nil, refused("egress is not built yet"), nil }},
		{"refused without a contract", func(r *run) {
			delete(r.snapshot.Images, policy.BuiltinImage)
			r.contracts, r.spec, r.patch = nil, nil, nil
			r.exit = refused("image_missing: the image countersign/sandbox:latest is not on this machine: run make sandbox-image")
		}},
		{"canary", func(r *run) {
			r.exit = ledger.Exit{State: contract.StateFailClosed, ExitCode: contract.ExitFailClosed, Reason: "canary: \x1b[2J"}
			r.state = func(p *ledger.Predicate) { p.Canaries = []ledger.Canary{{Stage: "before", Name: "x", Got: "ok"}} }
		}},
	} {
		r := newRun(t)
		c.make(r)
		if got := Verify(r.write(), nil); got.Verdict != Consistent {
			t.Errorf("%s: %s, failed: %+v", c.name, got.Verdict, got.Failures())
		}
	}
}

func TestIncomplete(t *testing.T) {
	good := newRun(t).write()
	delete(good, ledger.FileEvidence)
	text := good[ledger.FileLedger].Data
	for _, c := range []struct {
		name   string
		ledger []byte
		want   string
	}{
		{"before signing", text, "its ledger got to record 6, run.concluded at 2026-11-29T12:00:00.000Z"},
		{"in the middle of a line", text[:len(text)-20], "its ledger got to record 5, sandbox.exited"},
		{"at once", []byte{}, "its ledger is empty"},
		{"before the ledger", nil, "and no ledger"},
	} {
		bad := clone(good)
		bad[ledger.FileLedger].Data = c.ledger
		if c.ledger == nil {
			delete(bad, ledger.FileLedger)
		}
		got := Verify(bad, nil)
		if got.Verdict != Incomplete || got.OK() || !strings.Contains(got.Summary, c.want) {
			t.Errorf("%s: %s: %s; want …%s…", c.name, got.Verdict, got.Summary, c.want)
		}
	}
	if got := Verify(fstest.MapFS{}, nil); got.Verdict != Incomplete || got.OK() {
		t.Errorf("an empty directory: %s", got.Verdict)
	}
}

func TestReportIsPrintable(t *testing.T) {
	hostile := "x\x1b]0;title\a\u202e\n"
	r := newRun(t)
	r.exit.Reason = hostile
	fsys := r.write()
	fsys[hostile] = &fstest.MapFile{}
	got := Verify(fsys, nil)
	if !strings.Contains(failures(got), `file x\x1b]0;title\a\u202e\n`) {
		t.Errorf("failed: %s", failures(got))
	}
	for _, l := range got.Lines {
		if !contract.Printable(l.Name + l.Detail) {
			t.Errorf("%q does not print", l.Name+l.Detail)
		}
	}
}

// FuzzVerify: no envelope and no ledger makes the verifier panic, or verify.
func FuzzVerify(f *testing.F) {
	f.Add([]byte("{}"), []byte("{}\n"), []byte("{}"))
	f.Add([]byte(`{"payload":"e30=","payloadType":"application/vnd.in-toto+json","signatures":[{"keyid":"","sig":""}]}`), []byte(""), []byte("null"))
	f.Fuzz(func(t *testing.T, envelope, chain, sealed []byte) {
		fsys := fstest.MapFS{
			ledger.FileEvidence: {Data: envelope}, ledger.FileLedger: {Data: chain}, "contracts/1.json": {Data: sealed},
		}
		if got := Verify(fsys, nil); got.OK() || len(got.Lines) == 0 {
			t.Errorf("%+v", got)
		}
	})
}
