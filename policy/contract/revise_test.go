package contract

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// askable is a contract in which everything may be asked for. host_exec is not
// among it, so that the level is that of the entries.
func askable() Contract {
	c := full()
	c.Revision, c.Parent = 1, ""
	c.WritableRoots = c.WritableRoots[:4]
	c.Network.Allow[0].Grant, c.SecretRefs[0].Grant, c.Tools[0].Grant, c.Limits.Grant, c.Outputs.Grant = nil, nil, nil, nil, nil
	c.Promotable = promotionKinds()[:6]
	return relevel(c)
}

func TestReviseEachKind(t *testing.T) {
	rule := tunnelRule("new.example.com")
	more := askable().Limits
	more.MemoryMB, more.TimeoutSec = 8192, 3600
	again := askable().Outputs
	for _, c := range []struct {
		kind string
		w    Widening
		// paths that the diff from parent to revision must hold, beside
		// revision and parent
		want []string
	}{
		{KindNetwork, Widening{Network: &rule}, []string{"network.allow[new.example.com:443]"}},
		{KindPath, Widening{Path: &Root{Path: "/data"}}, []string{"writable_roots[/data]"}},
		{KindSecret, Widening{Secret: &SecretRef{Name: "npm", Ref: "env://NPM", Deliver: DeliverFile}}, []string{"secret_refs[npm]"}},
		{KindTool, Widening{Tool: &Tool{Name: "Write"}}, []string{"tools[Write]"}},
		{KindLimits, Widening{Limits: &more}, []string{"limits.memory_mb", "limits.timeout_sec", "limits.grant"}},
		{KindOutput, Widening{Output: &again}, []string{"outputs.grant"}},
	} {
		t.Run(c.kind, func(t *testing.T) {
			parent := mustSeal(t, askable())
			p := promotionOf(t, planFor(parent, c.kind, c.w))
			next, err := Revise(parent, p, parent.Contract().Start, noon())
			if err != nil {
				t.Fatal(err)
			}
			got := next.Contract()
			if got.Revision != 2 || got.Parent != parent.Digest() {
				t.Errorf("revision %d of %s", got.Revision, got.Parent)
			}
			wantPaths(t, Diff(parent.Contract(), got), append([]string{"revision", "parent"}, c.want...))
			wantGrant := `{"promotion":"` + p.Digest + `","not_after":"2026-11-29T12:30:00Z","uses":1}`
			if !strings.Contains(FormatDiff(Diff(parent.Contract(), got)), wantGrant) {
				t.Errorf("no entry has the grant %s", wantGrant)
			}
			if _, err := Open(next.Bytes()); err != nil {
				t.Error(err)
			}
		})
	}
}

func wantPaths(t *testing.T, changes []Change, want []string) {
	t.Helper()
	var got []string
	for _, c := range changes {
		got = append(got, c.Path)
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("changed %q, want %q", got, want)
	}
}

