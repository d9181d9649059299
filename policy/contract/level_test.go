package contract

import "testing"

func TestLevels(t *testing.T) {
	observe := func(c *Contract) {
		c.WritableRoots, c.Outputs = []Root{{Path: "/tmp"}, {Path: "/dev/shm"}}, Outputs{Kind: OutputNone, Push: PushNever}
	}
	rule := func(c *Contract) {
		c.Network = Network{NetworkAllowlist, []NetRule{tunnelRule("files.example.com")}}
	}
	private := func(c *Contract) { rule(c); c.Network.Allow[0].Private = true }
	secret := func(c *Contract) {
		c.SecretRefs = []SecretRef{{Name: "t", Ref: "env://T", Deliver: DeliverFile}}
	}
	fork := func(c *Contract) { c.Head.Fork = true }
	for _, c := range []struct {
		name string
		want Level
		do   []func(*Contract)
	}{
		{"nothing written, nothing out", L0, []func(*Contract){observe}},
		{"no roots at all", L0, []func(*Contract){observe, func(c *Contract) { c.WritableRoots = nil }}},
		{"a fork that observes", L0, []func(*Contract){observe, fork}},
		{"bigger limits", L0, []func(*Contract){observe, func(c *Contract) { c.Limits.MemoryMB *= 8; c.Limits.CostUSD = 100 }}},
		{"an empty allow list", L0, []func(*Contract){observe, func(c *Contract) { c.Network.Mode = NetworkAllowlist }}},
		{"may ask for the network", L0, []func(*Contract){observe, func(c *Contract) { c.Promotable = []string{KindNetwork, KindSecret, KindOutput} }}},
		{"workspace", L1, nil},
		{"a fork's workspace", L1, []func(*Contract){fork}},
		{"writable workspace, no output", L1, []func(*Contract){observe, func(c *Contract) { c.WritableRoots = []Root{{Path: "/workspace"}} }}},
		{"another root", L1, []func(*Contract){observe, func(c *Contract) { c.WritableRoots = []Root{{Path: "/data"}} }}},
		{"the workspace is in a scratch directory", L1, []func(*Contract){observe, func(c *Contract) { c.Workdir = "/tmp/work" }}},
		{"read-only workspace, patch out", L1, []func(*Contract){observe, func(c *Contract) { c.Outputs = plain().Outputs }}},
		{"a comment comes out", L1, []func(*Contract){observe, func(c *Contract) { c.Outputs.Kind = OutputComment }}},
		{"a push that waits for a person", L1, []func(*Contract){func(c *Contract) { c.Outputs.Kind, c.Outputs.Push = OutputPullRequest, PushApproved }}},
		{"an approved push", L2, []func(*Contract){func(c *Contract) {
			c.Outputs.Kind, c.Outputs.Push, c.Outputs.Grant = OutputPullRequest, PushApproved, grantOf("1")
		}}},
		{"a network rule", L2, []func(*Contract){rule}},
		{"a network rule, nothing written", L2, []func(*Contract){observe, rule}},
		{"a fork's network rule", L2, []func(*Contract){fork, rule}},
		{"a secret", L2, []func(*Contract){secret}},
		{"a node", L3, []func(*Contract){observe, func(c *Contract) { c.ExecutionClass = ClassNode }}},
		{"a host_exec tool", L3, []func(*Contract){func(c *Contract) { c.Tools = []Tool{{Name: "host_exec"}} }}},
		{"a host_exec tool with arguments", L3, []func(*Contract){func(c *Contract) { c.Tools = []Tool{{Name: "Read"}, {Name: "host_exec(git status)"}} }}},
		{"a tool that only starts alike", L1, []func(*Contract){func(c *Contract) { c.Tools = []Tool{{Name: "host_executive"}} }}},
		{"may ask for host_exec", L3, []func(*Contract){observe, func(c *Contract) { c.Promotable = []string{KindHostExec} }}},
		{"a private address", L3, []func(*Contract){private}},
		{"a tool at the provider", L3, []func(*Contract){func(c *Contract) { c.HostedTools = []string{"web_search"} }}},
		{"a push without a person", L4, []func(*Contract){func(c *Contract) { c.Outputs.Kind, c.Outputs.Push = OutputPullRequest, PushTrusted }}},
		{"a push without a person on a node", L4, []func(*Contract){func(c *Contract) {
			c.ExecutionClass, c.Outputs.Kind, c.Outputs.Push = ClassNode, OutputPullRequest, PushTrusted
		}}},
		{"a fork with a secret", L4, []func(*Contract){fork, secret}},
		{"a fork with a private address", L4, []func(*Contract){fork, private}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := clone(plain())
			for _, do := range c.do {
				do(&got)
			}
			level, why := LevelOf(got)
			if level != c.want || why == "" {
				t.Errorf("level %s (%s), want %s", level, why, c.want)
			}
			got.Level = "L9"
			if again, _ := LevelOf(got); again != level {
				t.Error("the claimed level changed the computed one")
			}
			if got.Level = level; Validate(got) != nil {
				t.Errorf("the case is no valid contract: %v", Validate(got))
			}
		})
	}
}

func TestLevelWith(t *testing.T) {
	base := plain()
	base.Promotable = promotionKinds()
	rule := tunnelRule("a.example.com")
	private := rule
	private.Private = true
	for _, c := range []struct {
		kind string
		w    Widening
		want Level
	}{
		{KindNetwork, Widening{Network: &rule}, L3}, // host_exec is promotable here
		{KindHostExec, Widening{}, L3},
	} {
		if l, why, err := LevelWith(base, c.kind, c.w); l != c.want || err != nil {
			t.Errorf("%s: %s (%s), %v; want %s", c.kind, l, why, err, c.want)
		}
	}
	base.Promotable = []string{KindNetwork}
	if l, _, err := LevelWith(base, KindNetwork, Widening{Network: &rule}); l != L2 || err != nil {
		t.Errorf("a tunnel gives %s, %v; want L2", l, err)
	}
	if l, _, err := LevelWith(base, KindNetwork, Widening{Network: &private}); l != L3 || err != nil {
		t.Errorf("a private tunnel gives %s, %v; want L3", l, err)
	}
	if len(base.Network.Allow) != 0 {
		t.Error("LevelWith changed its contract")
	}
	if _, _, err := LevelWith(base, KindNetwork, Widening{}); err == nil {
		t.Error("a network plan without a rule has a level")
	}
	base.Outputs.Kind, base.Outputs.Push = OutputPullRequest, PushTrusted
	if l, _, err := LevelWith(base, KindHostExec, Widening{}); l != L4 || err != nil {
		t.Errorf("host_exec beside a trusted push gives %s, %v; want L4", l, err)
	}
}
