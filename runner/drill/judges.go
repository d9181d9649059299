package drill

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/runner"
	"github.com/countersign-dev/countersign/runner/redact"
	"github.com/countersign-dev/countersign/runner/shim/protocol"
)

// refused judges a work that must end with a status of ours before anything of
// it was started, for a reason that says why.
func refused(work string, exit int, why string) func(*findings) (Verdict, string) {
	return func(f *findings) (Verdict, string) {
		w := f.work(work)
		switch {
		case w.Exit != exit || w.Outcome.ExitCode != exit:
			return Fails, fmt.Sprintf("exit %d, not %d: %s", w.Exit, exit, w.Outcome.Reason)
		case !strings.Contains(w.Outcome.Reason, why):
			return Fails, fmt.Sprintf("exit %d for another reason: %s", exit, w.Outcome.Reason)
		case w.Outcome.WorkloadExit != nil || w.started || strings.Contains(w.output, "it ran"):
			return Fails, "a workload was started"
		}
		return Refused, fmt.Sprintf("exit %d: %s", exit, w.Outcome.Reason)
	}
}

// fewestChecks is a bound that no stage of canaries can honestly stay under: it
// tries every call of the protocol's list, and dozens of places beside.
func fewestChecks() int { return len(protocol.Calls()) + 40 }

// canaries wants them to have been judged around every workload that ended by
// itself, and their judge to find readings that are all wrong.
func canaries(f *findings) (Verdict, string) {
	checks := 0
	for _, name := range []string{workAttempts, workEgress, workNeighbour, workResidue, workAgain, workDaemons, workDisk, workFlood} {
		w := f.work(name)
		if len(w.stages) != 2 || w.stages[0].Stage != runner.StageBefore || w.stages[1].Stage != runner.StageAfter {
			return Fails, fmt.Sprintf("%s: the canaries were not judged before and after", name)
		}
		for _, s := range w.stages {
			if len(s.Wrong) > 0 || s.Checks < fewestChecks() {
				return Fails, fmt.Sprintf("%s: %d checks %s the workload, %d of them wrong", name, s.Checks, s.Stage, len(s.Wrong))
			}
			checks += s.Checks
		}
	}
	spec := runner.Spec{Isolation: f.isolation, UID: 1, MemoryBytes: 1, Pids: 1, NanoCPUs: 1, ShmBytes: 1}
	asked := runner.Probe(runner.StageBefore, contract.Contract{}, spec)
	found := runner.Judge(spec, asked, protocol.Probed{})
	out := runner.Conclude(runner.Observed{Canaries: found, Engine: &runner.Exit{}, Claimed: &protocol.Exited{}})
	if len(runner.Wrong(found)) < fewestChecks() || out.ExitCode != contract.ExitFailClosed {
		return Fails, fmt.Sprintf("of %d readings that were not made, %d were found wrong, and the run would have ended %s", len(found), len(runner.Wrong(found)), out.State)
	}
	return Holds, fmt.Sprintf("%d checks around eight workloads, none wrong; absent readings end a run with %d", checks, contract.ExitFailClosed)
}

func unreached(f *findings) (Verdict, string) {
	if f.hits > 0 {
		return Fails, fmt.Sprintf("%d connections arrived", f.hits)
	}
	if len(f.work(workAttempts).attempts) == 0 {
		return Fails, "it was not tried"
	}
	return Holds, "no connection arrived"
}

// collected wants links in the patch as links, and nothing of what they point
// to, nor what is neither a file nor a link.
func collected(f *findings) (Verdict, string) {
	w := f.work(workAttempts)
	const link = "new file mode 120000"
	switch n := strings.Count(w.patch, link); {
	case n < 6:
		return Fails, fmt.Sprintf("the patch has %d links: the program made more", n)
	case len(w.leaks) > 0:
		return Fails, "what a link points to is in " + strings.Join(w.leaks, ", ")
	case strings.Contains(w.patch, "root:x:0"):
		return Fails, "the host's or image's /etc/passwd is in the patch"
	case strings.Contains(w.patch, "collect-fifo") || strings.Contains(w.patch, "collect-socket"):
		return Fails, "a FIFO or socket is in the patch"
	case strings.Contains(w.patch, "deploy.pem"):
		return Fails, "a denied path is in the patch"
	default:
		return Holds, fmt.Sprintf("%d links came out as links, nothing of what they point to", n)
	}
}

