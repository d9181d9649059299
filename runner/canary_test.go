package runner

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/runner/shim/protocol"
)

// rightReading is what a sandbox in which everything holds would report.
func rightReading(spec Spec, asked protocol.Probe) protocol.Probed {
	got := protocol.Probed{Stage: asked.Stage, Links: []string{"lo"}, Mounts: map[string]protocol.MountReading{}}
	try := func(kind, target, result string) {
		got.Attempts = append(got.Attempts, protocol.Attempt{Kind: kind, Target: target, Result: result})
	}
	for _, n := range asked.Names {
		try("resolve", n, "ECONNREFUSED")
	}
	for _, a := range asked.Addresses {
		try("dial", a, "ENETUNREACH")
	}
	for _, s := range asked.Sockets {
		try("unix", s, "ENOENT")
	}
	for _, d := range asked.Unwritable {
		try("create", d, "EROFS")
	}
	for _, d := range asked.Writable {
		try("create", d, "ok")
	}
	for _, p := range asked.Unreadable {
		try("read", p, "empty")
	}
	try("ptrace", "1", "EPERM")
	for _, p := range initFiles {
		try("proc", p, "EACCES")
	}
	for _, c := range protocol.Calls() {
		if spec.Isolation == contract.IsolationRunsc {
			try("syscall", c.Name, "EPERM")
			continue
		}
		try("syscall", c.Name, c.Refused[0])
	}
	id := fmt.Sprintf("%[1]d\t%[1]d\t%[1]d\t%[1]d", spec.UID)
	none := "0000000000000000"
	got.Status = map[string]string{
		"Uid": id, "Gid": id, "Groups": "", "CapInh": none, "CapPrm": none, "CapEff": none, "CapBnd": none, "CapAmb": none, "NoNewPrivs": "1", "Seccomp": "2",
	}
	got.Limits = map[string]int64{"memory": spec.MemoryBytes, "memory_swap": 0, "pids": spec.Pids, "cpu_milli": spec.NanoCPUs / 1_000_000}
	for _, u := range spec.Ulimits {
		got.Limits[u.Name] = u.Value
	}
	got.Mounts["/"] = protocol.MountReading{Type: "overlay", Flags: "relatime,ro"}
	got.Mounts[ShmDir] = protocol.MountReading{Type: "tmpfs", Bytes: spec.ShmBytes, Flags: "nodev,noexec,nosuid,rw"}
	for _, m := range spec.Mounts {
		flags := "nodev,nosuid,rw"
		if m.ReadOnly {
			flags = "nodev,nosuid,ro"
		}
		got.Mounts[m.Target] = protocol.MountReading{Type: "tmpfs", Bytes: m.Bytes, Inodes: m.Inodes, Flags: flags}
	}
	return got
}

func judged(t *testing.T, isolation contract.Isolation) (Spec, protocol.Probe) {
	t.Helper()
	c := sample()
	c.Isolation = isolation
	c.Level, c.SecretRefs = contract.L2, []contract.SecretRef{{Name: "key", Ref: "env://KEY", Deliver: contract.DeliverFile}}
	if isolation == contract.IsolationRunsc {
		c.ExecutionClass = contract.ClassHardenedSandbox
	}
	spec, _, err := Compile(sealed(t, c), place())
	if err != nil {
		t.Fatal(err)
	}
	return spec, Probe(StageBefore, c, spec)
}

func TestJudgeAllRight(t *testing.T) {
	for _, isolation := range []contract.Isolation{contract.IsolationRunc, contract.IsolationRunsc} {
		spec, asked := judged(t, isolation)
		if wrong := Wrong(Judge(spec, asked, rightReading(spec, asked))); len(wrong) > 0 {
			t.Errorf("%s: %+v", isolation, wrong)
		}
	}
}

