package shim

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/countersign-dev/countersign/runner/shim/protocol"
)

// Every call here is made so that it does no harm where it is allowed, and so
// that its own complaint differs from the profile's where the kernel lets that
// be: a bad argument is found, or a name that does not exist, before anything
// happens. Numbers that x/sys does not name are the kernel's own
// (include/uapi/linux).

// errUnsupported says that this architecture has no such call.
var errUnsupported = errors.New(protocol.Unsupported)

// noPath names nothing.
const noPath = "/countersign-probe-does-not-exist"

// tryCall makes one call of [protocol.Calls] on a thread of its own.
func tryCall(name, scratch string) error {
	for _, table := range callTables(scratch) {
		if try := table[name]; try != nil {
			return onThread(try)
		}
	}
	return errUnsupported
}

func callTables(scratch string) []map[string]func() error {
	return []map[string]func() error{
		socketCalls(), spaceCalls(), fileCalls(scratch), processCalls(), kernelCalls(), queueCalls(), archCalls(),
	}
}

// sys makes a call and gives its error alone.
func sys(nr uintptr, args ...uintptr) error {
	_, err := sysValue(nr, args...)
	return err
}

func sysValue(nr uintptr, args ...uintptr) (uintptr, error) {
	var a [6]uintptr
	copy(a[:], args)
	r, _, errno := unix.Syscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5])
	if errno != 0 {
		return 0, errno
	}
	return r, nil
}

// sysFD makes a call that would return a descriptor, and closes it.
func sysFD(nr uintptr, args ...uintptr) error {
	fd, err := sysValue(nr, args...)
	if err == nil {
		unix.Close(int(fd))
	}
	return err
}

// minus1 is an invalid descriptor, AT_FDCWD's neighbour.
const minus1 = ^uintptr(0)

func ptr[T any](v *T) uintptr { return uintptr(unsafe.Pointer(v)) }

func cstring(s string) *byte {
	b := append([]byte(s), 0)
	return &b[0]
}

// queued is a siginfo_t (sigaction(2)) with si_code SI_QUEUE.
func queued() *[32]int32 {
	var info [32]int32
	info[2] = -1
	return &info
}

func socketCalls() map[string]func() error {
	open := func(family, kind, proto int) func() error {
		return func() error {
			fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, proto)
			if err == nil {
				unix.Close(fd)
			}
			return err
		}
	}
	return map[string]func() error{
		"socket(AF_VSOCK)":               open(unix.AF_VSOCK, unix.SOCK_STREAM, 0),
		"socket(AF_ALG)":                 open(unix.AF_ALG, unix.SOCK_SEQPACKET, 0),
		"socket(AF_PACKET)":              open(unix.AF_PACKET, unix.SOCK_RAW, 0),
		"socket(AF_KEY)":                 open(unix.AF_KEY, unix.SOCK_RAW, 2),
		"socket(AF_XDP)":                 open(unix.AF_XDP, unix.SOCK_RAW, 0),
		"socket(AF_BLUETOOTH)":           open(unix.AF_BLUETOOTH, unix.SOCK_RAW, 1),
		"socket(AF_CAN)":                 open(unix.AF_CAN, unix.SOCK_RAW, 1),
		"socket(AF_TIPC)":                open(unix.AF_TIPC, unix.SOCK_DGRAM, 0),
		"socket(AF_RDS)":                 open(unix.AF_RDS, unix.SOCK_SEQPACKET, 0),
		"socket(NETLINK_NETFILTER)":      open(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER),
		"socket(NETLINK_KOBJECT_UEVENT)": open(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_KOBJECT_UEVENT),
		"socket(NETLINK_AUDIT)":          open(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT),
		"socket(NETLINK_XFRM)":           open(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_XFRM),
		"socket(NETLINK_GENERIC)":        open(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_GENERIC),
		"socket(SOCK_RAW)":               open(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP),
		"socket(IPPROTO_ICMP)":           open(unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP),
		"socket(IPPROTO_MPTCP)":          open(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP),
	}
}

// spaceCalls make or join name spaces.
func spaceCalls() map[string]func() error {
	unshare := func(flag int) func() error {
		return func() error { return unix.Unshare(flag) }
	}
	return map[string]func() error{
		"clone(CLONE_NEWUSER)":   cloneUser,
		"unshare(CLONE_NEWUSER)": unshare(unix.CLONE_NEWUSER),
		"unshare(CLONE_NEWNET)":  unshare(unix.CLONE_NEWNET),
		"unshare(CLONE_NEWNS)":   unshare(unix.CLONE_NEWNS),
		"setns": func() error {
			fd, err := unix.Open("/proc/self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			return unix.Setns(fd, unix.CLONE_NEWNET)
		},
		"clone3": func() error { return sys(unix.SYS_CLONE3, 0, 0) },
	}
}

// cloneUser starts this very binary in a user name space, where unshare(2)
// would refuse a process of many threads for its own reasons.
func cloneUser() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(null)
	fd := uintptr(null)
	pid, err := syscall.ForkExec(self, []string{self, "version"}, &syscall.ProcAttr{
		Files: []uintptr{fd, fd, fd},
		Sys:   &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER},
	})
	if err != nil {
		return err
	}
	_, err = unix.Wait4(pid, nil, 0, nil)
	return err
}

