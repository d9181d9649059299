package drill

import (
	"fmt"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/runner"
)

// control is one row: what is tried, and the judge over what was found. A judge
// is pure.
type control struct {
	name  string
	tried string
	judge func(*findings) (Verdict, string)
}

// controls is the table of a drill.
func controls(isolation contract.Isolation) []control {
	list := []control{
		{"engine missing", "a run at an address where no engine answers", refused(workNoEngine, contract.ExitFailClosed, "no Docker Engine answers")},
		{"image missing", "a run of an image that is not on this machine", refused(workNoImage, contract.ExitFailClosed, "is not on this machine")},
		{"isolation missing", "a run on an engine that does not have the isolation", refused(workNoIsolation, contract.ExitFailClosed, string(isolation))},
		{"Docker's socket asked for", "a policy that makes /var/run/docker.sock a writable root", refused(workAskSocket, contract.ExitRefused, "the container engine's socket")},
		{"checks of the sandbox", "canaries before and after each workload; readings that are all wrong, given to their judge", canaries},
		attempted("what the contract gives", "writing the roots, reading the workspace, running its scripts, git"),
		attempted("piped download into a shell", "curl and python, from hosts, addresses and this machine's listener, piped into sh"),
		attempted("reading a private key", "keys of the host, planted ones too, denied paths by name, link and git object"),
		attempted("metadata address", "TCP and UDP to clouds' addresses in several spellings, and by name"),
		attempted("private address", "TCP and UDP to private networks, loopback, the engine's bridge; an abstract socket"),
		attempted("unknown host", "look-ups, name servers, TCP and UDP to public addresses"),
		{"nothing reached the host", "the drill's own listeners, counted on the host", unreached},
		attempted("no network interface", "interfaces and routes"),
		attempted("socket families", "raw, packet, ping, vsock, crypto, netlink, MPTCP sockets"),
		attempted("Docker's socket", "engines' sockets by path, any socket that answers, a second control connection"),
		attempted("privileges", "uid, groups, capabilities, set-uid programs of the image and of its own"),
		attempted("refused system calls", "mount, namespaces, tracing, keys, kernel code, clocks, device nodes"),
		attempted("writing outside", "the root, programs, the shim, /proc/sys, /sys"),
		attempted("links out of the workspace", "hard links, symbolic links up, to /proc, to the host's files"),
		{"links are not followed out", "collecting a tree of links to planted files, a FIFO, a socket, a directory that became a link", collected},
		attempted("mount crossing", "mount, bind, unmount, host paths from the mount table, devices"),
		attempted("temporary directory", "the host's /tmp, /var/tmp, flags of /tmp"),
		attempted("PID 1", "its memory, environment, files, limits, signals"),
		attempted("child process", "other processes, privileges of children"),
		{"child processes end", "daemons in sessions of their own that ignore signals, one of them writing without pause", childrenEnd},
		attempted("the host's kernel and settings", "kernel memory and symbols, host name, name servers"),
		attempted("secrets of the host", "environments, command lines, files, history, caches, git"),
		{"secrets in evidence and records", "planted values sought in output, errors, evidence, container, volume, image layers", noLeaks},
		{"secrets in output and errors", "a known secret in nine spellings, cut in two, through the filter of output", redacted},
		attempted("core dumps", "a process that crashes, the limit, raising it"),
		{"residue of an earlier run", "two runs in a row with markers in the tree, git, home, caches, /tmp, shared memory, PATH", noResidue},
		attempted("temporary space", "more bytes than /tmp, /home/agent and /dev/shm have"),
		attempted("inode limits", "more files than /tmp and the workspace have"),
		attempted("file size and open files", "a file of a terabyte, more than 8192 open files"),
		{"memory", fmt.Sprintf("a workload that takes all it can get, with %d MiB", memoryMiB), named(workMemory, contract.StateFailed, runner.ReasonMemory)},
		{"processes", fmt.Sprintf("a fork bomb, with %d processes", processMax), processes},
		{"workspace bytes", fmt.Sprintf("a file without end, with %d MiB", diskMiB), named(workDisk, contract.StateFailed, runner.ReasonDisk)},
		{"output", fmt.Sprintf("%d MiB of output, with %d MiB kept", floodKiB>>10, floodLog), bounded},
		{"wall clock", fmt.Sprintf("a workload and a daemon that ignore SIGTERM, with %d s", clockSec), inTime},
		{"evidence", "countersign verify on what each work left", verified},
		{"nothing is left", "containers, volumes, directories, processes and files of every work; the repository", nothingLeft},
	}
	list = append(list, egressControls()...)
	if isolation == contract.IsolationRunsc {
		list = append(list,
			control{"PID 1 ended by its own", "SIGKILL to PID 1 from a process of the same uid", endedInit},
			control{"denied path of the image", "a contract that denies a file of the image", deniedImage})
	}
	return list
}

// Table is what a drill tries under an isolation, with nothing of what happened.
func Table(isolation contract.Isolation) []Row {
	var rows []Row
	for _, c := range controls(isolation) {
		rows = append(rows, Row{Control: c.name, Tried: c.tried})
	}
	return rows
}

