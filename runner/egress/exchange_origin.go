package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Bounds of what a server may have the proxy keep.
const (
	maxAnswerHead = 256 << 10 // bytes
	streamWindow  = 512 << 10 // bytes of one HTTP/2 answer that its client has not taken yet
	handshakeTime = 30 * time.Second
	// continueTime is how long a client's body waits for a server's 100
	// (Continue); many servers never send it.
	continueTime = time.Second
)

// origin is the server of a flow's requests, over connections that are this
// flow's alone. Each was decided, resolved and checked by [Proxy.connect].
type origin struct {
	flow      *flow
	scheme    string // http or https
	host      string // the Host field
	dial      Target
	transport *http.Transport

	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup // dials, and streams of HTTP/2
	// sending is the body of the request that is under way in HTTP/1.
	sending atomic.Pointer[body]

	mu     sync.Mutex
	closed bool
	open   map[*originConn]struct{}
}

// newOrigin connects to nothing yet. What the client speaks is spoken to the
// server too: HTTP/2 (or what the server can of it) when http2 is set.
func (f *flow) newOrigin(scheme string, http2 bool) *origin {
	o := &origin{flow: f, scheme: scheme, dial: f.upstream(), open: make(map[*originConn]struct{})}
	o.host = hostField(o.dial, scheme)
	o.ctx, o.cancel = context.WithCancel(f.ctx)
	o.transport = &http.Transport{
		DialContext:            o.connect,
		TLSClientConfig:        &tls.Config{ServerName: o.dial.Host, RootCAs: f.proxy.reading.roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    handshakeTime,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    1,
		MaxResponseHeaderBytes: maxAnswerHead,
		ExpectContinueTimeout:  continueTime,
		ReadBufferSize:         32 << 10,
		WriteBufferSize:        32 << 10,
		Protocols:              new(http.Protocols),
		HTTP2:                  &http.HTTP2Config{MaxReceiveBufferPerStream: streamWindow},
	}
	o.transport.Protocols.SetHTTP1(true)
	o.transport.Protocols.SetHTTP2(http2)
	return o
}

// connect is the transport's. It does not take the transport's context, which
// outlives the request, nor the address, which was never looked up.
func (o *origin) connect(context.Context, string, string) (net.Conn, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil, net.ErrClosed
	}
	ready := o.flow.dialled
	o.flow.dialled = nil
	if ready != nil {
		return o.keep(ready), nil
	}
	o.work.Add(1)
	defer o.work.Done()
	o.mu.Unlock()
	out, err := o.flow.proxy.connect(o.ctx, o.flow.target, o.flow.rule, o.dial)
	o.mu.Lock()
	if err != nil {
		return nil, err
	}
	return o.keep(out), nil
}

// enter says whether the origin is still open; work.Done must be called then.
func (o *origin) enter() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed {
		o.work.Add(1)
	}
	return !o.closed
}

// keep is called with mu held.
func (o *origin) keep(out *outbound) net.Conn {
	c := &originConn{out, o}
	o.open[c] = struct{}{}
	return c
}

// originConn is a connection that its origin closes, unless it was before.
type originConn struct {
	*outbound
	o *origin
}

// Close also ends the body that was being sent: net/http would wait for the
// client to send more of it before it says that the server is gone. A body that
// was not begun may still go out on another connection.
func (c *originConn) Close() error {
	c.o.mu.Lock()
	delete(c.o.open, c)
	c.o.mu.Unlock()
	if b := c.o.sending.Load(); b != nil && b.begun.Load() {
		b.Close()
	}
	return c.outbound.Close()
}

// close returns when nothing is under way any more, and every connection is
// closed and recorded. Whoever waits for the server must be on the way out: its
// context has ended.
func (o *origin) close() {
	o.cancel()
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	o.work.Wait()
	o.transport.CloseIdleConnections()
	o.mu.Lock()
	open := o.open
	o.open = nil
	o.mu.Unlock()
	for c := range open {
		c.because(o.flow.reason(nil))
		c.outbound.Close()
	}
}

// untrusted is the refusal of a server whose certificate is not for its name,
// nil when err is another one.
func untrusted(err error) *Refused {
	var wrong *tls.CertificateVerificationError
	var name x509.HostnameError
	if errors.As(err, &wrong) || errors.As(err, &name) {
		return &Refused{ClassUnreachable, "its certificate was not accepted: " + err.Error()}
	}
	return nil
}