// fileCalls change mounts, roots and devices.
func fileCalls(scratch string) map[string]func() error {
	return map[string]func() error{
		"mount":      func() error { return unix.Mount("none", noPath, "tmpfs", 0, "") },
		"umount2":    func() error { return unix.Unmount(noPath, 0) },
		"pivot_root": func() error { return unix.PivotRoot(noPath, noPath) },
		"fsopen":     func() error { return sysFD(unix.SYS_FSOPEN, ptr(cstring("tmpfs")), 0) },
		"open_tree": func() error {
			cwd := unix.AT_FDCWD
			return sysFD(unix.SYS_OPEN_TREE, uintptr(cwd), ptr(cstring("/")), unix.OPEN_TREE_CLOEXEC)
		},
		"move_mount": func() error {
			return sys(unix.SYS_MOVE_MOUNT, minus1, ptr(cstring("")), minus1, ptr(cstring("")), 0)
		},
		"chroot": func() error { return unix.Chroot("/") },
		"mknodat(S_IFCHR)": func() error {
			path := filepath.Join(scratch, ".countersign-probe-device")
			err := unix.Mknodat(unix.AT_FDCWD, path, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3)))
			if err == nil {
				os.Remove(path)
			}
			return err
		},
		"open_by_handle_at": func() error {
			handle := struct {
				size uint32
				kind int32
				data [8]byte
			}{size: 8, kind: 1}
			cwd := unix.AT_FDCWD
			return sysFD(unix.SYS_OPEN_BY_HANDLE_AT, uintptr(cwd), ptr(&handle), unix.O_RDONLY|unix.O_CLOEXEC)
		},
		"fanotify_init": func() error { // FAN_REPORT_FID, which needs no privilege of its own
			return sysFD(unix.SYS_FANOTIFY_INIT, unix.FAN_CLOEXEC|unix.FAN_REPORT_FID, unix.O_RDONLY)
		},
		"quotactl": func() error { return sys(unix.SYS_QUOTACTL, 0x800001<<8, 0, 0, 0) }, // Q_SYNC of everything
		"swapon":   func() error { return sys(unix.SYS_SWAPON, ptr(cstring(noPath)), 0) },
		"acct":     func() error { return unix.Acct(noPath) },
		"splice":   func() error { return sys(unix.SYS_SPLICE, minus1, 0, minus1, 0, 1, 0) },
		"tee":      func() error { return sys(unix.SYS_TEE, minus1, minus1, 1, 0) },
		"vmsplice": func() error {
			b := []byte{0}
			iov := unix.Iovec{Base: &b[0]}
			iov.SetLen(1)
			return sys(unix.SYS_VMSPLICE, minus1, ptr(&iov), 1, 0)
		},
	}
}

// processCalls reach into another process or take another identity.
func processCalls() map[string]func() error {
	noPID := 0x7ffffff0
	return map[string]func() error{
		"ptrace":            func() error { return unix.PtraceAttach(noPID) },
		"process_vm_readv":  func() error { return vmCall(unix.ProcessVMReadv) },
		"process_vm_writev": func() error { return vmCall(unix.ProcessVMWritev) },
		"pidfd_getfd(1)": func() error {
			pidfd, err := unix.PidfdOpen(1, 0)
			if err != nil {
				return err
			}
			defer unix.Close(pidfd)
			fd, err := unix.PidfdGetfd(pidfd, 0, 0)
			if err == nil {
				unix.Close(fd)
			}
			return err
		},
		"prlimit64(1)": func() error {
			var old unix.Rlimit
			return unix.Prlimit(1, unix.RLIMIT_CORE, nil, &old)
		},
		// Signal 0 is checked and not sent. The cause is SI_QUEUE, which a
		// process may give another of its uid.
		"rt_sigqueueinfo(1)":   func() error { return sys(unix.SYS_RT_SIGQUEUEINFO, 1, 0, ptr(queued())) },
		"rt_tgsigqueueinfo(1)": func() error { return sys(unix.SYS_RT_TGSIGQUEUEINFO, 1, 1, 0, ptr(queued())) },
		"pidfd_send_signal(siginfo)": func() error {
			return sys(unix.SYS_PIDFD_SEND_SIGNAL, minus1, 0, ptr(queued()), 0)
		},
		"fcntl(F_SETSIG)": func() error { return sys(unix.SYS_FCNTL, 0, unix.F_SETSIG, 0) },
		// Raw calls change this thread alone.
		"setuid(0)": func() error { return sys(unix.SYS_SETUID, 0) },
		"setgid(0)": func() error { return sys(unix.SYS_SETGID, 0) },
		"setgroups(0)": func() error {
			root := uint32(0)
			return sys(unix.SYS_SETGROUPS, 1, ptr(&root))
		},
		"personality": func() error { return sys(unix.SYS_PERSONALITY, 0x0040000) }, // ADDR_NO_RANDOMIZE
	}
}

