package shim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/countersign-dev/countersign/runner/shim/protocol"
)

// attemptBound is how long one look-up or connection may take.
const attemptBound = 2 * time.Second

// attemptAll tries what m names and what every probe tries. Those that may wait
// for the network run side by side.
func attemptAll(m protocol.Probe) []protocol.Attempt {
	attempts := networkAttempts(m)
	add := func(kind, target string, err error) {
		attempts = append(attempts, protocol.Attempt{Kind: kind, Target: target, Result: result(err)})
	}
	for _, s := range m.Sockets {
		add("unix", s, dial("unix", s))
	}
	for _, dir := range createTargets(m, "/proc/self/mountinfo") {
		add("create", dir, create(dir))
	}
	for _, p := range m.Unreadable {
		add("read", p, read(p))
	}
	add("ptrace", "1", onThread(seizeInit))
	for _, name := range []string{"environ", "mem", "maps", "root", "fd", "cwd", "exe"} {
		p := "/proc/1/" + name
		add("proc", p, openProc(p))
	}
	scratch := os.TempDir()
	if len(m.Writable) > 0 {
		scratch = m.Writable[0]
	}
	for _, c := range protocol.Calls() {
		add("syscall", c.Name, tryCall(c.Name, scratch))
	}
	return attempts
}

func networkAttempts(m protocol.Probe) []protocol.Attempt {
	type task struct {
		kind, target string
		try          func() error
	}
	var tasks []task
	for _, n := range m.Names {
		tasks = append(tasks, task{"resolve", n, func() error { return resolveName(n) }})
		for _, port := range []string{"80", "443"} {
			at := net.JoinHostPort(n, port)
			tasks = append(tasks, task{"dial", at, func() error { return dial("tcp", at) }})
		}
	}
	for _, n := range m.HTTP {
		tasks = append(tasks, task{"http", n, func() error { return askHTTP(net.JoinHostPort(n, "80"), n) }})
	}
	for _, a := range m.Addresses {
		tasks = append(tasks, task{"dial", a, func() error { return dial("tcp", a) }})
		if !loopback(a) { // a datagram socket needs only a route to be connected
			tasks = append(tasks, task{"dial", "udp/" + a, func() error { return dial("udp", a) }})
		}
	}
	attempts := make([]protocol.Attempt, len(tasks))
	var all sync.WaitGroup
	slots := make(chan struct{}, 8) // threads count against the sandbox's tasks
	for i, t := range tasks {
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			attempts[i] = protocol.Attempt{Kind: t.kind, Target: t.target, Result: result(t.try())}
		})
	}
	all.Wait()
	return attempts
}

func loopback(address string) bool {
	at, err := netip.ParseAddrPort(address)
	return err == nil && at.Addr().IsLoopback()
}

func resolveName(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), attemptBound)
	defer cancel()
	_, err := net.DefaultResolver.LookupHost(ctx, name)
	return err
}

func dial(network, address string) error {
	conn, err := net.DialTimeout(network, address, attemptBound)
	if err == nil {
		conn.Close()
	}
	return err
}

// createTargets are the directories that m names and every other mount point,
// so that a writable one that nobody thought of shows.
func createTargets(m protocol.Probe, mountinfo string) []string {
	targets := slices.Concat(m.Unwritable, m.Writable)
	text, err := os.ReadFile(mountinfo)
	if err != nil {
		return targets
	}
	for _, p := range parseMountinfo(string(text)) {
		info, err := os.Lstat(p.path)
		if err == nil && info.IsDir() && !slices.Contains(targets, p.path) {
			targets = append(targets, p.path)
		}
	}
	return targets
}

// create makes a file in dir, and removes it.
func create(dir string) error {
	path := filepath.Join(dir, fmt.Sprintf(".countersign-probe-%d", os.Getpid()))
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(path))
}

// errEmpty says that something was readable and held nothing, as a path does
// that the engine masked.
var errEmpty = errors.New("empty")

// read takes the first byte of a file, or the first name of a directory.
func read(path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // a FIFO must not hold the probe up
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.IsDir() {
		_, err = f.Readdirnames(1)
	} else {
		_, err = f.Read(make([]byte, 1))
	}
	if err == io.EOF {
		return errEmpty
	}
	return err
}

// openProc opens a file of PID 1: to have opened one is to have it, even if it
// reads as nothing. A link is also read by itself.
func openProc(path string) error {
	if _, err := os.Readlink(path); err == nil {
		return nil
	}
	f, err := os.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.IsDir() {
		if _, err := f.Readdirnames(1); err != nil && err != io.EOF {
			return err
		}
	}
	return nil
}

// onThread runs f on a thread that ends with it, so that whatever f changed of
// its thread is gone.
func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- f()
	}()
	return <-done
}

// result is what stands in an Attempt.
func result(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, errEmpty):
		return "empty"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	}
	return errnoName(err)
}

// errnoName is the name of the errno in err, else its text.
func errnoName(err error) string {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		if name := unix.ErrnoName(errno); name != "" {
			return name
		}
		return fmt.Sprintf("errno %d", int(errno))
	}
	var dns *net.DNSError
	if errors.As(err, &dns) {
		if dns.IsTimeout {
			return "timeout"
		}
		// A socket's error is text here, with ports that change each time.
		return strings.TrimSpace(dns.Err[strings.LastIndex(dns.Err, ":")+1:])
	}
	if errors.Is(err, fs.ErrNotExist) {
		return "ENOENT"
	}
	return err.Error()
}
