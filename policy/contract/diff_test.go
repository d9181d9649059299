package contract

import (
	"reflect"
	"strings"
	"testing"
)

func TestDiffEffects(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(c *Contract)
		want string // lines "effect path", the whole diff
	}{
		{"nothing", func(c *Contract) {}, ""},
		{"command", func(c *Contract) { c.Argv[0] = "cargo" }, "neutral argv"},
		{"variable came", func(c *Contract) { c.Env["A"] = "" }, "neutral env.A"},
		{"variable went", func(c *Contract) { delete(c.Env, "CI") }, "neutral env.CI"},
		{"image", func(c *Contract) { c.Image.Digest = digest("0") }, "neutral image"},
		{"weaker boundary", func(c *Contract) { c.ExecutionClass = ClassNode }, "widens execution_class"},
		{"harder boundary", func(c *Contract) { c.ExecutionClass, c.Isolation = ClassHardenedSandbox, IsolationRunsc }, "narrows execution_class\nnarrows isolation"},
		{"level up", func(c *Contract) { c.Level = L4 }, "widens level"},
		{"root came", func(c *Contract) { c.WritableRoots = append(c.WritableRoots, Root{Path: "/x"}) }, "widens writable_roots[/x]"},
		{"root came in front", func(c *Contract) { c.WritableRoots = append([]Root{{Path: "/x"}}, c.WritableRoots...) }, "widens writable_roots[/x]"},
		{"root went", func(c *Contract) { c.WritableRoots = c.WritableRoots[:4] }, "narrows writable_roots[/data]"},
		{"roots in another order", func(c *Contract) {
			c.WritableRoots[0], c.WritableRoots[1] = c.WritableRoots[1], c.WritableRoots[0]
		}, "neutral writable_roots"},
		{"grant went", func(c *Contract) { c.WritableRoots[4].Grant = nil }, "widens writable_roots[/data].grant"},
		{"grant came", func(c *Contract) { c.WritableRoots[0].Grant = grantOf("1") }, "narrows writable_roots[/workspace].grant"},
		{"grant ends later", func(c *Contract) { c.WritableRoots[4].Grant.NotAfter = "2026-11-29T12:30:01Z" }, "widens writable_roots[/data].grant"},
		{"grant ends earlier", func(c *Contract) { c.WritableRoots[4].Grant.NotAfter = "2026-11-29T12:29:59Z" }, "narrows writable_roots[/data].grant"},
		{"grant for more uses", func(c *Contract) { c.WritableRoots[4].Grant.Uses = 2 }, "widens writable_roots[/data].grant"},
		{"grant without bound of uses", func(c *Contract) { c.WritableRoots[4].Grant.Uses = 0 }, "widens writable_roots[/data].grant"},
		{"grant earlier but for more uses", func(c *Contract) {
			c.WritableRoots[4].Grant.NotAfter, c.WritableRoots[4].Grant.Uses = "2026-11-29T12:00:00Z", 2
		}, "widens writable_roots[/data].grant"},
		{"grant of another promotion", func(c *Contract) { c.WritableRoots[4].Grant.Promotion = digest("0") }, "neutral writable_roots[/data].grant"},
		{"less is denied", func(c *Contract) { c.ReadDenied = nil }, `widens read_denied["/home/agent/.ssh"]`},
		{"more is denied", func(c *Contract) { c.ReadDenied = append(c.ReadDenied, "/x") }, `narrows read_denied["/x"]`},
		{"rule came", func(c *Contract) { c.Network.Allow = append(c.Network.Allow, tunnelRule("x.example.com")) }, "widens network.allow[x.example.com:443]"},
		{"rule went", func(c *Contract) { c.Network.Allow = c.Network.Allow[:2] }, "narrows network.allow[*.example.org:443]"},
		{"no network", func(c *Contract) { c.Network = Network{Mode: NetworkNone} }, "narrows network.mode\nnarrows network.allow[model.internal:80 POST /v1/messages]\nnarrows network.allow[files.example.com:443]\nnarrows network.allow[*.example.org:443]"},
		{"upload up", func(c *Contract) { c.Network.Allow[1].UploadBytes++ }, "widens network.allow[files.example.com:443].upload_bytes"},
		{"private", func(c *Contract) { c.Network.Allow[1].Private = true }, "widens network.allow[files.example.com:443].private"},
		{"other upstream", func(c *Contract) { c.Network.Allow[0].Upstream = "https://x.example.com:443" }, "widens network.allow[model.internal:80 POST /v1/messages].upstream"},
		{"no websocket", func(c *Contract) { c.Network.Allow[0].WebSocket = false }, "narrows network.allow[model.internal:80 POST /v1/messages].websocket"},
		{"credential went", func(c *Contract) { c.Network.Allow[0].Inject = nil }, "narrows network.allow[model.internal:80 POST /v1/messages].inject"},
		{"api is no longer read", func(c *Contract) { c.Network.Allow[0].API = "" }, "widens network.allow[model.internal:80 POST /v1/messages].api"},
		{"body check went", func(c *Contract) { c.Network.Allow[0].DenyBody = nil }, `widens network.allow[model.internal:80 POST /v1/messages].deny_body["BEGIN PRIVATE KEY"]`},
		{"other secret", func(c *Contract) { c.SecretRefs[1].Ref = "env://X" }, "widens secret_refs[token].ref"},
		{"secret inside the sandbox", func(c *Contract) { c.SecretRefs[0].Deliver = DeliverFile }, "widens secret_refs[model-key].deliver"},
		{"tool went", func(c *Contract) { c.Tools = c.Tools[:1] }, "narrows tools[Read]"},
		{"hosted tool", func(c *Contract) { c.HostedTools = []string{"web_search"} }, `widens hosted_tools["web_search"]`},
		{"memory up, time down", func(c *Contract) { c.Limits.MemoryMB++; c.Limits.TimeoutSec-- }, "widens limits.memory_mb\nnarrows limits.timeout_sec"},
		{"push without people", func(c *Contract) { c.Outputs.Push = PushTrusted }, "widens outputs.push"},
		{"only a patch", func(c *Contract) { c.Outputs.Kind, c.Outputs.Push = OutputPatch, PushNever }, "narrows outputs.kind\nnarrows outputs.push"},
		{"output no longer approved", func(c *Contract) { c.Outputs.Grant = nil }, "narrows outputs.grant"},
		{"less protection", func(c *Contract) { c.Outputs.ProtectedPaths = c.Outputs.ProtectedPaths[:1] }, `widens outputs.protected_paths["**/CODEOWNERS"]`},
		{"more to ask for", func(c *Contract) { c.Promotable = append(c.Promotable, KindSecret) }, `widens promotable["secret"]`},
		{"ends later", func(c *Contract) { c.NotAfter = "2026-11-30T13:00:00Z" }, "widens not_after"},
		{"several, in order", func(c *Contract) { c.NotAfter = "2026-11-28T13:00:00Z"; c.Revision = 3; c.Tools = nil },
			"neutral revision\nnarrows tools[Bash(make test:*)]\nnarrows tools[Read]\nnarrows not_after"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := clone(full())
			c.do(&b)
			var got []string
			changes := Diff(full(), b)
			for _, ch := range changes {
				got = append(got, string(ch.Effect)+" "+ch.Path)
			}
			if strings.Join(got, "\n") != c.want {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), c.want)
			}
			wantMirror(t, changes, Diff(b, full()))
		})
	}
}

