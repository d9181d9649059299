package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/runner/shim/protocol"
	"github.com/countersign-dev/countersign/runner/workspace"
)

// door is a socket in the run's directory through which exactly one shim may
// come in.
type door struct {
	path     string
	listener *net.UnixListener
}

// openDoor listens at path.
func openDoor(path string) (*door, error) {
	l, err := listenUnix(path)
	if err != nil {
		return nil, err
	}
	return &door{path: path, listener: l}, nil
}

func (d *door) close() { d.listener.Close() } // which also unlinks it

// admit waits for the shim, closes the door behind it, and greets it. Nothing
// but the shim runs in the sandbox yet, so whoever connects first is the shim;
// under runc its uid is checked too.
func (d *door) admit(ctx context.Context, uid int, isolation contract.Isolation) (*session, error) {
	stop := context.AfterFunc(ctx, func() { d.listener.Close() })
	defer stop()
	conn, err := d.listener.AcceptUnix()
	if err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("waiting for the sandbox: %w", context.Cause(ctx))
		}
		return nil, fmt.Errorf("waiting for the sandbox: %v", err)
	}
	d.close()
	if err := checkPeer(conn, uid, isolation); err != nil {
		conn.Close()
		return nil, err
	}
	s := &session{conn: protocol.NewConn(conn)}
	unwatch := s.conn.CloseWhenDone(ctx)
	defer unwatch()
	if err := s.conn.Expect(protocol.KindHello, &s.hello); err != nil {
		s.conn.Close()
		return nil, fmt.Errorf("greeting the sandbox: %v", err)
	}
	if s.hello.Version != protocol.Version {
		s.conn.Close()
		return nil, &Unavailable{What: fmt.Sprintf("the shim speaks protocol %d, this program %d", s.hello.Version, protocol.Version), Hint: "build both from one commit (make build)"}
	}
	return s, nil
}

