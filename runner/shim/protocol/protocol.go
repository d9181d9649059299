// Package protocol is what the supervisor on the host and the shim inside a
// sandbox say to each other over the run's one control connection.
//
// The sandbox always dials out: the shim connects to [ControlSocket], sends a
// Hello, and from then on only answers. The host speaks first in every
// exchange; the one exception is Output, which the shim sends while a workload
// runs. A message is one frame: a kind byte, a big-endian 32-bit length of at
// most [MaxFrame], and that many bytes. A stream (a tree going in, a listing or
// file contents coming out) is a sequence of Data frames closed by an empty one.
//
// Everything the shim says is a claim by a process that shares a uid with the
// workload: the host bounds it, records it as claimed, and takes the exit
// status from the engine.
package protocol

// Version is compared in Hello; host and shim come from one build.
const Version = 1

// MaxFrame bounds the payload of one frame, in bytes.
const MaxFrame = 1 << 20

// Paths inside the sandbox. The directory of the sockets is mounted, not the
// sockets: a file bind would go stale when a socket is made anew.
const (
	ShimDir       = "/countersign"
	ShimPath      = "/countersign/shim"
	ShimBinDir    = "/countersign/bin"
	SocketDir     = "/run/countersign"
	ControlSocket = "/run/countersign/control.sock"
	EgressSocket  = "/run/countersign/egress.sock"
	AskSocket     = "/run/countersign/ask.sock"
	// HoldSocket is the control socket of the holder, which answers only
	// Capture, Fetch and Bye.
	HoldSocket = "/run/countersign/hold.sock"
	// SecretDir is where the shim writes a job's secret files.
	SecretDir = "/run/secret"
)

// Addresses inside the sandbox, on its loopback.
const (
	// NameServer is asked for every name; without a Network message nothing
	// listens there, and every name fails at once.
	NameServer = "127.0.0.1"
	// ExplicitProxy hands bytes to the run's proxy as they are, for programs
	// that are told of a proxy.
	ExplicitProxy = "127.0.0.1:3128"
)

// CanaryBody is what the run's proxy answers to GET / of its canary.
const CanaryBody = "countersign canary\n"

// CommonPorts are listened on at every name's address, so that an attempt at a
// host that no rule names is seen and refused in words. A port of this list is
// one that no server of the workload's own can have at every address at once
// (0.0.0.0 or ::), as test servers on 8080 do; so it is short.
func CommonPorts() []int { return []int{22, 80, 443} }

// Kind is the first byte of a frame.
type Kind byte

// Host to shim.
const (
	KindLoad    Kind = 'l' // Load; then a stream when Load.Stream
	KindNetwork Kind = 'n' // Network; once, before the job, when there is a way out
	KindProbe   Kind = 'p' // Probe
	KindStart   Kind = 's' // Job
	KindStop    Kind = 't' // Stop; only between Start and Exited
	KindCapture Kind = 'c' // Capture; answered by a stream, the listing
	KindFetch   Kind = 'f' // Capture, then a stream, the wanted paths; answered by a stream, the contents
	KindBye     Kind = 'b' // the shim exits with the workload's status
)

// Shim to host.
const (
	KindHello     Kind = 'H' // Hello
	KindLoaded    Kind = 'L' // Loaded
	KindNetworked Kind = 'N' // Networked
	KindProbed    Kind = 'P' // Probed
	KindStarted   Kind = 'S' // no body
	KindOutput    Kind = 'O' // one byte, 1 stdout or 2 stderr, then the bytes
	KindExited    Kind = 'X' // Exited
	KindCaptured  Kind = 'C' // Captured, after the listing or the contents
	KindFailed    Kind = 'F' // Failed, in place of any answer
)

// KindData carries a piece of a stream, either way; empty ends the stream.
const KindData Kind = 'd'

// Hello is the shim's first message.
type Hello struct {
	Version int `json:"version"`
	PID     int `json:"pid"`
	UID     int `json:"uid"`
}

