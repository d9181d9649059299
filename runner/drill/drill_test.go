package drill

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/runner/egress"
)

func TestWrong(t *testing.T) {
	for _, tt := range []struct {
		name, result string
		wrong        bool
	}{
		{"no read of /etc/shadow", "EACCES", false},
		{"no read of /etc/shadow", "ok", true},
		{"no marker of an earlier run", "none", false},
		{"no marker of an earlier run", "ok: /tmp/x", true},
		{"no end of PID 1", "PID 1 is there", false},
		{"no read of /etc/shadow", "", true},
		{"may write in /tmp", "ok", false},
		{"may write in /tmp", "EROFS", true},
		{"may write in /tmp", "", true},
		{"perhaps", "EROFS", true},
		{"", "ok", true},
	} {
		if got := (Attempt{Name: tt.name, Result: tt.result}).Wrong(); (got != "") != tt.wrong {
			t.Errorf("%q with %q: %q", tt.name, tt.result, got)
		}
	}
}

func TestJudgeAttempts(t *testing.T) {
	const here, devices = "mount crossing", "no device beyond the harmless"
	for _, tt := range []struct {
		name      string
		isolation contract.Isolation
		attempts  []Attempt
		want      Verdict
	}{
		{"none tried", "runc", nil, Fails},
		{"another control's", "runc", []Attempt{{"PID 1", "no limit of PID 1", "EPERM"}}, Fails},
		{"refused", "runc", []Attempt{{here, "no disk", "ENOENT"}}, Holds},
		{"got through", "runc", []Attempt{{here, "no disk", "ENOENT"}, {here, "no bind mount", "ok"}}, Fails},
		{"stated for gVisor, under runc", "runc", []Attempt{{here, devices, "ok"}}, Fails},
		{"stated, under gVisor", "runsc", []Attempt{{here, devices, "ok"}}, Weaker},
		{"stated, and refused all the same", "runsc", []Attempt{{here, devices, "ENOENT"}}, Holds},
		{"stated, and another got through", "runsc", []Attempt{{here, devices, "ok"}, {here, "no disk", "ok"}}, Fails},
	} {
		if got, why := judgeAttempts(tt.isolation, here, tt.attempts); got != tt.want {
			t.Errorf("%s: %s (%s), want %s", tt.name, got, why, tt.want)
		}
	}
}

func TestParseAttempts(t *testing.T) {
	const list = `[{"control": "a", "name": "no b", "result": "EPERM"}]`
	for _, tt := range []struct {
		output string
		n      int
		fails  bool
	}{
		{"", 0, false},
		{"some words\n", 0, false},
		{strings.Repeat(".", 5000) + "\n" + list + "\n", 1, false},
		{list[:30], 0, true},
	} {
		got, err := ParseAttempts(tt.output)
		if len(got) != tt.n || (err != nil) != tt.fails {
			t.Errorf("%.40q: %d attempts, %v", tt.output, len(got), err)
		}
	}
}

func exit(n int) *int { return &n }

