package docker

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// attempt is one thing that the sandbox tries, and what must come of it. Several
// acceptable outcomes are separated by "|".
type attempt struct {
	op   string
	args []string
	want string
}

func run(t *testing.T, in *inside, attempts []attempt) {
	t.Helper()
	for _, a := range attempts {
		got := in.try(a.op, a.args...)
		acceptable := false
		for _, w := range strings.Split(a.want, "|") {
			acceptable = acceptable || got == w
		}
		if !acceptable {
			t.Errorf("%s %q: got %q, want %q", a.op, a.args, got, a.want)
		}
	}
}

// TestControls tries every control from inside one sandbox on a hostile image.
func TestControls(t *testing.T) {
	b := needEngine(t)
	spec, dir := newSpec(t, b)
	in := enter(t, b, spec, dir)
	t.Run("sockets", func(t *testing.T) { run(t, in, socketAttempts()) })
	t.Run("calls", func(t *testing.T) { run(t, in, callAttempts()) })
	t.Run("files", func(t *testing.T) { run(t, in, fileAttempts()) })
	t.Run("image", func(t *testing.T) { run(t, in, imageAttempts()) })
	t.Run("status", func(t *testing.T) { testStatus(t, in) })
	t.Run("namespaces", func(t *testing.T) { testNamespaces(t, in) })
	t.Run("environment", func(t *testing.T) { testEnvironment(t, in) })
	t.Run("network", func(t *testing.T) { testNetwork(t, in) })
	t.Run("mounts", func(t *testing.T) { testMounts(t, in) })
	t.Run("limits", func(t *testing.T) { testLimits(t, in) })
	t.Run("workspace", func(t *testing.T) { testWorkspaceDir(t, in) })
	t.Run("health", func(t *testing.T) {
		got, err := b.engine.api.ContainerInspect(t.Context(), in.box.id)
		if err != nil {
			t.Fatal(err)
		}
		if got.State.Health != nil && got.State.Health.Status != "none" {
			t.Errorf("the image's health check runs: %+v", got.State.Health)
		}
	})
}

func socketAttempts() []attempt {
	stream, dgram, raw, seqpacket := fmt.Sprint(unix.SOCK_STREAM), fmt.Sprint(unix.SOCK_DGRAM), fmt.Sprint(unix.SOCK_RAW), fmt.Sprint(unix.SOCK_SEQPACKET)
	socket := func(want string, family int, kind string, protocol int) attempt {
		return attempt{"call", []string{"socket", fmt.Sprint(family), kind, fmt.Sprint(protocol)}, want}
	}
	pair := func(want string, family int) attempt {
		return attempt{"socketpair", []string{fmt.Sprint(family), stream, "0"}, want}
	}
	attempts := []attempt{
		socket("ok", unix.AF_UNIX, stream, 0), socket("ok", unix.AF_UNIX, dgram, 0), socket("ok", unix.AF_UNIX, seqpacket, 0),
		socket("ok", unix.AF_INET, stream, 0), socket("ok", unix.AF_INET, stream, unix.IPPROTO_TCP),
		socket("ok", unix.AF_INET, dgram, 0), socket("ok", unix.AF_INET, dgram, unix.IPPROTO_UDP),
		socket("ok", unix.AF_INET, fmt.Sprint(unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK), 0),
		socket("EPROTONOSUPPORT", unix.AF_INET, stream, unix.IPPROTO_MPTCP),
		socket("EPERM", unix.AF_INET, dgram, unix.IPPROTO_ICMP), socket("EPERM", unix.AF_INET, raw, unix.IPPROTO_TCP),
		socket("EPERM", unix.AF_INET, stream, unix.IPPROTO_SCTP), socket("EPERM", unix.AF_INET6, raw, unix.IPPROTO_ICMPV6),
		socket("ok", unix.AF_NETLINK, raw, unix.NETLINK_ROUTE),
		socket("EPERM", unix.AF_NETLINK, raw, unix.NETLINK_KOBJECT_UEVENT), socket("EPERM", unix.AF_NETLINK, raw, unix.NETLINK_NETFILTER),
		socket("EPERM", unix.AF_NETLINK, raw, unix.NETLINK_AUDIT), socket("EPERM", unix.AF_NETLINK, raw, unix.NETLINK_GENERIC),
		pair("ok", unix.AF_UNIX), pair("EPERM", unix.AF_TIPC), pair("EPERM", unix.AF_INET), pair("EPERM", unix.AF_VSOCK),
		socket("EPERM", 47, stream, 0), socket("EPERM", 0, stream, 0),
	}
	for family := 3; family <= lastFamily; family++ { // vsock, alg, packet, xdp, bluetooth, can, tipc, …
		if family != unix.AF_INET6 && family != unix.AF_NETLINK {
			attempts = append(attempts, socket("EAFNOSUPPORT", family, stream, 0), socket("EAFNOSUPPORT", family, raw, 0))
		}
	}
	return attempts
}

