package runner

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/policy/contract"
)

func warmOrder(name string, memoryMB int64) WarmOrder {
	return WarmOrder{Shape: Shape{Workdir: "/" + name, Limits: contract.Limits{MemoryMB: memoryMB}}}
}

// What a pool makes and discards is decided by what is wanted, what there is,
// and the memory that all may hold.
func TestPlanPool(t *testing.T) {
	a, b, huge := warmOrder("a", 100), warmOrder("b", 100), warmOrder("huge", 1000)
	keys := map[string]string{"a": a.key(), "b": b.key(), "huge": huge.key()}
	for _, c := range []struct {
		name   string
		wanted []WarmOrder
		have   string
		depth  int
		memory int64
		next   string
		drop   string
	}{
		{"nothing wanted", nil, "", 1, 300, "", ""},
		{"the first", []WarmOrder{a}, "", 1, 300, "a", ""},
		{"there already", []WarmOrder{a}, "a", 1, 300, "", ""},
		{"named last comes first", []WarmOrder{b, a}, "", 1, 300, "b", ""},
		{"then the other", []WarmOrder{b, a}, "b", 1, 300, "a", ""},
		{"two of one", []WarmOrder{a}, "a", 2, 300, "a", ""},
		{"no more than the depth", []WarmOrder{a}, "a a a", 2, 300, "", "a:1"},
		{"no room for the older", []WarmOrder{b, a}, "b", 1, 199, "", ""},
		{"the older makes room", []WarmOrder{b, a}, "a", 1, 199, "b", "a:1"},
		{"one too large does not stand in the way", []WarmOrder{huge, a}, "", 1, 300, "a", ""},
		{"not wanted any more", nil, "a", 1, 300, "", "a:1"},
		{"no memory", []WarmOrder{a}, "a", 1, 0, "", "a:1"},
	} {
		var have []string
		for _, h := range strings.Fields(c.have) {
			have = append(have, keys[h])
		}
		next, surplus := planPool(c.wanted, have, c.depth, c.memory*mib)
		made := ""
		if next != nil {
			made = strings.TrimPrefix(next.Shape.Workdir, "/")
		}
		var drop []string
		for name, key := range maps.All(keys) {
			if surplus[key] > 0 {
				drop = append(drop, fmt.Sprintf("%s:%d", name, surplus[key]))
			}
		}
		if made != c.next || strings.Join(drop, " ") != c.drop {
			t.Errorf("%s: makes %q and discards %q, want %q and %q", c.name, made, drop, c.next, c.drop)
		}
	}
}

func TestWanted(t *testing.T) {
	var wanted []WarmOrder
	for i := range maxWanted + 5 {
		wanted = rewant(wanted, warmOrder(fmt.Sprint(i), 1))
	}
	wanted = rewant(wanted, warmOrder("20", 1))
	if len(wanted) != maxWanted || wanted[0].Shape.Workdir != "/20" || wanted[1].Shape.Workdir != fmt.Sprint("/", maxWanted+4) {
		t.Errorf("%d wanted, first %s, then %s", len(wanted), wanted[0].Shape.Workdir, wanted[1].Shape.Workdir)
	}
	if left := unwant(wanted, warmOrder("20", 1)); len(left) != maxWanted-1 {
		t.Errorf("%d left of %d", len(left), maxWanted)
	}
}

// Everything of a contract that reaches the engine is in its shape, and nothing
// else is: the same shape gives the same Spec, another Spec has another shape.
func TestShape(t *testing.T) {
	base := sample()
	spec := func(c contract.Contract) (string, string) {
		s, err := CompileShape(ShapeOf(c), place())
		if err != nil {
			t.Fatal(err)
		}
		digest, err := contract.DigestOf(s)
		if err != nil {
			t.Fatal(err)
		}
		key, err := ShapeOf(c).Key()
		if err != nil {
			t.Fatal(err)
		}
		return digest, key
	}
	wantSpec, wantKey := spec(base)
	for name, change := range map[string]func(*contract.Contract){
		"cpu":       func(c *contract.Contract) { c.Limits.CPU = 2 },
		"memory":    func(c *contract.Contract) { c.Limits.MemoryMB++ },
		"pids":      func(c *contract.Contract) { c.Limits.Pids++ },
		"disk":      func(c *contract.Contract) { c.Limits.DiskMB++ },
		"home":      func(c *contract.Contract) { c.Limits.HomeMB++ },
		"tmp":       func(c *contract.Contract) { c.Limits.TmpMB++ },
		"shm":       func(c *contract.Contract) { c.Limits.ShmMB++ },
		"files":     func(c *contract.Contract) { c.Limits.Files++ },
		"timeout":   func(c *contract.Contract) { c.Limits.TimeoutSec++ },
		"isolation": func(c *contract.Contract) { c.Isolation = contract.IsolationRunsc },
		"denied":    func(c *contract.Contract) { c.ReadDenied = append(c.ReadDenied, "/opt/x") },
		"read only": func(c *contract.Contract) { c.WritableRoots = c.WritableRoots[:3] },
	} {
		c := sample()
		change(&c)
		if gotSpec, gotKey := spec(c); gotSpec == wantSpec || gotKey == wantKey {
			t.Errorf("%s: another contract, but the same spec (%t) or shape (%t)", name, gotSpec == wantSpec, gotKey == wantKey)
		}
	}
	for name, change := range map[string]func(*contract.Contract){
		"run":            func(c *contract.Contract) { c.RunID = "run_01kb7v2q8tn4yfpm6s0ehr3wxe" },
		"command":        func(c *contract.Contract) { c.Argv = []string{"true"} },
		"environment":    func(c *contract.Contract) { c.Env["X"] = "1" },
		"log":            func(c *contract.Contract) { c.Limits.LogMB++ },
		"wait":           func(c *contract.Contract) { c.Limits.WaitSec++ },
		"denied, inside": func(c *contract.Contract) { c.ReadDenied = append(c.ReadDenied, "/workspace/x") },
		"start":          func(c *contract.Contract) { c.Start.SHA = strings.Repeat("e", 40) },
	} {
		c := sample()
		change(&c)
		if gotSpec, gotKey := spec(c); gotSpec != wantSpec || gotKey != wantKey {
			t.Errorf("%s: another spec (%t) or shape (%t)", name, gotSpec != wantSpec, gotKey != wantKey)
		}
	}
}