// sound are findings in which every control holds, as a drill under runc has.
func sound() *findings {
	f := &findings{isolation: contract.IsolationRunc, secrets: []string{"drill-secret-0"}, works: map[string]*finding{}}
	probed := []stage{{Stage: "before", Checks: 300}, {Stage: "after", Checks: 300}}
	for i, name := range []string{workAttempts, workEgress, workNeighbour, workResidue, workAgain, workDaemons, workMemory, workProcesses, workDisk, workFlood, workClock} {
		f.works[name] = &finding{started: true, stages: slices.Clone(probed), Result: Result{Outcome: contract.Outcome{
			RunID: fmt.Sprint("run_", i), ContractDigest: fmt.Sprint("sha256:", i), State: contract.StateCompleted, WorkloadExit: exit(0), Reason: "exit: the workload exited with 0",
		}}}
	}
	for name, out := range map[string]contract.Outcome{
		workMemory:      {State: contract.StateFailed, ExitCode: 137, WorkloadExit: exit(137), Reason: "memory: reached"},
		workProcesses:   {State: contract.StateFailed, ExitCode: 1, WorkloadExit: exit(1), Reason: "pids: reached"},
		workDisk:        {State: contract.StateFailed, ExitCode: 1, WorkloadExit: exit(1), Reason: "disk: reached"},
		workClock:       {State: contract.StateTimedOut, ExitCode: 124, WorkloadExit: exit(137), TimedOut: true, Reason: "timeout: passed"},
		workNoEngine:    {State: contract.StateFailClosed, ExitCode: 125, Reason: "unavailable: no Docker Engine answers on /x"},
		workNoImage:     {State: contract.StateFailClosed, ExitCode: 125, Reason: "unavailable: the image x is not on this machine"},
		workNoIsolation: {State: contract.StateFailClosed, ExitCode: 125, Reason: "unavailable: the runtime runc is not registered"},
		workAskSocket:   {State: contract.StateRefused, ExitCode: 126, Reason: "refused: asks for the container engine's socket"},
	} {
		if f.works[name] == nil {
			f.works[name] = &finding{}
		}
		f.works[name].Outcome, f.works[name].Exit = out, out.ExitCode
	}
	first := f.works[workAttempts]
	first.Shown = []byte(`[{"HostConfig":{}}]`)
	first.patch = strings.Repeat("new file mode 120000\n", 6)
	onTheWay := egressControls()
	for _, c := range controls(f.isolation) {
		w := first
		if slices.ContainsFunc(onTheWay, func(o control) bool { return o.name == c.name }) {
			w = f.works[workEgress]
		}
		w.attempts = append(w.attempts, Attempt{c.name, "no way out", "EPERM"})
	}
	for _, w := range f.works {
		w.Evidence = "evidence"
	}
	soundWayOut(f)
	for _, name := range []string{workResidue, workAgain} {
		f.works[name].attempts = []Attempt{{residueControl, "no marker of an earlier run", "none"}}
	}
	f.works[workDaemons].output = "daemons are there\n"
	f.works[workDaemons].patch = "--- /dev/null\n+++ b/00-count\n@@ -0,0 +1 @@\n+0000000000000008\ndiff\n+++ b/zz-count\n@@ -0,0 +1 @@\n+0000000000000007\n"
	f.works[workFlood].logBytes = floodLog * mib
	f.works[workFlood].Said = []byte("countersign: output.log is full: 5 bytes\n")
	f.works[workClock].patch = "+++ b/before-the-end\n"
	return f
}

// soundWayOut is what two runs with a way out leave when every control of it
// holds.
func soundWayOut(f *findings) {
	f.key, f.knocked = "drill-secret-0", closedUnanswered
	const told = "countersign: unlisted.drill.test:80 is not in this run's contract (no rule); run again with --allow unlisted.drill.test:80\n"
	w := f.works[workEgress]
	w.output, w.Said = told+strings.Repeat("secret: ***\n", 5), []byte(told)
	w.ledger = wayOutLedger{connected: 3, closed: 3, requests: 2, refusals: 4, more: 1, denied: map[refusal]bool{}, totals: &contract.EgressTotals{Allowed: 5, Denied: 5}}
	for host, classes := range map[string][]egress.Class{
		hostUnlisted: {egress.ClassHost}, hostNeighbour: {egress.ClassHost}, hostInner: {egress.ClassAddress}, hostMapped: {egress.ClassAddress},
		hostMetadata: {egress.ClassAddress}, hostMetadata6: {egress.ClassAddress}, hostEmbedded: {egress.ClassAddress}, hostZero: {egress.ClassAddress},
		hostRebind: {egress.ClassAddress}, "2130706433": {egress.ClassName}, "[::1]": {egress.ClassName}, hostSecure: {egress.ClassMismatch},
		hostListed:    {egress.ClassPort, egress.ClassMismatch, egress.ClassMalformed, egress.ClassBounds, egress.ClassProtocol},
		hostGateway:   {egress.ClassMalformed, egress.ClassProtocol, egress.ClassPath, egress.ClassMethod},
		hostInspected: {egress.ClassMismatch, egress.ClassPath}, hostSink: {egress.ClassBudget}, hostSmall: {egress.ClassBudget}, hostSlender: {egress.ClassBudget},
		"": {egress.ClassPeer},
	} {
		for _, c := range classes {
			w.ledger.denied[refusal{host, c}] = true
		}
	}
	other := f.works[workNeighbour]
	other.attempts = []Attempt{{otherRun, "no host of the run beside it", "refused with 403"}}
	other.ledger.denied = map[refusal]bool{{hostListed, egress.ClassHost}: true}
	f.found = found{sunk: sinkUpload, questions: map[string]int{hostListed: 9, hostRebind: 2}}
	for _, host := range []string{hostListed, hostWild, hostSecure, hostSmall} {
		f.found.requests = append(f.found.requests, request{Host: host + ":1", Path: "/v1/upload", Body: 100})
	}
	for _, host := range []string{hostUpstream, hostUpstream, hostInspected, hostInspected} {
		f.found.requests = append(f.found.requests, request{Host: host, Path: "/v1/upload", Key: f.key, Body: 50})
	}
}

