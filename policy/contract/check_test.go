package contract

import (
	"errors"
	"math"
	"strings"
	"testing"
)

func TestContractRules(t *testing.T) {
	type edit func(c *Contract)
	allow0 := func(do func(r *NetRule)) edit { return func(c *Contract) { do(&c.Network.Allow[0]) } }
	for _, c := range []struct {
		name string
		do   edit
		want string // "" for a contract that seals
	}{
		{"as it is", func(c *Contract) {}, ""},
		{"revision 0", func(c *Contract) { c.Revision = 0 }, "revision: is 0"},
		{"first revision with a parent", func(c *Contract) { c.Revision = 1 }, "parent: is"},
		{"later revision without a parent", func(c *Contract) { c.Parent = "" }, "parent: is"},
		{"run id", func(c *Contract) { c.RunID = "run_1" }, "run_id: is"},
		{"negative tenant", func(c *Contract) { c.Tenant = -1 }, "tenant: is -1"},
		{"no repository", func(c *Contract) { c.Repo = Repo{} }, "repo.full_name: is"},
		{"bare name with an id", func(c *Contract) { c.Repo.FullName = "api" }, "named OWNER/NAME"},
		{"short head", func(c *Contract) { c.Head.SHA = "abc" }, "head.sha: is"},
		{"no start", func(c *Contract) { c.Start.SHA = "" }, "start.sha: is"},
		{"pull request without a base", func(c *Contract) { c.Base = Ref{} }, "base: is incomplete"},
		{"no pull request, no base", func(c *Contract) { c.PullRequest, c.Base = 0, Ref{} }, ""},
		{"SHA-256 repository", func(c *Contract) { c.Head.SHA = strings.Repeat("a", 64) }, ""},
		{"labels out of order", func(c *Contract) { c.Labels = []string{"b", "a"} }, "labels[1]: is out of order"},
		{"label twice", func(c *Contract) { c.Labels = []string{"a", "a"} }, "stands here twice"},
		{"nobody asked", func(c *Contract) { c.RequestedBy = Person{} }, "requested_by.login: is empty"},
		{"no role", func(c *Contract) { c.RequestedBy.Role = "" }, "requested_by.role"},
		{"no policy digest", func(c *Contract) { c.Policy.Digest = "" }, "policy.digest"},
		{"no ceiling digest", func(c *Contract) { c.Policy.CeilingDigest = "" }, "policy.ceiling_digest"},
		{"unknown class", func(c *Contract) { c.ExecutionClass = "vm" }, "execution_class: is"},
		{"hardened under runc", func(c *Contract) { c.ExecutionClass = ClassHardenedSandbox }, "isolation: is"},
		{"workspace under runsc", func(c *Contract) { c.Isolation = IsolationRunsc }, "isolation: is"},
		{"hardened under runsc", func(c *Contract) { c.ExecutionClass, c.Isolation = ClassHardenedSandbox, IsolationRunsc }, ""},
		{"no isolation", func(c *Contract) { c.Isolation = "" }, "isolation: is"},
		{"prompt for a runtime", func(c *Contract) { c.Argv = nil }, ""},
		{"nothing to run", func(c *Contract) { c.Argv, c.PromptDigest = nil, "" }, "argv: is empty"},
		{"empty program", func(c *Contract) { c.Argv = []string{"", "x"} }, "argv[0]: is empty"},
		{"empty argument", func(c *Contract) { c.Argv = []string{"x", ""} }, ""},
		{"NUL in an argument", func(c *Contract) { c.Argv = []string{"x", "a\x00b"} }, "argv[1]: holds a NUL"},
		{"argument not UTF-8", func(c *Contract) { c.Argv = []string{"x", "\xff"} }, "argv[1]: is not UTF-8"},
		{"too many arguments", func(c *Contract) { c.Argv = make([]string, 5000) }, "has 5000 elements"},
		{"bad variable", func(c *Contract) { c.Env["A-B"] = "1" }, "env.A-B: is"},
		{"NUL in a variable", func(c *Contract) { c.Env["A"] = "\x00" }, "env.A: holds a NUL"},
		{"image by tag only is pinned by digest", func(c *Contract) { c.Image.Ref = "debian:12" }, ""},
		{"image without a digest", func(c *Contract) { c.Image.Digest = "" }, "image.digest"},
		{"reference pins another digest", func(c *Contract) { c.Image.Digest = digest("0") }, "the reference pins"},
		{"reference pins, kind image_id", func(c *Contract) { c.Image.DigestKind = DigestImageID }, "the reference pins"},
		{"image id", func(c *Contract) { c.Image = Image{digest("8"), digest("8"), DigestImageID} }, ""},
		{"image id, other digest", func(c *Contract) { c.Image = Image{digest("8"), digest("9"), DigestImageID} }, "is the image id"},
		{"image id, kind repo", func(c *Contract) { c.Image = Image{digest("8"), digest("8"), DigestRepo} }, "is the image id"},
		{"relative workdir", func(c *Contract) { c.Workdir = "workspace" }, "workdir: is"},
		{"workdir with dots", func(c *Contract) { c.Workdir = "/workspace/../etc" }, `write "/etc"`},
		{"root twice", func(c *Contract) { c.WritableRoots = append(c.WritableRoots, Root{Path: "/tmp"}) }, "writable_roots[5]: \"/tmp\" stands here twice"},
		{"root in a root", func(c *Contract) { c.WritableRoots = append(c.WritableRoots, Root{Path: "/tmp/x"}) }, "already inside"},
		{"roots that start alike", func(c *Contract) { c.WritableRoots = append(c.WritableRoots, Root{Path: "/tmp2"}) }, ""},
		{"more roots than anybody reads", func(c *Contract) { c.WritableRoots = make([]Root, 1001) }, "writable_roots: has 1001 entries"},
		{"more denied than anybody reads", func(c *Contract) { c.ReadDenied = make([]string, 1001) }, "read_denied: has 1001 entries"},
		{"more rules than anybody reads", func(c *Contract) { c.Network.Allow = make([]NetRule, 1001) }, "network.allow: has 1001 entries"},
		{"more tools than anybody reads", func(c *Contract) { c.Tools = make([]Tool, 1001) }, "tools: has 1001 entries"},
		{"root where nothing is read", func(c *Contract) { c.ReadDenied = []string{"/data"} }, "which read_denied hides"},
		{"denied below a root", func(c *Contract) { c.ReadDenied = []string{"/data/x"} }, ""},
		{"denied workdir", func(c *Contract) {
			c.ReadDenied, c.WritableRoots, c.Workdir = []string{"/srv"}, []Root{{Path: "/tmp"}}, "/srv/x"
		}, "hides the working directory"},
		{"root in proc", func(c *Contract) { c.WritableRoots[4].Path = "/proc/x" }, "writable_roots[4]: is"},
		{"docker socket", func(c *Contract) { c.WritableRoots[4].Path = "/srv/docker.sock" }, "a socket is never given"},
		{"grant without an end", func(c *Contract) { c.WritableRoots[4].Grant.NotAfter = "" }, "writable_roots[4].grant.not_after"},
		{"grant without a promotion", func(c *Contract) { c.Tools[0].Grant.Promotion = "" }, "tools[0].grant.promotion"},
		{"grant with negative uses", func(c *Contract) { c.Limits.Grant.Uses = -1 }, "limits.grant.uses"},

		{"rules in mode none", func(c *Contract) { c.Network.Mode = NetworkNone }, "has 3 rules in mode none"},
		{"unknown network mode", func(c *Contract) { c.Network.Mode = "open" }, "network.mode"},
		{"host in upper case", allow0(func(r *NetRule) { r.Host = "Model.internal" }), "write model.internal"},
		{"address as host", allow0(func(r *NetRule) { r.Host = "0x7f.1" }), "an address in some spelling"},
		{"the proxy's own name", allow0(func(r *NetRule) { r.Host = "canary.internal" }), "which the proxy answers itself"},
		{"port 0", allow0(func(r *NetRule) { r.Port = 0 }), "port: is 0"},
		{"unknown rule mode", allow0(func(r *NetRule) { r.Mode = "" }), "network.allow[0].mode"},
		{"no upload budget", allow0(func(r *NetRule) { r.UploadBytes = 0 }), "upload_bytes: is 0"},
		{"no methods", allow0(func(r *NetRule) { r.Methods = nil }), "which allows no request"},
		{"no paths", allow0(func(r *NetRule) { r.Paths = nil }), "which allows no request"},
		{"bad path", allow0(func(r *NetRule) { r.Paths = []string{"/a/../b"} }), "network.allow[0].paths[0]"},
		{"gateway outside .internal", allow0(func(r *NetRule) { r.Host = "model.example.com" }), "one name under .internal"},
		{"gateway wildcard", allow0(func(r *NetRule) { r.Host = "*.models.internal" }), "one name under .internal"},
		{"gateway without upstream", allow0(func(r *NetRule) { r.Upstream = "" }), "upstream: is"},
		{"gateway claims a tunnel's coverage", allow0(func(r *NetRule) { r.Coverage = CoverageTunnel }), "coverage: is"},
		{"inspect with upstream", allow0(func(r *NetRule) { r.Mode = RuleInspect }), "only a gateway has an upstream"},
		{"inspect", allow0(func(r *NetRule) { r.Mode, r.Upstream, r.Host = RuleInspect, "", "*.example.net" }), ""},
		{"credential of no secret", allow0(func(r *NetRule) { r.Inject.Secret = "other" }), "secret_refs does not name"},
		{"credential of a file secret", allow0(func(r *NetRule) { r.Inject.Secret = "token" }), "secret_refs does not name"},
		{"credential as host header", allow0(func(r *NetRule) { r.Inject.Name = "Host" }), "the proxy's own"},
		{"credential elsewhere", allow0(func(r *NetRule) { r.Inject.As = "query" }), "inject.as"},
		{"credential in a header without a name", allow0(func(r *NetRule) { r.Inject.Name = "" }), "inject.name"},
		{"bearer", allow0(func(r *NetRule) { r.Inject.As, r.Inject.Name = InjectBearer, "" }), ""},
		{"bearer in another header", allow0(func(r *NetRule) { r.Inject.As = InjectBearer }), "inject.name: is \"x-api-key\""},
		{"basic", allow0(func(r *NetRule) { r.Inject.As, r.Inject.Name = InjectBasic, "" }), ""},
		{"basic in another header", allow0(func(r *NetRule) { r.Inject.As = InjectBasic }), "inject.name: is \"x-api-key\""},
		{"methods in a tunnel", func(c *Contract) { c.Network.Allow[1].Methods = []string{"GET"} }, "cannot be enforced in an opaque tunnel"},
		{"credential in a tunnel", func(c *Contract) { c.Network.Allow[1].Inject = &Inject{"model-key", "header", "x"} }, "cannot be enforced"},
		{"tunnel claims enforcement", func(c *Contract) { c.Network.Allow[1].Coverage = CoverageEnforced }, "coverage: is"},
		{"two tunnels to one place", func(c *Contract) { c.Network.Allow[2].Host = "files.example.com" }, "is a second rule for the tunnel"},
		{"one host, two ports", func(c *Contract) { c.Network.Allow[2].Host, c.Network.Allow[2].Port = "files.example.com", 444 }, ""},
		{"second rule with other paths", func(c *Contract) {
			r := gatewayRule()
			r.Paths = []string{"/v1/models"}
			c.Network.Allow = append(c.Network.Allow, r)
		}, ""},
		{"second rule, same requests", func(c *Contract) { c.Network.Allow = append(c.Network.Allow, gatewayRule()) }, "with the same methods and paths"},
		{"second rule, other upstream", func(c *Contract) {
			r := gatewayRule()
			r.Paths, r.Upstream = []string{"/v1/models"}, "https://other.example.com:443"
			c.Network.Allow = append(c.Network.Allow, r)
		}, "with another mode, upstream"},

		{"secret value in place of a reference", func(c *Contract) { c.SecretRefs[1].Ref = "hunter2" }, "never the value"},
		{"secret twice", func(c *Contract) { c.SecretRefs[1].Name = "model-key" }, "stands here twice"},
		{"secret in the environment", func(c *Contract) { c.SecretRefs[1].Deliver = "env" }, "deliver: is"},
		{"tool twice", func(c *Contract) { c.Tools[1].Name = c.Tools[0].Name }, "stands here twice"},
		{"tool without a name", func(c *Contract) { c.Tools[1].Name = "" }, "tools[1]: is empty"},

		{"no CPU", func(c *Contract) { c.Limits.CPU = 0 }, "limits.cpu: is 0"},
		{"least CPU", func(c *Contract) { c.Limits.CPU = 0.01 }, ""},
		{"CPU not a number", func(c *Contract) { c.Limits.CPU = math.NaN() }, "limits.cpu"},
		{"CPU infinite", func(c *Contract) { c.Limits.CPU = math.Inf(1) }, "limits.cpu"},
		{"no memory", func(c *Contract) { c.Limits.MemoryMB = 0 }, "limits.memory_mb"},
		{"memory that overflows bytes", func(c *Contract) { c.Limits.MemoryMB = 1 << 43 }, "limits.memory_mb"},
		{"memory below disk", func(c *Contract) { c.Limits.MemoryMB = 64 }, ""},
		{"disk without bound", func(c *Contract) { c.Limits.DiskMB = 0 }, "limits.disk_mb"},
		{"home without bound", func(c *Contract) { c.Limits.HomeMB = 0 }, "limits.home_mb"},
		{"tmp without bound", func(c *Contract) { c.Limits.TmpMB = 0 }, "limits.tmp_mb"},
		{"shm without bound", func(c *Contract) { c.Limits.ShmMB = -1 }, "limits.shm_mb"},
		{"inodes without bound", func(c *Contract) { c.Limits.Files = 0 }, "limits.files"},
		{"log without bound", func(c *Contract) { c.Limits.LogMB = 0 }, "limits.log_mb"},
		{"no processes", func(c *Contract) { c.Limits.Pids = 0 }, "limits.pids"},
		{"no time", func(c *Contract) { c.Limits.TimeoutSec = 0 }, "limits.timeout_sec"},
		{"does not wait", func(c *Contract) { c.Limits.WaitSec = 0 }, ""},
		{"negative cost", func(c *Contract) { c.Limits.CostUSD = -1 }, "limits.cost_usd"},

		{"push of a patch", func(c *Contract) { c.Outputs.Kind = OutputPatch }, "only the kind pull_request pushes"},
		{"unknown output", func(c *Contract) { c.Outputs.Kind = "" }, "outputs.kind"},
		{"patch of no file", func(c *Contract) { c.Outputs.MaxFiles = 0 }, "outputs.max_files"},
		{"no output", func(c *Contract) { c.Outputs = Outputs{Kind: OutputNone, Push: PushNever} }, ""},
		{"absolute protected path", func(c *Contract) { c.Outputs.ProtectedPaths = []string{"/etc"} }, "outputs.protected_paths[0]"},
		{"unknown promotable", func(c *Contract) { c.Promotable = []string{"everything"} }, "promotable[0]"},
		{"promotable twice", func(c *Contract) { c.Promotable = []string{"path", "path"} }, "stands here twice"},
		{"no end", func(c *Contract) { c.NotAfter = "" }, "not_after"},
		{"end in another zone", func(c *Contract) { c.NotAfter = "2026-11-29T13:00:00+01:00" }, "not_after"},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := clone(full())
			c.do(&in)
			s, err := Seal(relevel(in))
			wantError(t, err, c.want)
			var invalid *InvalidError
			if err != nil && (!errors.As(err, &invalid) || !s.IsZero()) {
				t.Errorf("error %T with contract %v, want an InvalidError and none", err, !s.IsZero())
			}
		})
	}
}

