package shim

import (
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/runner/shim/protocol"
)

// killBound is how long dead processes may take to be gone. One that a kernel
// holds longer ends with PID 1, whose exit ends the name space.
const killBound = 10 * time.Second

// errUndead says that a process outlived SIGKILL.
var errUndead = errors.New("a process could not be ended")

// workload is a job that runs.
type workload struct {
	rule  protocol.StopRule
	procs *processes
	stops stops
	drain *sync.WaitGroup
}

// startWorkload executes a job. The error is a *notStarted.
func startWorkload(job protocol.Job, score *oomScore, send func(stream byte, p []byte) error) (*workload, error) {
	if err := job.Validate(); err != nil {
		return nil, refuse(contract.ExitFailClosed, "%v", err)
	}
	if err := placeSecrets(protocol.SecretDir, job.Secrets); err != nil {
		return nil, refuse(contract.ExitFailClosed, "%v", err)
	}
	if info, err := os.Stat(job.Cwd); err != nil || !info.IsDir() {
		return nil, refuse(contract.ExitFailClosed, "working directory %q is not there or not a directory", job.Cwd)
	}
	path, err := resolve(job.Argv[0], job.Cwd, job.Env)
	if err != nil {
		return nil, err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, refuse(contract.ExitFailClosed, "opening the workload's input: %v", err)
	}
	defer null.Close()
	outR, outW, err := pipe()
	if err != nil {
		return nil, refuse(contract.ExitFailClosed, "%v", err)
	}
	defer outW.Close()
	errR, errW, err := pipe()
	if err != nil {
		outR.Close()
		return nil, refuse(contract.ExitFailClosed, "%v", err)
	}
	defer errW.Close()

	procs, err := spawn(program{path: path, argv: job.Argv, env: job.Env, dir: job.Cwd, files: [3]*os.File{null, outW, errW}}, score)
	if err != nil {
		outR.Close()
		errR.Close()
		return nil, execFault(err, job.Argv[0])
	}
	w := &workload{rule: job.Stop, procs: procs, stops: stops{news: make(chan struct{}, 1)}, drain: new(sync.WaitGroup)}
	w.drain.Go(func() {
		drain(outR, func(p []byte) error { return send(protocol.Stdout, p) }, procs.empty)
	})
	w.drain.Go(func() {
		drain(errR, func(p []byte) error { return send(protocol.Stderr, p) }, procs.empty)
	})
	return w, nil
}

// stops is what Stop messages and signals asked for and wait has not seen yet:
// the shortest grace. It never fills and never drops a shorter one.
type stops struct {
	mu    sync.Mutex
	grace time.Duration
	asked bool
	news  chan struct{}
}

// stop asks for the end within a grace; it never blocks.
func (w *workload) stop(grace time.Duration) {
	w.stops.mu.Lock()
	if !w.stops.asked || grace < w.stops.grace {
		w.stops.grace, w.stops.asked = grace, true
	}
	w.stops.mu.Unlock()
	select {
	case w.stops.news <- struct{}{}:
	default: // wait has yet to look
	}
}

func (s *stops) take() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = false
	return s.grace
}

// wait supervises until PID 1 is alone and all output is sent. The error is
// errUndead; the sandbox can then only be given up.
func (w *workload) wait() (protocol.Exited, error) {
	e := ending{procs: w.procs, grace: seconds(w.rule.GraceSec)}
	deadline := time.NewTimer(seconds(w.rule.TimeoutSec))
	defer deadline.Stop()
	exited := protocol.Exited{MemoryFailures: -1, PidsFailures: -1}
	status := w.procs.status
	settle := func(ws unix.WaitStatus) {
		exited.Code, exited.Signal = exitCode(ws)
		status = nil
	}
	for alone := false; !alone; {
		select {
		case ws := <-status:
			settle(ws)
			if !childless() {
				e.end(e.grace)
			}
		case <-deadline.C:
			exited.TimedOut = status != nil
			e.end(e.grace)
		case <-w.stops.news:
			e.end(w.stops.take())
		case <-e.killAt:
			e.kill()
		case <-e.giveUp:
			return exited, errUndead
		case <-w.procs.empty:
			alone = true
		}
	}
	if status != nil { // both were ready, the other was taken
		settle(<-status)
	}
	killAll(unix.SIGKILL) // what the engine put here and is no child of ours
	w.drain.Wait()
	exited.Killed = int(w.procs.ended.Load())
	return exited, nil
}

// ending is how far the end of all processes has come: asked, then killed.
type ending struct {
	procs  *processes
	grace  time.Duration
	asked  bool
	killed bool
	due    time.Time
	killAt <-chan time.Time
	giveUp <-chan time.Time
}

// end asks all processes to end within grace, or shortens a grace that runs.
func (e *ending) end(grace time.Duration) {
	if e.killed {
		return
	}
	if grace <= 0 {
		e.kill()
		return
	}
	due := time.Now().Add(grace)
	if e.asked && !due.Before(e.due) {
		return
	}
	if !e.asked {
		e.asked = true
		e.procs.terminate()
	}
	e.due, e.killAt = due, time.After(grace)
}

func (e *ending) kill() {
	if e.killed {
		return
	}
	e.killed, e.killAt, e.giveUp = true, nil, time.After(killBound)
	e.procs.kill()
}

// seconds turns a count into a duration, at most a year: more would overflow.
func seconds(n int64) time.Duration {
	return time.Duration(min(max(n, 0), 366*24*3600)) * time.Second
}