// Load asks the shim to receive the start tree into Dir. Without Stream the
// host has placed it already and the shim only checks that Dir is its own.
type Load struct {
	Dir    string `json:"dir"`
	Stream bool   `json:"stream"`
}

// Loaded counts what was received.
type Loaded struct {
	Entries int64 `json:"entries"`
	Bytes   int64 `json:"bytes"`
}

// Network opens the way to the run's proxy at [EgressSocket]: a name server on
// [NameServer], listeners at the address of every name that was asked for, and
// [ExplicitProxy]. The proxy must listen before it is sent.
type Network struct {
	// Ports are those of the contract's rules, 1 to 65535, listened on beside
	// [CommonPorts].
	Ports []int `json:"ports"`
	// CA is the run's authority, one PEM certificate; "" when no rule inspects.
	CA string `json:"ca"`
}

// Networked says that names are answered from now on.
type Networked struct {
	// Trust are the variables by which programs find the CA, beside the image's
	// own roots. The host adds to the job those that the contract does not set.
	// Empty without a CA.
	Trust map[string]string `json:"trust"`
}

// Job is the start-time half of a run: everything that a container started
// before its job existed could not know.
type Job struct {
	Argv []string `json:"argv"`
	// Env is the whole environment, KEY=VALUE; nothing is inherited.
	Env  []string `json:"env"`
	Cwd  string   `json:"cwd"`
	Stop StopRule `json:"stop"`
	// Secrets become files of [SecretDir], which the sandbox must have as a
	// mount of its own user's.
	Secrets []SecretFile `json:"secrets,omitempty"`
}

// SecretFile is written with mode 0400 before the workload starts. Neither the
// shim nor an error of [Job.Validate] ever says what is in it.
type SecretFile struct {
	Name string `json:"name"` // as contract.CheckName has it
	Data []byte `json:"data"`
}

// String and GoString keep the data out of everything that prints a Job.
func (f SecretFile) String() string   { return "secret file " + f.Name }
func (f SecretFile) GoString() string { return f.String() }

// StopRule is the shim's own deadline, kept beside the host's: after TimeoutSec
// every process gets SIGTERM, after GraceSec more SIGKILL.
type StopRule struct {
	TimeoutSec int64 `json:"timeout_sec"`
	GraceSec   int64 `json:"grace_sec"`
}

// Stop ends a running workload: SIGTERM to every process, SIGKILL after
// GraceSec. A second Stop shortens the grace; GraceSec 0 kills at once.
type Stop struct {
	GraceSec int64 `json:"grace_sec"`
}

// Exited says how the workload ended, as the shim saw it. Code is what the shim
// will itself exit with after Bye: the workload's status, 128+n for a signal.
// When the workload was never started, Code is 126 (not executable), 127 (not
// found) or 125 (any other fault of ours), and NotStarted says why.
type Exited struct {
	Code       int    `json:"code"`
	Signal     int    `json:"signal"`
	NotStarted string `json:"not_started"`
	// TimedOut is true when the shim's own deadline ended it.
	TimedOut bool `json:"timed_out"`
	// Killed counts processes that had to be ended after the main one.
	Killed int `json:"killed"`
	// Counters read from inside after the end; -1 where the kernel shows none.
	MemoryFailures int64 `json:"memory_failures"` // cgroup memory.events oom_kill / memory.oom_control oom_kill
	PidsFailures   int64 `json:"pids_failures"`   // cgroup pids.events max
	WorkspaceFull  bool  `json:"workspace_full"`  // no free block or inode left at the end
	// FullRoots are the other writable roots of which that is true, sorted.
	FullRoots []string `json:"full_roots"`
}

// ShimPids is how many tasks of the sandbox's pids limit the shim itself may
// hold: the threads it starts ahead of the workload, so that it never needs a
// new one when a fork bomb has taken the rest.
const ShimPids = 16

// Capture asks for the listing of Dir (workspace.Listing on the stream), and
// as the body of a Fetch for the contents of the paths that follow it.
type Capture struct {
	Dir    string        `json:"dir"`
	Bounds CaptureBounds `json:"bounds"`
}

