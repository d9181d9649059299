package runner

import (
	"fmt"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/policy/ledger"
	"github.com/countersign-dev/countersign/runner/egress"
	"github.com/countersign-dev/countersign/runner/shim/protocol"
)

// Stages of the canaries.
const (
	StageBefore = "before"
	StageAfter  = "after"
)

// Names and addresses that the canaries try. CanaryName is answered by the
// proxy when there is one; UnlistedName is in no contract (RFC 2606).
const (
	CanaryName   = egress.CanaryHost
	UnlistedName = egress.UnlistedHost
)

// metadataAddresses are where clouds answer with credentials.
var metadataAddresses = []string{"169.254.169.254:80", "[fd00:ec2::254]:80", "100.100.100.200:80"}

// engineSockets are where container engines listen on a host.
var engineSockets = []string{
	"/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock",
	"/run/podman/podman.sock", "/var/run/crio/crio.sock", "/run/buildkit/buildkitd.sock",
}

// unwritable are directories outside every root in which a file must not come
// to be.
var unwritable = []string{"/", "/etc", "/usr", "/usr/bin", "/var", "/root", "/dev", "/run", protocol.ShimDir, protocol.ShimBinDir, protocol.SocketDir, "/proc/sys/kernel", "/sys"}

// Probe is what the canaries of one stage try in the sandbox of spec.
func Probe(stage string, c contract.Contract, spec Spec) protocol.Probe {
	p := protocol.Probe{
		Stage:      stage,
		Names:      []string{CanaryName, UnlistedName},
		Addresses:  slices.Concat(metadataAddresses, []string{"192.0.2.1:443", "127.0.0.1:2375"}),
		Sockets:    engineSockets,
		Unwritable: slices.Clone(unwritable),
		Unreadable: slices.Concat(deniedOutside(c.ReadDenied), deniedWorkspace(c.ReadDenied)),
	}
	for _, m := range spec.Mounts {
		p.Mounts = append(p.Mounts, m.Target)
		if m.Kind == MountBind {
			continue
		}
		if m.ReadOnly {
			p.Unwritable = append(p.Unwritable, m.Target)
		} else {
			p.Writable = append(p.Writable, m.Target)
		}
	}
	if c.Network.Mode != contract.NetworkNone {
		p.HTTP = p.Names
	}
	p.Mounts = append(p.Mounts, ShmDir, "/")
	p.Writable = append(p.Writable, ShmDir)
	if stage == StageAfter {
		// A full disk is the workload's right, and so is a file of its own at a
		// path whose contents were not delivered: both were shown before.
		p.Writable = nil
		p.Unreadable = deniedOutside(c.ReadDenied)
	}
	return p
}

func deniedWorkspace(denied []string) []string {
	var out []string
	for _, rel := range DeniedInside(denied) {
		out = append(out, strings.TrimSuffix(WorkspaceDir+"/"+rel, "/"))
	}
	return out
}

// Wrong are the canaries that are not as they must be.
func Wrong(canaries []ledger.Canary) []ledger.Canary {
	return slices.DeleteFunc(slices.Clone(canaries), func(c ledger.Canary) bool { return c.OK })
}

// Judge compares what a probe read with what the spec demands. A reading that
// is missing is wrong: a control that cannot be seen to hold does not hold.
// What a table of the isolation states as weaker is noted, and not wrong.
func Judge(spec Spec, asked protocol.Probe, got protocol.Probed) []ledger.Canary {
	j := &judge{spec: spec, asked: asked, got: got}
	j.attempts()
	j.calls()
	j.status()
	j.limits()
	j.network()
	j.mounts()
	return j.canaries
}

type judge struct {
	spec     Spec
	asked    protocol.Probe
	got      protocol.Probed
	canaries []ledger.Canary
}

func (j *judge) add(name, want, got string, ok bool) {
	if w, stated := weaker(j.spec.Isolation, name); !ok && stated && slices.Contains(w.got, got) {
		want, ok = want+", or as stated of "+w.control, true
	}
	j.canaries = append(j.canaries, ledger.Canary{Stage: j.asked.Stage, Name: name, Want: want, Got: contract.Escape(clip(got)), OK: ok})
}

func (j *judge) same(name, want, got string) { j.add(name, want, got, want == got) }

// Results of an attempt, see protocol.Probed.
const (
	resultOK       = "ok"
	resultEmpty    = "empty"
	resultNotTried = "not tried" // the shim did not report the attempt
	unreadable     = "unreadable"
)

func (j *judge) result(kind, target string) string {
	for _, a := range j.got.Attempts {
		if a.Kind == kind && a.Target == target {
			return a.Result
		}
	}
	return resultNotTried
}

// refused wants the attempt to have been made and to have failed.
func (j *judge) refused(kind, target string) {
	got := j.result(kind, target)
	j.add(kind+" "+target, "refused", got, got != resultOK && got != resultNotTried && got != "")
}

func (j *judge) attempts() {
	for _, n := range j.asked.Names {
		j.name(n)
	}
	for _, a := range j.asked.Addresses {
		j.refused("dial", a)
	}
	for _, s := range j.asked.Sockets {
		j.refused("unix", s)
	}
	for _, d := range j.asked.Unwritable {
		j.refused("create", d)
	}
	for _, d := range j.asked.Writable {
		j.same("create "+d, resultOK, j.result("create", d))
	}
	for _, p := range j.asked.Unreadable { // a masked path reads as empty
		j.refused("read", p)
	}
	j.refused("ptrace", "1")
	for _, p := range initFiles {
		j.refused("proc", p)
	}
	j.unexpected()
}

