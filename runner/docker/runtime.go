package docker

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/docker/docker/api/types/system"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/runner"
)

// registerRunsc is what makes gVisor's runsc usable; each flag is needed.
const registerRunsc = `install runsc, put {"runtimes":{"runsc":{"path":"/usr/bin/runsc","runtimeArgs":["--platform=ptrace","--network=none","--host-uds=open","--oci-seccomp"]}}} into /etc/docker/daemon.json and reload the engine (systemctl reload docker)`

// judgeRuntime: is the OCI runtime of this isolation registered under its own
// name, and as it has to be?
func judgeRuntime(r reading) *runner.Unavailable {
	switch r.isolation {
	case contract.IsolationRunc:
		return judgeRunc(r.info)
	case contract.IsolationRunsc:
		return judgeRunsc(r.info)
	}
	return &runner.Unavailable{What: fmt.Sprintf("isolation %q is not known", r.isolation), Hint: "it is runc or runsc"}
}

func judgeRunc(info system.Info) *runner.Unavailable {
	rt, ok := info.Runtimes["runc"]
	if !ok {
		return &runner.Unavailable{What: "the runtime runc is not registered with the engine", Hint: "install runc from the distribution's packages and restart the engine"}
	}
	// The name is reserved by dockerd; a path that ends in something else means
	// that whatever answers is not Docker as we know it.
	if rt.Path != "" && filepath.Base(rt.Path) != "runc" {
		return &runner.Unavailable{What: fmt.Sprintf("the runtime runc is %s", rt.Path), Hint: "its controls have not been proved: register the real runc"}
	}
	return nil
}

// judgeRunsc checks the flags, because a sandbox whose seccomp profile is
// silently not applied (--oci-seccomp is off by default) looks like any other.
func judgeRunsc(info system.Info) *runner.Unavailable {
	rt, ok := info.Runtimes["runsc"]
	if !ok {
		return &runner.Unavailable{What: "the runtime runsc (gVisor) is not registered with the engine", Hint: registerRunsc}
	}
	if rt.Type != "" || rt.Path == "" {
		return &runner.Unavailable{What: "runsc is registered as a containerd shim, whose flags the engine does not show", Hint: registerRunsc}
	}
	flags := flagsOf(rt.Args)
	for _, need := range []struct{ flag, value, why string }{
		{"oci-seccomp", "true", "the seccomp profile would not be applied"},
		{"host-uds", "open", "the sandbox could not reach its control socket, or could make sockets on the host"},
		{"network", "none", "it would bring a network stack of its own"},
	} {
		if flags[need.flag] != need.value {
			return &runner.Unavailable{What: fmt.Sprintf("runsc is registered without --%s=%s: %s", need.flag, need.value, need.why), Hint: registerRunsc}
		}
	}
	for _, bad := range []struct{ flag, why string }{
		{"ignore-cgroups", "limits would not be applied"},
		{"rootless", "limits would not be applied"},
		{"debug", "what the sandbox does would be written to the host's disk"},
		{"strace", "what the sandbox does would be written to the host's disk"},
	} {
		if v, set := flags[bad.flag]; set && v != "false" {
			return &runner.Unavailable{What: fmt.Sprintf("runsc is registered with --%s: %s", bad.flag, bad.why), Hint: registerRunsc}
		}
	}
	return nil
}

// flagsOf reads Go-style flags: one or two hyphens, a bare one means true. A
// value in an argument of its own is not supported by boolean flags and not
// used in registrations; it is read as neither.
func flagsOf(args []string) map[string]string {
	flags := make(map[string]string)
	for _, a := range args {
		name, value, found := strings.Cut(strings.TrimLeft(a, "-"), "=")
		if !strings.HasPrefix(a, "-") {
			continue
		}
		if !found {
			value = "true"
		}
		flags[name] = value // the last one wins, as in runsc
	}
	return flags
}
