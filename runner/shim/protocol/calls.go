package protocol

// Call is one system call that a probe attempts, by the name under which it
// stands in an [Attempt] of kind "syscall". Refused lists the results that say
// that the sandbox's seccomp profile stopped it; "unsupported" is what the probe
// says when the machine's architecture has no such call. Whatever else comes
// back, "ok" most of all, reached the kernel's own code.
type Call struct {
	Name    string
	Refused []string
}

// Unsupported is the result of a call that this architecture does not have.
const Unsupported = "unsupported"

// Calls is what every probe attempts, in this order. All of them are refused by
// the profile described in the sandbox's documentation: name spaces, mounts,
// devices, keys, tracing, kernel code, clocks, and every socket but local,
// TCP, UDP and the route table's.
func Calls() []Call {
	var calls []Call
	add := func(refused []string, names ...string) {
		for _, n := range names {
			calls = append(calls, Call{Name: n, Refused: refused})
		}
	}
	add([]string{"EAFNOSUPPORT"},
		"socket(AF_VSOCK)", "socket(AF_ALG)", "socket(AF_PACKET)", "socket(AF_KEY)", "socket(AF_XDP)",
		"socket(AF_BLUETOOTH)", "socket(AF_CAN)", "socket(AF_TIPC)", "socket(AF_RDS)")
	add([]string{"EPERM"},
		"socket(NETLINK_NETFILTER)", "socket(NETLINK_KOBJECT_UEVENT)", "socket(NETLINK_AUDIT)",
		"socket(NETLINK_XFRM)", "socket(NETLINK_GENERIC)", "socket(SOCK_RAW)", "socket(IPPROTO_ICMP)")
	add([]string{"EPROTONOSUPPORT"}, "socket(IPPROTO_MPTCP)")
	add([]string{"EPERM"},
		"keyctl", "add_key", "request_key", "bpf", "perf_event_open",
		"clone(CLONE_NEWUSER)", "unshare(CLONE_NEWUSER)", "unshare(CLONE_NEWNET)", "unshare(CLONE_NEWNS)", "setns",
		"mount", "umount2", "pivot_root", "fsopen", "open_tree", "move_mount", "chroot",
		"mknodat(S_IFCHR)", "open_by_handle_at", "fanotify_init", "quotactl", "swapon", "acct",
		"ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd(1)", "prlimit64(1)",
		"rt_sigqueueinfo(1)", "rt_tgsigqueueinfo(1)", "pidfd_send_signal(siginfo)", "fcntl(F_SETSIG)",
		"setuid(0)", "setgid(0)", "setgroups(0)",
		"init_module", "finit_module", "delete_module", "kexec_load", "reboot",
		"clock_settime", "settimeofday", "adjtimex", "syslog", "personality",
		"mq_open", "msgget", "modify_ldt", "iopl", "ioperm")
	add([]string{"ENOSYS"}, "clone3", "io_uring_setup", "io_setup", "userfaultfd", "memfd_secret", "statmount")
	add([]string{"EINVAL"}, "splice", "tee", "vmsplice")
	return calls
}
