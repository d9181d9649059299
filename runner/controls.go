package runner

import (
	"slices"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/policy/ledger"
	"github.com/countersign-dev/countersign/runner/shim/protocol"
)

// Controls says of each control of a sandbox whether it holds under the
// isolation, is weaker, and then how, or is refused: a run that needs it there
// ends with 125. It is repeated in the evidence.
func Controls(isolation contract.Isolation) []ledger.Control {
	names := []string{
		"no network interface but loopback", "no engine socket", "unprivileged uid, one per live run", "no capabilities", "no_new_privs",
		"seccomp", "read-only root", "only the named roots writable", "denied paths unreadable", "private IPC, PID and cgroup namespaces",
		"no devices but the harmless ones", "no core dumps", "init untouchable", "memory without swap", "process count", "CPU", "workspace bytes",
		"inode limits", "temporary space", "wall clock", "image settings without effect", "limits read back", "mount flags read back", "peer identification",
		// Of the way out: decided by the run's proxy, for each connection and request.
		"only listed hosts and ports", "addresses checked before they are dialled", "one name of tunnel, TLS and requests", "requests that parsers read alike",
		"methods and paths where requests are read", "upload budgets", "look-ups stay inside", "a way out of its own, without control on it",
		"injected credentials stay outside", "secret files in memory", "secrets masked in output",
	}
	var out []ledger.Control
	for _, n := range names {
		c := ledger.Control{Name: n, Holds: ledger.ControlHolds}
		for _, w := range weaknesses(isolation) {
			if w.control == n {
				c.Holds, c.Note = ledger.ControlWeaker, w.why
				if w.refused {
					c.Holds = ledger.ControlRefused
				}
			}
		}
		out = append(out, c)
	}
	return out
}

// weakness is one control that is weaker under an isolation, with the exact
// readings that canaries may have because of it. Any other reading is wrong
// there too: a weakness that is not in this table ends the run.
type weakness struct {
	control  string
	why      string
	refused  bool // a run that needs the control has no sandbox
	canaries []string
	got      []string
}

// weaknesses of an isolation. runc has none: it is what the controls are
// written for.
func weaknesses(isolation contract.Isolation) []weakness {
	if isolation != contract.IsolationRunsc {
		return nil
	}
	return []weakness{
		{
			control: "init untouchable",
			why: "gVisor lets a process of the same uid end PID 1, which ends the run as fail_closed, and open its environ, maps and fd in /proc: " +
				"the environment holds PATH, HOME and HOSTNAME alone, the addresses are of a process that cannot be traced or written, and of the descriptors the control connection, a socket, cannot be opened, only the workload's own output and the container's unused log; mem, root, cwd and exe are refused",
			canaries: []string{"proc /proc/1/environ", "proc /proc/1/maps", "proc /proc/1/fd"},
			got:      []string{resultOK},
		},
		{
			control: "seccomp",
			why: "gVisor's filter answers every refused call with EPERM, so that clone3, splice and tee, whose callers need another answer, are left to its own kernel, not the host's: " +
				"it has no clone3 (ENOSYS) and no pidfd_open for pidfd_getfd to be tried on, and its splice and tee copy between its own buffers",
			canaries: []string{"syscall clone3", "syscall splice", "syscall tee", "syscall pidfd_getfd(1)"},
			got:      []string{"ENOSYS", "EBADF"},
		},
		{
			control: "process count",
			why: "gVisor's own threads count too, and at the limit it gives up: the whole sandbox ends, with a status that is gVisor's; " +
				"the outcome names the limit where the host could still read the kernel's counter (pids.events), and is fail_closed where not",
		},
		{
			control: "denied paths unreadable",
			refused: true,
			why: "gVisor masks no path: what lies in the workspace is not delivered, a run whose image holds a denied path ends with 125 before the workload starts, " +
				"and the files of /proc and /sys are gVisor's own and say nothing of the host",
		},
		{
			control: "no devices but the harmless ones",
			why:     "gVisor's own kernel has /dev/fuse and /dev/net/tun, which can be opened; without a capability nothing can be mounted or made with them, and neither is the host's",
		},
		{
			control:  "inode limits",
			why:      "gVisor keeps no inode limit of its own tmpfs (/tmp, /home/agent, /run/secret); their bytes and the memory of the sandbox bound it, and the workspace's inodes are limited by the host",
			canaries: []string{"inodes " + HomeDir, "inodes " + TmpDir, "inodes " + protocol.SecretDir},
			got:      []string{"0"},
		},
		{
			control:  "limits read back",
			why:      "gVisor shows no control group inside and no line of ambient capabilities; the engine's own record of the limits was compared, and what is not permitted cannot be ambient (capabilities(7))",
			canaries: []string{"limit memory", "limit memory_swap", "limit pids", "limit cpu_milli", "status CapAmb"},
			got:      []string{unreadable, ""},
		},
		{
			control:  "mount flags read back",
			why:      "gVisor does not show nosuid and nodev; a set-user-id bit has no effect in it and no device node can be made",
			canaries: []string{"mount " + WorkspaceDir, "mount " + HomeDir, "mount " + TmpDir, "mount " + ShmDir, "mount " + protocol.SecretDir},
			got:      []string{"rw", "ro", "noexec,rw"},
		},
		{
			control: "peer identification",
			why:     "connections to the control socket and to the proxy come from gVisor's gofer as uid 0, so they are known by their sockets alone, which lie in a directory of the run's own",
		},
	}
}

// weaker finds what is stated of a canary under an isolation.
func weaker(isolation contract.Isolation, canary string) (weakness, bool) {
	for _, w := range weaknesses(isolation) {
		if slices.Contains(w.canaries, canary) {
			return w, true
		}
	}
	return weakness{}, false
}
