package runner

import (
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/policy/ledger"
	"github.com/countersign-dev/countersign/runner/shim/protocol"
)

func ended(code int) Observed {
	return Observed{Claimed: &protocol.Exited{Code: code}, Engine: &Exit{Code: code}}
}

// The outcome table of DESIGN §7: state, exit of run, reason's code, and the
// workload's own status (-1: none).
func TestConclude(t *testing.T) {
	with := func(o Observed, change func(*Observed)) Observed { change(&o); return o }
	bad := []ledger.Canary{{Stage: StageBefore, Name: "unix /run/docker.sock", Want: "refused", Got: "ok"}}
	good := []ledger.Canary{{Stage: StageBefore, Name: "interfaces", Want: "lo", Got: "lo", OK: true}}
	for _, tt := range []struct {
		name     string
		seen     Observed
		state    contract.State
		exit     int
		reason   string
		workload int
	}{
		{"exit 0", ended(0), contract.StateCompleted, 0, "exit", 0},
		{"exit 0, canaries right", with(ended(0), func(o *Observed) { o.Canaries = good }), contract.StateCompleted, 0, "exit", 0},
		{"exit 3", ended(3), contract.StateFailed, 3, "exit", 3},
		{"exit 125 of its own", ended(125), contract.StateFailed, 125, "exit", 125},
		{"exit 124 of its own", ended(124), contract.StateFailed, 124, "exit", 124},
		{"signal", Observed{Claimed: &protocol.Exited{Code: 139, Signal: 11}, Engine: &Exit{Code: 139}}, contract.StateFailed, 139, "exit", 139},
		{"child killed by memory, exit 0", Observed{Claimed: &protocol.Exited{MemoryFailures: 1}, Engine: &Exit{OOMKilled: true}}, contract.StateCompleted, 0, "exit", 0},
		{"killed by memory", Observed{Claimed: &protocol.Exited{Code: 137, Signal: 9, MemoryFailures: 1}, Engine: &Exit{Code: 137, OOMKilled: true}}, contract.StateFailed, 137, "memory", 137},
		{"PID 1 killed by memory", Observed{Fault: "broke off", FaultCode: ReasonLost, Engine: &Exit{Code: 137, OOMKilled: true}}, contract.StateFailed, 137, "memory", 137},
		{"memory full after exit 3", Observed{Fault: "probing", FaultCode: ReasonLost, Claimed: &protocol.Exited{Code: 3, MemoryFailures: 1}, Engine: &Exit{Code: 3, OOMKilled: true}}, contract.StateFailed, 3, "memory", 3},
		{"memory full after exit 0", Observed{Fault: "probing", FaultCode: ReasonLost, Claimed: &protocol.Exited{MemoryFailures: 1}, Engine: &Exit{OOMKilled: true}}, contract.StateFailClosed, 125, "lost", 0},
		{"gVisor at its limit of processes", Observed{Fault: "broke off", FaultCode: ReasonLost, Engine: &Exit{Code: 2, PidsFailures: 1}}, contract.StateFailed, 2, "pids", 2},
		{"gVisor at its limit of processes, exit 0", Observed{Fault: "broke off", FaultCode: ReasonLost, Engine: &Exit{PidsFailures: 1}}, contract.StateFailClosed, 125, "lost", -1},
		{"gVisor at its limit of processes, evidence lost", Observed{Fault: "disk full", FaultCode: ReasonEvidence, Engine: &Exit{Code: 2, PidsFailures: 1}}, contract.StateFailClosed, 125, "evidence", -1},
		{"pids", Observed{Claimed: &protocol.Exited{Code: 2, PidsFailures: 9}, Engine: &Exit{Code: 2}}, contract.StateFailed, 2, "pids", 2},
		{"disk", Observed{Claimed: &protocol.Exited{Code: 1, WorkspaceFull: true}, Engine: &Exit{Code: 1}}, contract.StateFailed, 1, "disk", 1},
		{"/tmp", Observed{Claimed: &protocol.Exited{Code: 1, FullRoots: []string{"/tmp"}}, Engine: &Exit{Code: 1}}, contract.StateFailed, 1, "disk", 1},
		{"/tmp full, exit 0", Observed{Claimed: &protocol.Exited{FullRoots: []string{"/tmp"}}, Engine: &Exit{}}, contract.StateCompleted, 0, "exit", 0},
		{"a root that no sandbox has", Observed{Claimed: &protocol.Exited{Code: 1, FullRoots: []string{"/etc"}}, Engine: &Exit{Code: 1}}, contract.StateFailed, 1, "exit", 1},
		{"file size", Observed{Claimed: &protocol.Exited{Code: 153, Signal: 25}, Engine: &Exit{Code: 153}}, contract.StateFailed, 153, "file_size", 153},
		{"no such program", Observed{Claimed: &protocol.Exited{Code: 127, NotStarted: "no such file"}, Engine: &Exit{Code: 127}}, contract.StateFailed, 127, "exit", 127},
		{"not executable", Observed{Claimed: &protocol.Exited{Code: 126, NotStarted: "permission denied"}, Engine: &Exit{Code: 126}}, contract.StateFailed, 126, "exit", 126},
		{"could not be started", Observed{Claimed: &protocol.Exited{Code: 125, NotStarted: "fork: no memory"}, Engine: &Exit{Code: 125}}, contract.StateFailClosed, 125, "internal", -1},
		{"wall clock, host", Observed{Stop: ReasonTimeout, Claimed: &protocol.Exited{Code: 143, Signal: 15}, Engine: &Exit{Code: 143}}, contract.StateTimedOut, 124, "timeout", 143},
		{"wall clock, shim", Observed{Claimed: &protocol.Exited{Code: 143, TimedOut: true}, Engine: &Exit{Code: 143}}, contract.StateTimedOut, 124, "timeout", 143},
		{"wall clock, shim dead", Observed{Stop: ReasonTimeout, Engine: &Exit{Code: 137}}, contract.StateTimedOut, 124, "timeout", -1},
		{"refused", Observed{Refused: []string{"network"}}, contract.StateRefused, 126, "refused", -1},
		{"no sandbox", Observed{Fault: "no engine", FaultCode: ReasonUnavailable}, contract.StateFailClosed, 125, "unavailable", -1},
		{"canary before", Observed{Canaries: bad}, contract.StateFailClosed, 125, "canary", -1},
		{"canary after success", with(ended(0), func(o *Observed) { o.Canaries = bad }), contract.StateFailClosed, 125, "canary", 0},
		{"canary and cancelled", with(ended(0), func(o *Observed) { o.Canaries, o.Stop = bad, ReasonCancelled }), contract.StateFailClosed, 125, "canary", 0},
		{"evidence", with(ended(0), func(o *Observed) { o.Fault, o.FaultCode = "disk full", ReasonEvidence }), contract.StateFailClosed, 125, "evidence", 0},
		{"evidence, cancelled", with(ended(0), func(o *Observed) { o.Fault, o.FaultCode, o.Stop = "disk full", ReasonEvidence, ReasonCancelled }), contract.StateFailClosed, 125, "evidence", 0},
		{"cancelled before the sandbox", Observed{Stop: ReasonCancelled}, contract.StateCancelled, 130, "cancelled", -1},
		{"cancelled", with(ended(143), func(o *Observed) { o.Stop = ReasonCancelled }), contract.StateCancelled, 130, "cancelled", 143},
		{"killed", with(ended(137), func(o *Observed) { o.Stop = ReasonKilled }), contract.StateKilled, 130, "killed", 137},
		{"sandbox broke off", Observed{Fault: "EOF", FaultCode: ReasonLost, Engine: &Exit{Code: 137}}, contract.StateFailClosed, 125, "lost", -1},
		{"shim lies about success", Observed{Claimed: &protocol.Exited{Code: 0}, Engine: &Exit{Code: 7}}, contract.StateFailClosed, 125, "lost", 7},
		{"nothing known", Observed{}, contract.StateFailClosed, 125, "lost", -1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := Conclude(tt.seen)
			workload := -1
			if got.WorkloadExit != nil {
				workload = *got.WorkloadExit
			}
			code, _, _ := strings.Cut(got.Reason, ":")
			if got.State != tt.state || got.ExitCode != tt.exit || code != tt.reason || workload != tt.workload {
				t.Errorf("got %s, exit %d, workload %d, reason %q", got.State, got.ExitCode, workload, got.Reason)
			}
		})
	}
}