// judge applies the table.
func judge(f *findings) Report {
	r := Report{Isolation: f.isolation, OK: true, Attempts: len(f.attempts())}
	for _, c := range controls(f.isolation) {
		v, happened := c.judge(f)
		r.Rows = append(r.Rows, Row{Control: c.name, Tried: c.tried, Happened: happened, Verdict: v})
		r.OK = r.OK && v != Fails
	}
	for _, name := range strays(f) {
		r.Rows = append(r.Rows, Row{Control: name, Tried: "by the program inside", Happened: "no row of the table judges this", Verdict: Fails})
		r.OK = false
	}
	return r
}

// attempts of all works.
func (f *findings) attempts() []Attempt {
	var out []Attempt
	for _, name := range []string{workAttempts, workEgress, workNeighbour, workResidue, workAgain} {
		out = append(out, f.work(name).attempts...)
	}
	return out
}

// strays are controls that inside.py tried and no row is for.
func strays(f *findings) []string {
	var out []string
	for _, a := range f.attempts() {
		known := a.Control == residueControl || slices.ContainsFunc(controls(f.isolation), func(c control) bool { return c.name == a.Control })
		if !known && !slices.Contains(out, a.Control) {
			out = append(out, a.Control)
		}
	}
	return out
}

// work returns an empty finding, in which nothing holds, for one that was not
// performed.
func (f *findings) work(name string) *finding {
	if w := f.works[name]; w != nil {
		return w
	}
	return &finding{Result: Result{Exit: -1, Outcome: contract.Outcome{ExitCode: -1, Reason: "it was not performed"}}}
}

// Stated maps the attempts of the program inside that succeed under an
// isolation to the control, of runner.Controls, that is stated as weaker there.
// Any other success fails.
func Stated(isolation contract.Isolation) map[string]string {
	if isolation != contract.IsolationRunsc {
		return nil
	}
	return map[string]string{
		"no read of PID 1's environ":                    "init untouchable",
		"no read of PID 1's maps":                       "init untouchable",
		"no listing of PID 1's fd":                      "init untouchable",
		"no more than 4160 files in /tmp":               "inode limits",
		"no device beyond the harmless":                 "no devices but the harmless ones",
		"no read of /proc/cmdline":                      "denied paths unreadable", // gVisor's own
		"no set-uid bit with effect, no device in /tmp": "mount flags read back",   // it looks whether they are shown
	}
}

// note is the sentence about an attempt that may succeed, "" when it may not.
func note(isolation contract.Isolation, attempt string) string {
	if control, ok := Stated(isolation)[attempt]; ok {
		return noteOf(isolation, control)
	}
	return ""
}

// noteOf is what a run's evidence states of a control that is weaker under an
// isolation, "" when it holds.
func noteOf(isolation contract.Isolation, control string) string {
	for _, c := range runner.Controls(isolation) {
		if c.Name == control {
			return c.Note
		}
	}
	return ""
}

// attempted judges the attempts of one control in the first work.
func attempted(name, tried string) control {
	return control{name, tried, func(f *findings) (Verdict, string) {
		w := f.work(workAttempts)
		if w.Exit != 0 {
			return Fails, "the program did not come to its end: " + w.Outcome.Reason
		}
		return judgeAttempts(f.isolation, name, w.attempts)
	}}
}

func judgeAttempts(isolation contract.Isolation, name string, all []Attempt) (Verdict, string) {
	var wrong, notes []string
	tried, results := 0, map[string]int{}
	for _, a := range all {
		if a.Control != name {
			continue
		}
		tried++
		what := a.Wrong()
		switch n := note(isolation, a.Name); {
		case what != "" && n != "":
			if !slices.Contains(notes, n) {
				notes = append(notes, n)
			}
		case what != "":
			wrong = append(wrong, what)
		default:
			results[a.Result]++
		}
	}
	switch {
	case tried == 0:
		return Fails, "it was not tried"
	case len(wrong) > 0:
		return Fails, fmt.Sprintf("%d of %d: %s", len(wrong), tried, strings.Join(wrong, "; "))
	case len(notes) > 0:
		return Weaker, strings.Join(notes, "; ")
	}
	return Holds, fmt.Sprintf("%d tried: %s", tried, tally(results))
}

// tally lists what came back, the most frequent first.
func tally(results map[string]int) string {
	type count struct {
		result string
		n      int
	}
	var list []count
	for r, n := range results {
		list = append(list, count{r, n})
	}
	slices.SortFunc(list, func(a, b count) int {
		if a.n != b.n {
			return b.n - a.n
		}
		return strings.Compare(a.result, b.result)
	})
	var out []string
	for _, c := range list[:min(len(list), 5)] {
		out = append(out, fmt.Sprintf("%d %s", c.n, clip(c.result)))
	}
	if len(list) > 5 {
		out = append(out, "…")
	}
	return strings.Join(out, ", ")
}

func clip(s string) string {
	if r := []rune(s); len(r) > 60 {
		return string(r[:60]) + "…"
	}
	return s
}