func TestSealRefusesAClaimedLevel(t *testing.T) {
	for _, claimed := range []Level{L0, L2, L3, L4, "", "l1"} {
		c := plain()
		c.Level = claimed
		_, err := Seal(c)
		wantError(t, err, "the contract's authority is L1")
	}
}

func TestErrorListsEveryFaultAndStaysShort(t *testing.T) {
	c := full()
	c.RunID, c.Workdir, c.NotAfter = strings.Repeat("x", 100000), "\x1b[2J", ""
	for range 50 {
		c.Tools = append(c.Tools, Tool{})
	}
	_, err := Seal(c)
	var invalid *InvalidError
	if !errors.As(err, &invalid) || len(invalid.Faults) < 50 {
		t.Fatalf("error %v, want 50 faults and more", err)
	}
	if text := err.Error(); len(text) > 4096 || strings.ContainsRune(text, '\x1b') || !strings.Contains(text, "more") {
		t.Errorf("the error's text is %d bytes: %q", len(text), text)
	}
}

func goodTask() Task {
	return Task{
		Schema: SchemaTask, RunID: runID, Event: Event{EventLocal, ""}, Repo: Repo{0, "api"}, Base: Ref{"main", ""},
		Head: Head{object("b"), false}, Start: Start{object("b"), ""}, Actor: Person{0, "alice", RoleLocal}, Argv: []string{"make", "test"},
		Asked: Asked{Allow: []string{"a.example.com:443"}, Secrets: map[string]string{"t": "env://T"}, TimeoutSec: 60},
	}
}

