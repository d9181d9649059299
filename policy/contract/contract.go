// Package contract holds the documents that cross a trust boundary in
// Countersign: what was asked (Task), what was read (Snapshot), what a run may
// do (Contract), what somebody wants beyond it (Plan, Promotion, Decision) and
// how it ended (Outcome).
//
// A document is plain data. It has one canonical encoding, JSON as RFC 8785
// (JCS) writes it, and one name, the SHA-256 digest of those bytes. Only a
// [Sealed] contract can run, and only [Seal] and [Open] make one: both refuse a
// document that breaks a rule of this package, so that code that holds a Sealed
// never asks again whether a host name is well formed or a root is absolute.
//
// Absent and empty always mean none: an empty allow list allows nothing.
//
// The package performs no I/O, reads no clock and no randomness, and imports
// nothing else of this module.
package contract

// Schema names of the documents; a document with another name is refused.
const (
	SchemaContract = "countersign/contract/v1"
	SchemaTask     = "countersign/task/v1"
	SchemaSnapshot = "countersign/snapshot/v1"
)

// Contract is what one run may do. It never changes: an approved promotion
// makes a new revision that names its parent (see [Revise]).
type Contract struct {
	Schema   string `json:"schema"`
	RunID    string `json:"run_id"`
	Revision int    `json:"revision"`
	// Parent is the digest of the revision before this one, "" for the first.
	Parent string `json:"parent"`

	Tenant      int64  `json:"tenant"`
	Repo        Repo   `json:"repo"`
	Base        Ref    `json:"base"`
	Head        Head   `json:"head"`
	PullRequest int    `json:"pull_request"`
	Start       Start  `json:"start"`
	RequestedBy Person `json:"requested_by"`
	// Labels that counted when this contract was derived, sorted.
	Labels []string `json:"labels"`

	Policy         PolicyRef `json:"policy"`
	SnapshotDigest string    `json:"snapshot_digest"`

	ExecutionClass Class     `json:"execution_class"`
	Isolation      Isolation `json:"isolation"`
	// Level is computed from the authority in this document by [LevelOf].
	Level Level `json:"level"`

	Runtime      string            `json:"runtime"`
	Argv         []string          `json:"argv"`
	Env          map[string]string `json:"env"`
	PromptDigest string            `json:"prompt_digest"`

	Image         Image    `json:"image"`
	Workdir       string   `json:"workdir"`
	WritableRoots []Root   `json:"writable_roots"`
	ReadDenied    []string `json:"read_denied"`

	Network    Network     `json:"network"`
	SecretRefs []SecretRef `json:"secret_refs"`
	Tools      []Tool      `json:"tools"`
	// HostedTools names the tools that a model provider may run on its side.
	HostedTools []string `json:"hosted_tools"`

	Limits  Limits  `json:"limits"`
	Outputs Outputs `json:"outputs"`
	// Promotable lists the kinds of promotion that may be asked for.
	Promotable []string `json:"promotable"`
	// NotAfter is the instant (RFC 3339, UTC, whole seconds) after which this
	// contract may no longer be started.
	NotAfter string `json:"not_after"`
}

// Repo is a repository; ID is the numeric id at its host, 0 for a local one.
type Repo struct {
	ID       int64  `json:"id"`
	FullName string `json:"full_name"`
}

// Ref is a named commit: a branch and the full object id it pointed to.
type Ref struct {
	Ref string `json:"ref"`
	SHA string `json:"sha"`
}

// Head is the commit that is worked on; Fork says that it comes from another
// repository than Repo.
type Head struct {
	SHA  string `json:"sha"`
	Fork bool   `json:"fork"`
}

// Start is the tree the workspace begins as: the tree of commit SHA with the
// patch of that digest applied, if any.
type Start struct {
	SHA         string `json:"sha"`
	PatchDigest string `json:"patch_digest"`
}

// Person is who asked, by numeric id; Role is the role the policy saw.
type Person struct {
	ID    int64  `json:"id"`
	Login string `json:"login"`
	Role  string `json:"role"`
}

// PolicyRef names the policy and the ceiling that a contract was derived from.
// Ref is "builtin" for the built-in policy and "file" for one given by path.
type PolicyRef struct {
	Rev           string `json:"rev"`
	Ref           string `json:"ref"`
	SHA           string `json:"sha"`
	Digest        string `json:"digest"`
	CeilingDigest string `json:"ceiling_digest"`
}

// Class says on what kind of machine boundary a run executes.
type Class string

const (
	ClassWorkspaceSandbox Class = "workspace_sandbox" // a container under runc
	ClassHardenedSandbox  Class = "hardened_sandbox"  // a container under gVisor
	ClassNode             Class = "node"              // an approved host
)

// Isolation names the OCI runtime that makes the boundary.
type Isolation string

const (
	IsolationRunc  Isolation = "runc"
	IsolationRunsc Isolation = "runsc"
)

