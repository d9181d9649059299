package evidence

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/policy/ledger"
)

// ledgerChain checks the chain, that its end is the signed one, and that its
// first and last record say what the statement says.
func (v *verifier) ledgerChain() {
	p := v.statement.Predicate
	if _, ok := v.files[ledger.FileLedger]; !ok {
		v.add("ledger chain", false, "%s is missing", ledger.FileLedger)
		return
	}
	head, records, err := v.readLedger()
	if !v.check("ledger chain", err, "%d records", head.Records) {
		return
	}
	v.records = records
	if !v.same("ledger head", "its head", headText(head), headText(p.Ledger)) {
		return
	}
	if len(records) == 0 {
		v.add("ledger run", false, "the ledger is empty")
		return
	}
	first, last := records[0], records[len(records)-1]
	v.same("ledger run", "its run and tenant", fmt.Sprint(first.Run, " ", first.Tenant), fmt.Sprint(p.RunID, " ", p.Tenant))
	v.check("ledger begins", v.admitted(first), "with %s", first.Type)
	v.check("ledger ends", v.concluded(last), "with %s", last.Type)
	v.check("ledger between", v.between(), "it agrees with the statement")
}

func headText(h ledger.Head) string {
	return fmt.Sprintf("%s after %d records", h.Digest, h.Records)
}

func (v *verifier) admitted(first ledger.Record) error {
	p := v.statement.Predicate
	if len(p.Contracts) == 0 {
		return nil // refused before there was anything to admit
	}
	var a ledger.Admitted
	if first.Type != ledger.TypeAdmitted {
		return fmt.Errorf("the first record is %s, expected %s", first.Type, ledger.TypeAdmitted)
	}
	if err := contract.DecodeStrict(first.Data, &a); err != nil {
		return err
	}
	if a.Contract != p.Contracts[0] {
		return fmt.Errorf("the run was admitted under %s, %s was signed", a.Contract, p.Contracts[0])
	}
	return nil
}

// concluded compares the last record's outcome with the signed one. The record
// was escaped when it was written.
func (v *verifier) concluded(last ledger.Record) error {
	if last.Type != ledger.TypeConcluded {
		return fmt.Errorf("the last record is %s, expected %s", last.Type, ledger.TypeConcluded)
	}
	want := v.statement.Predicate.Exit
	want.Reason = contract.Escape(want.Reason)
	data, err := contract.EncodeCanonical(want)
	if err != nil {
		return err
	}
	if !bytes.Equal(data, last.Data) {
		return fmt.Errorf("the run ended with %s, %s was signed", last.Data, data)
	}
	return nil
}

// between compares the records that repeat something of the statement.
func (v *verifier) between() error {
	p := v.statement.Predicate
	var wrong []string
	differ := func(r ledger.Record, what, got, want string) {
		if got != want {
			wrong = append(wrong, fmt.Sprintf("record %d: %s is %s, %s was signed", r.Seq, what, got, want))
		}
	}
	for _, r := range v.records {
		var data struct {
			Spec  string `json:"spec"`
			Patch string `json:"patch"`
			Code  int    `json:"code"`
		}
		switch r.Type {
		case ledger.TypeCreating, ledger.TypeTaken, ledger.TypeCaptured, ledger.TypeExited:
			if err := json.Unmarshal(r.Data, &data); err != nil {
				wrong = append(wrong, fmt.Sprintf("record %d: %v", r.Seq, err))
				continue
			}
		}
		switch r.Type {
		case ledger.TypeCreating, ledger.TypeTaken:
			differ(r, "the spec's digest", data.Spec, p.Spec)
		case ledger.TypeCaptured:
			differ(r, "the patch's digest", data.Patch, p.Files[ledger.FilePatch])
		case ledger.TypeExited:
			if p.Exit.WorkloadExit != nil {
				differ(r, "the engine's exit status", fmt.Sprint(data.Code), fmt.Sprint(*p.Exit.WorkloadExit))
			}
		}
	}
	return problems(wrong)
}

// outcome holds the outcome to the table of DESIGN §7 and to the rest of the
// statement.
func (v *verifier) outcome() {
	p := v.statement.Predicate
	e := p.Exit
	err := contract.Validate(contract.Outcome{
		RunID: p.RunID, State: e.State, ExitCode: e.ExitCode, WorkloadExit: e.WorkloadExit,
		DurationMS: e.DurationMS, OOM: e.OOM, TimedOut: e.TimedOut, Egress: p.Egress, Promotions: p.Promotions,
		Patch: contract.PatchStats{Files: p.Patch.Files, Bytes: p.Patch.Bytes},
	})
	v.check("outcome", err, "%s, exit status %d: %s", e.State, e.ExitCode, e.Reason)
	v.check("outcome and canaries", v.canaries(), "%d canaries", len(p.Canaries))
	v.check("outcome and sandbox", v.sandboxed(), "they agree")
	v.size("size of the patch", ledger.FilePatch, p.Patch.Bytes)
	v.size("size of the output", ledger.FileOutput, p.Output.Bytes)
}

// canaries: a wrong one ends a run fail_closed, and a workload ran only after
// the first stage, and ended well only before the second.
func (v *verifier) canaries() error {
	p := v.statement.Predicate
	stages := map[string]bool{}
	for _, c := range p.Canaries {
		stages[c.Stage] = true
		if !c.OK && p.Exit.State != contract.StateFailClosed {
			return fmt.Errorf("the check %s was wrong %s the workload, but the run ended %s", c.Name, c.Stage, p.Exit.State)
		}
	}
	switch {
	case p.Exit.WorkloadExit != nil && !stages["before"]:
		return fmt.Errorf("a workload ran, but the sandbox was not checked before it")
	case p.Exit.State == contract.StateCompleted && !stages["after"]:
		return fmt.Errorf("the run completed, but the sandbox was not checked after the workload")
	}
	return nil
}

// sandboxed: without a container nothing can have run.
func (v *verifier) sandboxed() error {
	p := v.statement.Predicate
	switch ran := p.Exit.WorkloadExit != nil; {
	case ran && p.Spec == "":
		return fmt.Errorf("a workload ran, but no container was ordered")
	case ran && p.Exit.State == contract.StateRefused:
		return fmt.Errorf("a workload ran in a run that was refused")
	case p.Spec == "" && len(p.Mounts) > 0:
		return fmt.Errorf("there are mounts, but no container was ordered")
	case len(p.Contracts) == 0 && (p.Spec != "" || p.Exit.State != contract.StateRefused && p.Exit.State != contract.StateFailClosed):
		return fmt.Errorf("the run had no contract, but it ended %s", p.Exit.State)
	}
	return nil
}

func (v *verifier) size(name, file string, want int64) {
	info, err := fs.Stat(v.fsys, file)
	if err == nil && info.Size() != want {
		err = fmt.Errorf("%s has %d bytes, %d were signed", file, info.Size(), want)
	}
	v.check(name, err, "%d bytes", want)
}
