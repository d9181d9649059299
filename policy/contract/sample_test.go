package contract

import (
	"strings"
	"testing"
	"time"
)

// digest, object and run ids that tests use.
func digest(c string) string { return "sha256:" + strings.Repeat(c, 64) }
func object(c string) string { return strings.Repeat(c, 40) }

const runID = "run_01kb7v2q8tn4yfpm6s0ehr3wxd"

func noon() time.Time { return time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC) }

// plain is a contract of a local command: it may change the workspace, L1.
func plain() Contract {
	return Contract{
		Schema: SchemaContract, RunID: runID, Revision: 1,
		Repo: Repo{0, "api"}, Base: Ref{"main", object("a")}, Head: Head{object("b"), false}, Start: Start{object("b"), ""},
		RequestedBy: Person{0, "alice", RoleLocal},
		Policy:      PolicyRef{"p-1", "builtin", "", digest("1"), digest("2")}, SnapshotDigest: digest("3"),
		ExecutionClass: ClassWorkspaceSandbox, Isolation: IsolationRunc, Level: L1,
		Argv: []string{"make", "test"}, Env: map[string]string{"CI": "1"},
		Image:   Image{"countersign/sandbox:latest", digest("4"), DigestImageID},
		Workdir: "/workspace", WritableRoots: []Root{{Path: "/workspace"}, {Path: "/tmp"}, {Path: "/home/agent"}, {Path: "/dev/shm"}},
		ReadDenied: []string{"/home/agent/.ssh"},
		Network:    Network{Mode: NetworkNone},
		Limits: Limits{CPU: 2, MemoryMB: 4096, Pids: 256, DiskMB: 2048, HomeMB: 512, TmpMB: 512, ShmMB: 64,
			Files: 200000, LogMB: 64, TimeoutSec: 900, WaitSec: 1800},
		Outputs:  Outputs{Kind: OutputPatch, Push: PushNever, MaxFiles: 100, MaxBytes: 1 << 20, ProtectedPaths: []string{".github/**"}},
		NotAfter: "2026-11-29T13:00:00Z",
	}
}

// full has every field of the schema filled, L2.
func full() Contract {
	c := plain()
	c.Tenant, c.Repo, c.PullRequest = 42, Repo{1, "acme/api"}, 17
	c.Revision, c.Parent = 2, digest("5")
	c.Start.PatchDigest = digest("6")
	c.RequestedBy = Person{7, "octocat", "write"}
	c.Labels = []string{"agent:claude", "ci"}
	c.Policy.Ref, c.Policy.SHA = "main", object("c")
	c.Runtime, c.PromptDigest = "claude-code", digest("7")
	c.Image = Image{"ci.example.com:5000/team/ci:v1@" + digest("8"), digest("8"), DigestRepo}
	c.WritableRoots = append(c.WritableRoots, Root{"/data", grantOf("9")})
	gateway := gatewayRule()
	gateway.Grant = grantOf("a")
	c.Network = Network{NetworkAllowlist, []NetRule{gateway, tunnelRule("files.example.com"), tunnelRule("*.example.org")}}
	c.SecretRefs = []SecretRef{{"model-key", "vault://ci/model-key@v7", DeliverInject, grantOf("b")}, {Name: "token", Ref: "env://TOKEN", Deliver: DeliverFile}}
	c.Tools = []Tool{{"Bash(make test:*)", grantOf("c")}, {Name: "Read"}}
	c.Limits.CostUSD, c.Limits.Grant = 5, grantOf("d")
	c.Outputs = Outputs{OutputPullRequest, PushApproved, 100, 1 << 20, []string{".github/**", "**/CODEOWNERS"}, grantOf("e")}
	c.Promotable = []string{KindNetwork, KindOutput}
	c.Level = L2
	return c
}

func grantOf(c string) *Grant { return &Grant{digest(c), "2026-11-29T12:30:00Z", 1} }

func gatewayRule() NetRule {
	return NetRule{
		Host: "model.internal", Port: 80, Upstream: "https://api.example.com:443", Mode: RuleGateway, API: "anthropic-messages",
		Methods: []string{"POST"}, Paths: []string{"/v1/messages"}, UploadBytes: 1 << 28,
		Inject: &Inject{"model-key", InjectHeader, "x-api-key"}, WebSocket: true, HoldSec: 60, DenyBody: []string{"BEGIN PRIVATE KEY"},
		Coverage: CoverageEnforced,
	}
}

func tunnelRule(host string) NetRule {
	return NetRule{Host: host, Port: 443, Mode: RuleOpaque, UploadBytes: 1 << 20, Coverage: CoverageTunnel}
}

func mustSeal(t testing.TB, c Contract) Sealed {
	t.Helper()
	s, err := Seal(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// relevel gives c the level that its authority has.
func relevel(c Contract) Contract {
	c.Level, _ = LevelOf(clone(c))
	return c
}

// wantError fails unless err holds want; "" wants no error.
func wantError(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("error %v, want none", err)
	case want != "" && err == nil:
		t.Errorf("no error, want one with %q", want)
	case want != "" && !strings.Contains(err.Error(), want):
		t.Errorf("error %q, want one with %q", err, want)
	}
}

// planFor is a plan bound to parent that asks for w.
func planFor(parent Sealed, kind string, w Widening) Plan {
	c := parent.Contract()
	level, why, err := LevelWith(c, kind, w)
	if err != nil {
		level, why = L2, "not computed: "+err.Error()
	}
	p := Plan{
		Schema: SchemaPlan, Kind: kind, Target: "target", Change: w, Reason: "the build needs it",
		Level: level, LevelReason: why, TTLSec: 1800, Uses: 1,
		RunID: c.RunID, Agent: "command", Session: "s-1", ContractDigest: parent.Digest(), Repo: c.Repo,
		HeadSHA: c.Head.SHA, BaseRef: c.Base.Ref, PolicyDigest: c.Policy.Digest, CeilingDigest: c.Policy.CeilingDigest,
		Nonce: strings.Repeat("0f", 16),
	}
	if kind == KindOutput {
		p.PatchDigest = digest("f")
	}
	return clone(p)
}

func promotionOf(t testing.TB, p Plan) Promotion {
	t.Helper()
	d, err := DigestOf(clone(p))
	if err != nil {
		t.Fatal(err)
	}
	return Promotion{Schema: SchemaPromotion, Digest: d, Plan: p, RequestedAt: "2026-11-29T11:50:00Z", NotAfter: "2026-11-29T12:20:00Z"}
}