// Each row turns red by its own fault and by no other's.
func TestRows(t *testing.T) {
	if r := judge(sound()); !r.OK || r.Count(Fails)+r.Count(Weaker) > 0 || r.Count(Refused) != 4 {
		t.Fatalf("sound findings: %+v", r)
	}
	for _, tt := range []struct {
		row   string
		spoil func(*findings)
	}{
		{"engine missing", func(f *findings) { f.works[workNoEngine].Exit = 0 }},
		{"engine missing", func(f *findings) { f.works[workNoEngine].Outcome.Reason = "internal: something else" }},
		{"image missing", func(f *findings) { f.works[workNoImage].started = true }},
		{"isolation missing", func(f *findings) { delete(f.works, workNoIsolation) }},
		{"Docker's socket asked for", func(f *findings) { f.works[workAskSocket].Outcome.WorkloadExit = exit(0) }},
		{"checks of the sandbox", func(f *findings) { f.works[workDisk].stages = f.works[workDisk].stages[:1] }},
		{"checks of the sandbox", func(f *findings) { f.works[workDisk].stages[1].Checks = 0 }},
		{"checks of the sandbox", func(f *findings) { f.works[workDisk].stages[0].Wrong = []json.RawMessage{nil} }},
		{"nothing reached the host", func(f *findings) { f.hits = 1 }},
		{"links are not followed out", func(f *findings) { f.works[workAttempts].patch = "" }},
		{"links are not followed out", func(f *findings) { f.works[workAttempts].patch += "+root:x:0:0\n" }},
		{"links are not followed out", func(f *findings) { f.works[workAttempts].patch += "b/collect-fifo\n" }},
		{"links are not followed out", func(f *findings) { f.works[workAttempts].patch += "b/keys/deploy.pem\n" }},
		{"child processes end", func(f *findings) {
			f.works[workDaemons].patch = strings.Replace(f.works[workDaemons].patch, "7", "9", 1)
		}},
		{"child processes end", func(f *findings) { f.works[workDaemons].patch = "" }},
		{"child processes end", func(f *findings) { f.works[workDaemons].output = "" }},
		{"secrets in evidence and records", func(f *findings) { f.works[workDisk].leaks = []string{"ledger.jsonl"} }},
		{"secrets in evidence and records", func(f *findings) { f.works[workAttempts].Shown = nil }},
		{residueControl, func(f *findings) { f.works[workAgain].attempts[0].Result = "ok: /tmp/x" }},
		{residueControl, func(f *findings) { f.works[workResidue].attempts[0].Control = "private address" }},
		{residueControl, func(f *findings) { f.works[workAgain].Outcome.RunID = f.works[workResidue].Outcome.RunID }},
		{"memory", func(f *findings) { f.works[workMemory].Outcome.Reason = "exit: 137" }},
		{"processes", func(f *findings) { f.works[workProcesses].Outcome.State = contract.StateCompleted }},
		{"workspace bytes", func(f *findings) { f.works[workDisk].Outcome.Reason = "exit: 1" }},
		{"output", func(f *findings) { f.works[workFlood].logBytes = 2 * floodLog * mib }},
		{"output", func(f *findings) { f.works[workFlood].logBytes = 0 }},
		{"output", func(f *findings) { f.works[workFlood].Said = nil }},
		{"wall clock", func(f *findings) { f.works[workClock].Outcome.TimedOut = false }},
		{"wall clock", func(f *findings) { f.works[workClock].patch = "" }},
		{"evidence", func(f *findings) { f.works[workFlood].Verified = "exit status 1: bad" }},
		{"evidence", func(f *findings) { f.works[workEgress].Evidence = "" }},
		{"nothing is left", func(f *findings) { f.works[workFlood].Left = []string{"container"} }},
		{"nothing is left", func(f *findings) { f.works[workFlood].onHost = []string{"process 7"} }},
		{"nothing is left", func(f *findings) { f.works[workFlood].RepoChanged = true }},
		{"metadata address", func(f *findings) { spoil(f, "metadata address", "ok") }},
		{"Docker's socket", func(f *findings) { spoil(f, "Docker's socket", "ok") }},
		{"the way out that the contract gives", func(f *findings) { spoilWay(f, "the way out that the contract gives", "ok") }},
		{"the way out that the contract gives", func(f *findings) { f.found.requests = slices.Delete(f.found.requests, 1, 2) }},
		{"unlisted host", func(f *findings) { spoilWay(f, "unlisted host", "ok: not refused") }},
		{"unlisted host", func(f *findings) { f.found.forged = []string{"unlisted"} }},
		{"unlisted host", func(f *findings) { delete(f.works[workEgress].ledger.denied, refusal{hostListed, egress.ClassPort}) }},
		{"private address by name", func(f *findings) { f.found.forged = []string{"private"} }},
		{"metadata and this machine by name", func(f *findings) { delete(f.works[workEgress].ledger.denied, refusal{hostZero, egress.ClassAddress}) }},
		{"an answer that changes", func(f *findings) { f.found.questions[hostRebind] = 3 }},
		{"addresses in every spelling", func(f *findings) { f.found.forged = []string{"address"} }},
		{"one name: tunnel, server name, Host", func(f *findings) { f.found.forged = []string{"name"} }},
		{"requests that parsers disagree on", func(f *findings) { f.found.forged = []string{"smuggled"} }},
		{"other protocols", func(f *findings) { f.found.forged = []string{"protocol"} }},
		{"requests outside a rule", func(f *findings) { f.found.forged = []string{"rule"} }},
		{"upload budget", func(f *findings) { f.found.sunk++ }},
		{"upload budget", func(f *findings) { f.found.sunk = 0 }},
		{"upload budget", func(f *findings) { f.found.requests[3].Body = smallUpload + 1 }},
		{"upload budget", func(f *findings) { f.found.requests[3].Body = 0 }},
		{"upload budget", func(f *findings) { f.found.requests[4].Body = smallUpload + 1 }},
		{"look-ups leave nothing", func(f *findings) { f.found.questions["data.drill.test"] = 0 }},
		{"redirect to an unlisted host", func(f *findings) { f.found.forged = []string{"redirect"} }},
		{"piped download from an unlisted host", func(f *findings) { f.works[workEgress].Said = nil }},
		{"piped download from an unlisted host", func(f *findings) {
			f.works[workEgress].output = strings.ReplaceAll(f.works[workEgress].output, "--allow", "")
		}},
		{"the proxy's socket", func(f *findings) { spoilWay(f, "the proxy's socket", "ok: not refused") }},
		{"a foreign process at the proxy's socket", func(f *findings) { f.knocked = "" }},
		{"a foreign process at the proxy's socket", func(f *findings) { f.knocked = "HTTP/1.1 200 Connection established" }},
		{"a foreign process at the proxy's socket", func(f *findings) { delete(f.works[workEgress].ledger.denied, refusal{"", egress.ClassPeer}) }},
		{"injected credential", func(f *findings) { f.found.requests[4].Key = "" }},
		{"injected credential", func(f *findings) { f.found.requests[0].Key = f.key }},
		{"injected credential", func(f *findings) { f.found.requests[5].Authorization = "Bearer x" }},
		{"secret file", func(f *findings) {
			f.works[workEgress].output = strings.ReplaceAll(f.works[workEgress].output, "secret: ", "")
		}},
		{otherRun, func(f *findings) {
			f.works[workNeighbour].Outcome.ContractDigest = f.works[workEgress].Outcome.ContractDigest
		}},
		{otherRun, func(f *findings) { f.works[workNeighbour].Exit = 1 }},
		{otherRun, func(f *findings) { f.found.forged = []string{"neighbour"} }},
		{otherRun, func(f *findings) { f.works[workNeighbour].attempts[0].Result = "ok: not refused" }},
		{otherRun, func(f *findings) { f.works[workNeighbour].ledger.denied = nil }},
		{"records of the way out", func(f *findings) { f.works[workEgress].ledger.totals = nil }},
		{"records of the way out", func(f *findings) { f.works[workEgress].ledger.closed-- }},
		{"records of the way out", func(f *findings) { f.works[workEgress].ledger.refusals-- }},
		{"records of the way out", func(f *findings) { f.works[workEgress].ledger.named = true }},
		{"a new control", func(f *findings) { spoil(f, "a new control", "EPERM") }},
	} {
		f := sound()
		tt.spoil(f)
		r := judge(f)
		var red []string
		for _, row := range r.Rows {
			if row.Verdict == Fails {
				red = append(red, row.Control)
			}
		}
		// A container or process that is left of the daemons is both rows'.
		if r.OK || !slices.Equal(red, []string{tt.row}) {
			t.Errorf("%s: red are %q", tt.row, red)
		}
	}
}