func TestTaskRules(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(t *Task)
		want string
	}{
		{"as it is", func(t *Task) {}, ""},
		{"event of GitHub", func(t *Task) { t.Event.Kind, t.Actor.Role = "comment", "write" }, ""},
		{"unknown event", func(t *Task) { t.Event.Kind = "cron" }, "event.kind"},
		{"role local from elsewhere", func(t *Task) { t.Event.Kind = "comment" }, "actor.role"},
		{"local event, other role", func(t *Task) { t.Actor.Role = "write" }, "actor.role"},
		{"other schema", func(t *Task) { t.Schema = SchemaContract }, "schema"},
		{"nothing to run", func(t *Task) { t.Argv = nil }, "argv: is empty"},
		{"runtime and prompt", func(t *Task) { t.Argv, t.Runtime, t.PromptDigest = nil, "codex", digest("1") }, ""},
		{"bad profile", func(t *Task) { t.Profile = "../x" }, "profile"},
		{"bad image", func(t *Task) { t.Asked.Image = "A B" }, "asked.image"},
		{"bad isolation", func(t *Task) { t.Asked.Isolation = "vm" }, "asked.isolation"},
		{"negative timeout", func(t *Task) { t.Asked.TimeoutSec = -1 }, "asked.timeout_sec"},
		{"host without a port", func(t *Task) { t.Asked.Allow = []string{"a.example.com"} }, "want HOST:PORT"},
		{"host in upper case", func(t *Task) { t.Asked.Allow = []string{"A.example.com:443"} }, "write a.example.com:443"},
		{"secret value", func(t *Task) { t.Asked.Secrets["t"] = "hunter2" }, "asked.secrets.t"},
		{"empty path", func(t *Task) { t.Paths = []string{""} }, "paths[0]"},
		{"path with a newline", func(t *Task) { t.Paths = []string{"a\nb"} }, ""},
	} {
		in := clone(goodTask())
		c.do(&in)
		roundTrip(t, c.name, in, c.want)
	}
}