func TestReviseRefuses(t *testing.T) {
	parent := mustSeal(t, askable())
	rule := tunnelRule("new.example.com")
	private := rule
	private.Private = true
	ask := func(do func(p *Plan)) Promotion {
		p := planFor(parent, KindNetwork, Widening{Network: &rule})
		do(&p)
		return promotionOf(t, p)
	}
	of := func(kind string, w Widening) Promotion { return promotionOf(t, planFor(parent, kind, w)) }
	limits := func(do func(l *Limits)) Promotion {
		l := askable().Limits
		do(&l)
		return of(KindLimits, Widening{Limits: &l})
	}
	output := func(do func(o *Outputs)) Promotion {
		o := clone(askable().Outputs)
		do(&o)
		return of(KindOutput, Widening{Output: &o})
	}
	injecting := gatewayRule()
	injecting.Host = "other.internal"
	late := ask(func(*Plan) {})
	late.NotAfter = "2026-11-29T11:59:59Z"
	early := ask(func(*Plan) {})
	early.RequestedAt = "2026-11-29T12:00:01Z"
	edited := ask(func(*Plan) {})
	edited.Plan.Change.Network.UploadBytes *= 2
	host := planFor(parent, KindHostExec, Widening{})
	host.Argv, host.Cwd, host.Interpreter, host.InputTreeDigest = []string{"/usr/bin/git", "status"}, "/srv", Interpreter{"/usr/bin/git", digest("1")}, digest("2")
	for _, c := range []struct {
		name string
		p    Promotion
		want string
	}{
		{"as it is", ask(func(*Plan) {}), ""},
		{"other run", ask(func(p *Plan) { p.RunID = "run_" + strings.Repeat("0", 26) }), "plan.run_id"},
		{"other revision", ask(func(p *Plan) { p.ContractDigest = digest("0") }), "plan.contract_digest"},
		{"other repository", ask(func(p *Plan) { p.Repo.ID = 2 }), "plan.repo"},
		{"moved head", ask(func(p *Plan) { p.HeadSHA = object("9") }), "plan.head_sha"},
		{"changed base", ask(func(p *Plan) { p.BaseRef = "release" }), "plan.base_ref"},
		{"changed policy", ask(func(p *Plan) { p.PolicyDigest = digest("0") }), "plan.policy_digest"},
		{"changed ceiling", ask(func(p *Plan) { p.CeilingDigest = digest("0") }), "plan.ceiling_digest"},
		{"level understated", ask(func(p *Plan) { p.Change.Network = &private }), "would be L3"},
		{"level overstated", ask(func(p *Plan) { p.Level = L4 }), "would be L2"},
		{"approved too late", late, "could be decided"},
		{"approved before it was asked", early, "could be decided"},
		{"edited plan", edited, "digest: is"},
		{"no nonce", ask(func(p *Plan) { p.Nonce = "" }), "plan.nonce"},
		{"grant brought along", ask(func(p *Plan) { p.Change.Network.Grant = grantOf("1") }), "the grant comes with the approval"},
		{"two entries", ask(func(p *Plan) { p.Change.Tool = &Tool{Name: "x"} }), "changes the one entry of its kind"},
		{"no entry", ask(func(p *Plan) { p.Change.Network = nil }), "change.network: is absent"},
		{"host_exec", promotionOf(t, host), "host_exec"},
		{"rule that is there", of(KindNetwork, Widening{Network: ptr(tunnelRule("files.example.com"))}), "nothing to ask for"},
		{"public suffix", of(KindNetwork, Widening{Network: ptr(tunnelRule("*.github.io"))}), "public suffix"},
		{"credential to a new place", of(KindNetwork, Widening{Network: &injecting}), "where no rule sends it yet"},
		{"root that is there", of(KindPath, Widening{Path: &Root{Path: "/tmp"}}), "nothing to ask for"},
		{"root inside one", of(KindPath, Widening{Path: &Root{Path: "/tmp/x"}}), "already inside"},
		{"denied root", of(KindPath, Widening{Path: &Root{Path: "/home/agent/.ssh/x"}}), "already inside"},
		{"root of the kernel", of(KindPath, Widening{Path: &Root{Path: "/proc/x"}}), "/proc"},
		{"secret that is there", of(KindSecret, Widening{Secret: &SecretRef{Name: "token", Ref: "env://OTHER", Deliver: DeliverFile}}), "nothing to ask for"},
		{"tool that is there", of(KindTool, Widening{Tool: &Tool{Name: "Read"}}), "nothing to ask for"},
		{"same limits", limits(func(l *Limits) {}), "nothing to ask for"},
		{"lower limit", limits(func(l *Limits) { l.Pids--; l.MemoryMB++ }), "only raises"},
		{"no bound", limits(func(l *Limits) { l.DiskMB = 0 }), "disk_mb"},
		{"trusted push", output(func(o *Outputs) { o.Push = PushTrusted }), "only a policy can give"},
		{"less protection", output(func(o *Outputs) { o.ProtectedPaths = o.ProtectedPaths[:1] }), "protection is the policy's"},
		{"less output", output(func(o *Outputs) { o.MaxFiles-- }), "only widens"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := Revise(parent, c.p, parent.Contract().Start, noon())
			wantError(t, err, c.want)
			if err != nil && !s.IsZero() {
				t.Error("an error came with a contract")
			}
		})
	}
	t.Run("not promotable", func(t *testing.T) {
		c := askable()
		c.Promotable = []string{KindPath}
		parent := mustSeal(t, c)
		p := promotionOf(t, planFor(parent, KindNetwork, Widening{Network: &rule}))
		_, err := Revise(parent, p, c.Start, noon())
		wantError(t, err, "does not let anybody ask for")
	})
	t.Run("promotable host_exec has no entry", func(t *testing.T) {
		c := askable()
		c.Promotable = []string{KindHostExec}
		parent := mustSeal(t, relevel(c))
		plan := host
		plan.ContractDigest = parent.Digest()
		_, err := Revise(parent, promotionOf(t, plan), c.Start, noon())
		wantError(t, err, "runs beside the contract")
	})
	t.Run("no parent", func(t *testing.T) {
		_, err := Revise(Sealed{}, ask(func(*Plan) {}), Start{}, noon())
		wantError(t, err, "there is no parent")
	})
}