func callAttempts() []attempt {
	call := func(want, name string, args ...string) attempt {
		return attempt{"call", append([]string{name}, args...), want}
	}
	newUser := fmt.Sprint(unix.CLONE_NEWUSER | int(unix.SIGCHLD))
	return []attempt{
		call("ok", "getpid"),
		// namespaces and mounts
		call("EPERM", "unshare", fmt.Sprint(unix.CLONE_NEWUSER)), call("EPERM", "unshare", fmt.Sprint(unix.CLONE_NEWNET)),
		call("EPERM", "clone", newUser), call("ENOSYS", "clone3", "@", "88"), call("EPERM", "setns", "0", "0"),
		call("EPERM", "mount", `"none"`, `"/tmp"`, `"tmpfs"`), call("EPERM", "umount2", `"/tmp"`), call("EPERM", "pivot_root", `"/"`, `"/"`),
		call("EPERM", "chroot", `"/tmp"`), call("EPERM", "fsopen", `"tmpfs"`), call("EPERM", "open_tree", "0", `"/"`),
		call("EPERM", "move_mount"), call("EPERM", "mount_setattr"),
		// other processes
		call("EPERM", "ptrace", "16", "1"), call("EPERM", "process_vm_readv", "1"), call("EPERM", "process_vm_writev", "1"),
		call("EPERM", "kcmp", "1", "1"), call("EPERM", "pidfd_getfd", "0", "0"), call("EPERM", "prlimit64", "1", "7"),
		call("ok", "prlimit64", "0", "7"),
		// parts of the kernel that nothing in a sandbox needs
		call("EPERM", "bpf"), call("EPERM", "perf_event_open"), call("EPERM", "keyctl"), call("EPERM", "add_key"), call("EPERM", "request_key"),
		call("ENOSYS", "userfaultfd"), call("ENOSYS", "io_uring_setup", "1", "@"), call("ENOSYS", "io_setup", "1", "@"), call("ENOSYS", "memfd_secret"),
		call("EINVAL", "splice"), call("EINVAL", "tee"), call("EINVAL", "vmsplice"),
		call("EPERM", "mq_open", `"q"`, "66", "0600"), call("EPERM", "msgget"), call("EPERM", "remap_file_pages"),
		call("EPERM", "personality", "0x40000"), call("ok", "personality", "0xffffffff"),
		call("EPERM", "name_to_handle_at"), call("EPERM", "open_by_handle_at"), call("EPERM", "fanotify_init"), call("EPERM", "syslog", "3"),
		// the machine
		call("EPERM", "reboot"), call("EPERM", "kexec_load"), call("EPERM", "init_module"), call("EPERM", "finit_module"), call("EPERM", "delete_module"),
		call("EPERM", "swapon"), call("EPERM", "acct"), call("EPERM", "quotactl"), call("EPERM", "settimeofday"), call("EPERM", "clock_settime"),
		call("EPERM", "adjtimex", "@"), call("EPERM", "clock_adjtime"), call("EPERM", "sethostname", `"x"`, "1"),
		// identity
		call("EPERM", "setuid", "0"), call("EPERM", "setgid", "0"), call("EPERM", "setgroups", "0"), call("EPERM", "capset"), call("EPERM", "setfsuid", "0"),
		// device nodes (the disk 8:0, memory 1:1); a pipe is fine
		call("EPERM", "mknodat", "-100", `"/tmp/disk"`, "0x6180", "0x800"),
		call("EPERM", "mknodat", "-100", `"/tmp/mem"`, "0x2180", "0x101"),
		call("ok", "mknodat", "-100", `"/tmp/pipe"`, "0x1180", "0"),
	}
}

