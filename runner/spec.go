package runner

import "github.com/countersign-dev/countersign/policy/contract"

// SchemaSpec names the format of spec.json in the evidence.
const SchemaSpec = "countersign/spec/v1"

// Roles of a container within a run.
const (
	RoleWork = "work" // the sandbox that the workload runs in
	RoleHold = "hold" // keeps the workspace volume alive when the sandbox dies
)

// Spec is the create-time half of a run: what the engine is told before any
// job exists. It is plain data, goes into the evidence as it is, and holds no
// secret. Every field is an order: an engine that cannot follow one refuses.
type Spec struct {
	Schema    string             `json:"schema"`
	Name      string             `json:"name"` // of the container
	Role      string             `json:"role"`
	Image     string             `json:"image"` // sha256:… image id
	Isolation contract.Isolation `json:"isolation"`
	UID       int                `json:"uid"` // user and group, one per live run
	Hostname  string             `json:"hostname"`
	Workdir   string             `json:"workdir"`
	// Entrypoint is the shim and its verb; the image's own takes no part.
	Entrypoint []string `json:"entrypoint"`
	// Env is the environment of the shim itself; the workload's comes with the
	// job. DropEnv names image variables that must not be there.
	Env     []string `json:"env"`
	DropEnv []string `json:"drop_env"`
	// DNS and DNSSearch are the whole of resolv.conf, in every run: the shim's
	// own name server, which answers only when the contract has a way out.
	DNS       []string `json:"dns"`
	DNSSearch []string `json:"dns_search"`

	Mounts []Mount `json:"mounts"`
	// MaskedPaths replace the engine's default list; ReadonlyPaths likewise.
	MaskedPaths   []string `json:"masked_paths"`
	ReadonlyPaths []string `json:"readonly_paths"`

	MemoryBytes int64    `json:"memory_bytes"` // swap is zero
	NanoCPUs    int64    `json:"nano_cpus"`
	Pids        int64    `json:"pids"`
	ShmBytes    int64    `json:"shm_bytes"`
	OOMScoreAdj int      `json:"oom_score_adj"`
	Ulimits     []Ulimit `json:"ulimits"`
	// Seccomp is the digest of the profile that Preflight named.
	Seccomp string            `json:"seccomp"`
	Sysctls map[string]string `json:"sysctls"`
	Labels  Labels            `json:"labels"`
}

// Kinds of mount.
const (
	MountBind   = "bind"   // Source is a host directory, always read-only
	MountTmpfs  = "tmpfs"  // memory, sized
	MountVolume = "volume" // Source is a volume name; tmpfs, sized, made by Create unless Existing
)

// Mount is one mount of a Spec.
type Mount struct {
	Kind     string `json:"kind"`
	Source   string `json:"source"`
	Target   string `json:"target"`
	ReadOnly bool   `json:"read_only"`
	Bytes    int64  `json:"bytes"`
	Inodes   int64  `json:"inodes"`
	Mode     string `json:"mode"` // octal, such as "0700"
	Exec     bool   `json:"exec"`
	// Owned mounts belong to the Spec's UID.
	Owned    bool `json:"owned"`
	Existing bool `json:"existing"`
}

// Ulimit is one resource limit, soft and hard alike.
type Ulimit struct {
	Name  string `json:"name"`
	Value int64  `json:"value"`
}