func checkPeer(conn *net.UnixConn, uid int, isolation contract.Isolation) error {
	if isolation == contract.IsolationRunsc {
		return nil // the peer is gVisor's gofer, uid 0 (stated as weaker)
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return fmt.Errorf("identifying the sandbox: %v", err)
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil || credErr != nil {
		return fmt.Errorf("identifying the sandbox: %v", errors.Join(err, credErr))
	}
	if int(cred.Uid) != uid {
		return fmt.Errorf("identifying the sandbox: uid %d connected where %d belongs", cred.Uid, uid)
	}
	return nil
}

// session is the conversation with one shim. Its methods are called one after
// the other, except stop, which may be called while work runs.
type session struct {
	conn  *protocol.Conn
	hello protocol.Hello
}

func (s *session) close() { s.conn.Close() }

// ask sends one message and decodes its answer.
func (s *session) ask(ctx context.Context, kind protocol.Kind, body any, answer protocol.Kind, value any) error {
	stop := s.conn.CloseWhenDone(ctx)
	defer stop()
	if err := s.conn.Send(kind, body); err != nil {
		return err
	}
	return s.conn.Expect(answer, value)
}

func (s *session) probe(ctx context.Context, p protocol.Probe) (protocol.Probed, error) {
	var got protocol.Probed
	err := s.ask(ctx, protocol.KindProbe, p, protocol.KindProbed, &got)
	return got, err
}

// placed tells the shim that the host itself put the tree there.
func (s *session) placed(ctx context.Context) error {
	var got protocol.Loaded
	return s.ask(ctx, protocol.KindLoad, protocol.Load{Dir: WorkspaceDir}, protocol.KindLoaded, &got)
}

// work starts the job and hands on its output until the shim says that it
// ended and nothing but itself lives in the sandbox.
func (s *session) work(ctx context.Context, job protocol.Job, started func(), output func(fd int, p []byte)) (protocol.Exited, error) {
	stop := s.conn.CloseWhenDone(ctx)
	defer stop()
	var exited protocol.Exited
	if err := s.conn.Send(protocol.KindStart, job); err != nil {
		return exited, err
	}
	for {
		kind, payload, err := s.conn.Receive()
		if err != nil {
			return exited, err
		}
		switch kind {
		case protocol.KindStarted:
			started()
		case protocol.KindOutput:
			if len(payload) < 1 || payload[0] != 1 && payload[0] != 2 {
				return exited, errors.New("the sandbox sent output of no stream")
			}
			output(int(payload[0]), payload[1:])
		case protocol.KindExited:
			return exited, protocol.Decode(payload, &exited)
		case protocol.KindFailed:
			var f protocol.Failed
			if err := protocol.Decode(payload, &f); err != nil {
				return exited, err
			}
			return exited, fmt.Errorf("the sandbox could not %s: %s", f.Op, f.Message)
		default:
			return exited, fmt.Errorf("the sandbox sent a message of kind %s while working", kind)
		}
	}
}

// stop asks the shim to end the workload: SIGTERM, and SIGKILL after grace.
func (s *session) stop(grace int64) error {
	return s.conn.Send(protocol.KindStop, protocol.Stop{GraceSec: grace})
}

// bye lets the shim exit with the workload's status.
func (s *session) bye() error { return s.conn.Send(protocol.KindBye, nil) }

// streamed is the transport of a workspace that only the sandbox can reach.
type streamed struct {
	session *session
	uid     int
}

var _ workspace.Transport = streamed{}

// Load implements [workspace.Transport].
func (t streamed) Load(ctx context.Context, tree *workspace.Tree) (workspace.Stats, error) {
	conn := t.session.conn
	stop := conn.CloseWhenDone(ctx)
	defer stop()
	if err := conn.Send(protocol.KindLoad, protocol.Load{Dir: WorkspaceDir, Stream: true}); err != nil {
		return workspace.Stats{}, err
	}
	w := conn.WriteStream()
	sendErr := tree.Send(ctx, w)
	if sendErr == nil {
		sendErr = w.Close()
	}
	if sendErr != nil {
		// The shim may have said why it stopped reading.
		conn.SetReadDeadline(time.Now().Add(time.Second))
		if err := conn.Expect(protocol.KindLoaded, &protocol.Loaded{}); err != nil {
			return workspace.Stats{}, fmt.Errorf("%v: %v", sendErr, err)
		}
		return workspace.Stats{}, sendErr
	}
	var got protocol.Loaded
	err := conn.Expect(protocol.KindLoaded, &got)
	return workspace.Stats{Entries: got.Entries, Bytes: got.Bytes}, err
}

func captureBounds(b workspace.Bounds) protocol.Capture {
	return protocol.Capture{Dir: WorkspaceDir, Bounds: protocol.CaptureBounds{
		Entries: b.Entries, Depth: b.Depth, Bytes: b.Bytes, File: b.File, Seconds: int64(b.Time / time.Second),
	}}
}

// List implements [workspace.Transport].
func (t streamed) List(ctx context.Context, b workspace.Bounds) (*workspace.Listing, error) {
	conn := t.session.conn
	stop := conn.CloseWhenDone(ctx)
	defer stop()
	if err := conn.Send(protocol.KindCapture, captureBounds(b)); err != nil {
		return nil, err
	}
	stream := conn.ReadStream()
	listing, err := workspace.DecodeListing(stream, b)
	if err == nil {
		err = protocol.Drain(stream, 0)
	}
	if err == nil {
		err = conn.Expect(protocol.KindCaptured, &protocol.Captured{})
	}
	return listing, err
}

// Fetch implements [workspace.Transport]. The reader's Close must be called
// before anything else is asked.
func (t streamed) Fetch(ctx context.Context, want []string, b workspace.Bounds) (io.ReadCloser, error) {
	conn := t.session.conn
	stop := conn.CloseWhenDone(ctx)
	if err := conn.Send(protocol.KindFetch, captureBounds(b)); err != nil {
		stop()
		return nil, err
	}
	w := conn.WriteStream()
	if err := errors.Join(workspace.EncodePaths(w, want), w.Close()); err != nil {
		stop()
		return nil, err
	}
	return &fetched{Reader: conn.ReadStream(), conn: conn, stop: stop}, nil
}

type fetched struct {
	io.Reader
	conn *protocol.Conn
	stop func() bool
}

func (f *fetched) Close() error {
	defer f.stop()
	if err := protocol.Drain(f.Reader, protocol.MaxFrame); err != nil {
		return err
	}
	return f.conn.Expect(protocol.KindCaptured, &protocol.Captured{})
}