func fileAttempts() []attempt {
	a := func(want, op string, args ...string) attempt { return attempt{op, args, want} }
	return []attempt{
		// the root is read-only, where its own modes allow and where they do not
		a("EROFS", "write", "/open/new"), a("EROFS", "write", "/new"), a("EROFS", "append", "/plain"), a("ENOENT", "append", "/data/planted"),
		a("EROFS", "write", "/etc/new"), a("EACCES|EROFS", "append", "/etc/hosts"), a("EACCES|EROFS", "append", "/etc/resolv.conf"), a("EACCES|EROFS", "append", "/etc/hostname"),
		// what the run mounts is read-only but for the roots
		a("EROFS", "write", "/countersign/new"), a("EROFS|EACCES", "append", "/countersign/shim"), a("EROFS", "write", "/run/countersign/new"),
		a("ok", "write", "/workspace/new"), a("ok", "write", "/tmp/new"), a("ok", "write", "/home/agent/new"), a("ok", "write", "/dev/shm/new"),
		a("EACCES|EROFS", "write", "/run/new"), a("EACCES|EROFS", "write", "/dev/new"), a("EACCES|EROFS", "write", "/dev/pts/new"), a("EMFILE|EACCES", "write", "/dev/mqueue/new"),
		a("EACCES|EROFS", "write", "/sys/fs/cgroup/new"), a("EACCES|EROFS|ENOENT", "append", "/sys/fs/cgroup/memory/memory.limit_in_bytes"),
		// what a contract denies, and the machine's own
		a("", "list", "/secret"), a("ENOENT", "read", "/secret/key"),
		a("", "read", "/proc/kallsyms"), a("", "read", "/proc/cmdline"), a("|ENOENT", "read", "/proc/modules"), a("", "list", "/sys/kernel"), a("", "list", "/sys/class"),
		a("", "list", "/sys/firmware"), a("", "list", "/sys/module"), a("|ENOENT", "list", "/proc/scsi"), a("|ENOENT", "read", "/proc/kcore"), a("", "read", "/proc/keys"),
		a("EROFS|EACCES", "append", "/proc/sys/kernel/core_pattern"), a("EROFS|EACCES|ENOENT", "append", "/proc/sysrq-trigger"),
		// no device but the harmless ones
		a("/dev/full /dev/null /dev/pts/ptmx /dev/random /dev/tty /dev/urandom /dev/zero", "nodes", "/dev"),
		// no engine under any name
		a("ENOENT", "connect", "unix", "/var/run/docker.sock"), a("ENOENT", "connect", "unix", "/run/docker.sock"), a("ENOENT", "connect", "unix", "/run/containerd/containerd.sock"),
		// a setuid program of the image stays who it was
		a(fmt.Sprintf("%d %d", firstUID, firstUID), "exec", "/setuid", "ids"),
		a(fmt.Sprintf("%d %d", firstUID, firstUID), "exec", "/countersign/shim", "ids"),
	}
}

// imageAttempts: the image's configuration and its passwd have no effect.
func imageAttempts() []attempt {
	return []attempt{
		{"ids", nil, fmt.Sprintf("%d %d %d %d []|%d %d %d %d [%d]", firstUID, firstUID, firstUID, firstUID, firstUID, firstUID, firstUID, firstUID, firstUID)},
		{"cwd", nil, "/workspace"},
		{"hostname", nil, "sandbox"},
		{"read", []string{"/proc/1/cmdline"}, "/countersign/shim\x00serve\x00"},
		// VOLUME: empty and read-only, in place of a directory on the host's disk
		{"list", []string{"/data"}, ""},
		{"write", []string{"/data/new"}, "EROFS|EACCES"},
		{"list", []string{"/home"}, "agent"},
		{"write", []string{"/home/new"}, "EROFS|EACCES"},
		// mounts do not take over what the image has there
		{"list", []string{"/tmp"}, "new pipe"},
		{"read", []string{"/workspace/planted"}, "ENOENT"},
		{"read", []string{"/plain"}, "plain"},
	}
}

func testStatus(t *testing.T, in *inside) {
	status := make(map[string]string)
	for _, line := range strings.Split(in.try("read", "/proc/self/status"), "\n") {
		key, value, _ := strings.Cut(line, ":")
		status[key] = strings.TrimSpace(value)
	}
	uids := fmt.Sprintf("%d\t%d\t%d\t%d", firstUID, firstUID, firstUID, firstUID)
	none := "0000000000000000"
	for key, want := range map[string]string{
		"Uid": uids, "Gid": uids, "CapInh": none, "CapPrm": none, "CapEff": none, "CapBnd": none, "CapAmb": none,
		"NoNewPrivs": "1", "Seccomp": "2", "Pid": "1",
	} {
		if status[key] != want {
			t.Errorf("%s is %q, want %q", key, status[key], want)
		}
	}
}

