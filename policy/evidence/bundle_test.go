package evidence

import (
	"bytes"
	"crypto/ed25519"
	"maps"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/countersign-dev/countersign/policy"
	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/policy/ledger"
)

const testRun = "run_01kb7v2q8tn4yfpm6s0ehr3wxd"

func digest(c string) string { return "sha256:" + strings.Repeat(c, 64) }
func object(c string) string { return strings.Repeat(c, 40) }

func noon() time.Time { return time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC) }

func testKey(t *testing.T, fill byte) (ed25519.PrivateKey, ed25519.PublicKey) {
	t.Helper()
	key, err := ledger.GenerateKey(bytes.NewReader(bytes.Repeat([]byte{fill}, 32)))
	if err != nil {
		t.Fatal(err)
	}
	return key, key.Public().(ed25519.PublicKey)
}

// run is a bundle while a test makes it; every field may be changed before
// write signs it.
type run struct {
	t         *testing.T
	key       ed25519.PrivateKey
	task      contract.Task
	snapshot  contract.Snapshot
	policy    []byte
	ceiling   []byte
	contracts []contract.Contract
	spec      *spec
	exit      ledger.Exit
	records   []record
	wayOut    []record // of the way out, among the usual ones
	patch     []byte
	// state changes the predicate last of all; files adds to the bundle.
	state func(*ledger.Predicate)
	files map[string][]byte
}

type record struct {
	typ  string
	data any
}

// newRun is a run of the built-in policy that completed.
func newRun(t *testing.T) *run {
	t.Helper()
	key, _ := testKey(t, 1)
	r := &run{t: t, key: key, policy: policy.BuiltinPolicy(), ceiling: policy.BuiltinLocalCeiling(), files: map[string][]byte{}, patch: []byte("diff --git a/x b/x\n")}
	zero := 0
	r.exit = ledger.Exit{State: contract.StateCompleted, WorkloadExit: &zero, Reason: "exit: the workload exited with 0"}
	r.task = contract.Task{
		Schema: contract.SchemaTask, RunID: testRun, Event: contract.Event{Kind: contract.EventLocal},
		Repo: contract.Repo{FullName: "local/api"}, Base: contract.Ref{Ref: "main", SHA: object("a")}, Head: contract.Head{SHA: object("b")},
		Start: contract.Start{SHA: object("b")}, Actor: contract.Person{Login: "local", Role: contract.RoleLocal}, Argv: []string{"make", "test"},
	}
	r.snapshot = contract.Snapshot{
		Schema: contract.SchemaSnapshot, Time: contract.FormatTime(noon()), TaskDigest: contract.DigestBytes(r.encoded(r.task)),
		Policy:  contract.Source{Status: contract.SourceBuiltin, Ref: "builtin", Digest: contract.DigestBytes(r.policy)},
		Ceiling: contract.Source{Status: contract.SourceBuiltin, Ref: "builtin", Digest: contract.DigestBytes(r.ceiling)},
		Images:  map[string]contract.ImageFact{policy.BuiltinImage: {ID: digest("4"), Platform: "linux/amd64"}},
	}
	r.derive()
	return r
}