// Level grades authority from L0 (observe) to L4 (privileged or irreversible).
type Level string

const (
	L0 Level = "L0"
	L1 Level = "L1"
	L2 Level = "L2"
	L3 Level = "L3"
	L4 Level = "L4"
)

// Image is a container image pinned by digest. DigestKind says whether Digest
// is a registry's manifest digest ("repo") or a local image id ("image_id").
type Image struct {
	Ref        string `json:"ref"`
	Digest     string `json:"digest"`
	DigestKind string `json:"digest_kind"`
}

// Kinds of image digest.
const (
	DigestRepo    = "repo"
	DigestImageID = "image_id"
)

// Root is one writable directory. In JSON a root without a grant is its bare
// path.
type Root struct {
	Path  string
	Grant *Grant
}

// Grant ties an added entry to the promotion that was approved for it. NotAfter
// is RFC 3339 in UTC; Uses is how often it may be used, 0 for no bound.
type Grant struct {
	Promotion string `json:"promotion"`
	NotAfter  string `json:"not_after"`
	Uses      int    `json:"uses"`
}

// Network modes.
const (
	NetworkNone      = "none"
	NetworkAllowlist = "allowlist"
)

// Network is the way out. Mode "none" has no allow list.
type Network struct {
	Mode  string    `json:"mode"`
	Allow []NetRule `json:"allow"`
}

// Modes of a network rule: what the proxy sees of an allowed connection.
const (
	RuleOpaque  = "opaque"  // a tunnel: name, port, byte counts
	RuleGateway = "gateway" // plain HTTP inside, TLS to Upstream outside
	RuleInspect = "inspect" // TLS opened with the run's own CA
)

// NetRule allows one host on one port.
type NetRule struct {
	Host        string   `json:"host"`
	Port        int      `json:"port"`
	Upstream    string   `json:"upstream"`
	Mode        string   `json:"mode"`
	API         string   `json:"api"`
	Methods     []string `json:"methods"`
	Paths       []string `json:"paths"`
	UploadBytes int64    `json:"upload_bytes"`
	Inject      *Inject  `json:"inject"`
	Private     bool     `json:"private"`
	WebSocket   bool     `json:"websocket"`
	// HoldSec is how long a denied connection may wait for a person, seconds.
	HoldSec  int      `json:"hold_sec"`
	DenyBody []string `json:"deny_body"`
	// Coverage says what is enforced of this rule: "enforced" when requests
	// are read, "name-port-bytes" for a tunnel.
	Coverage string `json:"coverage"`
	Grant    *Grant `json:"grant,omitempty"`
}

// Inject names a credential that the proxy adds outside the sandbox: which
// secret, how ([InjectHeader] and others), and for a header its name.
type Inject struct {
	Secret string `json:"secret"`
	As     string `json:"as"`
	Name   string `json:"name"`
}

// SecretRef names a secret and how it is delivered ("inject" or "file"); it
// never holds the value.
type SecretRef struct {
	Name    string `json:"name"`
	Ref     string `json:"ref"`
	Deliver string `json:"deliver"`
	Grant   *Grant `json:"grant,omitempty"`
}

// Tool is a tool of the agent's runtime that is allowed by name.
type Tool struct {
	Name  string `json:"name"`
	Grant *Grant `json:"grant,omitempty"`
}

// Limits bound a run. Sizes are MiB, times are seconds, CPU is in cores.
type Limits struct {
	CPU        float64 `json:"cpu"`
	MemoryMB   int64   `json:"memory_mb"`
	Pids       int64   `json:"pids"`
	DiskMB     int64   `json:"disk_mb"` // the workspace's
	HomeMB     int64   `json:"home_mb"`
	TmpMB      int64   `json:"tmp_mb"`
	ShmMB      int64   `json:"shm_mb"`
	Files      int64   `json:"files"` // inodes of the workspace
	LogMB      int64   `json:"log_mb"`
	TimeoutSec int64   `json:"timeout_sec"`
	WaitSec    int64   `json:"wait_sec"`
	CostUSD    float64 `json:"cost_usd"` // 0: no model may be paid for
	Grant      *Grant  `json:"grant,omitempty"`
}

// Kinds of output and of push.
const (
	OutputNone        = "none"
	OutputPatch       = "patch"
	OutputComment     = "comment"
	OutputPullRequest = "pull_request"

	PushNever    = "never"
	PushApproved = "approved"
	PushTrusted  = "trusted"
)

// Outputs says what may come of the changed workspace.
type Outputs struct {
	Kind           string   `json:"kind"`
	Push           string   `json:"push"`
	MaxFiles       int      `json:"max_files"`
	MaxBytes       int64    `json:"max_bytes"`
	ProtectedPaths []string `json:"protected_paths"`
	Grant          *Grant   `json:"grant,omitempty"`
}
