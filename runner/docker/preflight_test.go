package docker

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/system"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/runner"
)

// fit is a reading of an engine that can do everything.
func fit() reading {
	good := []string{"--platform=ptrace", "--network=none", "--host-uds=open", "--oci-seccomp"}
	return reading{
		info: system.Info{
			OSType: "linux", OperatingSystem: "Debian GNU/Linux 12", Architecture: "x86_64", KernelVersion: "6.1.0",
			CgroupVersion: "2", NCPU: 4, MemTotal: 8 << 30,
			MemoryLimit: true, SwapLimit: true, PidsLimit: true, CPUCfsQuota: true, CPUCfsPeriod: true,
			SecurityOptions: []string{"name=apparmor", "name=seccomp,profile=builtin", "name=cgroupns"},
			Runtimes: map[string]system.RuntimeWithStatus{
				"runc":  {Runtime: system.Runtime{Path: "runc"}},
				"runsc": {Runtime: system.Runtime{Path: "/usr/bin/runsc", Args: good}},
			},
		},
		version:   types.Version{Version: "20.10.24", APIVersion: "1.41", Components: []types.ComponentVersion{{Name: "Engine"}}},
		isolation: contract.IsolationRunc,
		goarch:    "amd64",
		kernel:    "6.1.0",
	}
}

func TestJudgeFit(t *testing.T) {
	for _, isolation := range []contract.Isolation{contract.IsolationRunc, contract.IsolationRunsc} {
		r := fit()
		r.isolation = isolation
		// Warnings that concern nothing a sandbox asks for.
		r.info.Warnings = []string{"WARNING: No blkio throttle.read_bps_device support", "WARNING: IPv4 forwarding is disabled", "WARNING: bridge-nf-call-iptables is disabled"}
		facts, err := judge(r)
		if err != nil {
			t.Fatal(err)
		}
		_, digest, err := Profile("amd64", r.isolation)
		if err != nil {
			t.Fatal(err)
		}
		if facts.Runtime != string(isolation) || facts.Platform != "linux/amd64" || facts.SeccompDigest != digest || facts.CPUs != 4 || facts.MemoryBytes != 8<<30 ||
			facts.Kernel != "6.1.0" || facts.CgroupVersion != "2" || facts.APIVersion != "1.41" || facts.Version != "20.10.24" ||
			len(facts.MaskedPaths) != len(MaskedPaths()) || len(facts.ReadonlyPaths) != len(ReadonlyPaths()) {
			t.Errorf("facts are %+v", facts)
		}
	}
}

func TestJudgeUnfit(t *testing.T) {
	runsc := func(args ...string) func(*reading) {
		return func(r *reading) {
			r.isolation = contract.IsolationRunsc
			r.info.Runtimes["runsc"] = system.RuntimeWithStatus{Runtime: system.Runtime{Path: "/usr/bin/runsc", Args: args}}
		}
	}
	for _, c := range []struct {
		says   string // a word of the message
		change func(*reading)
	}{
		{"Podman", func(r *reading) { r.version.Components[0].Name = "Podman Engine" }},
		{"Docker Desktop", func(r *reading) { r.info.OperatingSystem = "Docker Desktop" }},
		{"windows containers", func(r *reading) { r.info.OSType = "windows" }},
		{"API 1.40", func(r *reading) { r.version.APIVersion = "1.40" }},
		{"20.10 or newer", func(r *reading) { r.version.APIVersion = "" }},
		{"another machine", func(r *reading) { r.info.KernelVersion = "5.15.0-linuxkit" }},
		{"architecture is arm64", func(r *reading) { r.info.Architecture = "aarch64" }},
		{"riscv64", func(r *reading) { r.info.Architecture, r.goarch = "riscv64", "riscv64" }},
		{"rootless", func(r *reading) { r.info.SecurityOptions = append(r.info.SecurityOptions, "name=rootless") }},
		{"userns-remap", func(r *reading) { r.info.SecurityOptions = append(r.info.SecurityOptions, "name=userns") }},
		{"SELinux", func(r *reading) { r.info.SecurityOptions = append(r.info.SecurityOptions, "name=selinux") }},
		{"no seccomp", func(r *reading) { r.info.SecurityOptions = []string{"name=apparmor"} }},
		{"limit memory", func(r *reading) { r.info.MemoryLimit = false }},
		{"limit swap", func(r *reading) { r.info.SwapLimit = false }},
		{"limit pids", func(r *reading) { r.info.PidsLimit = false }},
		{"limit CPU", func(r *reading) { r.info.CPUCfsQuota = false }},
		{"limit CPU", func(r *reading) { r.info.CPUCfsPeriod = false }},
		{"No swap limit support", func(r *reading) { r.info.Warnings = []string{"WARNING: No swap limit support"} }},
		{"rootless-mode", func(r *reading) {
			r.info.Warnings = []string{"WARNING: Running in rootless-mode without cgroups."}
		}},
		{"runc is not registered", func(r *reading) { delete(r.info.Runtimes, "runc") }},
		{"runc is /usr/bin/crun", func(r *reading) {
			r.info.Runtimes["runc"] = system.RuntimeWithStatus{Runtime: system.Runtime{Path: "/usr/bin/crun"}}
		}},
		{`isolation "none"`, func(r *reading) { r.isolation = "none" }},
		{"--oci-seccomp", func(r *reading) { r.isolation = contract.IsolationRunsc; delete(r.info.Runtimes, "runsc") }},
		{"containerd shim", func(r *reading) {
			r.isolation = contract.IsolationRunsc
			r.info.Runtimes["runsc"] = system.RuntimeWithStatus{Runtime: system.Runtime{Type: "io.containerd.runsc.v1"}}
		}},
		{"without --oci-seccomp", runsc("--network=none", "--host-uds=open")},
		{"without --oci-seccomp", runsc("--network=none", "--host-uds=open", "--oci-seccomp=false")},
		{"without --host-uds", runsc("--network=none", "--host-uds=all", "--oci-seccomp")},
		{"without --host-uds", runsc("--network=none", "--fsgofer-host-uds", "--oci-seccomp")},
		{"without --network", runsc("--network=host", "--host-uds=open", "--oci-seccomp")},
		{"without --network", runsc("--network=none", "--network=host", "--host-uds=open", "--oci-seccomp")},
		{"--ignore-cgroups", runsc("--network=none", "--host-uds=open", "--oci-seccomp", "-ignore-cgroups")},
		{"--debug", runsc("--network=none", "--host-uds=open", "--oci-seccomp", "--debug")},
	} {
		r := fit()
		c.change(&r)
		_, err := judge(r)
		var unfit *runner.Unavailable
		if !errors.As(err, &unfit) {
			t.Errorf("%s: got %v, want an Unavailable", c.says, err)
			continue
		}
		if !strings.Contains(err.Error(), c.says) || unfit.Hint == "" {
			t.Errorf("%s: says %q", c.says, err)
		}
	}
}

