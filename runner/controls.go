package runner

import (
	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/policy/ledger"
)

// Controls says of each control of a sandbox whether it holds under the
// isolation or is weaker, and then how. It is repeated in the evidence. There
// is no third value: an engine that cannot give a control has no run.
func Controls(isolation contract.Isolation) []ledger.Control {
	weaker := map[string]string{}
	if isolation == contract.IsolationRunsc {
		weaker = map[string]string{
			"init untouchable":    "gVisor lets a process of the same uid end PID 1 and read its /proc files; nothing is kept there, and a run whose PID 1 ended is fail_closed",
			"inode limits":        "gVisor ignores the inode limits of tmpfs; bytes and memory still bound it",
			"seccomp":             "gVisor applies the profile to the calls it forwards itself; what it refuses, it refuses in its own kernel",
			"limits read back":    "gVisor shows no limits of the host's cgroup inside; the engine's own record was compared",
			"peer identification": "the control connection comes from gVisor's gofer, so it is known by its socket alone",
		}
	}
	names := []string{
		"no network interface but loopback", "no engine socket", "unprivileged uid, one per live run", "no capabilities", "no_new_privs",
		"seccomp", "read-only root", "only the named roots writable", "denied paths unreadable", "private IPC, PID and cgroup namespaces",
		"no devices but the harmless ones", "no core dumps", "init untouchable", "memory without swap", "process count", "CPU", "workspace bytes",
		"inode limits", "temporary space", "wall clock", "image settings without effect", "limits read back", "peer identification",
	}
	var out []ledger.Control
	for _, n := range names {
		c := ledger.Control{Name: n, Holds: ledger.ControlHolds}
		if note, ok := weaker[n]; ok {
			c.Holds, c.Note = ledger.ControlWeaker, note
		}
		out = append(out, c)
	}
	return out
}
