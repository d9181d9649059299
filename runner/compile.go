package runner

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/runner/shim/protocol"
)

// Placement is where on this machine a run will live: facts, gathered before
// Compile and none of them from the contract.
type Placement struct {
	Sandbox   string // names the sandbox: the run's id, or a warm one's own
	UID       int    // user and group of the sandbox, free on this machine
	RunDir    string // host directory of the run; its lock says that it is alive
	State     string // names the state directory that RunDir is in
	SocketDir string // host directory mounted at protocol.SocketDir
	ShimDir   string // host directory mounted at protocol.ShimDir
	Engine    EngineFacts
	Image     contract.ImageFact
	Now       time.Time
	// Idle is how long the sandbox may wait for its run, zero for one that is
	// made for it.
	Idle time.Duration
}

const mib = 1 << 20

// gvisorPids is the least limit of processes with which gVisor's own threads,
// which count against it, come up: with fewer it hangs half-made, and the engine
// cannot even remove it.
const gvisorPids = 128

// Times beside the contract's own, in seconds.
const (
	stopGraceSec = 2   // between SIGTERM and SIGKILL
	settleSec    = 300 // set-up and capture, on top of the wall clock, before the reaper may take a run
)

// Compile translates a sealed contract for one placement. It is pure: the same
// arguments give the same Spec and Job, byte for byte. It refuses what Admit
// refuses, and an image that is not the contract's.
func Compile(sealed contract.Sealed, place Placement) (Spec, protocol.Job, error) {
	c := sealed.Contract()
	if no := Admit(c); len(no) > 0 {
		return Spec{}, protocol.Job{}, fmt.Errorf("compiling contract: %s", strings.Join(no, "; "))
	}
	spec, err := CompileShape(ShapeOf(c), place)
	return spec, job(c), err
}

// CompileShape is the create-time half of [Compile], which needs no more of a
// contract than its shape.
func CompileShape(shape Shape, place Placement) (Spec, error) {
	if err := checkImage(shape.Image, place.Image); err != nil {
		return Spec{}, err
	}
	l := shape.Limits
	lifetime := place.Idle + time.Duration(l.TimeoutSec+settleSec)*time.Second
	return Spec{
		Schema:        SchemaSpec,
		Name:          containerName(place.Sandbox),
		Role:          RoleWork,
		Image:         place.Image.ID,
		Isolation:     shape.Isolation,
		UID:           place.UID,
		Hostname:      "sandbox",
		Workdir:       shape.Workdir,
		Entrypoint:    []string{protocol.ShimPath, "init"},
		Env:           []string{"PATH=" + protocol.ShimBinDir, "HOME=" + HomeDir},
		DropEnv:       dropEnv(place.Image.EnvKeys),
		DNS:           []string{protocol.NameServer},
		DNSSearch:     []string{"."},
		Mounts:        mounts(shape, place),
		MaskedPaths:   masked(place.Engine.MaskedPaths, shape.Masked),
		ReadonlyPaths: slices.Clone(place.Engine.ReadonlyPaths),
		MemoryBytes:   l.MemoryMB * mib,
		NanoCPUs:      int64(l.CPU * 1e9),
		Pids:          l.Pids,
		ShmBytes:      l.ShmMB * mib,
		OOMScoreAdj:   500,
		Ulimits:       ulimits(l),
		Seccomp:       place.Engine.SeccompDigest,
		// The name server and any port below 1024 belong to the sandbox's own
		// loopback; without this an unprivileged process could not bind them.
		Sysctls: map[string]string{"net.ipv4.ip_unprivileged_port_start": "0"},
		Labels: Labels{
			LabelManaged:  "1",
			LabelSandbox:  place.Sandbox,
			LabelDeadline: fmt.Sprint(place.Now.Add(lifetime).Unix()),
			LabelRunDir:   place.RunDir,
			LabelState:    place.State,
			LabelUID:      fmt.Sprint(place.UID),
		},
	}, nil
}

// HoldSpec is the container that keeps the workspace volume of spec alive while
// the sandbox itself may die. It holds no job, sees the volume read-only, and
// its socket is in a directory that the sandbox does not have.
func HoldSpec(spec Spec, socketDir string) Spec {
	hold := spec
	hold.Role = RoleHold
	hold.Name = spec.Name + "-hold"
	hold.Entrypoint = []string{protocol.ShimPath, "hold"}
	hold.Mounts = nil
	for _, m := range spec.Mounts {
		switch m.Kind {
		case MountVolume:
			m.ReadOnly, m.Existing = true, true
			hold.Mounts = append(hold.Mounts, m)
		case MountBind:
			if m.Target == protocol.SocketDir {
				m.Source = socketDir
			}
			hold.Mounts = append(hold.Mounts, m)
		}
	}
	hold.MemoryBytes, hold.Pids, hold.ShmBytes = 256*mib, 32, mib
	if spec.Isolation == contract.IsolationRunsc {
		hold.Pids = gvisorPids
	}
	hold.Labels = maps.Clone(spec.Labels)
	return hold
}

