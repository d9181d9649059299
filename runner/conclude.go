package runner

import (
	"fmt"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/policy/ledger"
	"github.com/countersign-dev/countersign/runner/shim/protocol"
)

// Codes that a reason begins with; what follows the colon is for a person.
const (
	ReasonExit        = "exit"        // the workload ended by itself
	ReasonMemory      = "memory"      // ended at its memory limit
	ReasonPids        = "pids"        // ended at its limit of processes
	ReasonDisk        = "disk"        // ended with its workspace or another root full
	ReasonFileSize    = "file_size"   // ended by SIGXFSZ
	ReasonTimeout     = "timeout"     // wall clock
	ReasonRefused     = "refused"     // at admission
	ReasonUnavailable = "unavailable" // sandbox, image or isolation could not be had
	ReasonCanary      = "canary"      // a control was not seen to hold
	ReasonLost        = "lost"        // the sandbox or its supervisor died under the run
	ReasonEvidence    = "evidence"    // the bundle could not be written whole
	ReasonCancelled   = "cancelled"
	ReasonKilled      = "killed"
	ReasonInternal    = "internal" // a fault of ours
)

// Observed is all that was seen of one run, for Conclude.
type Observed struct {
	Limits contract.Limits
	// Refused lists what admission refused.
	Refused []string
	// Fault is what kept or threw the run out of its sandbox; FaultCode says
	// which kind. The first fault counts.
	Fault     string
	FaultCode string
	// Stop is why the host ended the workload: "", ReasonTimeout,
	// ReasonCancelled or ReasonKilled.
	Stop string
	// Canaries of both stages.
	Canaries []ledger.Canary
	// Claimed is what the shim said of the end; Engine is what the engine
	// recorded. Nil: there was none.
	Claimed *protocol.Exited
	Engine  *Exit
}