func spoil(f *findings, control, result string) {
	w := f.works[workAttempts]
	w.attempts = append(w.attempts, Attempt{control, "no way out", result})
}

func spoilWay(f *findings, control, result string) {
	w := f.works[workEgress]
	w.attempts = append(w.attempts, Attempt{control, "no way out", result})
}

// What was not performed is no success.
func TestNothingFound(t *testing.T) {
	r := judge(&findings{isolation: contract.IsolationRunsc, works: map[string]*finding{}})
	for _, row := range r.Rows {
		if row.Verdict != Fails && row.Control != "secrets in output and errors" {
			t.Errorf("%s: %s", row.Control, row.Verdict)
		}
	}
}

// Under gVisor a lost sandbox is stated where the table says so, and an honest
// end is still one.
func TestWeakerRows(t *testing.T) {
	lost := Result{Exit: 125, Outcome: contract.Outcome{State: contract.StateFailClosed, ExitCode: 125, Reason: "lost: the sandbox broke off"}}
	f := &findings{isolation: contract.IsolationRunsc, works: map[string]*finding{workProcesses: {Result: lost}, workKillInit: {Result: lost}}}
	for _, j := range []func(*findings) (Verdict, string){processes, endedInit} {
		if v, why := j(f); v != Weaker {
			t.Errorf("%s: %s", v, why)
		}
	}
	status := 2
	f.works[workProcesses].Outcome = contract.Outcome{State: contract.StateFailed, ExitCode: 2, WorkloadExit: &status, Reason: "pids: the limit was reached, and the sandbox ended with 2"}
	if v, why := processes(f); v != Weaker {
		t.Errorf("%s: %s", v, why)
	}
	f.works[workProcesses].Outcome.Reason = "exit: the workload exited with 2"
	if v, why := processes(f); v != Fails {
		t.Errorf("without the limit's name %s: %s", v, why)
	}
	f.works[workProcesses].Result = lost
	f.isolation = contract.IsolationRunc
	for _, j := range []func(*findings) (Verdict, string){processes, endedInit} {
		if v, why := j(f); v != Fails {
			t.Errorf("under runc %s: %s", v, why)
		}
	}
}