func childrenEnd(f *findings) (Verdict, string) {
	w := f.work(workDaemons)
	first, last := counted(w.patch, "00-count"), counted(w.patch, "zz-count")
	switch {
	case w.Exit != 0 || !strings.Contains(w.output, "daemons are there"):
		return Fails, "the daemons were not started: " + w.Outcome.Reason
	case first == 0 || last == 0:
		return Fails, "what the daemon wrote was not collected"
	case first != last && first != last+1:
		return Fails, fmt.Sprintf("a daemon went on writing while the tree was collected: %d, then %d", first, last)
	case len(w.onHost) > 0:
		return Fails, "on the host there is " + strings.Join(w.onHost, ", ")
	}
	return Holds, fmt.Sprintf("they were ended before the tree was collected, after %d writes", last)
}

// counted is the number that the patch has as the one line of a new file, 0
// without one.
func counted(patch, file string) int64 {
	_, rest, _ := strings.Cut(patch, "\n+++ b/"+file+"\n")
	lines := strings.SplitN(rest, "\n", 3)
	if len(lines) < 3 {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimPrefix(lines[1], "+"), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func noLeaks(f *findings) (Verdict, string) {
	looked := f.work(workAttempts).Shown
	if len(looked) == 0 || !bytes.Contains(looked, []byte("HostConfig")) {
		return Fails, "the engine's records were not looked at while the workload ran"
	}
	for _, name := range slices.Sorted(maps.Keys(f.works)) {
		if leaks := f.works[name].leaks; len(leaks) > 0 {
			return Fails, fmt.Sprintf("%s: a planted value is in %s", name, strings.Join(leaks, ", "))
		}
	}
	return Holds, fmt.Sprintf("none of %d planted values, in any of %d works", len(f.secrets), len(f.works))
}

// redacted sends a secret through the filter that output goes through, cut at
// each of its bytes; what a run prints of a secret of its own is another row's.
func redacted(*findings) (Verdict, string) {
	const secret = "drill+redaction/secret 7Qx"
	m, err := redact.Compile(redact.Named{Name: "drill", Secret: redact.NewSecret([]byte(secret))})
	if err != nil {
		return Fails, err.Error()
	}
	spellings := []string{
		secret, hex.EncodeToString([]byte(secret)), strings.ToUpper(hex.EncodeToString([]byte(secret))),
		base64.StdEncoding.EncodeToString([]byte(secret)), base64.URLEncoding.EncodeToString([]byte(secret)),
		base64.RawStdEncoding.EncodeToString([]byte(secret)), base64.StdEncoding.EncodeToString([]byte("x" + secret)),
		url.QueryEscape(secret), url.PathEscape(secret),
	}
	for i, s := range spellings {
		for cut := range len(s) {
			var out bytes.Buffer
			w := m.Writer(&out)
			w.Write([]byte("before " + s[:cut]))
			w.Write([]byte(s[cut:] + " after"))
			if err := w.Close(); err != nil {
				return Fails, err.Error()
			}
			if w.Masked() == 0 || bytes.Contains(out.Bytes(), []byte(s)) {
				return Fails, fmt.Sprintf("spelling %d, cut at %d, came through", i+1, cut)
			}
			if !bytes.HasPrefix(out.Bytes(), []byte("before ")) || !bytes.HasSuffix(out.Bytes(), []byte(" after")) {
				return Fails, "what is no secret did not come through"
			}
		}
	}
	return Holds, "masked in each, wherever it was cut"
}

const residueControl = "residue of an earlier run"

func noResidue(f *findings) (Verdict, string) {
	tried := 0
	for _, name := range []string{workResidue, workAgain} {
		w := f.work(name)
		if w.Exit != 0 {
			return Fails, fmt.Sprintf("%s: the program did not come to its end: %s", name, w.Outcome.Reason)
		}
		if v, happened := judgeAttempts(f.isolation, residueControl, w.attempts); v != Holds {
			return Fails, name + ": " + happened
		}
		tried += len(w.attempts)
	}
	if f.work(workResidue).Outcome.RunID == f.work(workAgain).Outcome.RunID {
		return Fails, "the two runs were one"
	}
	return Holds, fmt.Sprintf("%d tried: each run found all of its own markers and none of an earlier one", tried)
}

// named judges a work that must run into one limit, and end by it with its name.
func named(work string, state contract.State, reason string) func(*findings) (Verdict, string) {
	return func(f *findings) (Verdict, string) {
		o := f.work(work).Outcome
		if o.State != state || !strings.HasPrefix(o.Reason, reason+": ") || o.WorkloadExit == nil {
			return Fails, fmt.Sprintf("%s, and the reason does not name it: %s", o.State, o.Reason)
		}
		return Holds, o.Reason
	}
}

// processes: at its limit gVisor gives up whole, which must not pass for a
// workload that ended by itself.
func processes(f *findings) (Verdict, string) {
	w := f.work(workProcesses)
	verdict, what := named(workProcesses, contract.StateFailed, runner.ReasonPids)(f)
	if why := noteOf(f.isolation, "process count"); why != "" && (verdict == Holds || closed(w)) {
		return Weaker, fmt.Sprintf("the run ended %s (%s); %s", w.Outcome.State, w.Outcome.Reason, why)
	}
	return verdict, what
}

// closed says that a run that was lost ended as one.
func closed(w *finding) bool {
	return w.Exit == contract.ExitFailClosed && w.Outcome.State == contract.StateFailClosed && strings.HasPrefix(w.Outcome.Reason, runner.ReasonLost+": ")
}

func bounded(f *findings) (Verdict, string) {
	w := f.work(workFlood)
	const most = floodLog*mib + 1024 // the last line says how much is missing
	switch {
	case w.Outcome.State != contract.StateCompleted:
		return Fails, "the flood ended the run: " + w.Outcome.Reason
	case w.logBytes > most:
		return Fails, fmt.Sprintf("output.log has %d bytes", w.logBytes)
	case w.logBytes < floodLog*mib/2:
		return Fails, fmt.Sprintf("output.log has only %d bytes", w.logBytes)
	case !bytes.Contains(w.Said, []byte("output.log is full")):
		return Fails, "it was cut off without a word"
	}
	return Holds, fmt.Sprintf("%d bytes kept, and the rest counted and said", w.logBytes)
}

func inTime(f *findings) (Verdict, string) {
	w := f.work(workClock)
	o := w.Outcome
	switch {
	case o.State != contract.StateTimedOut || w.Exit != contract.ExitTimedOut || !o.TimedOut:
		return Fails, fmt.Sprintf("exit %d, %s: %s", w.Exit, o.State, o.Reason)
	case !strings.Contains(w.patch, "before-the-end"):
		return Fails, "the patch is not what the tree was"
	}
	return Holds, fmt.Sprintf("exit %d: %s; the patch is what the tree was", w.Exit, o.Reason)
}

func verified(f *findings) (Verdict, string) {
	n := 0
	for _, name := range slices.Sorted(maps.Keys(f.works)) {
		w := f.works[name]
		if w.Verified != "" {
			return Fails, fmt.Sprintf("%s: %s", name, w.Verified)
		}
		if w.Evidence != "" {
			n++
		}
	}
	if f.work(workAttempts).Evidence == "" || f.work(workEgress).Evidence == "" {
		return Fails, "there is no evidence"
	}
	return Holds, fmt.Sprintf("the evidence of %d works is consistent", n)
}

func nothingLeft(f *findings) (Verdict, string) {
	for _, name := range slices.Sorted(maps.Keys(f.works)) {
		w := f.works[name]
		if left := slices.Concat(w.Left, w.onHost); len(left) > 0 {
			return Fails, fmt.Sprintf("%s: %s", name, strings.Join(left, ", "))
		}
		if w.RepoChanged {
			return Fails, name + ": the repository is not what it was"
		}
	}
	if len(f.works) == 0 {
		return Fails, "nothing was run"
	}
	return Holds, fmt.Sprintf("nothing after any of %d works, and the repository is what it was", len(f.works))
}

// endedInit: gVisor lets a process of the same uid end PID 1; then the run must
// end closed.
func endedInit(f *findings) (Verdict, string) {
	w := f.work(workKillInit)
	if strings.Contains(w.output, "PID 1 is there") {
		return Holds, "it could not be ended"
	}
	if why := noteOf(f.isolation, "init untouchable"); why != "" && closed(w) {
		return Weaker, fmt.Sprintf("the run ended %s with %d; %s", w.Outcome.State, w.Exit, why)
	}
	return Fails, fmt.Sprintf("exit %d, %s: %s", w.Exit, w.Outcome.State, w.Outcome.Reason)
}

// deniedImage: an isolation that masks nothing has no run for a contract that
// needs it.
func deniedImage(f *findings) (Verdict, string) {
	w := f.work(workDenied)
	why := noteOf(f.isolation, "denied paths unreadable")
	if v, happened := refused(workDenied, contract.ExitFailClosed, "/etc/debian_version")(f); v != Refused || why == "" || w.started {
		return Fails, happened
	}
	return Weaker, fmt.Sprintf("refused with %d before it started; %s", w.Exit, why)
}
