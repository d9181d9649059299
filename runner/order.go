package runner

import (
	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/policy/ledger"
	"github.com/countersign-dev/countersign/runner/workspace"
)

// Order is what a supervising process is told about its one run. It holds only
// that run's facts.
type Order struct {
	// Contract is the sealed contract's bytes.
	Contract []byte `json:"contract"`
	Inputs   Inputs `json:"inputs"`
	// Repo is the host directory of the repository that the start commit is
	// read from. Dirty is the working copy that takes the commit tree's place,
	// "" for the commit's own tree.
	Repo  string `json:"repo"`
	Dirty string `json:"dirty"`
	// Evidence is the bundle's directory; it must not exist.
	Evidence string         `json:"evidence"`
	Builder  ledger.Builder `json:"builder"`
	// Transport is "" (direct where this process can reach the volume, else
	// streamed), "direct" or "streamed".
	Transport string `json:"transport"`
	// Resolver is the name server (ADDRESS or ADDRESS:PORT) that the proxy asks,
	// "" for the machine's own way of finding names.
	Resolver string `json:"resolver"`
	// Secrets are the values of the contract's secret_refs, by name. An order is
	// written to the supervising process's standard input and nowhere else.
	Secrets map[string]string `json:"secrets"`
}

// Values of Order.Transport.
const (
	TransportDirect   = "direct"
	TransportStreamed = "streamed"
)

// Report is what a supervisor hands back: the outcome, what was left out of
// the patch, and the statement that its caller may sign. There is no statement
// when the evidence could not be written.
type Report struct {
	Outcome   contract.Outcome     `json:"outcome"`
	Omissions []workspace.Omission `json:"omissions"`
	Statement *ledger.Statement    `json:"statement"`
	// Start counts what the workspace began with.
	Start workspace.TreeStats `json:"start"`
	// NotTaken is what of a dirty checkout did not come into the workspace; where
	// the commit has the path, the commit's is there.
	NotTaken []workspace.Omission `json:"not_taken"`
	// Cut is how many bytes of output did not go into output.log.
	Cut int64 `json:"cut"`
}
