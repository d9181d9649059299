package egress

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"time"
)

// headTime is how long a head may take from its first byte to its end.
const headTime = 30 * time.Second

// session reads HTTP/1 requests from one connection of the sandbox.
type session struct {
	proxy  *Proxy
	ctx    context.Context
	conn   net.Conn
	r      *bufio.Reader
	w      *bufio.Writer
	target Target // what refusals are about while no request is known
	route  route
}

// route finds where a request goes, and its target in origin form (RFC 9112
// §3.2.1).
type route func(h *head) (o *origin, target string, err error)

func newSession(p *Proxy, ctx context.Context, conn net.Conn, r *bufio.Reader) *session {
	return &session{proxy: p, ctx: ctx, conn: conn, r: r, w: bufio.NewWriterSize(conn, 32<<10)}
}

// serve reads requests until the connection is to end; first, unless nil, is a
// head that was read already. Who closes the connection when ctx ends is the
// caller.
func (s *session) serve(first *head) {
	for h := first; ; h = nil {
		var err error
		if h == nil {
			h, err = s.next()
		}
		if err == nil {
			err = s.request(h)
		}
		var refused *Refused
		if errors.As(err, &refused) { // and nothing was answered
			writeRefusal(s.conn, refused.Class, s.proxy.deny(s.target, refused.Class, refused.Reason))
			err = errLast
		}
		if err == errLast {
			s.linger()
		}
		if err != nil {
			return
		}
	}
}

// errLast says that the connection is to end after the answer that was given.
var errLast = errors.New("the last answer of the connection")

// errBroken says that an answer broke off, which is accounted for.
var errBroken = errors.New("the answer broke off")

// next waits for a head; between requests a connection may rest.
func (s *session) next() (*head, error) {
	if _, err := s.r.Peek(1); err != nil {
		return nil, io.EOF
	}
	s.conn.SetReadDeadline(time.Now().Add(headTime))
	h, err := readHead(s.r, headBounds)
	s.conn.SetReadDeadline(time.Time{})
	return h, err
}

// request serves one request. It is errLast when the connection must not be
// read again, another error when the answer broke off, and a Refused when
// nothing was answered yet.
func (s *session) request(h *head) error {
	o, q, err := s.read(h)
	if err == errCanary {
		writeText(s.conn, 200, canaryBody)
		return errLast
	}
	if err != nil {
		return err
	}
	answer := newReply(s.w, h)
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	answer.watch = &watch{s: s, cancel: cancel}
	if q.body == nil {
		answer.watch.start()
	} else {
		answer.body = q.body
		q.body.end = answer.watch.start
		if q.expect {
			q.body.begin = answer.proceed
		}
	}
	err = o.exchange(ctx, answer, q)
	if q.body != nil {
		q.body.leave()
	}
	answer.watch.stop()
	if err != nil {
		return errBroken
	}
	return answer.finish()
}

// read makes a request of a head.
func (s *session) read(h *head) (*origin, *request, error) {
	kind, length, err := h.framing()
	if err != nil {
		return nil, nil, err
	}
	socket, err := readUpgrade(h)
	if err != nil {
		return nil, nil, err
	}
	expect, err := readExpect(h)
	if err != nil {
		return nil, nil, err
	}
	o, target, err := s.route(h)
	if err != nil {
		return nil, nil, err
	}
	path, query, err := o.flow.splitTarget(target)
	if err != nil {
		return nil, nil, err
	}
	q := &request{target: o.flow.target, method: h.method, path: path, query: query, fields: endToEnd(h.fields), socket: socket, expect: expect}
	if q.body = newBody(s.r, kind, length); q.body != nil {
		q.body.stop = readStop{s.conn}
	}
	return o, q, nil
}

// readExpect knows one expectation (RFC 9110 §10.1.1).
func readExpect(h *head) (bool, error) {
	switch values := h.values("expect"); {
	case len(values) == 0:
		return false, nil
	case len(values) == 1 && values[0] == "100-continue":
		return h.proto == "HTTP/1.1", nil
	}
	return false, &Refused{ClassProtocol, "it expects what the proxy does not know; only 100-continue is"}
}

// linger lets a client that still sends read the answer first: a socket that is
// closed with bytes unread is reset.
func (s *session) linger() {
	if c, ok := s.conn.(interface{ CloseWrite() error }); ok {
		c.CloseWrite()
		s.conn.SetReadDeadline(time.Now().Add(lingerTime))
		io.CopyN(io.Discard, s.r, lingerBytes)
	}
}

// watch ends an exchange when its client goes away while the server has the
// word. It reads ahead, at most one byte of the next request.
type watch struct {
	s      *session
	cancel func()
	ended  chan struct{} // nil: not started
}

func (w *watch) start() {
	w.ended = make(chan struct{})
	go func() {
		defer close(w.ended)
		if _, err := w.s.r.Peek(1); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			w.cancel()
		}
	}()
}

// stop returns when the session may read again.
func (w *watch) stop() {
	if w.ended == nil {
		return
	}
	w.s.conn.SetReadDeadline(longAgo)
	<-w.ended
	w.ended = nil
	w.s.conn.SetReadDeadline(time.Time{})
}
