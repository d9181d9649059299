package contract

// Task is what was asked, made by the control plane from an event before any
// model produced a word. It carries ids chosen outside the pure core.
type Task struct {
	Schema string `json:"schema"`
	RunID  string `json:"run_id"`
	Event  Event  `json:"event"`

	Tenant      int64    `json:"tenant"`
	Repo        Repo     `json:"repo"`
	RepoPrivate bool     `json:"repo_private"`
	Base        Ref      `json:"base"`
	Head        Head     `json:"head"`
	PullRequest int      `json:"pull_request"`
	Draft       bool     `json:"draft"`
	Start       Start    `json:"start"`
	Actor       Person   `json:"actor"`
	Labels      []string `json:"labels"`
	// Paths that the pull request changes, for conditions; bounded by the caller.
	Paths []string `json:"paths"`

	// Profile asked for by name; "" lets the rules decide.
	Profile      string   `json:"profile"`
	Runtime      string   `json:"runtime"`
	Argv         []string `json:"argv"`
	PromptDigest string   `json:"prompt_digest"`

	// Asked is what a person at a terminal added by flags. Derive honours it
	// only for the role "local", and never beyond the ceiling.
	Asked Asked `json:"asked"`
}

// Event is where a task came from: Kind is "local", "pull_request", "issue",
// "comment", "dispatch", "push", "schedule" or "api".
type Event struct {
	Kind   string `json:"kind"`
	Action string `json:"action"`
}

// EventLocal is the event kind of a run at a terminal; RoleLocal its role.
const (
	EventLocal = "local"
	RoleLocal  = "local"
)

// Asked holds the flags of a local run that widen or narrow its contract.
type Asked struct {
	Image      string            `json:"image"`
	Isolation  string            `json:"isolation"`
	TimeoutSec int64             `json:"timeout_sec"`
	Allow      []string          `json:"allow"`   // HOST:PORT
	Secrets    map[string]string `json:"secrets"` // name → reference, never a value
}

// Snapshot is every fact read for one decision, read once. Task facts stand in
// Task; this is what was read about the world.
type Snapshot struct {
	Schema string `json:"schema"`
	// Time is when the facts were read, RFC 3339 in UTC, whole seconds.
	Time       string `json:"time"`
	TaskDigest string `json:"task_digest"`

	Policy  Source `json:"policy"`
	Ceiling Source `json:"ceiling"`
	// Images maps each image reference that the policy names to what the
	// engine said of it. A reference that is not present could not be found.
	Images map[string]ImageFact `json:"images"`
	// Dirty says that the workspace is the working copy, not a commit's tree.
	Dirty bool `json:"dirty"`
	// Submodules and LFSPointers count what the start tree leaves empty or
	// delivers as a pointer.
	Submodules  int `json:"submodules"`
	LFSPointers int `json:"lfs_pointers"`
}

// Source says where a policy or a ceiling was read. Status is "found",
// "absent", "unreadable" or "builtin".
type Source struct {
	Status string `json:"status"`
	Ref    string `json:"ref"`
	SHA    string `json:"sha"`
	Path   string `json:"path"`
	Digest string `json:"digest"`
}

// Statuses of a Source.
const (
	SourceFound      = "found"
	SourceAbsent     = "absent"
	SourceUnreadable = "unreadable"
	SourceBuiltin    = "builtin"
)

// ImageFact is what the engine says of one image reference.
type ImageFact struct {
	ID          string   `json:"id"`           // sha256:… of the image's configuration
	RepoDigests []string `json:"repo_digests"` // name@sha256:…
	Platform    string   `json:"platform"`     // os/architecture
	// EnvKeys, Volumes and Entrypoint are what takes no part in a run; they
	// are recorded so that their removal can be checked.
	EnvKeys    []string `json:"env_keys"`
	Volumes    []string `json:"volumes"`
	Entrypoint bool     `json:"entrypoint"`
	User       string   `json:"user"`
}
