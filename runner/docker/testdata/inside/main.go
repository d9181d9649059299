// Command inside is PID 1 of the sandboxes that the tests make. It dials out to
// a socket of the test's and then tries whatever the test asks for, one JSON
// request a line, and says how it went: "ok", an errno's name, or a value.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

type request struct {
	Op   string
	Args []string
}

func main() {
	if len(os.Args) > 1 && os.Args[1] != "serve" {
		once(os.Args[1])
		return
	}
	conn, err := net.Dial("unix", "/run/countersign/test.sock")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(99)
	}
	in := bufio.NewScanner(conn)
	for in.Scan() {
		var r request
		if err := json.Unmarshal(in.Bytes(), &r); err != nil {
			os.Exit(98)
		}
		answer, _ := json.Marshal(try(r.Op, r.Args))
		if _, err := conn.Write(append(answer, '\n')); err != nil {
			os.Exit(97)
		}
	}
	os.Exit(96)
}

// once is what a child does.
func once(verb string) {
	switch verb {
	case "ids":
		fmt.Print(os.Geteuid(), os.Getegid())
	case "eat":
		eat()
	case "pause":
		select {}
	}
}

func eat() {
	var kept [][]byte
	for {
		b := make([]byte, 1<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		kept = append(kept, b)
	}
}

func try(op string, args []string) string {
	switch op {
	case "exit":
		os.Exit(number(args[0]))
	case "eat":
		eat()
	case "call":
		return call(args[0], args[1:])
	case "socketpair":
		fds, err := unix.Socketpair(number(args[0]), number(args[1]), number(args[2]))
		if err == nil {
			unix.Close(fds[0])
			unix.Close(fds[1])
		}
		return result(err)
	case "connect":
		c, err := net.Dial(args[0], args[1])
		if err == nil {
			c.Close()
		}
		return result(err)
	case "listen":
		l, err := net.Listen(args[0], args[1])
		if err == nil {
			l.Close()
		}
		return result(err)
	case "read":
		b, err := os.ReadFile(args[0])
		if err != nil {
			return result(err)
		}
		return string(b)
	case "readlink":
		target, err := os.Readlink(args[0])
		if err != nil {
			return result(err)
		}
		return target
	case "write":
		return result(os.WriteFile(args[0], []byte("x"), 0o600))
	case "append":
		f, err := os.OpenFile(args[0], os.O_WRONLY|os.O_APPEND, 0)
		if err == nil {
			f.Close()
		}
		return result(err)
	case "list":
		entries, err := os.ReadDir(args[0])
		if err != nil {
			return result(err)
		}
		names := []string{}
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return strings.Join(names, " ")
	case "nodes": // device nodes anywhere under a directory
		names := []string{}
		filepath.WalkDir(args[0], func(p string, d fs.DirEntry, err error) error {
			if err == nil && d.Type()&fs.ModeDevice != 0 {
				names = append(names, p)
			}
			return nil
		})
		return strings.Join(names, " ")
	case "env":
		return strings.Join(os.Environ(), "\n")
	case "cwd":
		d, err := os.Getwd()
		if err != nil {
			return result(err)
		}
		return d
	case "hostname":
		h, _ := os.Hostname()
		return h
	case "ids":
		groups, _ := os.Getgroups()
		return fmt.Sprint(os.Getuid(), os.Geteuid(), os.Getgid(), os.Getegid(), groups)
	case "exec":
		out, err := exec.Command(args[0], args[1:]...).Output()
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return exit.String()
		}
		if err != nil {
			return result(err)
		}
		return string(out)
	case "rlimit":
		var l unix.Rlimit
		if err := unix.Getrlimit(number(args[0]), &l); err != nil {
			return result(err)
		}
		return fmt.Sprint(l.Cur, l.Max)
	case "statfs":
		var s unix.Statfs_t
		if err := unix.Statfs(args[0], &s); err != nil {
			return result(err)
		}
		return fmt.Sprintf("%x %d %d", s.Type, int64(s.Blocks)*s.Bsize, s.Files)
	case "fill":
		return fill(args[0])
	case "crowd":
		return crowd(args[0])
	case "fork":
		return fork(number(args[0]))
	case "files":
		return files()
	}
	return "unknown operation " + op
}

// fill writes into one file until it is refused: bytes written, and the error.
func fill(path string) string {
	f, err := os.Create(path)
	if err != nil {
		return result(err)
	}
	defer os.Remove(path)
	defer f.Close()
	total, block := 0, make([]byte, 1<<16)
	for total < 1<<28 {
		n, err := f.Write(block)
		total += n
		if err != nil {
			return fmt.Sprint(total, " ", result(err))
		}
	}
	return "no bound"
}

// crowd makes files until it is refused: how many, and the error.
func crowd(dir string) string {
	made := 0
	defer func() {
		for i := range made {
			os.Remove(filepath.Join(dir, "f"+strconv.Itoa(i)))
		}
	}()
	for made < 10_000 {
		f, err := os.Create(filepath.Join(dir, "f"+strconv.Itoa(made)))
		if err != nil {
			return fmt.Sprint(made, " ", result(err))
		}
		f.Close()
		made++
	}
	return "no bound"
}

