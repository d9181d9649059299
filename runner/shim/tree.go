package shim

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// processes is everything that runs beside PID 1: one main child and what came
// of it. An orphan becomes a child of PID 1, so when PID 1 has no child left, no
// process is left.
type processes struct {
	main   int
	status chan unix.WaitStatus // the main child's, once
	empty  chan struct{}        // closed when PID 1 is alone

	ending  atomic.Bool  // a first signal was sent to all
	killing atomic.Bool  // SIGKILL was sent to all, and is again for each that dies
	ended   atomic.Int64 // reaped after that first signal, the main child aside
}

// program is what to execute, resolved and checked.
type program struct {
	path  string
	argv  []string
	env   []string
	dir   string
	files [3]*os.File
}

// spawn starts p in a session of its own and reaps from then on. At most one
// tree may live at a time, and nothing else may wait for children.
func spawn(p program, score *oomScore) (*processes, error) {
	t := &processes{status: make(chan unix.WaitStatus, 1), empty: make(chan struct{})}
	attr := &syscall.ProcAttr{Dir: p.dir, Env: p.env, Sys: &syscall.SysProcAttr{Setsid: true}}
	for _, f := range p.files {
		attr.Files = append(attr.Files, f.Fd())
	}
	err := score.whileForking(func() (err error) {
		t.main, err = syscall.ForkExec(p.path, p.argv, attr)
		return err
	})
	if err != nil {
		if t.main > 0 { // it runs, but the shim's own score could not be restored
			killAll(unix.SIGKILL)
		}
		return nil, err
	}
	go t.reap()
	return t, nil
}

// reap waits for every child until there is none. It is the only place that
// waits, and the only polling there is.
func (t *processes) reap() {
	defer close(t.empty)
	for {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, unix.WALL, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil: // ECHILD
			return
		case pid == t.main:
			t.status <- ws
		case t.ending.Load():
			t.ended.Add(1)
		}
		if t.killing.Load() {
			killAll(unix.SIGKILL)
		}
	}
}

// terminate asks every process to end.
func (t *processes) terminate() {
	t.ending.Store(true)
	killAll(unix.SIGTERM)
	killAll(unix.SIGCONT) // a stopped one would not see it
}

// kill ends every process. One call marks all that exist (the kernel holds its
// list while it does, and a fork under a pending SIGKILL fails); reap repeats it
// for as long as something dies.
func (t *processes) kill() {
	t.ending.Store(true)
	t.killing.Store(true)
	killAll(unix.SIGKILL)
}

// killAll signals every process but PID 1, which must be the caller: anywhere
// else it would reach a whole machine.
func killAll(sig unix.Signal) {
	if os.Getpid() == 1 {
		_ = unix.Kill(-1, sig) // ESRCH: there was none
	}
}

// childless says whether PID 1 has no child, dead ones included. It reaps none.
func childless() bool {
	for {
		err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT|unix.WALL, nil)
		if !errors.Is(err, unix.EINTR) {
			return errors.Is(err, unix.ECHILD)
		}
	}
}

// exitCode maps a status as shells do.
func exitCode(ws unix.WaitStatus) (code, signal int) {
	if ws.Signaled() {
		return 128 + int(ws.Signal()), int(ws.Signal())
	}
	return ws.ExitStatus(), 0
}

// pipe returns the two ends of a pipe whose reading end the runtime polls; the
// other one blocks, as programs expect of their output.
func pipe() (r, w *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, fmt.Errorf("making a pipe: %v", err)
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		return nil, nil, fmt.Errorf("making a pipe: %v", err)
	}
	return os.NewFile(uintptr(fds[0]), "pipe"), os.NewFile(uintptr(fds[1]), "pipe"), nil
}
