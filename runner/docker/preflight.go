package docker

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/system"
	"github.com/docker/docker/api/types/versions"
	"golang.org/x/sys/unix"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/runner"
)

// minAPI is the oldest API that has every control: private cgroup namespaces
// and a platform at create came with it (Docker 20.10).
const minAPI = "1.41"

// reading is everything that a verdict on an engine rests on.
type reading struct {
	info      system.Info
	version   types.Version
	isolation contract.Isolation
	goarch    string // this program's
	kernel    string // this machine's, as uname says
}

// Preflight says what the engine is, or refuses it with a [*runner.Unavailable].
func (e *Engine) Preflight(ctx context.Context, isolation contract.Isolation) (runner.EngineFacts, error) {
	if err := e.reach(ctx); err != nil {
		return runner.EngineFacts{}, err
	}
	info, version, err := e.ask(ctx)
	if err != nil {
		return runner.EngineFacts{}, err
	}
	kernel, err := kernelRelease()
	if err != nil {
		return runner.EngineFacts{}, err
	}
	r := reading{info: info, version: version, isolation: isolation, goarch: runtime.GOARCH, kernel: kernel}
	facts, err := judge(r)
	if err != nil {
		return runner.EngineFacts{}, err
	}
	for _, w := range info.Warnings {
		e.log.WarnContext(ctx, "engine warns of something that no sandbox needs", "warning", w)
	}
	e.recent.keep(isolation, facts)
	return facts, nil
}

// ask puts both questions at once: for each the engine starts other programs.
func (e *Engine) ask(ctx context.Context) (info system.Info, version types.Version, err error) {
	asked := make(chan error, 1)
	go func() {
		var err error
		if version, err = e.api.ServerVersion(ctx); err != nil {
			err = fmt.Errorf("asking the engine's version: %w", e.explain(err))
		}
		asked <- err
	}()
	if info, err = e.api.Info(ctx); err != nil {
		err = fmt.Errorf("asking what the engine is: %w", e.explain(err))
	}
	if versionErr := <-asked; versionErr != nil {
		err = versionErr
	}
	return info, version, err
}

// recentFor is how long a verdict on the engine serves the containers that are
// made after it. What each got is read back from the engine all the same, and
// tried from inside.
const recentFor = 10 * time.Second

// recent is the last verdict by isolation.
type recent struct {
	mu    sync.Mutex
	facts map[contract.Isolation]runner.EngineFacts
	at    map[contract.Isolation]time.Time
}

func (r *recent) keep(i contract.Isolation, f runner.EngineFacts) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.facts == nil {
		r.facts, r.at = map[contract.Isolation]runner.EngineFacts{}, map[contract.Isolation]time.Time{}
	}
	f.MaskedPaths, f.ReadonlyPaths = slices.Clone(f.MaskedPaths), slices.Clone(f.ReadonlyPaths)
	r.facts[i], r.at[i] = f, time.Now()
}

func (r *recent) get(i contract.Isolation) (runner.EngineFacts, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f, ok := r.facts[i]
	return f, ok && time.Since(r.at[i]) < recentFor
}

// recentFacts is a verdict of a moment ago, or a new one.
func (e *Engine) recentFacts(ctx context.Context, isolation contract.Isolation) (runner.EngineFacts, error) {
	if f, ok := e.recent.get(isolation); ok {
		return f, nil
	}
	return e.Preflight(ctx, isolation)
}

// judge turns a reading into facts, or says what makes the engine unfit. Pure.
func judge(r reading) (runner.EngineFacts, error) {
	for _, check := range []func(reading) *runner.Unavailable{
		judgeKind, judgeNamespaces, judgeSecurity, judgeLimits, judgeWarnings, judgeRuntime,
	} {
		if unfit := check(r); unfit != nil {
			return runner.EngineFacts{}, unfit
		}
	}
	_, digest, err := Profile(r.goarch, r.isolation)
	if err != nil {
		return runner.EngineFacts{}, &runner.Unavailable{What: err.Error(), Hint: "run on amd64 or arm64"}
	}
	return runner.EngineFacts{
		Name:          "docker",
		Version:       r.version.Version,
		APIVersion:    r.version.APIVersion,
		Runtime:       string(r.isolation),
		Kernel:        r.info.KernelVersion,
		CgroupVersion: r.info.CgroupVersion,
		Platform:      "linux/" + goarchOf(r.info.Architecture),
		SeccompDigest: digest,
		MemoryBytes:   r.info.MemTotal,
		CPUs:          r.info.NCPU,
		MaskedPaths:   MaskedPaths(),
		ReadonlyPaths: ReadonlyPaths(),
	}, nil
}