func testEnvironment(t *testing.T, in *inside) {
	allowed := map[string]string{"PATH": "/usr/bin:/bin", "HOME": "/home/agent", "HOSTNAME": "sandbox"}
	for _, kv := range strings.Split(in.try("env"), "\n") {
		key, value, _ := strings.Cut(kv, "=")
		if want, ok := allowed[key]; !ok || value != want {
			t.Errorf("unexpected variable %s", kv)
		}
		delete(allowed, key)
	}
	if len(allowed) > 0 {
		t.Errorf("missing variables %v", allowed)
	}
}

func testNetwork(t *testing.T, in *inside) {
	for i, line := range strings.Split(strings.TrimSpace(in.try("read", "/proc/net/dev")), "\n") {
		if name, _, _ := strings.Cut(strings.TrimSpace(line), ":"); i >= 2 && name != "lo" {
			t.Errorf("there is an interface %s", name)
		}
	}
	if routes := strings.Split(strings.TrimSpace(in.try("read", "/proc/net/route")), "\n"); len(routes) > 1 {
		t.Errorf("there is a route: %q", routes[1:])
	}
	resolv := in.try("read", "/etc/resolv.conf")
	for _, line := range strings.Split(resolv, "\n") {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(line, "#") {
			continue
		}
		if fields[0] == "nameserver" && line != "nameserver 127.0.0.1" || fields[0] == "search" && line != "search ." {
			t.Errorf("resolv.conf has %q", line)
		}
	}
	if !strings.Contains(resolv, "nameserver 127.0.0.1") {
		t.Errorf("resolv.conf names no server of ours:\n%s", resolv)
	}
	run(t, in, []attempt{
		{"connect", []string{"tcp", "169.254.169.254:80"}, "ENETUNREACH"},
		{"connect", []string{"tcp", "1.1.1.1:443"}, "ENETUNREACH"},
		{"connect", []string{"tcp", "127.0.0.1:2375"}, "ECONNREFUSED"},
		{"connect", []string{"udp", "8.8.8.8:53"}, "ENETUNREACH"},
		{"listen", []string{"tcp", "127.0.0.1:53"}, "ok"}, // the shim's name server
		{"listen", []string{"tcp", "127.7.7.7:443"}, "ok"},
	})
}

func testMounts(t *testing.T, in *inside) {
	flags := make(map[string]string)
	for _, line := range strings.Split(strings.TrimSpace(in.try("read", "/proc/self/mountinfo")), "\n") {
		f := strings.Fields(line)
		flags[f[4]] = "," + f[5] + ","
		if strings.Contains(line, "docker.sock") || strings.Contains(line, "containerd.sock") {
			t.Errorf("an engine's socket is mounted: %s", line)
		}
	}
	for target, want := range map[string]string{
		"/": "ro", "/countersign": "ro", "/run/countersign": "ro", "/workspace": "rw nosuid nodev", "/tmp": "rw nosuid nodev",
		"/home/agent": "rw nosuid nodev noexec", "/dev/shm": "rw nosuid nodev noexec", "/data": "ro nosuid nodev noexec", "/home": "ro nosuid nodev noexec",
		"/proc/sys": "ro", "/sys": "ro nosuid nodev noexec", "/secret": "ro",
	} {
		for _, f := range strings.Fields(want) {
			if !strings.Contains(flags[target], ","+f+",") {
				t.Errorf("%s is mounted with %q, want %s", target, flags[target], want)
			}
		}
	}
	const tmpfs = "1021994"
	for target, want := range map[string]string{
		"/workspace":  fmt.Sprintf("%s %d %d", tmpfs, 8<<20, 128),
		"/tmp":        fmt.Sprintf("%s %d %d", tmpfs, 4<<20, 64),
		"/home/agent": fmt.Sprintf("%s %d %d", tmpfs, 2<<20, 32),
		"/data":       fmt.Sprintf("%s %d %d", tmpfs, 4096, 1),
	} {
		if got := in.try("statfs", target); got != want {
			t.Errorf("%s is %q, want %q", target, got, want)
		}
	}
	if got := in.try("statfs", "/dev/shm"); !strings.HasPrefix(got, fmt.Sprintf("%s %d ", tmpfs, 1<<20)) {
		t.Errorf("/dev/shm is %q", got)
	}
}