// Every attempt that succeeds where it must not, or fails where it must not, is
// found; so is every attempt that was not made.
func TestJudgeFindsEachAttempt(t *testing.T) {
	spec, asked := judged(t, contract.IsolationRunc)
	right := rightReading(spec, asked)
	for i, a := range right.Attempts {
		turned := "ok"
		if a.Result == "ok" {
			turned = "EROFS"
		}
		got := right
		got.Attempts = slices.Clone(right.Attempts)
		got.Attempts[i].Result = turned
		if len(Wrong(Judge(spec, asked, got))) == 0 {
			t.Errorf("%s %s = %s is not found", a.Kind, a.Target, turned)
		}
		got.Attempts = slices.Delete(slices.Clone(right.Attempts), i, i+1)
		if len(Wrong(Judge(spec, asked, got))) == 0 {
			t.Errorf("%s %s was not tried and nothing says so", a.Kind, a.Target)
		}
	}
}

// What the table states of an isolation is accepted there as it is stated, and
// nowhere else; each statement belongs to a control and gives a reason.
func TestJudgeWeaker(t *testing.T) {
	turn := func(spec Spec, asked protocol.Probe, name, reading string) []string {
		got := rightReading(spec, asked)
		kind, target, _ := strings.Cut(name, " ")
		switch kind {
		case "proc", "syscall":
			setAttempt(&got, kind, target, reading)
		case "status":
			got.Status[target] = reading
		case "limit":
			delete(got.Limits, target)
			if reading != unreadable {
				got.Limits[target] = 1
			}
		case "mount", "inodes":
			m := got.Mounts[target]
			if kind == "mount" {
				m.Flags = reading
			} else if m.Inodes = 1; reading == "0" {
				m.Inodes = 0
			}
			got.Mounts[target] = m
		default:
			t.Fatalf("%s: no such kind", name)
		}
		var wrong []string
		for _, w := range Wrong(Judge(spec, asked, got)) {
			wrong = append(wrong, w.Name)
		}
		return wrong
	}
	runc, askedRunc := judged(t, contract.IsolationRunc)
	runsc, askedRunsc := judged(t, contract.IsolationRunsc)
	for _, w := range weaknesses(contract.IsolationRunsc) {
		if w.why == "" || (len(w.canaries) == 0) != (len(w.got) == 0) {
			t.Errorf("%s: no reason, or canaries without readings", w.control)
		}
		for _, name := range w.canaries {
			if wrong := turn(runsc, askedRunsc, name, w.got[0]); len(wrong) > 0 && name != "status CapAmb" {
				t.Errorf("%s = %q is stated and yet wrong: %v", name, w.got[0], wrong)
			}
			other := "something else"
			if strings.HasPrefix(name, "proc ") { // where any error is a refusal
				other = resultNotTried
			}
			if wrong := turn(runsc, askedRunsc, name, other); !slices.Equal(wrong, []string{name}) {
				t.Errorf("%s reads as nobody stated, and wrong is %v", name, wrong)
			}
			if wrong := turn(runc, askedRunc, name, w.got[0]); !slices.Equal(wrong, []string{name}) && name != "syscall clone3" {
				t.Errorf("%s = %q under runc, and wrong is %v", name, w.got[0], wrong)
			}
		}
	}
	if len(weaknesses(contract.IsolationRunc)) > 0 {
		t.Error("runc has stated weaknesses")
	}
}

