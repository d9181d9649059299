package docker

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	mobyseccomp "github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/countersign-dev/countersign/policy/contract"
)

// Profile returns the seccomp profile of every sandbox on a machine of the
// given GOARCH ("amd64" or "arm64"), as the JSON that the engine takes, and the
// name of those bytes (sha256:…). The same build gives the same bytes on every
// machine: neither the running kernel nor the engine has a say.
//
// It starts from moby's maintained default, resolved for a process without
// capabilities, and takes away from it (see withdrawn); nothing is allowed that
// moby's default does not allow. Three decisions are ours:
//
//   - Only the native architecture. Docker's default admits the 32-bit ABI as
//     well, whose socketcall(2) and ipc(2) hide their arguments behind a pointer
//     and so pass every filter on arguments.
//   - Sockets are an allow list of families (see socketRules): there is no
//     network interface, and what is left must not be a way around that.
//   - A refused call answers with the error its callers can live with: ENOSYS
//     for what newer kernels added, so that libraries fall back; EINVAL for
//     splice; EPERM for what nobody should want.
//
// moby's default lets ptrace(2) through; here it is refused, so a debugger, and
// a leak sanitizer that uses it, does not work in a sandbox.
//
// Under gVisor the profile lets three calls on to gVisor's own kernel, see
// leftToGVisor.
func Profile(goarch string, isolation contract.Isolation) (text []byte, digest string, err error) {
	p, err := buildProfile(goarch)
	if err != nil {
		return nil, "", err
	}
	if isolation == contract.IsolationRunsc {
		p = leftToGVisor(p)
	}
	text, err = json.Marshal(p)
	if err != nil {
		return nil, "", fmt.Errorf("encoding seccomp profile: %v", err)
	}
	sum := sha256.Sum256(text)
	return text, "sha256:" + hex.EncodeToString(sum[:]), nil
}

// profile is a resolved profile: no condition on capabilities or kernel is left
// in it, so any engine and runtime reads it the same way.
type profile struct {
	DefaultAction   specs.LinuxSeccompAction `json:"defaultAction"`
	DefaultErrnoRet uint                     `json:"defaultErrnoRet"`
	Architectures   []specs.Arch             `json:"architectures"`
	Syscalls        []rule                   `json:"syscalls"`
}

type rule struct {
	Names    []string                 `json:"names"`
	Action   specs.LinuxSeccompAction `json:"action"`
	ErrnoRet *uint                    `json:"errnoRet,omitempty"`
	Args     []specs.LinuxSeccompArg  `json:"args,omitempty"`
}

// withdrawal is a group of calls that moby's default allows and we do not.
// With errno 0 the call falls to the profile's default, EPERM, or to a rule of
// ours on its arguments.
type withdrawal struct {
	why   string
	errno unix.Errno
	names []string
}

// withdrawn lists what is taken away from moby's default, and why.
func withdrawn() []withdrawal {
	return []withdrawal{
		{"the old asynchronous I/O and io_uring do work outside the calls that a filter sees", unix.ENOSYS, []string{
			"io_setup", "io_submit", "io_cancel", "io_destroy", "io_getevents", "io_pgetevents", "io_pgetevents_time64",
			"io_uring_setup", "io_uring_enter", "io_uring_register"}},
		{"clone3 hides its flags, namespaces among them, behind a pointer; libc falls back to clone", unix.ENOSYS, []string{"clone3"}},
		{"memory that the kernel itself cannot read, and faults handled by user code, help exploits", unix.ENOSYS, []string{
			"memfd_secret", "userfaultfd", "uretprobe"}},
		{"young calls that few programs know and all of those can do without", unix.ENOSYS, []string{
			"cachestat", "statmount", "listmount", "process_mrelease", "futex_requeue", "futex_wait", "futex_wake",
			"file_setattr", "file_getattr", "open_tree_attr", "lsm_get_self_attr", "lsm_set_self_attr", "lsm_list_modules"}},
		{"pages lent between files, pipes and sockets have a history of write-through bugs; Go's io.Copy falls back on EINVAL only",
			unix.EINVAL, []string{"splice", "tee", "vmsplice"}},
		{"reading or steering another process of the same uid, the shim as PID 1 among them", 0, []string{
			"ptrace", "process_vm_readv", "process_vm_writev"}},
		{"a signal with a made-up cause: a runtime that takes it for a fault of its own ends, and PID 1 is one; rules of ours admit the plain ones",
			0, []string{"rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_send_signal", "fcntl"}},
		{"changing limits of another process; a rule of ours admits a process's own", 0, []string{"prlimit64"}},
		{"message queues are not counted by any quota of the sandbox", 0, []string{
			"mq_getsetattr", "mq_notify", "mq_open", "mq_timedreceive", "mq_timedreceive_time64", "mq_timedsend",
			"mq_timedsend_time64", "mq_unlink", "msgctl", "msgget", "msgrcv", "msgsnd"}},
		{"multiplexers of 32-bit ABIs, whose arguments cannot be filtered", 0, []string{"ipc", "socketcall"}},
		{"the machine's clock and scheduler", 0, []string{"adjtimex", "clock_adjtime", "clock_adjtime64", "sched_setattr"}},
		{"segment tables and non-linear mappings: little used, often at fault", 0, []string{"modify_ldt", "remap_file_pages"}},
		{"handles of files outlive the path that was checked; watches see other mounts", 0, []string{
			"name_to_handle_at", "fanotify_mark"}},
		{"capabilities are empty and stay so", 0, []string{"capset"}},
		{"identity of file access apart from the process's own", 0, []string{"setfsgid", "setfsgid32", "setfsuid", "setfsuid32"}},
		{"turning off address randomisation; rules of ours admit asking and the default", 0, []string{"personality"}},
		{"device nodes; rules of ours admit files, pipes and sockets", 0, []string{"mknod", "mknodat"}},
		{"socket families; rules of ours admit a few", 0, []string{"socket", "socketpair"}},
	}
}