// encoded is a document's canonical encoding.
func (r *run) encoded(d any) []byte {
	r.t.Helper()
	var out []byte
	var err error
	switch d := d.(type) {
	case contract.Task:
		out, err = contract.Encode(d)
	case contract.Snapshot:
		out, err = contract.Encode(d)
	default:
		out, err = contract.EncodeCanonical(d)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

// derive fills what follows from the inputs: contract, spec, records.
func (r *run) derive() {
	r.t.Helper()
	p, err := policy.Parse("policy", r.policy)
	if err != nil {
		r.t.Fatal(err)
	}
	c, err := policy.ParseCeiling("ceiling", r.ceiling)
	if err != nil {
		r.t.Fatal(err)
	}
	d := policy.Derive(policy.Input{Task: r.task, Snapshot: r.snapshot, Policy: p, Ceiling: c})
	if d.Refusal != nil {
		r.t.Fatal(d.Refusal)
	}
	r.contracts = []contract.Contract{d.Contract}
	r.spec = specOf(d.Contract)
}

// specOf orders what the runner orders for a contract.
func specOf(c contract.Contract) *spec {
	l := c.Limits
	return &spec{
		Schema: schemaSpec, Image: c.Image.Digest, Isolation: c.Isolation, UID: 100000, Workdir: c.Workdir,
		Entrypoint: []string{"/countersign/shim", "init"}, MaskedPaths: []string{"/proc/kcore", "/var/run/secrets"},
		Mounts: []mount{
			{Kind: "bind", Target: "/countersign", ReadOnly: true},
			{Kind: "bind", Target: "/run/countersign", ReadOnly: true},
			{Kind: "volume", Target: "/workspace", Bytes: l.DiskMB << 20, Inodes: l.Files},
			{Kind: "tmpfs", Target: "/home/agent", Bytes: l.HomeMB << 20, Inodes: 1000},
			{Kind: "tmpfs", Target: "/tmp", Bytes: l.TmpMB << 20, Inodes: 1000},
		},
		MemoryBytes: l.MemoryMB << 20, NanoCPUs: int64(l.CPU * 1e9), Pids: l.Pids, ShmBytes: l.ShmMB << 20,
		Seccomp: digest("5"), Labels: map[string]string{"countersign.sandbox": c.RunID},
	}
}

func (r *run) sealed(i int) contract.Sealed {
	r.t.Helper()
	s, err := contract.Seal(r.contracts[i])
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// write makes the bundle and signs it.
func (r *run) write() fstest.MapFS {
	r.t.Helper()
	public, err := ledger.EncodePublicKey(r.key.Public().(ed25519.PublicKey))
	if err != nil {
		r.t.Fatal(err)
	}
	p := ledger.Predicate{
		RunID: testRun, Task: contract.DigestBytes(r.encoded(r.task)), Snapshot: contract.DigestBytes(r.encoded(r.snapshot)),
		Exit: r.exit, Builder: ledger.Builder{Name: "countersign", Version: "test"},
		Patch: ledger.Patch{Files: 1, Bytes: int64(len(r.patch))}, Output: ledger.Output{Bytes: 3},
	}
	fsys := fstest.MapFS{}
	put := func(name string, data []byte) { fsys[name] = &fstest.MapFile{Data: data, Mode: 0o600} }
	put(ledger.FileTask, r.encoded(r.task))
	put(ledger.FileSnapshot, r.encoded(r.snapshot))
	put(ledger.FilePolicy, r.policy)
	put(ledger.FileCeiling, r.ceiling)
	put(ledger.FileSigner, public)
	put(ledger.FileOutput, []byte("ok\n"))
	put(ledger.FilePatch, r.patch)
	for i, c := range r.contracts {
		s := r.sealed(i)
		put(ledger.ContractFile(i+1), s.Bytes())
		p.Contracts = append(p.Contracts, s.Digest())
		p.Image, p.Policy = c.Image, c.Policy
	}
	if r.spec != nil {
		put(ledger.FileSpec, r.encoded(*r.spec))
		p.Spec = contract.DigestBytes(r.encoded(*r.spec))
		p.Engine.SeccompDigest = r.spec.Seccomp
		for _, m := range r.spec.Mounts {
			p.Mounts = append(p.Mounts, ledger.Mount(m))
		}
		p.Canaries = []ledger.Canary{{Stage: "before", Name: "dial", OK: true}, {Stage: "after", Name: "dial", OK: true}}
	}
	for name, data := range r.files {
		put(name, data)
	}
	put(ledger.FileLedger, r.ledger(&p))
	if p.Files, err = ledger.FilesOf(fsys); err != nil {
		r.t.Fatal(err)
	}
	if r.state != nil {
		r.state(&p)
	}
	put(ledger.FileEvidence, sign(r.t, p, r.key))
	return fsys
}

func (r *run) ledger(p *ledger.Predicate) []byte {
	r.t.Helper()
	var out bytes.Buffer
	w, err := ledger.NewWriter(ledger.Config{Out: &out, Now: noon, Run: testRun})
	if err != nil {
		r.t.Fatal(err)
	}
	records := r.records
	if records == nil {
		records = r.usualRecords(p)
	}
	for _, rec := range records {
		if _, err := w.Append(rec.typ, rec.data); err != nil {
			r.t.Fatal(err)
		}
	}
	p.Ledger = w.Head()
	return out.Bytes()
}

func (r *run) usualRecords(p *ledger.Predicate) []record {
	var out []record
	if len(p.Contracts) > 0 {
		out = append(out, record{ledger.TypeAdmitted, ledger.Admitted{Contract: p.Contracts[0], Level: r.contracts[0].Level, Revision: 1}})
	}
	if r.spec != nil {
		out = append(out,
			record{ledger.TypeCreating, map[string]any{"spec": p.Spec, "uid": 100000}})
		out = append(out, r.wayOut...)
		out = append(out,
			record{"workload.exited", map[string]any{"claimed": map[string]any{"code": 0}}},
			record{ledger.TypeCaptured, map[string]any{"patch": contract.DigestBytes(r.patch)}},
			record{ledger.TypeExited, map[string]any{"code": 0}})
	}
	return append(out, record{ledger.TypeConcluded, p.Exit})
}

func sign(t *testing.T, p ledger.Predicate, key ed25519.PrivateKey) []byte {
	t.Helper()
	s, err := ledger.NewStatement(p)
	if err != nil {
		t.Fatal(err)
	}
	out, err := ledger.Sign(s, key)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// clone copies a bundle, so that a test can spoil it.
func clone(fsys fstest.MapFS) fstest.MapFS {
	out := maps.Clone(fsys)
	for name, f := range out {
		c := *f
		c.Data = bytes.Clone(f.Data)
		out[name] = &c
	}
	return out
}

// failures are the names of the lines that do not hold.
func failures(r Report) string {
	var names []string
	for _, l := range r.Failures() {
		names = append(names, l.Name)
	}
	return strings.Join(names, ", ")
}
