package main

import (
	"maps"
	"testing"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/policy/ledger"
	"github.com/countersign-dev/countersign/runner"
)

// A supervisor gets a signature for what it was given and nothing else.
func TestAgrees(t *testing.T) {
	order := runner.Order{Contract: []byte("{}"), Inputs: runner.Inputs{
		Task: []byte("t"), Snapshot: []byte("s"), Policy: []byte("p"), Ceiling: []byte("c"), Signer: []byte("k"),
	}}
	right := func() ledger.Predicate {
		d := func(s string) string { return contract.DigestBytes([]byte(s)) }
		return ledger.Predicate{Contracts: []string{d("{}")}, Files: map[string]string{
			ledger.FileTask: d("t"), ledger.FileSnapshot: d("s"), ledger.FilePolicy: d("p"), ledger.FileCeiling: d("c"),
			ledger.FileSigner: d("k"), ledger.ContractFile(1): d("{}"), ledger.FilePatch: d("whatever the workload changed"),
		}}
	}
	if err := agrees(right(), order); err != nil {
		t.Errorf("what was given: %v", err)
	}
	for name := range maps.Keys(right().Files) {
		if name == ledger.FilePatch {
			continue
		}
		for _, other := range []string{"", contract.DigestBytes([]byte("other"))} {
			p := right()
			p.Files[name] = other
			if agrees(p, order) == nil {
				t.Errorf("%s with the digest %q is signed", name, other)
			}
		}
	}
	for _, contracts := range [][]string{nil, {contract.DigestBytes([]byte("other"))}, append(right().Contracts, contract.DigestBytes([]byte("2")))} {
		p := right()
		p.Contracts = contracts
		if agrees(p, order) == nil {
			t.Errorf("the contracts %v are signed", contracts)
		}
	}
	order.Contract = nil // refused before there was one
	if agrees(right(), order) == nil {
		t.Error("a contract is signed where none was given")
	}
}