func ptr[T any](v T) *T { return &v }

func TestReviseStart(t *testing.T) {
	parent := mustSeal(t, askable())
	rule := tunnelRule("new.example.com")
	p := promotionOf(t, planFor(parent, KindNetwork, Widening{Network: &rule}))
	start := Start{parent.Contract().Start.SHA, digest("e")}
	next, err := Revise(parent, p, start, noon())
	if err != nil || next.Contract().Start != start {
		t.Errorf("start %+v, %v; want %+v", next.Contract().Start, err, start)
	}
	_, err = Revise(parent, p, Start{object("9"), ""}, noon())
	wantError(t, err, "start.sha")
	_, err = Revise(parent, p, Start{start.SHA, "patch"}, noon())
	wantError(t, err, "start.patch_digest")
}

// A plan of revision 1 does not fit revision 2: it was approved for less.
func TestReviseAsksAgainAfterAWidening(t *testing.T) {
	parent := mustSeal(t, askable())
	a, b := tunnelRule("a.example.com"), tunnelRule("b.example.com")
	first := promotionOf(t, planFor(parent, KindNetwork, Widening{Network: &a}))
	second := promotionOf(t, planFor(parent, KindNetwork, Widening{Network: &b}))
	next, err := Revise(parent, first, parent.Contract().Start, noon())
	if err != nil {
		t.Fatal(err)
	}
	_, err = Revise(next, second, next.Contract().Start, noon())
	wantError(t, err, "plan.contract_digest")
	third, err := Revise(next, promotionOf(t, planFor(next, KindNetwork, Widening{Network: &b})), next.Contract().Start, noon())
	if err != nil || third.Contract().Revision != 3 || third.Contract().Parent != next.Digest() {
		t.Errorf("asked again: revision %d, %v", third.Contract().Revision, err)
	}
}

func TestReviseRenewsAGrant(t *testing.T) {
	parent := mustSeal(t, askable())
	rule := tunnelRule("a.example.com")
	next, err := Revise(parent, promotionOf(t, planFor(parent, KindNetwork, Widening{Network: &rule})), parent.Contract().Start, noon())
	if err != nil {
		t.Fatal(err)
	}
	p := promotionOf(t, planFor(next, KindNetwork, Widening{Network: &rule}))
	p.NotAfter = "2026-11-29T14:00:00Z"
	renewed, err := Revise(next, p, next.Contract().Start, noon().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	allow := renewed.Contract().Network.Allow
	if got := allow[len(allow)-1].Grant; len(allow) != 4 || got.Promotion != p.Digest || got.NotAfter != "2026-11-29T13:30:00Z" {
		t.Errorf("%d rules, the last with %+v", len(allow), got)
	}
}

// TestReviseChangesOnlyTheEntry takes the promoted entry, the revision and the
// level back and wants the parent.
func TestReviseChangesOnlyTheEntry(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		c := askable()
		c.Env["X"] = rapid.StringMatching(`[ -~]{0,8}`).Draw(r, "env")
		if rapid.Bool().Draw(r, "none") {
			c.Network, c.SecretRefs = Network{Mode: NetworkNone}, nil
		}
		parent, err := Seal(relevel(c))
		if err != nil {
			r.Fatal(err)
		}
		kind := rapid.SampledFrom(promotionKinds()[:6]).Draw(r, "kind")
		plan := planFor(parent, kind, anyWidening(r, kind, parent.Contract()))
		plan.TTLSec = rapid.Int64Range(1, maxSec).Draw(r, "ttl")
		p := Promotion{Schema: SchemaPromotion, Plan: plan, RequestedAt: "2026-11-29T11:50:00Z", NotAfter: "2026-11-29T12:20:00Z"}
		if p.Digest, err = DigestOf(plan); err != nil {
			r.Fatal(err)
		}
		next, err := Revise(parent, p, parent.Contract().Start, noon())
		if err != nil {
			r.Fatal(err)
		}
		got, was := next.Contract(), parent.Contract()
		if level, _ := LevelOf(got); got.Level != level || rank(string(level), levels()) < rank(string(was.Level), levels()) {
			r.Fatalf("level %s after %s, computed %s", got.Level, was.Level, level)
		}
		got.Revision, got.Parent, got.Level = was.Revision, was.Parent, was.Level
		switch kind {
		case KindNetwork:
			got.Network.Allow, got.Network.Mode = got.Network.Allow[:len(got.Network.Allow)-1], was.Network.Mode
		case KindPath:
			got.WritableRoots = got.WritableRoots[:len(got.WritableRoots)-1]
		case KindSecret:
			got.SecretRefs = got.SecretRefs[:len(got.SecretRefs)-1]
		case KindTool:
			got.Tools = got.Tools[:len(got.Tools)-1]
		case KindLimits:
			got.Limits = was.Limits
		case KindOutput:
			got.Outputs = was.Outputs
		}
		if again, err := Seal(got); err != nil || again.Digest() != parent.Digest() {
			r.Fatalf("more than the entry changed: %v\n%s", err, FormatDiff(Diff(was, got)))
		}
	})
}

