package egress

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/policy/contract"
)

// Whatever a client sends, every request that a server reads is one that the
// rules allow for it, and nothing is between them.
func FuzzExchange(f *testing.F) {
	const host = "Host: api.internal\r\n"
	for _, seed := range []string{
		"GET /v1/a HTTP/1.1\r\n" + host + "\r\n",
		"GET /v1/a?b=c HTTP/1.1\r\n" + host + "Connection: close, X-Y\r\nX-Y: z\r\nCookie: a\r\nTE: trailers\r\n\r\n",
		"POST /v1/a HTTP/1.1\r\n" + host + "Content-Length: 3\r\n\r\nabcGET /v1/b HTTP/1.1\r\n" + host + "\r\n",
		"POST /v1/a HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nT: r\r\n\r\nGET /v1/b HTTP/1.1\r\n" + host + "\r\n",
		"POST /v1/a HTTP/1.1\r\n" + host + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"POST /v1/a HTTP/1.1\r\n" + host + "Expect: 100-continue\r\nContent-Length: 1\r\n\r\nx",
		"GET http://api.internal/v1/a HTTP/1.1\r\n" + host + "\r\n",
		"GET /v1/%2e%2e/b HTTP/1.1\r\n" + host + "\r\n",
		"GET //v1/a HTTP/1.0\r\n" + host + "\r\n",
		"GET /v1/a HTTP/1.1\r\n" + host + "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
		"HEAD /v1/a HTTP/1.1\r\n" + host + "X: a\r\n b\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	} {
		f.Add([]byte(seed))
	}
	rule := gatewayRule(func(r *contract.NetRule) { r.Paths = []string{"/v1/**"}; r.DenyBody = []string{"forbidden"} })
	rules := compiled(f, rule)
	f.Fuzz(func(t *testing.T, in []byte) {
		upstream := &recordingServer{}
		p, err := New(Config{
			Rules: rules, Resolver: upstream, Dialer: upstream, Own: func() ([]netip.Addr, error) { return nil, nil },
			Record: func(string, any) {}, Notify: func(Boundary) {}, Now: time.Now, Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		client := newScriptedConn(in)
		ctx, cancel := context.WithCancel(p.ctx)
		flow := &flow{proxy: p, target: Target{gatewayHost, 80}, entry: rule, ctx: ctx, client: &peeked{Conn: client}}
		flow.serveHTTP(bufio.NewReader(flow.client), flow.client, "http") // plain, so that the server's bytes can be read
		cancel()
		p.Close()
		upstream.work.Wait()
		for _, q := range upstream.seen {
			path, rest, err := NormalTarget(q.RequestURI)
			if err != nil || path+rest != q.RequestURI {
				t.Fatalf("the server was asked for %q: %v", q.RequestURI, err)
			}
			if v := Decide(rules, Question{Target: flow.target, Method: q.Method, Path: path}, time.Now()); !v.Allow {
				t.Fatalf("the server was sent %s %s, which is %s", q.Method, path, v.Class)
			}
			if q.Host != labHost+":443" {
				t.Fatalf("the server was sent Host: %q", q.Host)
			}
			for _, name := range []string{"Connection", "Upgrade", "Te", "Proxy-Authorization", "Keep-Alive", "Trailer", "Http2-Settings", "Countersign-Client"} {
				if q.Header[name] != nil {
					t.Fatalf("the server was sent %s: %q", name, q.Header[name])
				}
			}
		}
		if upstream.odd != nil {
			t.Fatalf("the server could not read what it was sent: %v", upstream.odd)
		}
	})
}

// recordingServer answers every request that it can read with 200.
type recordingServer struct {
	work sync.WaitGroup
	mu   sync.Mutex
	seen []*http.Request
	odd  error
}

func (s *recordingServer) Resolve(context.Context, string) (Answer, error) {
	return Answer{Addresses: []netip.Addr{loopback}}, nil
}

func (s *recordingServer) DialContext(context.Context, string, string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	s.work.Go(func() { s.serve(theirs) })
	return ours, nil
}

func (s *recordingServer) serve(c net.Conn) {
	defer c.Close()
	r := bufio.NewReader(c)
	for {
		q, err := http.ReadRequest(r)
		if err == nil {
			s.mu.Lock()
			s.seen = append(s.seen, q)
			s.mu.Unlock()
			if q.Header.Get("Expect") != "" {
				io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\n")
			}
			var text []byte
			if text, err = io.ReadAll(q.Body); err == nil && bytes.Contains(text, []byte("forbidden")) {
				err = http.ErrBodyNotAllowed
			}
		}
		if err != nil {
			s.fault(err)
			return
		}
		if _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"); err != nil {
			return
		}
	}
}

// fault keeps what is not just an end: a client that breaks off breaks off its
// request.
func (s *recordingServer) fault(err error) {
	if err == io.EOF || err == io.ErrUnexpectedEOF || err == io.ErrClosedPipe || strings.Contains(err.Error(), "closed pipe") {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.odd = err
}

// scriptedConn gives out bytes and then waits, as a client does that wants its
// answer, until the session has no use for more: when it stops waiting (a
// deadline in the past), when it is idle after that, or when it is inside a head.
// A body that ends too soon is cut by a timer.
type scriptedConn struct {
	net.Conn // nil
	in       *bytes.Reader

	mu       sync.Mutex
	deadline time.Time
	idle     bool
	woken    chan struct{}
}

func newScriptedConn(in []byte) *scriptedConn {
	return &scriptedConn{in: bytes.NewReader(in), idle: true, woken: make(chan struct{})}
}

func (c *scriptedConn) Read(p []byte) (int, error) {
	c.mu.Lock()
	idle, woken := c.idle, c.woken
	if c.in.Len() > 0 && !c.deadline.Equal(longAgo) {
		c.idle = false
		n, _ := c.in.Read(p)
		c.mu.Unlock()
		return n, nil
	}
	past, inHead := c.deadline.Equal(longAgo), !c.deadline.IsZero()
	c.mu.Unlock()
	switch {
	case past:
		return 0, os.ErrDeadlineExceeded
	case idle || inHead:
		return 0, io.EOF
	}
	timer := time.NewTimer(20 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-woken:
		return 0, os.ErrDeadlineExceeded
	case <-timer.C:
		return 0, io.EOF
	}
}

func (c *scriptedConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.deadline = t; t.Equal(longAgo) {
		c.idle = true
		close(c.woken)
		c.woken = make(chan struct{})
	}
	return nil
}

func (c *scriptedConn) SetDeadline(t time.Time) error      { return c.SetReadDeadline(t) }
func (c *scriptedConn) SetWriteDeadline(t time.Time) error { return nil }
func (c *scriptedConn) Write(p []byte) (int, error)        { return len(p), nil }
func (c *scriptedConn) Close() error                       { return nil }