func testLimits(t *testing.T, in *inside) {
	for _, l := range []struct {
		number int
		want   string
	}{
		{unix.RLIMIT_CORE, "0 0"}, {unix.RLIMIT_NOFILE, "256 256"}, {unix.RLIMIT_FSIZE, fmt.Sprintf("%d %d", 6<<20, 6<<20)},
		{unix.RLIMIT_MEMLOCK, "65536 65536"}, {12 /* RLIMIT_MSGQUEUE */, "0 0"}, {11 /* RLIMIT_SIGPENDING */, "128 128"},
	} {
		if got := in.try("rlimit", fmt.Sprint(l.number)); got != l.want {
			t.Errorf("rlimit %d is %q, want %q", l.number, got, l.want)
		}
	}
	run(t, in, []attempt{
		{"fill", []string{"/home/agent/big"}, fmt.Sprintf("%d ENOSPC", 2<<20-4096)}, // one page holds "new"
		{"crowd", []string{"/home/agent"}, "30 ENOSPC"},                             // 32 less the root and "new"
		{"fill", []string{"/tmp/big"}, fmt.Sprintf("%d ENOSPC", 4<<20-4096)},
		{"fill", []string{"/workspace/big"}, fmt.Sprintf("%d EFBIG", 6<<20)}, // the limit of one file
		{"crowd", []string{"/workspace"}, "126 ENOSPC"},
		{"files", nil, "EMFILE"},
		{"fork", []string{"100"}, "EAGAIN"},
	})
	testCgroup(t, in)
	if got := in.try("read", "/proc/1/oom_score_adj"); strings.TrimSpace(got) != "500" {
		t.Errorf("the oom score is %q", got)
	}
}

// testCgroup reads the limits where the kernel holds them, in either version of
// cgroups.
func testCgroup(t *testing.T, in *inside) {
	for _, l := range []struct{ name, v2, want2, v1, want1 string }{
		{"memory", "memory.max", fmt.Sprint(128 << 20), "memory/memory.limit_in_bytes", fmt.Sprint(128 << 20)},
		{"swap", "memory.swap.max", "0", "memory/memory.memsw.limit_in_bytes", fmt.Sprint(128 << 20)}, // v1 counts both together
		{"pids", "pids.max", "24", "pids/pids.max", "24"},
		{"cpu", "cpu.max", "100000 100000", "cpu/cpu.cfs_quota_us", "100000"},
	} {
		want, got := l.want2, in.try("read", "/sys/fs/cgroup/"+l.v2)
		if got == "ENOENT" {
			want, got = l.want1, in.try("read", "/sys/fs/cgroup/"+l.v1)
		}
		if strings.TrimSpace(got) != want {
			t.Errorf("the limit of %s is %q, want %q", l.name, got, want)
		}
	}
}

// testNamespaces: none is the host's (this test's own).
func testNamespaces(t *testing.T, in *inside) {
	for _, ns := range []string{"cgroup", "ipc", "mnt", "net", "pid", "uts"} {
		path := "/proc/self/ns/" + ns
		own, err := os.Readlink(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := in.try("readlink", path); got == own || !strings.HasPrefix(got, ns+":[") {
			t.Errorf("the %s namespace is %q, the host's is %q", ns, got, own)
		}
	}
	if got := in.try("list", "/proc"); strings.Contains(" "+got+" ", " 2 ") {
		t.Errorf("there are other processes: %s", got)
	}
}

// testWorkspaceDir: what the sandbox writes is there on the host, and the other
// way round.
func testWorkspaceDir(t *testing.T, in *inside) {
	if os.Geteuid() != 0 {
		if in.started.WorkspaceDir != "" {
			t.Errorf("a workspace directory %s for somebody who is not root", in.started.WorkspaceDir)
		}
		return
	}
	if in.started.WorkspaceDir == "" {
		t.Fatal("no workspace directory for root")
	}
	if err := os.WriteFile(filepath.Join(in.started.WorkspaceDir, "from-host"), []byte("hello"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := in.try("read", "/workspace/from-host"); got != "hello" {
		t.Errorf("the sandbox read %q", got)
	}
}
