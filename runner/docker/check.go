package docker

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/runner"
)

// checkSpec refuses a Spec that is not a sandbox, whatever it was compiled
// from. It repeats nothing of the contract's rules: it is the last look before
// the engine is told. Every fault is named. Pure.
func checkSpec(s runner.Spec, facts runner.EngineFacts) error {
	faults := slices.Concat(
		checkIdentity(s), checkProcess(s), checkEnvironment(s), checkNames(s), checkMounts(s),
		checkPaths("masked", s.MaskedPaths, facts.MaskedPaths),
		checkPaths("read-only", s.ReadonlyPaths, facts.ReadonlyPaths),
		checkLimits(s), checkUlimits(s.Ulimits), checkSysctls(s.Sysctls),
	)
	if s.Seccomp != facts.SeccompDigest {
		faults = append(faults, fmt.Errorf("the seccomp profile %q is not known, the engine's is %s", s.Seccomp, facts.SeccompDigest))
	}
	if len(faults) > 0 {
		return fmt.Errorf("checking spec: %w", errors.Join(faults...))
	}
	return checkMachine(s, facts)
}

// checkMachine refuses what this machine is too small for.
func checkMachine(s runner.Spec, facts runner.EngineFacts) error {
	if cpus := int64(facts.CPUs) * 1e9; s.NanoCPUs > cpus {
		return &runner.Unavailable{
			What: fmt.Sprintf("%.2f CPUs were asked for, this machine has %d", float64(s.NanoCPUs)/1e9, facts.CPUs),
			Hint: "lower limits.cpu in the policy",
		}
	}
	if s.MemoryBytes > facts.MemoryBytes {
		return &runner.Unavailable{
			What: fmt.Sprintf("%d MiB of memory were asked for, this machine has %d MiB", s.MemoryBytes>>20, facts.MemoryBytes>>20),
			Hint: "lower limits.memory in the policy",
		}
	}
	return nil
}

func checkIdentity(s runner.Spec) (faults []error) {
	if s.Schema != runner.SchemaSpec {
		faults = append(faults, fmt.Errorf("schema is %q, not %s", s.Schema, runner.SchemaSpec))
	}
	if !isName(s.Name) {
		faults = append(faults, fmt.Errorf("name %q is not a container name", s.Name))
	}
	if s.Role != runner.RoleWork && s.Role != runner.RoleHold {
		faults = append(faults, fmt.Errorf("role %q is not known", s.Role))
	}
	if !isImageID(s.Image) {
		faults = append(faults, fmt.Errorf("image %q is not an image id (sha256: and 64 hexadecimal digits): a tag can change its meaning", s.Image))
	}
	if s.Isolation != contract.IsolationRunc && s.Isolation != contract.IsolationRunsc {
		faults = append(faults, fmt.Errorf("isolation %q is not known", s.Isolation))
	}
	if s.Labels[runner.LabelManaged] != "1" || s.Labels[runner.LabelSandbox] == "" {
		faults = append(faults, fmt.Errorf("labels need %s=1 and %s: without them nothing would clear it up", runner.LabelManaged, runner.LabelSandbox))
	}
	return faults
}

func checkProcess(s runner.Spec) (faults []error) {
	// Above 2^31 the engine reads a uid as a name.
	if s.UID <= 0 || int64(s.UID) >= 1<<31 {
		faults = append(faults, fmt.Errorf("uid %d is not an ordinary user's", s.UID))
	}
	if !isHostname(s.Hostname) {
		faults = append(faults, fmt.Errorf("hostname %q is not one label of letters, digits and hyphens", s.Hostname))
	}
	if !isCleanPath(s.Workdir) {
		faults = append(faults, fmt.Errorf("working directory %q is not a clean absolute path", s.Workdir))
	}
	if len(s.Entrypoint) == 0 || !isCleanPath(s.Entrypoint[0]) {
		faults = append(faults, fmt.Errorf("entrypoint %q does not begin with a clean absolute path: the image's own would run", s.Entrypoint))
	}
	return faults
}

func checkEnvironment(s runner.Spec) (faults []error) {
	seen := make(map[string]bool)
	for _, kv := range s.Env {
		key, _, found := strings.Cut(kv, "=")
		if !found || key == "" || strings.Contains(kv, "\x00") || seen[key] {
			faults = append(faults, fmt.Errorf("environment entry %q is not KEY=VALUE, or not the only one of its name", key))
		}
		seen[key] = true
	}
	for _, key := range s.DropEnv {
		if key == "" || strings.ContainsAny(key, "=\x00") || seen[key] {
			faults = append(faults, fmt.Errorf("dropped variable %q is not a name, or is also set or dropped twice", key))
		}
		seen[key] = true
	}
	return faults
}

