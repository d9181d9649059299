package shim

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Scores of the out-of-memory killer (proc_pid_oom_score_adj(5)): a workload
// is the first to die, so that the shim lives to report it. One that lowers its
// own score, which it may down to the shim's, can have the shim die; then the
// engine's record reports it.
const workloadOOMScore = 1000

// spareThreads is how many threads are made ready before a workload runs. Go
// makes one whenever all others sit in system calls, and a runtime that cannot
// (EAGAIN, at the pids limit) aborts. With its own they stay below
// protocol.ShimPids.
const (
	spareThreads = 8
	processors   = 2
)

// harden makes this process fit to be PID 1 beside a hostile workload of the
// same uid. Order matters: once it is not dumpable, its files in /proc belong to
// root and the score's could no longer be opened.
func harden() (*oomScore, error) {
	unix.Umask(0o022)
	if err := defaultSignals(); err != nil {
		return nil, err
	}
	if err := closeOnExec(); err != nil {
		return nil, fmt.Errorf("marking inherited descriptors: %v", err)
	}
	score, err := openOOMScore()
	if err != nil {
		return nil, err
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("making the shim undumpable: %v", err)
	}
	if v, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); err != nil || v != 0 {
		return nil, fmt.Errorf("making the shim undumpable: the kernel says %d, %v", v, err)
	}
	runtime.GOMAXPROCS(processors)
	makeThreads(spareThreads)
	return score, nil
}

// defaultSignals resets what was inherited for the two signals that the Go
// runtime leaves alone (libc's own, 32 and 33): an ignored one would be
// ignored in a workload too.
func defaultSignals() error {
	var action [32]byte // the kernel's sigaction with SIG_DFL
	for sig := uintptr(32); sig <= 33; sig++ {
		_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
		if errno != 0 {
			return fmt.Errorf("resetting signal %d: %v", sig, errno)
		}
	}
	return nil
}

// closeOnExec keeps whatever the engine left open from reaching a workload.
func closeOnExec() error {
	err := unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC)
	if !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EINVAL) {
		return err
	}
	entries, err := os.ReadDir("/proc/self/fd") // kernels before 5.11, gVisor
	if err != nil {
		return err
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}

// makeThreads makes n threads exist at once; the runtime keeps idle ones.
func makeThreads(n int) {
	var ready, done sync.WaitGroup
	release := make(chan struct{})
	ready.Add(n)
	done.Add(n)
	for range n {
		go func() {
			defer done.Done()
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			ready.Done()
			<-release
		}()
	}
	ready.Wait()
	close(release)
	done.Wait()
}

// oomScore holds /proc/self/oom_score_adj open from before the shim became
// undumpable; the kernel checks permission when the file is opened.
type oomScore struct {
	file *os.File
	own  string
}

func openOOMScore() (*oomScore, error) {
	f, err := os.OpenFile("/proc/self/oom_score_adj", os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("opening the out-of-memory score: %v", err)
	}
	buf := make([]byte, 32)
	n, err := f.ReadAt(buf, 0)
	if n == 0 {
		return nil, fmt.Errorf("reading the out-of-memory score: %v", err)
	}
	return &oomScore{file: f, own: strings.TrimSpace(string(buf[:n]))}, nil
}

// whileForking runs fork with the score that its child is to inherit, and
// restores the shim's own, which an unprivileged process may lower again to
// where it started.
func (s *oomScore) whileForking(fork func() error) error {
	if err := s.write(strconv.Itoa(workloadOOMScore)); err != nil {
		return err
	}
	err := fork()
	if restored := s.write(s.own); err == nil {
		return restored
	}
	return err
}

func (s *oomScore) write(v string) error {
	if _, err := s.file.WriteAt([]byte(v), 0); err != nil {
		return fmt.Errorf("writing the out-of-memory score %s: %v", v, err)
	}
	return nil
}

// catchSignals takes every signal that can be taken, so that none from inside
// ends the shim, and calls terminate for SIGTERM and SIGINT. A handler, unlike
// an ignored signal, is not inherited by a workload.
func catchSignals(terminate func()) {
	c := make(chan os.Signal, 16)
	signal.Notify(c)
	go func() {
		for s := range c {
			if s == syscall.SIGTERM || s == syscall.SIGINT {
				terminate()
			}
		}
	}()
}
