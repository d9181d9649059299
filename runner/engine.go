package runner

import (
	"context"

	"github.com/countersign-dev/countersign/policy/contract"
)

// Engine makes sealed containers on the machine it runs on. It obeys a Spec to
// the letter: what it cannot give, it refuses with an error; it never leaves a
// control out and never interprets a contract.
//
// Implementations return a [*Unavailable] for what the machine lacks.
type Engine interface {
	// Preflight says what the engine is and refuses one that cannot give the
	// controls that every Spec of this isolation needs.
	Preflight(ctx context.Context, isolation contract.Isolation) (EngineFacts, error)
	// Image says what a local image reference is. It never pulls. A reference
	// that is not there is a nil fact and no error.
	Image(ctx context.Context, ref string) (*contract.ImageFact, error)
	// Create makes the container (and its workspace volume when the Spec says
	// so), reads its configuration back from the engine, and refuses any
	// difference or unexpected warning. It starts nothing.
	Create(ctx context.Context, spec Spec) (Sandbox, error)
	// Reap removes every container and volume that carries our label and for
	// which alive says false. It never touches what is not labelled.
	Reap(ctx context.Context, alive func(Labels) bool) (Reaped, error)
}

// Sandbox is one container of one run.
type Sandbox interface {
	Start(ctx context.Context) (Started, error)
	// Wait blocks until the container has ended and says how, from the
	// engine's own record. It may be called once, after Start.
	Wait(ctx context.Context) (Exit, error)
	// Kill ends the container at once; one that has ended is no error.
	Kill(ctx context.Context) error
	// Remove kills and removes the container and the volume that Create made
	// for it. It may be called in any state, more than once.
	Remove(ctx context.Context) error
}

// Started says how the host can reach a started container's workspace.
type Started struct {
	// WorkspaceDir is the host's path of the workspace volume, "" when this
	// process may not reach it (it is not root, or the engine is elsewhere).
	WorkspaceDir string
}

// Exit is how a container ended, as the engine recorded it.
type Exit struct {
	Code      int
	OOMKilled bool // true for any out-of-memory kill in it, also of a child
	// PidsFailures is how often the kernel refused it a new task, as far as the
	// host saw it: 0 says nothing. Under runc the shim counts, not the engine.
	PidsFailures int64
	Error        string
}

// EngineFacts is what Preflight read.
type EngineFacts struct {
	Name          string `json:"name"`    // "docker"
	Version       string `json:"version"` // the engine's
	APIVersion    string `json:"api_version"`
	Runtime       string `json:"runtime"` // the OCI runtime's registered name
	Kernel        string `json:"kernel"`
	CgroupVersion string `json:"cgroup_version"`
	Platform      string `json:"platform"` // os/architecture
	// SeccompDigest names the profile that Create will apply to a Spec.
	SeccompDigest string `json:"seccomp_digest"`
	MemoryBytes   int64  `json:"memory_bytes"`
	CPUs          int    `json:"cpus"`
	// MaskedPaths and ReadonlyPaths are the engine's lists. A Spec holds all of
	// them, and may add to them what a contract denies; Create refuses less.
	MaskedPaths   []string `json:"masked_paths"`
	ReadonlyPaths []string `json:"readonly_paths"`
}

// Labels are what a container or volume of ours says of itself.
type Labels map[string]string

// Keys of Labels.
const (
	LabelManaged  = "countersign.managed"  // always "1"
	LabelSandbox  = "countersign.sandbox"  // its name: the run's id, or that of a warm one
	LabelDeadline = "countersign.deadline" // Unix seconds after which nothing of the run may live
	LabelRunDir   = "countersign.rundir"   // host directory whose lock says that the run is alive
	LabelState    = "countersign.state"    // which state directory that is in, see Alive
	LabelUID      = "countersign.uid"
)

// Reaped counts what Reap removed, and lists what it could not.
type Reaped struct {
	Containers int
	Volumes    int
	Failed     []string
}

// Unavailable says that a sandbox cannot be had on this machine: a run that
// meets it ends fail_closed with status 125. Hint says what a person can do.
type Unavailable struct {
	What string // what is missing, as a phrase
	Hint string
}

func (u *Unavailable) Error() string {
	if u.Hint == "" {
		return u.What
	}
	return u.What + ": " + u.Hint
}