// roundTrip encodes d and reads it back, or wants the error that names want.
func roundTrip[D Document](t *testing.T, name string, d D, want string) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Helper()
		b, err := Encode(d)
		wantError(t, err, want)
		if err != nil {
			return
		}
		again, err := Decode[D](b)
		if err != nil {
			t.Fatal(err)
		}
		first, err1 := DigestOf(clone(d))
		second, err2 := DigestOf(again)
		if first != second || err1 != nil || err2 != nil || first != DigestBytes(b) {
			t.Errorf("read back with digest %s, written with %s (%v, %v)", second, first, err1, err2)
		}
	})
}

func TestSnapshotRules(t *testing.T) {
	good := Snapshot{
		Schema: SchemaSnapshot, Time: "2026-11-29T12:00:00Z", TaskDigest: digest("1"),
		Policy:  Source{SourceFound, "main", object("a"), ".github/countersign.yml", digest("2")},
		Ceiling: Source{Status: SourceBuiltin, Digest: digest("3")},
		Images: map[string]ImageFact{"debian:12": {ID: digest("4"), RepoDigests: []string{"debian@" + digest("5")}, Platform: "linux/arm64/v8",
			EnvKeys: []string{"PATH"}, Volumes: []string{"/data"}, Entrypoint: true, User: "0"}},
		Submodules: 1,
	}
	edit := func(do func(s *Snapshot)) Snapshot { s := clone(good); do(&s); return s }
	image := func(do func(f *ImageFact)) Snapshot {
		return edit(func(s *Snapshot) { f := s.Images["debian:12"]; do(&f); s.Images["debian:12"] = f })
	}
	for _, c := range []struct {
		name string
		s    Snapshot
		want string
	}{
		{"as it is", good, ""},
		{"no policy there", edit(func(s *Snapshot) { s.Policy = Source{Status: SourceAbsent} }), ""},
		{"found without a digest", edit(func(s *Snapshot) { s.Policy.Digest = "" }), "policy.digest"},
		{"absent with a digest", edit(func(s *Snapshot) { s.Policy.Status = SourceAbsent }), "has none"},
		{"unknown status", edit(func(s *Snapshot) { s.Ceiling.Status = "ok" }), "ceiling.status"},
		{"no time", edit(func(s *Snapshot) { s.Time = "" }), "time: is"},
		{"no task", edit(func(s *Snapshot) { s.TaskDigest = "" }), "task_digest"},
		{"bad reference", edit(func(s *Snapshot) { s.Images["A B"] = s.Images["debian:12"] }), "A B"},
		{"image without an id", image(func(f *ImageFact) { f.ID = "" }), "images[\"debian:12\"].id"},
		{"bad repository digest", image(func(f *ImageFact) { f.RepoDigests[0] = digest("5") }), "want NAME@sha256"},
		{"bad platform", image(func(f *ImageFact) { f.Platform = "linux" }), "platform"},
		{"negative count", edit(func(s *Snapshot) { s.LFSPointers = -1 }), "lfs_pointers"},
	} {
		roundTrip(t, c.name, c.s, c.want)
	}
}

