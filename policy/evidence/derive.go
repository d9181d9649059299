package evidence

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/countersign-dev/countersign/policy"
	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/policy/ledger"
)

// inputs reads what the contract was derived from and holds each document to
// the digests that were signed.
func (v *verifier) inputs() bool {
	p := v.statement.Predicate
	task, errTask := readDocument[contract.Task](v, ledger.FileTask)
	snapshot, errSnapshot := readDocument[contract.Snapshot](v, ledger.FileSnapshot)
	v.task, v.snapshot = task, snapshot
	ok := v.check("task", errTask, "asked by %s (%s), event %s", task.Actor.Login, task.Actor.Role, task.Event.Kind)
	ok = v.check("snapshot", errSnapshot, "read at %s", snapshot.Time) && ok
	if !ok {
		return false
	}
	a := v.same("task digest", "the task's digest", v.files[ledger.FileTask], p.Task)
	b := v.same("task of the snapshot", "the task that the snapshot is of", snapshot.TaskDigest, v.files[ledger.FileTask])
	c := v.same("snapshot digest", "the snapshot's digest", v.files[ledger.FileSnapshot], p.Snapshot)
	d := v.same("task run", "the task's run", task.RunID, p.RunID)
	return a && b && c && d
}

// readDocument reads a document and refuses another spelling than the
// canonical one, which alone has its digest.
func readDocument[D contract.Document](v *verifier, name string) (D, error) {
	var none D
	data, err := v.readSmall(name)
	if err != nil {
		return none, err
	}
	d, err := contract.Decode[D](data)
	if err != nil {
		return none, err
	}
	again, err := contract.Encode(d)
	if err != nil {
		return none, err
	}
	if !bytes.Equal(again, data) {
		return none, errors.New(name + " is not canonical JSON")
	}
	return d, nil
}

// openContracts opens every revision and compares it with the statement.
func (v *verifier) openContracts() bool {
	p := v.statement.Predicate
	for i, digest := range p.Contracts {
		name := fmt.Sprintf("contract %d", i+1)
		data, err := v.readSmall(ledger.ContractFile(i + 1))
		if err != nil {
			return v.check(name, err, "")
		}
		sealed, err := contract.Open(data)
		if err == nil && sealed.Digest() != digest {
			err = fmt.Errorf("its digest is %s, %s was signed", sealed.Digest(), digest)
		}
		if err == nil {
			err = v.agrees(sealed.Contract(), i+1)
		}
		if !v.check(name, err, "%s, level %s", sealed.Digest(), sealed.Contract().Level) {
			return false
		}
		v.contracts = append(v.contracts, sealed)
		v.report.Contract = sealed.Digest()
	}
	return true
}

// agrees compares a contract with what the statement repeats of it.
func (v *verifier) agrees(c contract.Contract, revision int) error {
	p := v.statement.Predicate
	var wrong []string
	for _, f := range []struct {
		what      string
		got, want any
	}{
		{"run", c.RunID, p.RunID}, {"tenant", c.Tenant, p.Tenant}, {"revision", c.Revision, revision},
		{"image", c.Image, p.Image}, {"policy", c.Policy, p.Policy}, {"snapshot", c.SnapshotDigest, p.Snapshot},
	} {
		if f.got != f.want {
			wrong = append(wrong, fmt.Sprintf("%s is %v, %v was signed", f.what, f.got, f.want))
		}
	}
	return problems(wrong)
}

// derivation decides again, from the recorded inputs, what the run may do.
func (v *verifier) derivation() {
	in := policy.Input{Task: v.task, Snapshot: v.snapshot}
	policyText, errPolicy := v.readSmall(ledger.FilePolicy)
	ceilingText, errCeiling := v.readSmall(ledger.FileCeiling)
	if !v.check("policy", errPolicy, "%s", v.files[ledger.FilePolicy]) || !v.check("ceiling", errCeiling, "%s", v.files[ledger.FileCeiling]) {
		return
	}
	var err error
	if in.Policy, err = policy.Parse(ledger.FilePolicy, policyText); err == nil {
		in.Ceiling, err = policy.ParseCeiling(ledger.FileCeiling, ceilingText)
	}
	if err != nil {
		v.unreadable(err)
		return
	}
	d := policy.Derive(in)
	if len(v.contracts) == 0 {
		v.refusal(d.Refusal)
		return
	}
	if d.Refusal != nil {
		v.add("derivation", false, "the inputs derive no contract: %v", d.Refusal)
		return
	}
	first, sealed := v.contracts[0], d.Sealed
	if sealed.Digest() != first.Digest() {
		v.add("derivation", false, "the inputs derive another contract; it differs in %s", differences(sealed.Contract(), first.Contract()))
		return
	}
	v.add("derivation", true, "the inputs derive %s", sealed.Digest())
}

// unreadable judges a bundle whose policy or ceiling is not valid: no contract
// can have come of it.
func (v *verifier) unreadable(err error) {
	if len(v.contracts) > 0 {
		v.check("derivation", err, "")
		return
	}
	v.add("derivation", true, "the run was refused because %v", err)
}

// refusal judges a run that ended before it had a contract.
func (v *verifier) refusal(r *policy.Refusal) {
	switch reason := v.statement.Predicate.Exit.Reason; {
	case r == nil:
		v.add("derivation", false, "the run is said to have had no contract, but the inputs derive one")
	case !strings.Contains(reason, ": "+r.Code+": "): // the message names files, which are others here
		v.add("derivation", false, "the inputs are refused with %s (%s), but the run ended with: %s", r.Code, r.Message, reason)
	default:
		v.add("derivation", true, "the inputs derive no contract: %s", r.Message)
	}
}

// differences names the places in which two contracts differ, a few of them.
func differences(derived, sealed contract.Contract) string {
	changes := contract.Diff(derived, sealed)
	var names []string
	for i, c := range changes {
		if i == 5 {
			names = append(names, fmt.Sprintf("%d more", len(changes)-i))
			break
		}
		names = append(names, c.String())
	}
	if len(names) == 0 {
		return "its encoding"
	}
	return strings.Join(names, ", ")
}

// revisions holds every later contract to the one before it. What a promotion
// added is not judged by this version, so more than one revision is refused.
func (v *verifier) revisions() {
	if len(v.contracts) == 0 {
		return
	}
	v.same("parent of contract 1", "the first contract's parent", v.contracts[0].Contract().Parent, "")
	for i := 1; i < len(v.contracts); i++ {
		name := fmt.Sprintf("contract %d", i+1)
		before, now := v.contracts[i-1], v.contracts[i]
		if v.same("parent of "+name, "its parent", now.Contract().Parent, before.Digest()) {
			v.add("promotion of "+name, false, "it was made by a promotion, which this version cannot judge; it changes %s",
				differences(before.Contract(), now.Contract()))
		}
	}
}