func buildProfile(goarch string) (profile, error) {
	arch, err := seccompArch(goarch)
	if err != nil {
		return profile{}, err
	}
	allowed, clone := defaultAllowed(goarch)
	var refusals []rule
	for _, w := range withdrawn() {
		allowed = slices.DeleteFunc(allowed, func(n string) bool { return slices.Contains(w.names, n) })
		if w.errno != 0 {
			refusals = append(refusals, rule{Names: sorted(w.names), Action: specs.ActErrno, ErrnoRet: errno(w.errno)})
		}
	}
	rules := []rule{{Names: allowed, Action: specs.ActAllow}}
	rules = append(rules, clone...)
	rules = append(rules, socketRules()...)
	rules = append(rules, argumentRules()...)
	rules = append(rules, refusals...)
	return profile{
		DefaultAction:   specs.ActErrno,
		DefaultErrnoRet: uint(unix.EPERM),
		Architectures:   []specs.Arch{arch},
		Syscalls:        rules,
	}, nil
}

func seccompArch(goarch string) (specs.Arch, error) {
	switch goarch {
	case "amd64":
		return specs.ArchX86_64, nil
	case "arm64":
		return specs.ArchAARCH64, nil
	}
	return "", fmt.Errorf("making seccomp profile: no profile for architecture %q, only amd64 and arm64", goarch)
}

// defaultAllowed resolves moby's default for a process without capabilities:
// the calls it allows whatever their arguments, sorted, and its rules on
// clone(2), which refuse every flag that makes a namespace. Its other rules on
// arguments are replaced by ours. A condition on the kernel's version counts as
// met, so that the profile is the same everywhere.
func defaultAllowed(goarch string) (names []string, clone []rule) {
	for _, s := range mobyseccomp.DefaultProfile().Syscalls {
		if s.Action != specs.ActAllow || !applies(s, goarch) {
			continue
		}
		switch {
		case len(s.Args) == 0:
			names = append(names, s.Names...)
		case slices.Contains(s.Names, "clone"):
			clone = append(clone, rule{Names: sorted(s.Names), Action: s.Action, Args: s.Args})
		}
	}
	return sorted(names), clone
}

// applies says whether a rule of moby's profile is meant for a process without
// capabilities on this architecture.
func applies(s *mobyseccomp.Syscall, goarch string) bool {
	if in := s.Includes; in != nil {
		if len(in.Caps) > 0 || len(in.Arches) > 0 && !slices.Contains(in.Arches, goarch) {
			return false
		}
	}
	if ex := s.Excludes; ex != nil {
		if ex.MinKernel != nil || slices.Contains(ex.Arches, goarch) {
			return false
		}
	}
	return true
}

// leftToGVisor lets pass what gVisor's filter cannot refuse as its callers need
// it: it answers EPERM whatever a rule says, where libc's threads need ENOSYS of
// clone3 and Go's io.Copy needs EINVAL of splice. Neither reaches the host:
// gVisor has no clone3 and answers ENOSYS itself (the canaries see that it does),
// and its splice and tee copy between its own buffers, lending no pages.
func leftToGVisor(p profile) profile {
	names := []string{"clone3", "splice", "tee"}
	out := p
	out.Syscalls = nil
	for _, r := range p.Syscalls {
		r.Names = slices.DeleteFunc(slices.Clone(r.Names), func(n string) bool { return slices.Contains(names, n) })
		if len(r.Names) > 0 {
			out.Syscalls = append(out.Syscalls, r)
		}
	}
	out.Syscalls = append(out.Syscalls, rule{Names: names, Action: specs.ActAllow})
	return out
}

