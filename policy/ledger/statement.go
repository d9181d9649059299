package ledger

import (
	"errors"
	"fmt"

	"github.com/countersign-dev/countersign/policy/contract"
)

// Types of the statement and its predicate.
//
// The statement is in-toto's, version 1 (in-toto/attestation,
// spec/v1/statement.md). It has structs of its own here because that project's
// Go types are protocol buffers, whose JSON encoding is not stable byte for byte
// and whose predicate has no type; a test reads ours with theirs.
const (
	StatementType = "https://in-toto.io/Statement/v1"
	PredicateType = "https://countersign.dev/run/v1"
	// PayloadType is the DSSE payload type of an in-toto statement.
	PayloadType = "application/vnd.in-toto+json"
)

// Statement is what is signed about one run.
type Statement struct {
	Type          string    `json:"_type"`
	Subject       []Subject `json:"subject"`
	PredicateType string    `json:"predicateType"`
	Predicate     Predicate `json:"predicate"`
}

// Subject is an in-toto resource descriptor: a name and digests by algorithm,
// in hexadecimal without a prefix.
type Subject struct {
	Name   string            `json:"name"`
	Digest map[string]string `json:"digest"`
}

// Predicate is what is claimed about the run. A digest is written "sha256:…".
type Predicate struct {
	RunID  string `json:"run_id"`
	Tenant int64  `json:"tenant"`
	// Contracts are the digests of every revision, first to last; none when
	// the run was refused before it had a contract.
	Contracts []string `json:"contracts"`
	// Spec is the digest of spec.json, "" when no container was to be made.
	Spec     string             `json:"spec"`
	Image    contract.Image     `json:"image"`
	Policy   contract.PolicyRef `json:"policy"`
	Task     string             `json:"task"`
	Snapshot string             `json:"snapshot"`
	// Mounts are those of the container, in its order.
	Mounts   []Mount   `json:"mounts"`
	Engine   Engine    `json:"engine"`
	Controls []Control `json:"controls"`
	Canaries []Canary  `json:"canaries"`
	// Egress counts what the way out let pass and refused; EgressRules has one
	// entry for each rule of the contract, in its order, and none when no way
	// out was opened.
	Egress      contract.EgressTotals   `json:"egress"`
	EgressRules []EgressRule            `json:"egress_rules"`
	Promotions  []contract.PromotionRef `json:"promotions"`
	// Decisions are the digests of the documents under decisions/.
	Decisions []string `json:"decisions"`
	Exit      Exit     `json:"exit"`
	// Patch counts what changes.patch holds.
	Patch  Patch  `json:"patch"`
	Output Output `json:"output"`
	Ledger Head   `json:"ledger"`
	// Files names every other file of the bundle, all but evidence.json.
	Files   map[string]string `json:"files"`
	Builder Builder           `json:"builder"`
}

// Exit is how the run ended (DESIGN §7): the state, what `run` exits with, the
// workload's own status or nil when none ran to its end, and why.
type Exit struct {
	State        contract.State `json:"state"`
	ExitCode     int            `json:"exit_code"`
	WorkloadExit *int           `json:"workload_exit"`
	Reason       string         `json:"reason"`
	DurationMS   int64          `json:"duration_ms"`
	OOM          bool           `json:"oom"`
	TimedOut     bool           `json:"timed_out"`
}

// Mount is one mount of the sandbox, as spec.json orders it.
type Mount struct {
	Kind     string `json:"kind"`
	Target   string `json:"target"`
	ReadOnly bool   `json:"read_only"`
	Bytes    int64  `json:"bytes"`
	Inodes   int64  `json:"inodes"`
}

// Engine is what the engine said of itself before the run.
type Engine struct {
	Name          string `json:"name"`
	Version       string `json:"version"`
	APIVersion    string `json:"api_version"`
	Runtime       string `json:"runtime"`
	Kernel        string `json:"kernel"`
	CgroupVersion string `json:"cgroup_version"`
	Platform      string `json:"platform"`
	SeccompDigest string `json:"seccomp_digest"`
}

// Control says of one control whether it holds under the run's isolation:
// "holds", or "weaker" or "refused" with a note. Refused says that a run which
// needs the control ends without a sandbox: this one did not need it.
type Control struct {
	Name  string `json:"name"`
	Holds string `json:"holds"`
	Note  string `json:"note"`
}

// Values of Control.Holds.
const (
	ControlHolds   = "holds"
	ControlWeaker  = "weaker"
	ControlRefused = "refused"
)

// Canary is one attempt from inside, before or after the workload, and how the
// host judged its result.
type Canary struct {
	Stage string `json:"stage"` // "before" or "after"
	Name  string `json:"name"`
	Want  string `json:"want"`
	Got   string `json:"got"`
	OK    bool   `json:"ok"`
}

// Patch counts the changed files and bytes of changes.patch, and the files that
// stayed out of it because the start commit's ignore rules exclude them.
type Patch struct {
	Files   int   `json:"files"`
	Bytes   int64 `json:"bytes"`
	Ignored int64 `json:"ignored"`
}

// Output counts the bytes of output.log and those that its bound cut off.
type Output struct {
	Bytes   int64 `json:"bytes"`
	Dropped int64 `json:"dropped"`
}

// Builder is the program that made the bundle.
type Builder struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// NewStatement wraps a predicate; the subject is changes.patch with the digest
// that Files gives it.
func NewStatement(p Predicate) (Statement, error) {
	patch, ok := p.Files[FilePatch]
	if !ok {
		return Statement{}, fmt.Errorf("making statement: files does not name %s", FilePatch)
	}
	s := Statement{
		Type:          StatementType,
		Subject:       []Subject{{Name: FilePatch, Digest: map[string]string{"sha256": trimDigest(patch)}}},
		PredicateType: PredicateType,
		Predicate:     p.withoutNil(),
	}
	if err := s.check(); err != nil {
		return Statement{}, fmt.Errorf("making statement: %w", err)
	}
	return s, nil
}

// check reports why s is not a statement of this version. Whether what it says
// is true is for package evidence.
func (s Statement) check() error {
	switch {
	case s.Type != StatementType:
		return fmt.Errorf("statement type %q is not %s", s.Type, StatementType)
	case s.PredicateType != PredicateType:
		return fmt.Errorf("predicate type %q is not %s", s.PredicateType, PredicateType)
	case len(s.Subject) != 1 || s.Subject[0].Name != FilePatch || len(s.Subject[0].Digest) != 1:
		return errors.New("the subject is not " + FilePatch + " alone")
	case s.Subject[0].Digest["sha256"] == "":
		return errors.New("the subject has no sha256 digest")
	case s.Predicate.RunID == "":
		return errors.New("the predicate names no run")
	}
	return nil
}

// withoutNil writes empty lists as [] and not null, the one spelling.
func (p Predicate) withoutNil() Predicate {
	p.Contracts = some(p.Contracts)
	p.Mounts = some(p.Mounts)
	p.Controls = some(p.Controls)
	p.Canaries = some(p.Canaries)
	p.EgressRules = some(p.EgressRules)
	p.Promotions = some(p.Promotions)
	p.Decisions = some(p.Decisions)
	if p.Files == nil {
		p.Files = map[string]string{}
	}
	return p
}

func some[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
