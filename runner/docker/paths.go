package docker

import "slices"

// MaskedPaths returns the paths that no sandbox may read: a file is covered by
// /dev/null, a directory by an empty read-only one. HostConfig.MaskedPaths
// replaces Docker's own list, so the list begins with that.
//
// Left readable on purpose, because compilers and language runtimes size
// themselves by them: /proc/cpuinfo, /proc/meminfo, /proc/stat,
// /sys/fs/cgroup, /sys/devices/system.
//
// Order does not matter; the caller owns the slice.
func MaskedPaths() []string {
	return slices.Concat(
		// Docker's own list (moby, daemon/pkg/oci/defaults.go).
		[]string{
			"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
			"/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi",
			"/sys/firmware", "/sys/devices/virtual/powercap",
		},
		// Which kernel this is, how it was started, where its symbols and
		// modules lie: what an attack on it would want to know first.
		[]string{
			"/proc/cmdline", "/proc/config.gz", "/proc/kallsyms", "/proc/modules", "/proc/crypto",
			"/proc/dynamic_debug", "/proc/iomem", "/proc/ioports",
			"/sys/kernel", "/sys/module", "/sys/hypervisor", "/sys/power",
		},
		// The machine's hardware and disks.
		[]string{
			"/proc/devices", "/proc/partitions", "/proc/diskstats", "/proc/driver", "/proc/bus", "/proc/irq",
			"/proc/tty", "/proc/fs",
			"/sys/block", "/sys/bus", "/sys/class", "/sys/dev", "/sys/devices/virtual", "/sys/fs/ext4",
		},
		// What other processes of the machine do: counters that are not in any
		// namespace are side channels between tenants.
		[]string{
			"/proc/softirqs", "/proc/zoneinfo", "/proc/buddyinfo", "/proc/pagetypeinfo", "/proc/slabinfo",
			"/proc/vmallocinfo", "/proc/kpagecount", "/proc/kpageflags", "/proc/kpagecgroup", "/proc/locks",
			"/proc/schedstat", "/proc/pressure", "/proc/key-users", "/proc/sysvipc",
		},
		// Writing here acts on the machine.
		[]string{"/proc/sysrq-trigger"},
	)
}

// ReadonlyPaths returns the paths that no sandbox may write, Docker's own list.
// /proc/sys is the one that is not masked too: programs read it.
func ReadonlyPaths() []string {
	return []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
}