func vmCall(call func(int, []unix.Iovec, []unix.RemoteIovec, uint) (int, error)) error {
	var from, to [1]byte
	local := unix.Iovec{Base: &to[0]}
	local.SetLen(1)
	remote := unix.RemoteIovec{Base: ptr(&from), Len: 1}
	_, err := call(os.Getpid(), []unix.Iovec{local}, []unix.RemoteIovec{remote}, 0)
	return err
}

// seizeInit tries to trace PID 1 without stopping it; a tracer that ends lets go.
func seizeInit() error {
	return sys(unix.SYS_PTRACE, unix.PTRACE_SEIZE, 1, 0, 0)
}

// kernelCalls load code, set clocks, or open kernel interfaces of wide reach.
func kernelCalls() map[string]func() error {
	return map[string]func() error{
		"bpf": func() error { // an array map of one four-byte entry
			attr := [12]uint32{unix.BPF_MAP_TYPE_ARRAY, 4, 4, 1}
			return sysFD(unix.SYS_BPF, unix.BPF_MAP_CREATE, ptr(&attr), unsafe.Sizeof(attr))
		},
		"perf_event_open": func() error {
			attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{}))}
			attr.Bits = unix.PerfBitDisabled | unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv
			return sysFD(unix.SYS_PERF_EVENT_OPEN, ptr(&attr), 0, minus1, minus1, unix.PERF_FLAG_FD_CLOEXEC)
		},
		"userfaultfd": func() error { return sysFD(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|1) }, // UFFD_USER_MODE_ONLY
		"io_uring_setup": func() error {
			var params [120]byte
			return sysFD(unix.SYS_IO_URING_SETUP, 1, ptr(&params))
		},
		"memfd_secret":  func() error { return sysFD(unix.SYS_MEMFD_SECRET, 0) },
		"statmount":     func() error { return sys(unix.SYS_STATMOUNT, 0, 0, 0, 0) },
		"init_module":   func() error { return unix.InitModule(nil, "") },
		"finit_module":  func() error { return unix.FinitModule(-1, "", 0) },
		"delete_module": func() error { return unix.DeleteModule("countersign_probe", unix.O_NONBLOCK) },
		"kexec_load":    func() error { return sys(unix.SYS_KEXEC_LOAD, 0, 0, 0, 0xffff) },
		"reboot":        func() error { return sys(unix.SYS_REBOOT, 0, 0, 0, 0) }, // no magic, no effect
		"clock_settime": func() error {
			bad := unix.Timespec{Nsec: -1}
			return sys(unix.SYS_CLOCK_SETTIME, unix.CLOCK_REALTIME, ptr(&bad))
		},
		"settimeofday": func() error { return sys(unix.SYS_SETTIMEOFDAY, ptr(&unix.Timeval{Usec: -1}), 0) },
		"adjtimex": func() error { // reads
			_, err := unix.Adjtimex(&unix.Timex{})
			return err
		},
		"syslog": func() error { return sys(unix.SYS_SYSLOG, 10, 0, 0) }, // SYSLOG_ACTION_SIZE_BUFFER
	}
}

// queueCalls open keys, message queues and asynchronous I/O, which live in the
// kernel beside files.
func queueCalls() map[string]func() error {
	return map[string]func() error{
		"keyctl": func() error {
			session := unix.KEY_SPEC_SESSION_KEYRING
			return sys(unix.SYS_KEYCTL, unix.KEYCTL_GET_KEYRING_ID, uintptr(session), 0)
		},
		"add_key": func() error {
			_, err := unix.AddKey("user", "countersign-probe", []byte("x"), unix.KEY_SPEC_THREAD_KEYRING)
			return err
		},
		"request_key": func() error {
			_, err := unix.RequestKey("user", "countersign-probe-none", "", 0)
			return err
		},
		"mq_open": func() error {
			name := cstring("countersign-probe")
			err := sysFD(unix.SYS_MQ_OPEN, ptr(name), unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o600, 0)
			if err == nil {
				_ = sys(unix.SYS_MQ_UNLINK, ptr(name))
			}
			return err
		},
		"msgget": func() error {
			id, err := sysValue(unix.SYS_MSGGET, 0, 0o600) // IPC_PRIVATE
			if err == nil {
				_ = sys(unix.SYS_MSGCTL, id, 0, 0) // IPC_RMID
			}
			return err
		},
		"io_setup": func() error {
			var aio uintptr
			err := sys(unix.SYS_IO_SETUP, 1, ptr(&aio))
			if err == nil {
				_ = sys(unix.SYS_IO_DESTROY, aio)
			}
			return err
		},
	}
}
