package contract

// SchemaPlan is the schema name of a [Plan].
const SchemaPlan = "countersign/plan/v1"

// Kinds of promotion, also the words of [Contract.Promotable].
const (
	KindNetwork  = "network"   // adds one network rule
	KindPath     = "path"      // adds one writable root
	KindSecret   = "secret"    // adds one secret reference
	KindLimits   = "limits"    // raises limits
	KindTool     = "tool"      // adds one tool of the runtime
	KindOutput   = "output"    // lets the shown patch leave
	KindHostExec = "host_exec" // runs one frozen command on a node
)

// Plan is what somebody wants beyond a contract, frozen: every word that an
// approver judges by and every fact the approval is bound to. Its digest is the
// name of the promotion, so an approval of one plan never fits another.
//
// Package plan freezes one from facts and leaves Nonce empty; the host that
// asks for the promotion sets Nonce once. A plan without one is not a document:
// [Encode] refuses it.
type Plan struct {
	Schema string `json:"schema"`
	Kind   string `json:"kind"`

	// Argv is the command, element by element as execve gets it. Empty when the
	// command is Shell, or when the kind has no command.
	Argv []string `json:"argv"`
	// Shell holds the exact bytes of a shell text (base64 in JSON), so that it
	// need not be UTF-8. Only one of Argv and Shell may be set.
	Shell []byte `json:"shell"`
	// Commands lists what the shell text does, in the order it stands there, for
	// the reader. It is derived from Shell and gives no authority.
	Commands    []ShellPart `json:"commands"`
	Interpreter Interpreter `json:"interpreter"`
	// Cwd is absolute, "" when the kind has no command.
	Cwd string `json:"cwd"`
	// ResolvedPaths lists the words of the command that name a file, and what
	// each resolved to when the plan was frozen.
	ResolvedPaths []ResolvedPath `json:"resolved_paths"`
	// InputTreeDigest is the digest of the tree that the command reads where it
	// runs on a host; "" elsewhere.
	InputTreeDigest string `json:"input_tree_digest"`
	// PatchDigest is the digest of the patch that is to leave; kind "output" only.
	PatchDigest string `json:"patch_digest"`
	// EnvNames are the names of the environment's variables, sorted; values are
	// never in a plan.
	EnvNames []string `json:"env_names"`
	Roots    Roots    `json:"roots"`
	// Target is what is asked for in one word: a host:port, a directory, a
	// secret's name, a limit's name, a tool's name, a branch or a node.
	Target string `json:"target"`
	// Destinations lists host:port of everything the plan would reach.
	Destinations []string `json:"destinations"`
	// Change is the exact difference in authority; nothing for host_exec.
	Change Widening `json:"change"`

	// Reason is the asker's own words: untrusted text, shown and never judged.
	Reason string `json:"reason"`
	// Level is what the contract's level would be with Change applied (see
	// [LevelWith]), at least L3 for host_exec. LevelReason says why, one line.
	Level       Level  `json:"level"`
	LevelReason string `json:"level_reason"`
	// TTLSec counts from the approval, in seconds; Uses is how often, at least 1.
	TTLSec int64 `json:"ttl_sec"`
	Uses   int   `json:"uses"`

	RunID string `json:"run_id"`
	// Agent and Session name who asks within the run: the runtime and its
	// session id. A plan of one session does not fit another.
	Agent          string `json:"agent"`
	Session        string `json:"session"`
	ContractDigest string `json:"contract_digest"`
	Repo           Repo   `json:"repo"`
	HeadSHA        string `json:"head_sha"`
	BaseRef        string `json:"base_ref"`
	PolicyDigest   string `json:"policy_digest"`
	CeilingDigest  string `json:"ceiling_digest"`
	// Nonce is 128 random bits in 32 lower-case hexadecimal digits.
	Nonce string `json:"nonce"`
}

// Kinds of [ShellPart].
const (
	PartCommand      = "command"      // a simple command, function or builtin call
	PartSubstitution = "substitution" // $(…), `…`, <(…), >(…)
	PartRedirect     = "redirect"     // > FILE, < FILE, here-documents
	PartPipeToShell  = "pipe"         // a pipe whose right side interprets its input
	PartAssignment   = "assignment"   // NAME=VALUE
	PartDynamic      = "dynamic"      // a command whose name is known only when it runs
)

// ShellPart is one thing that a shell text does. Line and Column count from 1
// in the text's bytes; of a text inside the text (the argument of sh -c, say)
// they are those of the word that holds it. Text is an excerpt for the reader,
// In the constructs around it, outermost first ("subshell > sh -c"), Note what
// cannot be seen from Text, such as a name that is decided at run time. All
// three are valid UTF-8 with what does not print escaped.
type ShellPart struct {
	Kind   string `json:"kind"`
	Text   string `json:"text"`
	In     string `json:"in"`
	Note   string `json:"note"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
}

// Interpreter is the file that would be executed: the program of Argv, or the
// shell of Shell. Path is resolved and absolute; Digest is of the file's bytes.
type Interpreter struct {
	Path   string `json:"path"`
	Digest string `json:"digest"`
}

// ResolvedPath is a word of a command and the absolute path it resolved to. The
// interpreter that a script names in its first line is listed too, with that
// line as its word. Digest is of a regular file's bytes, "" for anything else.
type ResolvedPath struct {
	Word   string `json:"word"`
	Path   string `json:"path"`
	Digest string `json:"digest"`
}

// Roots are the directories a plan may read and write where it runs on a host.
type Roots struct {
	Read  []string `json:"read"`
	Write []string `json:"write"`
}

// Widening is one entry that a contract would gain. Exactly the field that the
// plan's kind names is set, without a grant; none is for host_exec.
type Widening struct {
	Network *NetRule   `json:"network"`
	Path    *Root      `json:"path"`
	Secret  *SecretRef `json:"secret"`
	Limits  *Limits    `json:"limits"`
	Tool    *Tool      `json:"tool"`
	Output  *Outputs   `json:"output"`
}