// checkNames wants name servers inside the sandbox only: without any the engine
// would hand the host's on.
func checkNames(s runner.Spec) (faults []error) {
	for _, server := range s.DNS {
		if a, err := netip.ParseAddr(server); err != nil || !a.IsLoopback() {
			faults = append(faults, fmt.Errorf("name server %q is not an address of the sandbox's own loopback", server))
		}
	}
	if len(s.DNS) == 0 {
		faults = append(faults, errors.New("no name server is given: the host's would be"))
	}
	if !slices.Equal(s.DNSSearch, []string{"."}) {
		faults = append(faults, fmt.Errorf("search domains are %q, and have to be the root alone", s.DNSSearch))
	}
	return faults
}

func checkPaths(what string, have, need []string) (faults []error) {
	for _, p := range have {
		if !isCleanPath(p) {
			faults = append(faults, fmt.Errorf("%s path %q is not a clean absolute path", what, p))
		}
	}
	for _, p := range need {
		if !slices.Contains(have, p) {
			faults = append(faults, fmt.Errorf("%s paths lack the engine's own %s", what, p))
		}
	}
	return faults
}

func checkLimits(s runner.Spec) (faults []error) {
	for _, l := range []struct {
		name  string
		value int64
	}{
		{"memory", s.MemoryBytes}, {"cpu", s.NanoCPUs}, {"pids", s.Pids}, {"shared memory", s.ShmBytes},
	} {
		if l.value <= 0 {
			faults = append(faults, fmt.Errorf("the limit of %s is %d: zero would mean none", l.name, l.value))
		}
	}
	// A negative value would have the kernel kill the host's processes first.
	if s.OOMScoreAdj < 0 || s.OOMScoreAdj > 1000 {
		faults = append(faults, fmt.Errorf("oom score %d is not between 0 and 1000", s.OOMScoreAdj))
	}
	return faults
}

// checkUlimits wants the two limits without which something leaves the sandbox
// or escapes its quota: a core dump goes to the host's core_pattern, and
// /dev/mqueue is writable and counted nowhere else.
func checkUlimits(limits []runner.Ulimit) (faults []error) {
	known := []string{"core", "cpu", "data", "fsize", "locks", "memlock", "msgqueue", "nice", "nofile", "nproc", "rss", "rtprio", "rttime", "sigpending", "stack"}
	seen := make(map[string]int64)
	for _, l := range limits {
		if _, twice := seen[l.Name]; twice || !slices.Contains(known, l.Name) || l.Value < 0 {
			faults = append(faults, fmt.Errorf("ulimit %s=%d is not known, unlimited, or there twice", l.Name, l.Value))
		}
		seen[l.Name] = l.Value
	}
	for _, name := range []string{"core", "msgqueue"} {
		if v, ok := seen[name]; !ok || v != 0 {
			faults = append(faults, fmt.Errorf("ulimit %s has to be 0", name))
		}
	}
	if seen["nofile"] == 0 {
		faults = append(faults, errors.New("ulimit nofile has to be set"))
	}
	return faults
}

// checkSysctls admits the one that the shim needs, to be a name server on port
// 53 without a capability. It acts on the sandbox's own network namespace.
func checkSysctls(sysctls map[string]string) (faults []error) {
	for _, key := range slices.Sorted(maps.Keys(sysctls)) {
		if key != "net.ipv4.ip_unprivileged_port_start" {
			faults = append(faults, fmt.Errorf("sysctl %s is not one that a sandbox may have", key))
		}
		if n, err := strconv.Atoi(sysctls[key]); err != nil || n < 0 || n > 65535 {
			faults = append(faults, fmt.Errorf("sysctl %s=%q is not a port", key, sysctls[key]))
		}
	}
	return faults
}

func isName(s string) bool {
	return len(s) <= 128 && regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]+$`).MatchString(s)
}

func isImageID(s string) bool { return regexp.MustCompile(`^sha256:[0-9a-f]{64}$`).MatchString(s) }

func isHostname(s string) bool {
	return len(s) <= 63 && regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`).MatchString(s)
}

// isCleanPath is true for an absolute path in its shortest spelling.
func isCleanPath(p string) bool {
	return path.IsAbs(p) && path.Clean(p) == p && !strings.ContainsAny(p, "\x00\n")
}

// within says whether p is dir or lies below it.
func within(p, dir string) bool {
	return p == dir || dir == "/" || strings.HasPrefix(p, dir+"/")
}