// One line a reading that is not as it must be.
func TestJudgeFindsEachReading(t *testing.T) {
	status := func(k, v string) func(*protocol.Probed) { return func(p *protocol.Probed) { p.Status[k] = v } }
	limit := func(k string, v int64) func(*protocol.Probed) { return func(p *protocol.Probed) { p.Limits[k] = v } }
	noLimit := func(k string) func(*protocol.Probed) { return func(p *protocol.Probed) { delete(p.Limits, k) } }
	flags := func(at, f string) func(*protocol.Probed) {
		return func(p *protocol.Probed) { m := p.Mounts[at]; m.Flags = f; p.Mounts[at] = m }
	}
	noMount := func(at string) func(*protocol.Probed) { return func(p *protocol.Probed) { delete(p.Mounts, at) } }
	size := func(at string, b, i int64) func(*protocol.Probed) {
		return func(p *protocol.Probed) { m := p.Mounts[at]; m.Bytes += b; m.Inodes += i; p.Mounts[at] = m }
	}
	for want, change := range map[string]func(*protocol.Probed){
		"status Uid":               status("Uid", "0\t0\t0\t0"),
		"status Gid":               status("Gid", "1234567\t0\t1234567\t1234567"),
		"status Groups":            status("Groups", "999"),
		"status CapEff":            status("CapEff", "0000000000000001"),
		"status CapBnd":            status("CapBnd", "000001ffffffffff"),
		"status CapAmb":            status("CapAmb", ""),
		"status NoNewPrivs":        status("NoNewPrivs", "0"),
		"status Seccomp":           status("Seccomp", "0"),
		"limit memory":             limit("memory", -1),
		"limit memory_swap":        limit("memory_swap", 1<<30),
		"limit pids":               limit("pids", 129),
		"limit cpu_milli":          noLimit("cpu_milli"),
		"limit core":               limit("core", -1),
		"limit nofile":             noLimit("nofile"),
		"interfaces":               func(p *protocol.Probed) { p.Links = append(p.Links, "eth0") },
		"routes":                   func(p *protocol.Probed) { p.Routes = []string{"eth0 00000000 010011AC"} },
		"mount /":                  flags("/", "relatime,rw"),
		"mount /workspace":         flags("/workspace", "nodev,rw"),
		"mount /tmp":               noMount("/tmp"),
		"mount /countersign":       flags("/countersign", "rw"),
		"mount /dev/shm":           flags("/dev/shm", "nosuid,nodev,rw"),
		"size /workspace":          size("/workspace", 4096, 0),
		"inodes /workspace":        size("/workspace", 0, 1),
		"size /dev/shm":            size("/dev/shm", 1, 0),
		"syscall socket(AF_VSOCK)": func(p *protocol.Probed) { setAttempt(p, "syscall", "socket(AF_VSOCK)", "EINVAL") },
		"dial udp/192.0.2.1:443": func(p *protocol.Probed) {
			p.Attempts = append(p.Attempts, protocol.Attempt{Kind: "dial", Target: "udp/192.0.2.1:443", Result: "ok"})
		},
		"create /opt": func(p *protocol.Probed) {
			p.Attempts = append(p.Attempts, protocol.Attempt{Kind: "create", Target: "/opt", Result: "ok"})
		},
	} {
		spec, asked := judged(t, contract.IsolationRunc)
		got := rightReading(spec, asked)
		change(&got)
		wrong := Wrong(Judge(spec, asked, got))
		// A mount that was not read has wrong size and inodes as well.
		if len(wrong) == 0 || wrong[0].Name != want || len(wrong) > 1 && want != "mount /tmp" {
			t.Errorf("want %q alone to be wrong, got %+v", want, wrong)
		}
	}
}

func setAttempt(p *protocol.Probed, kind, target, result string) {
	for i, a := range p.Attempts {
		if a.Kind == kind && a.Target == target {
			p.Attempts[i].Result = result
		}
	}
}

// What the workload left in a root is its own affair afterwards, and so is a
// file that it made where one was not delivered.
func TestProbeAfterLeavesTheRootsAlone(t *testing.T) {
	c := sample()
	spec, _, err := Compile(sealed(t, c), place())
	if err != nil {
		t.Fatal(err)
	}
	before, after := Probe(StageBefore, c, spec), Probe(StageAfter, c, spec)
	if slices.Contains(after.Unreadable, "/workspace/deploy/keys") || !slices.Contains(after.Unreadable, "/var/run/secrets") {
		t.Errorf("unreadable afterwards: %v", after.Unreadable)
	}
	if len(before.Writable) == 0 || len(after.Writable) != 0 {
		t.Errorf("writable before %v, after %v", before.Writable, after.Writable)
	}
	if !slices.Contains(before.Unreadable, "/workspace/deploy/keys") || !slices.Contains(before.Unreadable, "/var/run/secrets") {
		t.Errorf("unreadable: %v", before.Unreadable)
	}
	for _, name := range []string{CanaryName, UnlistedName} {
		if !slices.Contains(before.Names, name) {
			t.Errorf("%s is not tried", name)
		}
	}
	if strings.Join(before.Unwritable, " ") == "" {
		t.Error("nothing outside the roots is tried")
	}
}