func levels() []string { return []string{"L0", "L1", "L2", "L3", "L4"} }

func anyWidening(r *rapid.T, kind string, c Contract) Widening {
	name := rapid.StringMatching(`new[a-z]{1,8}`).Draw(r, "name")
	switch kind {
	case KindNetwork:
		rule := tunnelRule(name + ".example.net")
		rule.Port = rapid.IntRange(1, 65535).Draw(r, "port")
		rule.Private = rapid.Bool().Draw(r, "private")
		return Widening{Network: &rule}
	case KindPath:
		return Widening{Path: &Root{Path: "/" + name}}
	case KindSecret:
		return Widening{Secret: &SecretRef{Name: name, Ref: "env://X", Deliver: DeliverFile}}
	case KindTool:
		return Widening{Tool: &Tool{Name: name}}
	case KindLimits:
		l := c.Limits
		l.MemoryMB += rapid.Int64Range(1, 4096).Draw(r, "more")
		return Widening{Limits: &l}
	}
	o := clone(c.Outputs)
	o.MaxFiles += rapid.IntRange(0, 10).Draw(r, "files")
	return Widening{Output: &o}
}

func TestGrantExpires(t *testing.T) {
	end := grantOf("1") // until 12:30
	for _, c := range []struct {
		grant *Grant
		now   time.Time
		want  bool
	}{
		{nil, noon().AddDate(100, 0, 0), false},
		{end, noon(), false},
		{end, noon().Add(30 * time.Minute), false},
		{end, noon().Add(30*time.Minute + time.Second), true},
		{&Grant{NotAfter: ""}, noon(), true},
		{&Grant{NotAfter: "never"}, noon(), true},
	} {
		if got := c.grant.Expired(c.now); got != c.want {
			t.Errorf("%+v at %s: expired %v, want %v", c.grant, c.now, got, c.want)
		}
	}
}

// What expired stays written: expiry cuts what is open, and a revision that
// dropped it would differ in more than its entry.
func TestReviseKeepsExpiredGrants(t *testing.T) {
	c := askable()
	old := &Grant{digest("9"), "2026-11-29T11:00:00Z", 1}
	c.WritableRoots = append(c.WritableRoots, Root{"/data", old})
	parent := mustSeal(t, c)
	rule := tunnelRule("new.example.com")
	next, err := Revise(parent, promotionOf(t, planFor(parent, KindNetwork, Widening{Network: &rule})), c.Start, noon())
	if err != nil {
		t.Fatal(err)
	}
	if roots := next.Contract().WritableRoots; len(roots) != 5 || *roots[4].Grant != *old {
		t.Errorf("roots %+v, want /data under its old grant", roots)
	}
}