func checkImage(want contract.Image, have contract.ImageFact) error {
	switch want.DigestKind {
	case contract.DigestImageID:
		if have.ID == want.Digest {
			return nil
		}
	case contract.DigestRepo:
		for _, d := range have.RepoDigests {
			if _, digest, ok := strings.Cut(d, "@"); ok && digest == want.Digest {
				return nil
			}
		}
	}
	return &Unavailable{
		What: fmt.Sprintf("image %s is not the one that the contract pins (%s %s)", want.Ref, want.DigestKind, want.Digest),
		Hint: "load that image again, or derive the contract anew",
	}
}

func dropEnv(keys []string) []string {
	drop := []string{}
	for _, k := range keys {
		if k != "PATH" && k != "HOME" { // ours replace these two
			drop = append(drop, k)
		}
	}
	slices.Sort(drop)
	return drop
}

func masked(engine, denied []string) []string {
	out := slices.Concat(engine, denied)
	slices.Sort(out)
	return slices.Compact(out)
}

// deniedOutside are the denied paths that an image could hold; those below the
// workspace are not delivered at all, those below other roots start empty.
func deniedOutside(denied []string) []string {
	var out []string
	for _, p := range denied {
		if !under(p, WorkspaceDir) && !under(p, HomeDir) && !under(p, TmpDir) && !under(p, ShmDir) {
			out = append(out, p)
		}
	}
	return out
}

// DeniedInside are the denied paths below the workspace, relative to it.
func DeniedInside(denied []string) []string {
	var out []string
	for _, p := range denied {
		if under(p, WorkspaceDir) {
			out = append(out, strings.TrimPrefix(strings.TrimPrefix(p, WorkspaceDir), "/"))
		}
	}
	return out
}

func under(path, root string) bool {
	return path == root || strings.HasPrefix(path, root+"/")
}

func mounts(shape Shape, place Placement) []Mount {
	l := shape.Limits
	all := []Mount{
		{Kind: MountBind, Source: place.ShimDir, Target: protocol.ShimDir, ReadOnly: true, Exec: true},
		{Kind: MountBind, Source: place.SocketDir, Target: protocol.SocketDir, ReadOnly: true},
		{
			Kind: MountVolume, Source: containerName(place.Sandbox) + "-workspace", Target: WorkspaceDir, ReadOnly: shape.ReadOnly,
			Bytes: l.DiskMB * mib, Inodes: l.Files, Mode: "0700", Exec: true, Owned: true,
		},
		{Kind: MountTmpfs, Target: HomeDir, Bytes: l.HomeMB * mib, Inodes: inodes(l.HomeMB), Mode: "0700", Exec: true, Owned: true},
		{Kind: MountTmpfs, Target: TmpDir, Bytes: l.TmpMB * mib, Inodes: inodes(l.TmpMB), Mode: "1777", Exec: true, Owned: true},
	}
	if shape.SecretFiles {
		all = append(all, Mount{Kind: MountTmpfs, Target: protocol.SecretDir, Bytes: secretBytes, Inodes: inodes(1), Mode: "0700", Owned: true})
	}
	return all
}

// secretBytes bounds all secret files of a run; one has at most 64 KiB.
const secretBytes = 4 * mib

func containerName(sandbox string) string {
	return "countersign-" + strings.ReplaceAll(sandbox, "_", "-")
}

// inodes of a tmpfs that the contract bounds in MiB only: one for each 4 KiB,
// as a file system on disk would have, and room for a few in the smallest.
func inodes(mb int64) int64 { return mb*mib/4096 + 64 }

// ulimits per process. There is no nproc: the kernel counts it per uid over
// all containers, pids bound the sandbox itself.
func ulimits(l contract.Limits) []Ulimit {
	fsize := max(l.DiskMB, l.HomeMB, l.TmpMB, l.ShmMB) * mib
	return []Ulimit{
		{Name: "core", Value: 0},
		{Name: "fsize", Value: fsize},
		{Name: "memlock", Value: 64 << 10},
		{Name: "msgqueue", Value: 0},
		{Name: "nice", Value: 0},
		{Name: "nofile", Value: 8192},
		{Name: "rtprio", Value: 0},
		{Name: "sigpending", Value: 4096},
	}
}

// defaultPath has what images from Debian's and the language vendors' recipes
// use; the image's own ENV takes no part.
const defaultPath = "/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:" + protocol.ShimBinDir

func job(c contract.Contract) protocol.Job {
	env := map[string]string{
		"PATH": defaultPath, "HOME": HomeDir, "TMPDIR": TmpDir, "PWD": c.Workdir,
		"USER": "agent", "LOGNAME": "agent", "LANG": "C.UTF-8",
		// The uid has no entry in the image's passwd, so tools that ask for a
		// name are told one.
		"GIT_AUTHOR_NAME": "agent", "GIT_AUTHOR_EMAIL": "agent@sandbox.invalid",
		"GIT_COMMITTER_NAME": "agent", "GIT_COMMITTER_EMAIL": "agent@sandbox.invalid",
		"COUNTERSIGN_RUN_ID": c.RunID,
	}
	maps.Copy(env, c.Env)
	var list []string
	for _, k := range slices.Sorted(maps.Keys(env)) {
		list = append(list, k+"="+env[k])
	}
	return protocol.Job{
		Argv: slices.Clone(c.Argv),
		Env:  list,
		Cwd:  c.Workdir,
		Stop: protocol.StopRule{TimeoutSec: c.Limits.TimeoutSec, GraceSec: stopGraceSec},
	}
}