// CaptureBounds bound a walk in every direction. Zero is closed: nothing.
type CaptureBounds struct {
	Entries int64 `json:"entries"` // nodes visited
	Depth   int   `json:"depth"`   // directories deep
	Bytes   int64 `json:"bytes"`   // bytes of contents read in all
	File    int64 `json:"file"`    // bytes of one file
	Seconds int64 `json:"seconds"`
}

// Captured closes a listing or a fetch.
type Captured struct {
	Entries int64 `json:"entries"`
	Bytes   int64 `json:"bytes"`
}

// Failed is the shim's answer when it could not do what was asked.
type Failed struct {
	Op      string `json:"op"`
	Message string `json:"message"`
}

// Probe asks for the canaries: a child with the workload's credentials tries
// what must fail and reads back what must be in force. The shim reports raw
// readings; the host judges them.
type Probe struct {
	Stage string `json:"stage"` // "before" or "after"
	// Names are looked up and dialled: canary.internal and an unlisted one.
	Names []string `json:"names"`
	// HTTP are names of which GET / is asked on port 80.
	HTTP []string `json:"http,omitempty"`
	// Addresses are dialled (host:port): metadata addresses and the like.
	Addresses []string `json:"addresses"`
	// Sockets are dialled as Unix sockets: Docker's, containerd's.
	Sockets []string `json:"sockets"`
	// Unwritable are directories in which a file is created; Writable likewise.
	Unwritable []string `json:"unwritable"`
	Writable   []string `json:"writable"`
	// Unreadable are paths whose contents are tried.
	Unreadable []string `json:"unreadable"`
	// Mounts are the mount points whose size is read (statfs).
	Mounts []string `json:"mounts"`
}

// Probed holds the readings. An attempt's result is "ok" when it succeeded,
// "empty" when a read or listing succeeded and held nothing (a masked path),
// "timeout" when its bound passed, else the errno's name, such as "EPERM", or
// the error's text. Attempts hold more than was asked for: every call of
// [Calls]; "dial" of each address but loopback over UDP as "udp/host:port"; each
// name on ports 80 and 443; "create" in every mount point that was not named.
// With a [Network] every dial of a name succeeds, since the refusal comes in what
// the client speaks; so an "http" attempt tells: it is "ok" when the answer was
// 200 with [CanaryBody], "status 403" and the like for another, "another body"
// for a 200 that is not the canary's.
type Probed struct {
	Stage    string            `json:"stage"`
	Attempts []Attempt         `json:"attempts"`
	Status   map[string]string `json:"status"` // /proc/self/status: Uid, Gid, Groups, CapInh…CapAmb, NoNewPrivs, Seccomp, CoreDumping…
	// Limits: memory (bytes), memory_swap (bytes of swap beyond memory), pids,
	// cpu_milli; the hard rlimits nofile, core, fsize, memlock, msgqueue,
	// sigpending, nproc, nice, rtprio. -1 is unlimited, absent unreadable.
	Limits map[string]int64 `json:"limits"`
	// Links are network interfaces, Routes the lines of /proc/net/route and
	// ipv6_route that are not loopback's. An entry "unreadable: …" stands
	// where the reading could not be taken; likewise in Proc.
	Links  []string                `json:"links"`
	Routes []string                `json:"routes"`
	Mounts map[string]MountReading `json:"mounts"`
	Env    []string                `json:"env"`  // names of the probe's own environment variables
	Proc   []string                `json:"proc"` // command names of all processes that are visible
}

// Attempt is one thing that was tried: Kind is "resolve", "dial", "http", "unix",
// "create", "read", "ptrace" (target "1", PID 1), "proc" (a path below /proc/1)
// or "syscall".
type Attempt struct {
	Kind   string `json:"kind"`
	Target string `json:"target"`
	Result string `json:"result"`
}

// MountReading is what statfs and mountinfo say of a mount point.
type MountReading struct {
	Type   string `json:"type"`
	Bytes  int64  `json:"bytes"`
	Inodes int64  `json:"inodes"`
	Flags  string `json:"flags"` // options as in mountinfo, sorted, comma-separated
}
