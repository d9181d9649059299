package egress

import (
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"

	"github.com/countersign-dev/countersign/policy/contract"
)

// maxStreams is how many requests one HTTP/2 connection may have under way.
const maxStreams = 100

// uploadWindow is how many bytes of bodies one HTTP/2 connection may have sent
// that no server has taken yet.
const uploadWindow = 512 << 10

// serveHTTP2 reads HTTP/2 requests (RFC 9113) until the connection ends. It
// returns when nothing of it runs any more.
func (f *flow) serveHTTP2(conn *tls.Conn) error {
	o := f.newOrigin("https", true)
	defer o.close()
	one := newOneListener(conn)
	server := &http.Server{
		Handler:           http.HandlerFunc(o.serveStream),
		BaseContext:       func(net.Listener) context.Context { return f.ctx },
		ConnState:         one.state,
		MaxHeaderBytes:    headBounds.bytes,
		ReadHeaderTimeout: headTime,
		ErrorLog:          log.New(io.Discard, "", 0), // it prints what clients send
		Protocols:         new(http.Protocols),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:          maxStreams,
			MaxReceiveBufferPerConnection: uploadWindow,
			MaxReceiveBufferPerStream:     uploadWindow,
		},
	}
	server.Protocols.SetHTTP2(true)
	server.Serve(one)
	return nil
}

// serveStream serves one request. A panic with http.ErrAbortHandler resets the
// stream, as net/http has it.
func (o *origin) serveStream(w http.ResponseWriter, r *http.Request) {
	if !o.enter() {
		panic(http.ErrAbortHandler)
	}
	defer o.work.Done()
	q, err := o.flow.readStream(r)
	if err == nil {
		err = o.exchange(r.Context(), w, q)
	} else {
		err = o.flow.proxy.refuse(w, o.flow.target, err)
	}
	if q != nil && q.body != nil {
		q.body.Close()
	}
	if err != nil {
		panic(http.ErrAbortHandler)
	}
}

// readStream judges what net/http read of an HTTP/2 request.
func (f *flow) readStream(r *http.Request) (*request, error) {
	if r.TLS == nil {
		return nil, &Refused{ClassMalformed, ":scheme is not https"}
	}
	if err := contract.CheckMethod(r.Method); err != nil {
		return nil, &Refused{ClassMethod, "the method " + err.Error()}
	}
	for _, authority := range append([]string{r.Host}, r.Header["Host"]...) {
		if err := f.sameName(authority); err != nil {
			return nil, err
		}
	}
	path, query, err := f.splitTarget(r.RequestURI)
	if err != nil {
		return nil, err
	}
	lengths := r.Header["Content-Length"]
	if len(lengths) > 1 || len(lengths) == 1 && strings.Trim(lengths[0], "0123456789") != "" {
		return nil, &Refused{ClassMalformed, "its content-length is malformed"}
	}
	var fields []field
	for name, values := range r.Header {
		for _, v := range values {
			fields = append(fields, field{strings.ToLower(name), v})
		}
	}
	if len(fields) > headBounds.fields {
		return nil, &Refused{ClassBounds, "it has too many fields"}
	}
	q := &request{target: f.target, method: r.Method, path: path, query: query, fields: endToEnd(fields), http2: true, trailers: r.Header.Get("Te") == "trailers"}
	if r.ContentLength != 0 {
		q.body = &body{src: r.Body, stop: r.Body, length: r.ContentLength}
	}
	return q, nil
}

// oneListener gives net/http one connection, and ends when that does.
type oneListener struct {
	conn  net.Conn
	given chan net.Conn
	ended chan struct{}
	once  sync.Once
}

func newOneListener(c net.Conn) *oneListener {
	l := &oneListener{conn: c, given: make(chan net.Conn, 1), ended: make(chan struct{})}
	l.given <- c
	return l
}

func (l *oneListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.given:
		return c, nil
	case <-l.ended:
		return nil, net.ErrClosed
	}
}

func (l *oneListener) Addr() net.Addr { return l.conn.LocalAddr() }

func (l *oneListener) Close() error {
	l.once.Do(func() { close(l.ended) })
	return nil
}

func (l *oneListener) state(_ net.Conn, s http.ConnState) {
	if s == http.StateClosed {
		l.Close()
	}
}