// fake answers every work with one result.
type fake struct {
	result Result
	err    error
	files  map[string]string

	mu    sync.Mutex
	works []Work
}

func (f *fake) Commit(_ context.Context, files map[string]string) error {
	f.files = files
	return nil
}

func (f *fake) Run(_ context.Context, w Work) (Result, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.works = append(f.works, w)
	return f.result, f.err
}

func drillOf(t *testing.T, s Sealed, isolation contract.Isolation) (Report, error) {
	return Run(context.Background(), Config{
		Sealed: s, Isolation: isolation, Image: "example/image:1", Dir: filepath.Join(t.TempDir(), "d"), Rand: rand.Reader, Now: time.Now,
	})
}

// Without a sandbox there is no verdict.
func TestUnable(t *testing.T) {
	for name, s := range map[string]*fake{
		"no result":   {err: errors.New("nothing there")},
		"no workload": {result: Result{Exit: 125, Outcome: contract.Outcome{ExitCode: 125, Reason: "unavailable: no engine"}}},
	} {
		_, err := drillOf(t, s, contract.IsolationRunc)
		var unable *Unable
		if !errors.As(err, &unable) || len(s.works) != 1 {
			t.Errorf("%s: %v after %d works", name, err, len(s.works))
		}
	}
}

// Works that do nothing leave a red table; and no work is told a planted secret
// other than by the host's environment and the denied file.
func TestWorks(t *testing.T) {
	for _, isolation := range []contract.Isolation{contract.IsolationRunc, contract.IsolationRunsc} {
		s := &fake{result: Result{Outcome: contract.Outcome{State: contract.StateCompleted, WorkloadExit: exit(0)}}}
		r, err := drillOf(t, s, isolation)
		if err != nil || r.OK || r.Count(Fails) < 30 {
			t.Errorf("%s: %v, %d rows fail", isolation, err, r.Count(Fails))
		}
		for _, w := range s.works {
			if told := strings.Join(w.Argv, " ") + w.Policy; strings.Contains(told, "drill-secret-") {
				t.Errorf("%s is told a secret: %s", w.Name, told)
			}
			if len(w.HostEnv) == 0 || w.Home == "" {
				t.Errorf("%s has no secrets around it", w.Name)
			}
		}
		if strings.Contains(s.files["inside.py"], "drill-secret-") || !strings.Contains(s.files["keys/deploy.pem"], "drill-secret-") {
			t.Error("the program holds what it looks for, or the denied file does not")
		}
	}
}
