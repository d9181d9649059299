package policy

import (
	_ "embed" // the built-in documents

	"github.com/countersign-dev/countersign/policy/contract"
)

// BuiltinImage is the image of the built-in policy: what `make sandbox-image`
// tags.
const BuiltinImage = "countersign/sandbox:latest"

// Where `countersign init` writes, relative to the repository.
const (
	StarterPath     = ".github/countersign.yml"
	StarterCasePath = ".github/countersign-test/starter.yml"
)

var (
	//go:embed builtin/policy.yml
	builtinPolicy string
	//go:embed builtin/ceiling.yml
	builtinCeiling string
	//go:embed builtin/local-ceiling.yml
	builtinLocalCeiling string
	//go:embed builtin/starter.yml
	starter string
	//go:embed builtin/starter-cases.yml
	starterCases string
)

// What the built-in documents are called in a snapshot.
var (
	builtinPolicyDigest       = contract.DigestBytes([]byte(builtinPolicy))
	builtinCeilingDigest      = contract.DigestBytes([]byte(builtinCeiling))
	builtinLocalCeilingDigest = contract.DigestBytes([]byte(builtinLocalCeiling))
)

// BuiltinPolicy is the policy of a local run in a repository that has none.
func BuiltinPolicy() []byte { return []byte(builtinPolicy) }

// BuiltinCeiling is the ceiling of a repository whose owner has none that can
// be read: without secrets, private addresses and host execution.
func BuiltinCeiling() []byte { return []byte(builtinCeiling) }

// BuiltinLocalCeiling is the ceiling of a run at a terminal when none is given:
// it leaves the machine's owner in charge. [Derive] refuses it for other events.
func BuiltinLocalCeiling() []byte { return []byte(builtinLocalCeiling) }

// Starter is the commented policy that `countersign init` writes.
func Starter() []byte { return []byte(starter) }

// StarterCases are test cases that hold for [Starter].
func StarterCases() []byte { return []byte(starterCases) }