// wantMirror: what widens one way narrows the other. Exchanged authority
// (another upstream, another secret) widens both ways.
func wantMirror(t *testing.T, there, back []Change) {
	t.Helper()
	if len(there) != len(back) {
		t.Errorf("%d changes there, %d back", len(there), len(back))
		return
	}
	at := make(map[string]Change)
	for _, c := range back {
		at[c.Path] = c
	}
	for _, c := range there {
		b := at[c.Path]
		exchanged := c.Effect == Widens && b.Effect == Widens && c.Old != "" && c.New != ""
		if b.Old != c.New || b.New != c.Old || b.Effect != opposite(c.Effect) && !exchanged {
			t.Errorf("%v there, %v back", c, b)
		}
	}
}

func TestDiffIsDeterministicAndReadOnly(t *testing.T) {
	a, b := full(), plain()
	for _, k := range []string{"A", "B", "C", "D", "E", "F"} {
		b.Env[k] = k
	}
	before := clone(b)
	first := Diff(a, b)
	for range 20 {
		if !reflect.DeepEqual(first, Diff(a, b)) {
			t.Fatal("two diffs of the same contracts differ")
		}
	}
	if !reflect.DeepEqual(before, clone(b)) {
		t.Error("Diff changed its input")
	}
}

func TestFormatDiff(t *testing.T) {
	if got := FormatDiff(nil); got != "no difference\n" {
		t.Errorf("nothing is %q", got)
	}
	b := full()
	b.NotAfter = "2026-11-28T13:00:00Z"
	b.Argv = []string{"\x1b[2J\u202e\U0001f600\U000e0001<&>", "a"}
	b.Tools = append(b.Tools, Tool{Name: "Write"})
	want := `widens   tools[Write]: (none) -> {"name":"Write"}
narrows  not_after: "2026-11-29T13:00:00Z" -> "2026-11-28T13:00:00Z"
neutral  argv: ["make","test"] -> ["\u001b[2J\u202e😀\udb40\udc01<&>","a"]
`
	if got := FormatDiff(Diff(full(), b)); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	b.Env["a\nb"] = "\r"
	for _, line := range strings.Split(FormatDiff(Diff(full(), b)), "\n") {
		if strings.ContainsAny(line, "\r\x1b") || line != "" && !strings.Contains(line, "  ") {
			t.Errorf("line %q", line)
		}
	}
}