func TestOutcomeRules(t *testing.T) {
	exit := func(n int) *int { return &n }
	for _, c := range []struct {
		state    State
		code     int
		workload *int
		want     string
	}{
		{StateCompleted, 0, exit(0), ""},
		{StateCompleted, 0, nil, "workload_exit"},
		{StateCompleted, 0, exit(1), "workload_exit"},
		{StateCompleted, 1, exit(0), "exit_code"},
		{StateFailed, 2, exit(2), ""},
		{StateFailed, 125, exit(125), ""},          // the reason tells it from ours
		{StateFailed, 0, exit(0), "workload_exit"}, // whoever looks at the status alone would take it for success
		{StateFailed, 2, exit(3), "exit_code"},
		{StateFailed, 2, nil, "workload_exit"},
		{StateTimedOut, 124, nil, ""},
		{StateTimedOut, 124, exit(137), ""},
		{StateTimedOut, 137, exit(137), "exit_code"},
		{StateFailClosed, 125, nil, ""},
		{StateFailClosed, 126, nil, ""},
		{StateFailClosed, 0, exit(0), "exit_code"},
		{StateRefused, 126, nil, ""},
		{StateRefused, 125, nil, "exit_code"},
		{StateCancelled, 130, nil, ""},
		{StateSuperseded, 130, nil, ""},
		{StateKilled, 130, nil, ""},
		{StateKilled, 137, exit(137), "exit_code"},
		{StateCompleted, 0, exit(256), "workload_exit: is 256"},
		{"running", 0, nil, "state"},
		{"", 0, nil, "state"},
	} {
		o := Outcome{RunID: runID, State: c.state, ExitCode: c.code, WorkloadExit: c.workload, ContractDigest: digest("1"), Evidence: "/x"}
		roundTrip(t, string(c.state), o, c.want)
	}
	bad := Outcome{RunID: runID, State: StateRefused, ExitCode: 126, Egress: EgressTotals{BytesOut: -1}, Promotions: []PromotionRef{{"x", "root", "open"}}}
	for _, want := range []string{"egress.bytes_out", "promotions[0].digest", "promotions[0].kind", "promotions[0].state"} {
		roundTrip(t, want, bad, want)
	}
}
