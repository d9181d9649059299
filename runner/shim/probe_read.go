package shim

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/countersign-dev/countersign/runner/shim/protocol"
)

// unreadable stands in a list where a reading could not be taken, so that an
// empty list always means that there is nothing.
func unreadable(err error) []string { return []string{"unreadable: " + errnoName(err)} }

// statusFields are what a probe reports of /proc/self/status
// (proc_pid_status(5)).
func statusFields() []string {
	return []string{
		"Uid", "Gid", "Groups", "Umask", "NStgid", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb",
		"NoNewPrivs", "Seccomp", "Seccomp_filters", "CoreDumping", "TracerPid",
	}
}

// readStatus returns the fields that are there, their white space made single.
func readStatus(path string) map[string]string {
	out := map[string]string{}
	text, err := os.ReadFile(path)
	if err != nil {
		return out
	}
	want := statusFields()
	for line := range strings.Lines(string(text)) {
		key, value, ok := strings.Cut(line, ":")
		if ok && slices.Contains(want, key) {
			out[key] = strings.Join(strings.Fields(value), " ")
		}
	}
	return out
}

// askNoNewPrivs adds a field that gVisor's status lacks; it answers prctl(2).
func askNoNewPrivs(status map[string]string) map[string]string {
	if _, ok := status["NoNewPrivs"]; !ok {
		if v, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err == nil {
			status["NoNewPrivs"] = strconv.Itoa(v)
		}
	}
	return status
}

// readLimits adds the hard resource limits, which bound what a process can give
// itself, to those of the cgroup.
func readLimits(g cgroup) map[string]int64 {
	out := g.limits()
	for name, resource := range map[string]int{
		"nofile": unix.RLIMIT_NOFILE, "core": unix.RLIMIT_CORE, "fsize": unix.RLIMIT_FSIZE,
		"memlock": unix.RLIMIT_MEMLOCK, "msgqueue": unix.RLIMIT_MSGQUEUE, "sigpending": unix.RLIMIT_SIGPENDING,
		"nproc": unix.RLIMIT_NPROC, "nice": unix.RLIMIT_NICE, "rtprio": unix.RLIMIT_RTPRIO,
	} {
		var r unix.Rlimit
		if err := unix.Getrlimit(resource, &r); err != nil {
			continue
		}
		out[name] = int64(min(r.Max, 1<<63-1))
		if r.Max == unix.RLIM_INFINITY {
			out[name] = -1
		}
	}
	return out
}

// readLinks asks the kernel by netlink, since /sys may be masked.
func readLinks() []string {
	links, err := net.Interfaces()
	if err != nil {
		return unreadable(err)
	}
	names := []string{}
	for _, l := range links {
		names = append(names, l.Name)
	}
	return names
}

// readRoutes returns the lines of dir's route tables that lead anywhere but to
// the loopback interface.
func readRoutes(dir string) []string {
	v4, err := os.ReadFile(filepath.Join(dir, "route"))
	if err != nil {
		return unreadable(err)
	}
	routes := []string{}
	first := true
	for line := range strings.Lines(string(v4)) {
		f := strings.Fields(line)
		if !first && len(f) > 0 && f[0] != "lo" {
			routes = append(routes, strings.Join(f, " "))
		}
		first = false
	}
	v6, err := os.ReadFile(filepath.Join(dir, "ipv6_route"))
	if errors.Is(err, fs.ErrNotExist) {
		// A kernel without IPv6 has neither file.
		if _, e := os.Stat(filepath.Join(dir, "if_inet6")); errors.Is(e, fs.ErrNotExist) {
			return routes
		}
	}
	if err != nil {
		return append(routes, unreadable(err)...)
	}
	for line := range strings.Lines(string(v6)) {
		f := strings.Fields(line)
		if len(f) > 0 && f[len(f)-1] != "lo" {
			routes = append(routes, strings.Join(f, " "))
		}
	}
	return routes
}

// mountPoint is one line of mountinfo (proc_pid_mountinfo(5)).
type mountPoint struct {
	path    string
	fsType  string
	options []string
}

func parseMountinfo(text string) []mountPoint {
	var points []mountPoint
	for line := range strings.Lines(text) {
		before, after, ok := strings.Cut(strings.TrimSpace(line), " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 6 || len(g) < 1 {
			continue
		}
		options := strings.Split(f[5], ",")
		slices.Sort(options)
		points = append(points, mountPoint{path: unescape(f[4]), fsType: g[0], options: options})
	}
	return points
}

// unescape undoes the octal escapes of white space and backslash.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// readMounts reads the topmost mount at each path. A path that is no mount
// point, or cannot be read, is absent.
func readMounts(mountinfo string, paths []string) map[string]protocol.MountReading {
	out := map[string]protocol.MountReading{}
	text, err := os.ReadFile(mountinfo)
	if err != nil {
		return out
	}
	for _, p := range parseMountinfo(string(text)) { // a later line lies over an earlier one
		if !slices.Contains(paths, p.path) {
			continue
		}
		delete(out, p.path)
		var st unix.Statfs_t
		if err := unix.Statfs(p.path, &st); err != nil {
			continue
		}
		out[p.path] = protocol.MountReading{
			Type:   p.fsType,
			Bytes:  int64(st.Blocks) * st.Bsize,
			Inodes: int64(st.Files),
			Flags:  strings.Join(p.options, ","),
		}
	}
	return out
}

// readProcesses returns the command names of all processes that can be seen.
func readProcesses(proc string) []string {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return unreadable(err)
	}
	names := []string{}
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		comm, err := os.ReadFile(filepath.Join(proc, e.Name(), "comm"))
		switch {
		case err == nil:
			names = append(names, strings.TrimSuffix(string(comm), "\n"))
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ESRCH):
			names = append(names, unreadable(err)...)
		}
	}
	return names
}