// judgeKind: is it a Docker Engine, new enough, on this very machine?
func judgeKind(r reading) *runner.Unavailable {
	const local = "install Docker Engine from the distribution's packages on this machine"
	switch {
	case isPodman(r.version):
		return &runner.Unavailable{What: "Podman answers in place of Docker", Hint: "it has not been proved to give every control: " + local}
	case r.info.OperatingSystem == "Docker Desktop":
		return &runner.Unavailable{What: "Docker Desktop cannot be used", Hint: "its engine runs in a machine of its own that does not see this one's directories and sockets: " + local}
	case r.info.OSType != "linux":
		return &runner.Unavailable{What: fmt.Sprintf("the engine makes %s containers", r.info.OSType), Hint: "run on Linux"}
	case r.version.APIVersion == "" || versions.LessThan(r.version.APIVersion, minAPI):
		return &runner.Unavailable{
			What: fmt.Sprintf("the engine speaks API %s (Docker %s)", r.version.APIVersion, r.version.Version),
			Hint: "API " + minAPI + " is needed, that is Docker 20.10 or newer",
		}
	case r.info.KernelVersion != r.kernel:
		return &runner.Unavailable{
			What: fmt.Sprintf("the engine runs on another machine (kernel %s, this one has %s)", r.info.KernelVersion, r.kernel),
			Hint: "a remote engine behind a local socket cannot be used: " + local,
		}
	case goarchOf(r.info.Architecture) != r.goarch:
		return &runner.Unavailable{
			What: fmt.Sprintf("the engine's architecture is %s, this program's %s", goarchOf(r.info.Architecture), r.goarch),
			Hint: "use the build for the machine: the shim runs inside and the seccomp profile is for one architecture",
		}
	}
	return nil
}

// judgeNamespaces: modes of the engine that change what a uid or a limit means.
func judgeNamespaces(r reading) *runner.Unavailable {
	switch {
	case hasSecurity(r.info, "rootless"):
		return &runner.Unavailable{
			What: "a rootless engine cannot be used",
			Hint: "its limits depend on what was delegated to its user, and have not been proved: use an engine that runs as root (its containers do not)",
		}
	case hasSecurity(r.info, "userns"):
		return &runner.Unavailable{
			What: "an engine with userns-remap cannot be used",
			Hint: "it maps uids, so the workspace volume would belong to another uid than the sandbox's and could not be written: remove \"userns-remap\" from /etc/docker/daemon.json, or use an engine without it",
		}
	case hasSecurity(r.info, "selinux"):
		return &runner.Unavailable{
			What: "an engine with SELinux labels for containers cannot be used",
			Hint: "the run's directory and the shim would need a label, which is not built: turn \"selinux-enabled\" off in /etc/docker/daemon.json",
		}
	}
	return nil
}

func judgeSecurity(r reading) *runner.Unavailable {
	// Which profile the engine has by default does not matter: a Spec brings
	// its own. That the kernel and the engine can apply one does.
	if !hasSecurity(r.info, "seccomp") {
		return &runner.Unavailable{
			What: "the engine has no seccomp",
			Hint: "the kernel needs CONFIG_SECCOMP_FILTER and the engine a build with seccomp: use the distribution's packages",
		}
	}
	return nil
}

// judgeLimits: without its controller a limit would be dropped with a warning.
func judgeLimits(r reading) *runner.Unavailable {
	const boot = "boot the kernel with "
	for _, limit := range []struct {
		has        bool
		name, hint string
	}{
		{r.info.MemoryLimit, "memory", boot + "cgroup_enable=memory"},
		{r.info.SwapLimit, "swap", boot + "swapaccount=1 (or use cgroup v2), so that memory cannot be had by swapping"},
		{r.info.PidsLimit, "pids", boot + "the pids cgroup controller (CONFIG_CGROUP_PIDS)"},
		{r.info.CPUCfsQuota && r.info.CPUCfsPeriod, "CPU quota", boot + "CONFIG_CFS_BANDWIDTH and the cpu cgroup controller"},
	} {
		if !limit.has {
			return &runner.Unavailable{What: "the engine cannot limit " + limit.name, Hint: limit.hint}
		}
	}
	return nil
}

// judgeWarnings: the engine's own words for the same, in case a flag above is
// ever set while the warning stands. Other warnings (no I/O weight, no
// forwarding, an engine that also listens on TCP) concern nothing a Spec asks.
func judgeWarnings(r reading) *runner.Unavailable {
	for _, w := range r.info.Warnings {
		for _, fatal := range []string{
			"No memory limit support", "No swap limit support", "No pids limit support", "No cpu cfs quota support",
			"No cpu cfs period support", "Running in rootless-mode",
		} {
			if strings.Contains(w, fatal) {
				return &runner.Unavailable{What: "the engine warns: " + w, Hint: "every sandbox needs this control"}
			}
		}
	}
	return nil
}

func isPodman(v types.Version) bool {
	return slices.ContainsFunc(v.Components, func(c types.ComponentVersion) bool {
		return strings.Contains(strings.ToLower(c.Name), "podman")
	})
}

// hasSecurity looks for name=NAME in the engine's security options, each of
// which is a comma-separated list such as "name=seccomp,profile=builtin".
func hasSecurity(info system.Info, name string) bool {
	return slices.ContainsFunc(info.SecurityOptions, func(o string) bool {
		return slices.Contains(strings.Split(o, ","), "name="+name) || o == name
	})
}

// goarchOf translates a machine name (uname -m) into Go's.
func goarchOf(machine string) string {
	switch machine {
	case "x86_64":
		return "amd64"
	case "aarch64":
		return "arm64"
	}
	return machine
}

func kernelRelease() (string, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "", fmt.Errorf("reading the kernel's name: %v", err)
	}
	return unix.ByteSliceToString(u.Release[:]), nil
}
