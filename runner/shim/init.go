package shim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/runner/shim/protocol"
)

// dialBound is how long the control socket may take to accept: the host
// listens before it starts the container.
const dialBound = 10 * time.Second

// Config is what Init and Hold need. The zero value of a field is its default.
type Config struct {
	// Control is the path of the host's socket; by default
	// protocol.ControlSocket for Init and protocol.HoldSocket for Hold.
	Control string
	// Egress is the path of the proxy's socket; by default
	// protocol.EgressSocket.
	Egress string
	// Executable is the shim's own binary, which Init starts again as a probe.
	// Required for Init.
	Executable string
	// Environ is the environment that the engine gave the shim. A probe gets
	// it, to show it to the host; a workload does not.
	Environ []string
	// Log gets faults; required. Nothing that a workload said goes there.
	Log *slog.Logger
}

// Init is PID 1 of a sandbox. It returns the status to exit with: the
// workload's after a Bye, 0 after one without a workload, and
// [contract.ExitFailClosed] for every fault, a lost connection among them. The
// caller must exit with it at once; that ends whatever else may live.
//
// It refuses to be anything but PID 1, because it signals every process it sees.
func Init(cfg Config) int {
	if os.Getpid() != 1 {
		cfg.Log.Error("init runs only as PID 1 of a sandbox")
		return contract.ExitFailClosed
	}
	score, err := harden()
	if err != nil {
		cfg.Log.Error("hardening the shim", "err", err)
		return contract.ExitFailClosed
	}
	s := &session{cfg: cfg, score: score, cgroup: cgroup{root: cgroupRoot}, fatal: make(chan error, 1)}
	catchSignals(s.terminate)
	conn, err := dialHost(cfg.Control, protocol.ControlSocket)
	if err != nil {
		cfg.Log.Error("reaching the supervisor", "err", err)
		return contract.ExitFailClosed
	}
	s.conn = conn

	served := make(chan error, 1)
	go func() { served <- s.serve() }()
	select {
	case err = <-served:
	case err = <-s.fatal:
	}
	s.endAll()
	if err != nil {
		cfg.Log.Error("serving the supervisor", "err", err)
		return contract.ExitFailClosed
	}
	return s.code
}

// dialHost connects and says hello.
func dialHost(path, otherwise string) (*protocol.Conn, error) {
	if path == "" {
		path = otherwise
	}
	raw, err := net.DialTimeout("unix", path, dialBound)
	if err != nil {
		return nil, err
	}
	conn := protocol.NewConn(raw)
	hello := protocol.Hello{Version: protocol.Version, PID: os.Getpid(), UID: os.Getuid()}
	if err := conn.Send(protocol.KindHello, hello); err != nil {
		return nil, err
	}
	return conn, nil
}

// session is one run, from Hello to Bye.
type session struct {
	cfg    Config
	conn   *protocol.Conn
	score  *oomScore
	cgroup cgroup
	fatal  chan error // faults of what runs beside serve

	dir     string                   // the workspace, once loaded
	network *network                 // once opened
	job     atomic.Pointer[workload] // while one runs
	started bool
	ended   atomic.Bool
	code    int // written before ended, read after it
}

// serve answers until Bye (nil) or a fault of the connection.
func (s *session) serve() error {
	for {
		kind, payload, err := s.conn.Receive()
		if err == io.EOF {
			return errors.New("the supervisor closed the control connection")
		}
		if err != nil {
			return err
		}
		if kind == protocol.KindBye {
			if s.started && !s.ended.Load() {
				return errors.New("bye came while a workload ran")
			}
			return nil
		}
		if err := s.answer(kind, payload); err != nil {
			return err
		}
	}
}

