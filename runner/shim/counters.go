package shim

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// cgroupRoot is where a container in a cgroup name space of its own sees its
// cgroup: the unified tree at the root, or one tree a controller below it.
const cgroupRoot = "/sys/fs/cgroup"

// cgroup reads the sandbox's own cgroup, whichever version of the interface
// the kernel shows (admin-guide/cgroup-v2.rst, cgroup-v1/memory.rst, pids.rst).
type cgroup struct{ root string }

// first reads the first file that is there.
func (g cgroup) first(names ...string) (string, bool) {
	for _, n := range names {
		if b, err := os.ReadFile(filepath.Join(g.root, n)); err == nil {
			return strings.TrimSpace(string(b)), true
		}
	}
	return "", false
}

// field returns the number behind a key in lines of "key number".
func field(text, key string) (int64, bool) {
	for line := range strings.Lines(text) {
		k, v, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok || k != key {
			continue
		}
		n, err := strconv.ParseInt(v, 10, 64)
		return n, err == nil
	}
	return 0, false
}

// counters are failures that the kernel counted; -1 where it shows none.
type counters struct{ memory, pids int64 }

func (g cgroup) counters() counters {
	c := counters{memory: -1, pids: -1}
	if text, ok := g.first("memory.events", "memory/memory.oom_control"); ok {
		if n, ok := field(text, "oom_kill"); ok {
			c.memory = n
		}
	}
	if text, ok := g.first("pids.events", "pids/pids.events"); ok {
		if n, ok := field(text, "max"); ok {
			c.pids = n
		}
	}
	return c
}

// since is what was added after an earlier reading.
func (c counters) since(before counters) counters {
	diff := func(now, then int64) int64 {
		if now < 0 || then < 0 {
			return -1
		}
		return now - then
	}
	return counters{memory: diff(c.memory, before.memory), pids: diff(c.pids, before.pids)}
}

// unlimited is how the kernel's largest page-aligned number, version 1's way to
// say so, is recognised: no machine has as much.
const unlimited = int64(1) << 60

// limits reads what is in force: memory and swap beyond it in bytes, tasks, and
// thousandths of a processor. -1 is no limit; what cannot be read is absent.
func (g cgroup) limits() map[string]int64 {
	out := map[string]int64{}
	set := func(key, text string) {
		if text == "max" {
			out[key] = -1
		} else if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			if n < 0 || n >= unlimited {
				n = -1
			}
			out[key] = n
		}
	}
	if v, ok := g.first("memory.max", "memory/memory.limit_in_bytes"); ok {
		set("memory", v)
	}
	if v, ok := g.first("memory.swap.max"); ok {
		set("memory_swap", v)
	} else if v, ok := g.first("memory/memory.memsw.limit_in_bytes"); ok {
		set("sum", v) // version 1 bounds both together
		memory, known := out["memory"]
		if sum, ok := out["sum"]; ok && known {
			out["memory_swap"] = -1
			if sum >= 0 && memory >= 0 {
				out["memory_swap"] = sum - memory
			}
		}
		delete(out, "sum")
	}
	if v, ok := g.first("pids.max", "pids/pids.max"); ok {
		set("pids", v)
	}
	if milli, ok := g.cpu(); ok {
		out["cpu_milli"] = milli
	}
	return out
}

func (g cgroup) cpu() (milli int64, ok bool) {
	var quota, period string
	if v, found := g.first("cpu.max"); found {
		quota, period, _ = strings.Cut(v, " ")
	} else {
		quota, _ = g.first("cpu/cpu.cfs_quota_us", "cpu,cpuacct/cpu.cfs_quota_us")
		period, _ = g.first("cpu/cpu.cfs_period_us", "cpu,cpuacct/cpu.cfs_period_us")
	}
	if quota == "max" || quota == "-1" {
		return -1, true
	}
	q, err1 := strconv.ParseInt(quota, 10, 64)
	p, err2 := strconv.ParseInt(period, 10, 64)
	if err1 != nil || err2 != nil || p <= 0 {
		return 0, false
	}
	return q * 1000 / p, true
}

// fullRoots are the writable file systems in memory that are full, but for
// the workspace, which is told apart, and /dev, which is the engine's.
func fullRoots(mountinfo, workspace string) []string {
	roots := []string{}
	text, err := os.ReadFile(mountinfo)
	if err != nil {
		return roots
	}
	for _, p := range parseMountinfo(string(text)) {
		if p.fsType == "tmpfs" && slices.Contains(p.options, "rw") && p.path != workspace && p.path != "/dev" && full(p.path) && !slices.Contains(roots, p.path) {
			roots = append(roots, p.path)
		}
	}
	slices.Sort(roots)
	return roots
}

// full says that a file system has no free block or no free inode left.
func full(dir string) bool {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return false
	}
	return (st.Blocks > 0 && st.Bavail == 0) || (st.Files > 0 && st.Ffree == 0)
}