// lastFamily is the highest address family that Linux has given a number to
// (AF_MCTP is 45, AF_MAX 46). Higher ones fall to EPERM.
const lastFamily = 46

// socketRules admit local sockets, TCP and UDP (there is loopback only, and the
// shim listens on it), and the routing part of netlink, without which
// getifaddrs(3) fails. Everything else is "not supported", so that programs
// which try newer families (vsock leaves the machine whatever its network
// namespace; MPTCP and ALG are large and rarely needed) fall back.
func socketRules() []rule {
	rules := []rule{allow("socket", equal(0, unix.AF_UNIX))}
	for _, f := range []uint64{unix.AF_INET, unix.AF_INET6} {
		stream, dgram := typeOf(unix.SOCK_STREAM), typeOf(unix.SOCK_DGRAM)
		rules = append(rules,
			allow("socket", equal(0, f), stream, equal(2, 0)),
			allow("socket", equal(0, f), stream, equal(2, unix.IPPROTO_TCP)),
			allow("socket", equal(0, f), dgram, equal(2, 0)),
			allow("socket", equal(0, f), dgram, equal(2, unix.IPPROTO_UDP)),
			refuse(unix.EPROTONOSUPPORT, "socket", equal(0, f), stream, equal(2, unix.IPPROTO_MPTCP)),
		)
	}
	rules = append(rules, allow("socket", equal(0, unix.AF_NETLINK), equal(2, unix.NETLINK_ROUTE)))
	for f := uint64(1); f <= lastFamily; f++ {
		if !slices.Contains([]uint64{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}, f) {
			rules = append(rules, refuse(unix.EAFNOSUPPORT, "socket", equal(0, f)))
		}
	}
	// socketpair(2) makes sockets too: TIPC has pairs, and the kernel loads the
	// module of any family before it finds that it has none.
	return append(rules, allow("socketpair", equal(0, unix.AF_UNIX)))
}

// argumentRules give back the harmless uses of calls that were withdrawn.
func argumentRules() []rule {
	rules := []rule{
		allow("personality", equal(0, 0)),
		allow("personality", equal(0, 0xffffffff)), // asks, changes nothing
		allow("prlimit64", equal(0, 0)),            // the caller itself
		allow("pidfd_send_signal", equal(2, 0)),    // as kill(2), without a siginfo
	}
	rules = append(rules, allowAllBut("fcntl", 1, unix.F_SETSIG)...)
	for _, kind := range []uint64{0, unix.S_IFREG, unix.S_IFIFO, unix.S_IFSOCK} {
		rules = append(rules,
			allow("mknod", maskedEqual(1, unix.S_IFMT, kind)),
			allow("mknodat", maskedEqual(2, unix.S_IFMT, kind)))
	}
	return rules
}

// allowAllBut admits a call unless the low half of an argument is v. The kernel
// looks at 32 bits of it, so "not equal", which compares 64, could be passed by
// setting a higher one: what differs from v differs in one of 32 bits.
func allowAllBut(name string, arg uint, v uint64) []rule {
	var rules []rule
	for bit := uint64(1); bit < 1<<32; bit <<= 1 {
		rules = append(rules, allow(name, maskedEqual(arg, bit, ^v&bit)))
	}
	return rules
}

func allow(name string, args ...specs.LinuxSeccompArg) rule {
	return rule{Names: []string{name}, Action: specs.ActAllow, Args: args}
}

func refuse(e unix.Errno, name string, args ...specs.LinuxSeccompArg) rule {
	return rule{Names: []string{name}, Action: specs.ActErrno, ErrnoRet: errno(e), Args: args}
}

func equal(arg uint, v uint64) specs.LinuxSeccompArg {
	return specs.LinuxSeccompArg{Index: arg, Value: v, Op: specs.OpEqualTo}
}

func maskedEqual(arg uint, mask, v uint64) specs.LinuxSeccompArg {
	return specs.LinuxSeccompArg{Index: arg, Value: mask, ValueTwo: v, Op: specs.OpMaskedEqual}
}

// typeOf matches a socket type whatever flags (SOCK_CLOEXEC…) stand beside it:
// the kernel keeps types in the low four bits.
func typeOf(t uint64) specs.LinuxSeccompArg { return maskedEqual(1, 0xf, t) }

func errno(e unix.Errno) *uint { v := uint(e); return &v }

func sorted(names []string) []string {
	names = slices.Clone(names)
	slices.Sort(names)
	return slices.Compact(names)
}