// answer does what one message asks. The error is the connection's; what could
// not be done is answered with Failed.
func (s *session) answer(kind protocol.Kind, payload []byte) error {
	ctx := context.Background() // every operation has a bound of its own, or is the host's to end
	switch kind {
	case protocol.KindLoad:
		var m protocol.Load
		return reply(s.conn, kind, payload, &m, protocol.KindLoaded, func() (any, error) {
			var refused error
			if s.started || s.dir != "" {
				refused = errors.New("a sandbox is loaded once, before its job")
			}
			got, err := load(ctx, s.conn, m, refused)
			if err == nil {
				s.dir = m.Dir
			}
			return got, err
		})
	case protocol.KindNetwork:
		var m protocol.Network
		return reply(s.conn, kind, payload, &m, protocol.KindNetworked, func() (any, error) { return s.open(m) })
	case protocol.KindProbe:
		var m protocol.Probe
		return reply(s.conn, kind, payload, &m, protocol.KindProbed, func() (any, error) {
			if s.running() {
				return nil, errors.New("a probe was asked for while a workload runs")
			}
			return runProbe(m, s.cfg.Executable, s.cfg.Environ, s.score)
		})
	case protocol.KindStart:
		return s.start(payload)
	case protocol.KindStop:
		var m protocol.Stop
		if err := protocol.Decode(payload, &m); err != nil {
			return err
		}
		if w := s.job.Load(); w != nil { // else it crossed the Exited
			w.stop(seconds(m.GraceSec))
		}
		return nil
	case protocol.KindCapture, protocol.KindFetch:
		if s.running() {
			return errors.New("a capture was asked for while a workload ran")
		}
		return answerFiles(ctx, s.conn, kind, payload)
	}
	return fmt.Errorf("receiving a message: %s is not for the shim to answer", kind)
}

// open opens the network and places the run's authority.
func (s *session) open(m protocol.Network) (got protocol.Networked, err error) {
	if s.started || s.network != nil {
		return got, errors.New("a network is opened once, before the job")
	}
	if m.CA != "" {
		got.Trust, err = placeTrust(lookup(s.cfg.Environ, "HOME"), m.CA, systemRoots())
		if err != nil {
			return got, err
		}
	}
	path := s.cfg.Egress
	if path == "" {
		path = protocol.EgressSocket
	}
	s.network, err = openNetwork(m, path)
	return got, err
}

func (s *session) running() bool { return s.started && !s.ended.Load() }

// start begins the one workload of this sandbox and lets it go on beside serve.
func (s *session) start(payload []byte) error {
	var job protocol.Job
	err := protocol.Decode(payload, &job)
	clear(payload) // secrets may be in it
	if err != nil {
		return err
	}
	if s.started {
		return sendFailed(s.conn, protocol.KindStart, errors.New("a sandbox runs one job"))
	}
	s.started = true
	before := s.cgroup.counters()
	hold := make(chan struct{}) // Started goes out before any Output
	w, err := startWorkload(job, s.score, func(stream byte, p []byte) error {
		<-hold
		return s.conn.SendOutput(stream, p)
	})
	if err != nil {
		var no *notStarted
		if !errors.As(err, &no) {
			no = &notStarted{code: contract.ExitFailClosed, why: err.Error()}
		}
		return s.finish(job, before, protocol.Exited{Code: no.code, NotStarted: no.why})
	}
	s.job.Store(w)
	err = s.conn.Send(protocol.KindStarted, nil)
	close(hold)
	if err != nil {
		return err
	}
	go func() {
		exited, err := w.wait()
		s.job.Store(nil)
		if err == nil {
			err = s.finish(job, before, exited)
		}
		if err != nil {
			s.fatal <- err
		}
	}()
	return nil
}

// finish reads the counters and reports the end.
func (s *session) finish(job protocol.Job, before counters, exited protocol.Exited) error {
	added := s.cgroup.counters().since(before)
	exited.MemoryFailures, exited.PidsFailures = added.memory, added.pids
	dir := s.dir
	if dir == "" {
		dir = job.Cwd
	}
	exited.WorkspaceFull = full(dir)
	exited.FullRoots = fullRoots("/proc/self/mountinfo", dir)
	s.code = exited.Code
	s.ended.Store(true)
	return s.conn.Send(protocol.KindExited, exited)
}

// terminate is SIGTERM to PID 1, an engine's stop or the workload's own doing:
// it ends a running workload and nothing else.
func (s *session) terminate() {
	if w := s.job.Load(); w != nil {
		w.stop(seconds(w.rule.GraceSec))
	}
}

// endAll leaves nothing behind but PID 1's own exit.
func (s *session) endAll() {
	if w := s.job.Load(); w != nil {
		w.procs.kill()
		return
	}
	killAll(unix.SIGKILL)
}