// fork starts at most n children: whether one was refused, and the error.
func fork(n int) string {
	var children []*exec.Cmd
	defer func() {
		for _, c := range children {
			c.Process.Kill()
			c.Wait()
		}
	}()
	for range n {
		c := exec.Command("/countersign/shim", "pause")
		if err := c.Start(); err != nil {
			return result(err)
		}
		children = append(children, c)
	}
	return "ok"
}

// files opens files until it is refused.
func files() string {
	var open []*os.File
	defer func() {
		for _, f := range open {
			f.Close()
		}
	}()
	for {
		f, err := os.Open("/dev/null")
		if err != nil {
			return result(err)
		}
		open = append(open, f)
	}
}

// call makes a system call by name: "ok" or the errno. A text argument in
// quotes is passed by pointer, "@" stands for some memory.
func call(name string, args []string) string {
	nr, ok := numbers[name]
	if !ok {
		return "unknown call " + name
	}
	var a [6]uintptr
	keep := make([]byte, 4096)
	for i, s := range args {
		switch {
		case s == "@":
			a[i] = uintptr(unsafe.Pointer(&keep[0]))
		case strings.HasPrefix(s, `"`):
			p, _ := syscall.BytePtrFromString(strings.Trim(s, `"`))
			a[i] = uintptr(unsafe.Pointer(p))
		default:
			n, err := strconv.ParseInt(s, 0, 64)
			if err != nil {
				return err.Error()
			}
			a[i] = uintptr(n)
		}
	}
	fd, _, errno := unix.RawSyscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5])
	if errno != 0 {
		return result(errno)
	}
	if name == "socket" {
		unix.Close(int(fd))
	}
	return "ok"
}

var numbers = map[string]uintptr{
	"socket": unix.SYS_SOCKET, "unshare": unix.SYS_UNSHARE, "setns": unix.SYS_SETNS, "mount": unix.SYS_MOUNT,
	"umount2": unix.SYS_UMOUNT2, "pivot_root": unix.SYS_PIVOT_ROOT, "chroot": unix.SYS_CHROOT,
	"ptrace": unix.SYS_PTRACE, "process_vm_readv": unix.SYS_PROCESS_VM_READV, "process_vm_writev": unix.SYS_PROCESS_VM_WRITEV,
	"bpf": unix.SYS_BPF, "perf_event_open": unix.SYS_PERF_EVENT_OPEN, "keyctl": unix.SYS_KEYCTL, "add_key": unix.SYS_ADD_KEY,
	"request_key": unix.SYS_REQUEST_KEY, "userfaultfd": unix.SYS_USERFAULTFD, "clone3": unix.SYS_CLONE3,
	"io_uring_setup": unix.SYS_IO_URING_SETUP, "io_setup": unix.SYS_IO_SETUP, "memfd_secret": unix.SYS_MEMFD_SECRET,
	"splice": unix.SYS_SPLICE, "tee": unix.SYS_TEE, "vmsplice": unix.SYS_VMSPLICE, "mq_open": unix.SYS_MQ_OPEN, "msgget": unix.SYS_MSGGET,
	"prlimit64": unix.SYS_PRLIMIT64, "personality": unix.SYS_PERSONALITY, "mknodat": unix.SYS_MKNODAT,
	"reboot": unix.SYS_REBOOT, "kexec_load": unix.SYS_KEXEC_LOAD, "init_module": unix.SYS_INIT_MODULE, "finit_module": unix.SYS_FINIT_MODULE,
	"delete_module": unix.SYS_DELETE_MODULE, "swapon": unix.SYS_SWAPON, "acct": unix.SYS_ACCT, "quotactl": unix.SYS_QUOTACTL,
	"settimeofday": unix.SYS_SETTIMEOFDAY, "clock_settime": unix.SYS_CLOCK_SETTIME, "adjtimex": unix.SYS_ADJTIMEX,
	"clock_adjtime": unix.SYS_CLOCK_ADJTIME, "sethostname": unix.SYS_SETHOSTNAME, "open_by_handle_at": unix.SYS_OPEN_BY_HANDLE_AT,
	"name_to_handle_at": unix.SYS_NAME_TO_HANDLE_AT, "fanotify_init": unix.SYS_FANOTIFY_INIT, "syslog": unix.SYS_SYSLOG,
	"setuid": unix.SYS_SETUID, "setgid": unix.SYS_SETGID, "setgroups": unix.SYS_SETGROUPS, "capset": unix.SYS_CAPSET,
	"fsopen": unix.SYS_FSOPEN, "open_tree": unix.SYS_OPEN_TREE, "move_mount": unix.SYS_MOVE_MOUNT, "mount_setattr": unix.SYS_MOUNT_SETATTR,
	"pidfd_getfd": unix.SYS_PIDFD_GETFD, "kcmp": unix.SYS_KCMP, "lookup_dcookie": unix.SYS_LOOKUP_DCOOKIE, "clone": unix.SYS_CLONE,
	"setfsuid": unix.SYS_SETFSUID, "remap_file_pages": unix.SYS_REMAP_FILE_PAGES, "seccomp": unix.SYS_SECCOMP, "getpid": unix.SYS_GETPID,
}

func result(err error) string {
	if err == nil {
		return "ok"
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return unix.ErrnoName(errno)
	}
	return err.Error()
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}