func TestNewHosts(t *testing.T) {
	for _, c := range []struct {
		host, socket, says string
	}{
		{"", "/var/run/docker.sock", ""},
		{"unix:///run/user/1000/docker.sock", "/run/user/1000/docker.sock", ""},
		{"unix:///run/../run/docker.sock", "/run/docker.sock", ""},
		{"tcp://10.0.0.1:2375", "", "remote engine"},
		{"ssh://host", "", "remote engine"},
		{"https://host", "", "remote engine"},
		{"npipe:////./pipe/docker_engine", "", "Windows"},
		{"fd://", "", "unknown scheme"},
		{"unix://docker.sock", "", "not absolute"},
		{"/var/run/docker.sock", "", "no scheme"},
	} {
		e, err := New(Config{Host: c.host})
		switch {
		case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%q: got %v, want %q", c.host, err, c.says)
		case c.says == "" && (err != nil || e.socket != c.socket):
			t.Errorf("%q: got %v, want %s", c.host, err, c.socket)
		}
	}
}

func TestUnreachable(t *testing.T) {
	for _, c := range []struct {
		err  error
		says string
	}{
		{syscall.EACCES, "group docker"},
		{syscall.ENOENT, "install Docker Engine"},
		{syscall.ECONNREFUSED, "systemctl start docker"},
		{errors.New("odd"), "odd"},
	} {
		if got := unreachable(c.err, "/x.sock").Error(); !strings.Contains(got, c.says) || !strings.Contains(got, "/x.sock") {
			t.Errorf("%v: says %q", c.err, got)
		}
	}
}

// TestPreflightWithoutEngine is the first thing that a newcomer meets.
func TestPreflightWithoutEngine(t *testing.T) {
	e, err := New(Config{Host: "unix://" + t.TempDir() + "/none.sock"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = e.Preflight(t.Context(), contract.IsolationRunc)
	var unfit *runner.Unavailable
	if !errors.As(err, &unfit) || !strings.Contains(unfit.Hint, "apt-get install docker.io") {
		t.Errorf("got %v", err)
	}
}

// TestRecentFacts: a verdict serves the container that is made right after it,
// for its own isolation, and no longer than it may.
func TestRecentFacts(t *testing.T) {
	b := needEngine(t)
	asked := 0
	m := &meddler{path: "/info", answered: func(map[string]any) { asked++ }}
	e := m.through(t, b)
	if _, err := e.Preflight(t.Context(), contract.IsolationRunc); err != nil {
		t.Fatal(err)
	}
	spec, _ := newSpec(t, b)
	create(t, e, spec)
	if asked != 1 {
		t.Errorf("the engine was asked %d times what it is, want once", asked)
	}
	if _, ok := e.recent.get(contract.IsolationRunsc); ok {
		t.Error("a verdict for runc serves runsc")
	}
	e.recent.at[contract.IsolationRunc] = time.Now().Add(-recentFor)
	if _, ok := e.recent.get(contract.IsolationRunc); ok {
		t.Errorf("a verdict older than %s still serves", recentFor)
	}
}