// Conclude decides how a run ended: state, exit status and reason, by the
// outcome table of DESIGN §7. What the engine recorded is the workload's exit;
// what the shim claims may only make the outcome worse.
func Conclude(o Observed) contract.Outcome {
	out := contract.Outcome{}
	if o.Engine != nil {
		out.OOM = o.Engine.OOMKilled
	}
	if o.Claimed != nil {
		out.OOM = out.OOM || o.Claimed.MemoryFailures > 0
	}
	out.TimedOut = o.Stop == ReasonTimeout || o.Claimed != nil && o.Claimed.TimedOut
	end := func(state contract.State, code int, reason, format string, args ...any) contract.Outcome {
		out.State, out.ExitCode = state, code
		out.Reason = reason + ": " + fmt.Sprintf(format, args...)
		return out
	}
	started := o.Claimed != nil && o.Claimed.NotStarted == ""
	if started && o.Engine != nil {
		code := o.Engine.Code
		out.WorkloadExit = &code
	}
	wrong := Wrong(o.Canaries)
	switch {
	case len(o.Refused) > 0:
		return end(contract.StateRefused, contract.ExitRefused, ReasonRefused, "%s", strings.Join(o.Refused, "; "))
	case len(wrong) > 0:
		w := wrong[0]
		return end(contract.StateFailClosed, contract.ExitFailClosed, ReasonCanary,
			"%d of %d checks of the sandbox were wrong, the first %s the workload: %s: want %s, got %q", len(wrong), len(o.Canaries), w.Stage, w.Name, w.Want, w.Got)
	case o.Stop == ReasonCancelled && o.FaultCode != ReasonEvidence:
		return end(contract.StateCancelled, contract.ExitCancelled, ReasonCancelled, "the run was cancelled")
	case o.Stop == ReasonKilled && o.FaultCode != ReasonEvidence:
		return end(contract.StateKilled, contract.ExitCancelled, ReasonKilled, "the run was killed")
	case o.FaultCode == ReasonLost && o.Engine != nil && o.Engine.OOMKilled && o.Engine.Code != 0:
		code := o.Engine.Code // PID 1 fell with the workload, or nothing could be checked after it
		out.WorkloadExit = &code
		return end(contract.StateFailed, code, ReasonMemory, "the memory limit of %d MiB was reached, and the sandbox ended with %d", o.Limits.MemoryMB, code)
	case o.FaultCode == ReasonLost && o.Engine != nil && o.Engine.PidsFailures > 0 && o.Engine.Code != 0:
		code := o.Engine.Code // gVisor's own kernel gives up when it is refused a thread
		out.WorkloadExit = &code
		return end(contract.StateFailed, code, ReasonPids, "the limit of %d processes was reached, and the sandbox ended with %d", o.Limits.Pids, code)
	case o.FaultCode == ReasonLost && out.OOM: // after a workload that ended well: it does not pass for that
		return end(contract.StateFailClosed, contract.ExitFailClosed, ReasonLost, "the memory limit of %d MiB was reached, and %s", o.Limits.MemoryMB, o.Fault)
	case o.Fault != "":
		return end(contract.StateFailClosed, contract.ExitFailClosed, o.FaultCode, "%s", o.Fault)
	case out.TimedOut:
		return end(contract.StateTimedOut, contract.ExitTimedOut, ReasonTimeout, "the wall clock of %d s passed", o.Limits.TimeoutSec)
	case o.Claimed == nil || o.Engine == nil:
		return end(contract.StateFailClosed, contract.ExitFailClosed, ReasonLost, "the sandbox did not say how the workload ended")
	case o.Claimed.Code != o.Engine.Code:
		return end(contract.StateFailClosed, contract.ExitFailClosed, ReasonLost,
			"the sandbox claims exit status %d, the engine recorded %d", o.Claimed.Code, o.Engine.Code)
	case !started && o.Engine.Code != 126 && o.Engine.Code != 127:
		return end(contract.StateFailClosed, contract.ExitFailClosed, ReasonInternal, "the workload could not be started: %s", o.Claimed.NotStarted)
	case !started: // as a shell says of a command that it cannot run
		code := o.Engine.Code
		out.WorkloadExit = &code
		return end(contract.StateFailed, code, ReasonExit, "the workload could not be started: %s", o.Claimed.NotStarted)
	case o.Engine.Code == 0:
		return end(contract.StateCompleted, 0, ReasonExit, "the workload exited with 0")
	}
	reason, sentence := whyFailed(o, out.OOM)
	return end(contract.StateFailed, o.Engine.Code, reason, "%s", sentence)
}

const sigxfsz = 25 // a file grew past RLIMIT_FSIZE

// whyFailed names the limit that ended a workload, if one did.
func whyFailed(o Observed, oom bool) (reason, sentence string) {
	code := o.Engine.Code
	switch {
	case oom:
		return ReasonMemory, fmt.Sprintf("the memory limit of %d MiB was reached, and the workload exited with %d", o.Limits.MemoryMB, code)
	case o.Claimed.PidsFailures > 0:
		return ReasonPids, fmt.Sprintf("the limit of %d processes was reached, and the workload exited with %d", o.Limits.Pids, code)
	case o.Claimed.WorkspaceFull:
		return ReasonDisk, fmt.Sprintf("the workspace of %d MiB and %d files was full, and the workload exited with %d", o.Limits.DiskMB, o.Limits.Files, code)
	case fullRoot(o.Claimed.FullRoots) != "":
		return ReasonDisk, fmt.Sprintf("%s was full, and the workload exited with %d", fullRoot(o.Claimed.FullRoots), code)
	case o.Claimed.Signal == sigxfsz:
		return ReasonFileSize, fmt.Sprintf("a file reached the size limit, and the workload exited with %d", code)
	case o.Claimed.Signal != 0:
		return ReasonExit, fmt.Sprintf("the workload was ended by signal %d", o.Claimed.Signal)
	}
	return ReasonExit, fmt.Sprintf("the workload exited with %d", code)
}

// fullRoot is the first of the roots that a sandbox claims to be full and has.
func fullRoot(claimed []string) string {
	for _, dir := range []string{TmpDir, HomeDir, ShmDir} {
		if slices.Contains(claimed, dir) {
			return dir
		}
	}
	return ""
}
