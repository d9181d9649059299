package runner

import (
	"time"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/policy/ledger"
)

// Refuse leaves the evidence of a task that got no contract: what was read, and
// why it ended there. why holds a refusal or a fault. Nothing was made and
// nothing ran, so it needs no process of its own.
func Refuse(order Order, task contract.Task, why Observed, now func() time.Time) (Report, error) {
	bundle, err := CreateBundle(order.Evidence, task.RunID, task.Tenant, now)
	if err != nil {
		return Report{}, err
	}
	out := Conclude(why)
	out.RunID, out.Evidence, out.Promotions = task.RunID, order.Evidence, []contract.PromotionRef{}
	bundle.WriteInputs(order.Inputs, nil)
	bundle.Ensure(ledger.FileOutput)
	bundle.Ensure(ledger.FilePatch)
	exit := exitOf(out)
	bundle.Record(ledger.TypeConcluded, exit)
	statement, err := bundle.Finish(ledger.Predicate{
		RunID: task.RunID, Tenant: task.Tenant,
		Task: contract.DigestBytes(order.Inputs.Task), Snapshot: contract.DigestBytes(order.Inputs.Snapshot),
		Exit: exit, Builder: order.Builder,
	})
	return Report{Outcome: out, Statement: statement}, err
}

func exitOf(out contract.Outcome) ledger.Exit {
	return ledger.Exit{
		State: out.State, ExitCode: out.ExitCode, WorkloadExit: out.WorkloadExit, Reason: out.Reason,
		DurationMS: out.DurationMS, OOM: out.OOM, TimedOut: out.TimedOut,
	}
}