// initFiles are what /proc shows of PID 1 to its owner alone. "fd" is a
// directory whose listing would show the control connection.
var initFiles = []string{"/proc/1/environ", "/proc/1/mem", "/proc/1/maps", "/proc/1/root", "/proc/1/fd", "/proc/1/cwd", "/proc/1/exe"}

// unexpected finds what the shim tried beyond the lists above and could do.
func (j *judge) unexpected() {
	wanted := func(a protocol.Attempt) bool {
		switch a.Kind {
		case "create":
			return slices.Contains(j.asked.Writable, a.Target) || slices.Contains(j.writableMounts(), a.Target)
		case "proc": // judged by attempts
			return slices.Contains(initFiles, a.Target)
		case "syscall": // judged by calls
			return true
		case "resolve", "dial", "http": // judged by name: the shim answers, the proxy refuses
			host, _, _ := strings.Cut(a.Target, ":")
			return slices.Contains(j.asked.HTTP, host)
		}
		return false
	}
	for _, a := range j.got.Attempts {
		if a.Result == resultOK && !wanted(a) {
			j.add(a.Kind+" "+a.Target, "refused", a.Result, false)
		}
	}
}

func (j *judge) writableMounts() []string {
	out := []string{ShmDir}
	for _, m := range j.spec.Mounts {
		if !m.ReadOnly {
			out = append(out, m.Target)
		}
	}
	return out
}

// calls wants each system call refused by the filter itself: another errno
// would say that it reached the kernel.
func (j *judge) calls() {
	for _, call := range protocol.Calls() {
		got := j.result("syscall", call.Name)
		refused := call.Refused
		if j.spec.Isolation == contract.IsolationRunsc {
			refused = []string{"EPERM"} // gVisor's filter knows no other answer
		}
		ok := slices.Contains(refused, got) || got == protocol.Unsupported
		j.add("syscall "+call.Name, strings.Join(refused, " or "), got, ok)
	}
}

// status judges the lines of /proc/self/status (proc(5)) of a process with the
// workload's credentials.
func (j *judge) status() {
	uid := strings.TrimSpace(strings.Repeat(fmt.Sprintf("%d ", j.spec.UID), 4))
	for _, k := range []string{"Uid", "Gid"} {
		j.same("status "+k, uid, strings.Join(strings.Fields(j.got.Status[k]), " "))
	}
	groups, ok := j.got.Status["Groups"]
	fields := strings.Fields(groups)
	own := fmt.Sprint(j.spec.UID)
	j.add("status Groups", "none but "+own, groups, ok && !slices.ContainsFunc(fields, func(g string) bool { return g != own }))
	for _, k := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		j.same("status "+k, "0000000000000000", j.got.Status[k])
	}
	j.same("status NoNewPrivs", "1", j.got.Status["NoNewPrivs"])
	j.same("status Seccomp", "2", j.got.Status["Seccomp"])
}

// limits judges the cgroup's limits and the hard resource limits.
func (j *judge) limits() {
	j.limit("memory", j.spec.MemoryBytes)
	j.limit("memory_swap", 0)
	j.limit("pids", j.spec.Pids)
	j.limit("cpu_milli", j.spec.NanoCPUs/1_000_000)
	for _, u := range j.spec.Ulimits {
		j.limit(u.Name, u.Value)
	}
}

func (j *judge) limit(name string, want int64) {
	got, ok := j.got.Limits[name]
	if !ok {
		// Some kernels have no accounting of swap: nothing to read, and no
		// swap in the sandbox only if the machine has none.
		j.add("limit "+name, fmt.Sprint(want), unreadable, false)
		return
	}
	j.same("limit "+name, fmt.Sprint(want), fmt.Sprint(got))
}

// name judges one of the canaries' names. Without a way out no name is answered.
// With one every name is, and the proxy behind it tells the canary, which it
// answers itself, from what no contract names.
func (j *judge) name(n string) {
	switch {
	case !slices.Contains(j.asked.HTTP, n):
		j.refused("resolve", n)
	case n == CanaryName:
		j.same("http "+n, resultOK, j.result("http", n))
	default:
		j.same("http "+n, "status 403", j.result("http", n))
	}
}

func (j *judge) network() {
	j.same("interfaces", "lo", strings.Join(j.got.Links, " "))
	j.same("routes", "", strings.Join(j.got.Routes, "; "))
}

// mounts judges each mount's kind, size and flags as the sandbox sees them.
func (j *judge) mounts() {
	root, ok := j.got.Mounts["/"]
	j.add("mount /", "read-only", root.Flags, ok && hasFlags(root.Flags, "ro"))
	for _, m := range j.spec.Mounts {
		want := []string{"nosuid", "nodev"}
		if m.ReadOnly {
			want = append(want, "ro")
		}
		if m.Kind == MountBind {
			want = []string{"ro"}
		}
		got, ok := j.got.Mounts[m.Target]
		j.add("mount "+m.Target, strings.Join(want, ","), got.Flags, ok && hasFlags(got.Flags, want...))
		if m.Kind != MountBind {
			j.same("size "+m.Target, fmt.Sprint(m.Bytes), fmt.Sprint(got.Bytes))
			j.same("inodes "+m.Target, fmt.Sprint(m.Inodes), fmt.Sprint(got.Inodes))
		}
	}
	shm, ok := j.got.Mounts[ShmDir]
	j.add("mount "+ShmDir, "nosuid,nodev,noexec", shm.Flags, ok && hasFlags(shm.Flags, "nosuid", "nodev", "noexec"))
	j.same("size "+ShmDir, fmt.Sprint(j.spec.ShmBytes), fmt.Sprint(shm.Bytes))
}

func hasFlags(flags string, want ...string) bool {
	have := strings.Split(flags, ",")
	return !slices.ContainsFunc(want, func(f string) bool { return !slices.Contains(have, f) })
}
