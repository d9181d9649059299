package egress

import (
	"compress/flate"
	"compress/gzip"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// body is what a request carries, on its way out: looked into and counted
// before it is sent. The transport reads it; an answer may come before it is
// read to its end.
type body struct {
	src    io.Reader // what the client sends, without what frames it
	length int64     // of what is sent on; -1: not known
	begin  func()    // before the first byte is read; may be nil
	end    func()    // when the client's last byte was read; may be nil
	stop   io.Closer // ends a Read of src that waits; may be nil

	scan   *scan // nil: not looked into
	charge func(n int) error

	reading sync.Mutex // held while src is read
	err     error      // guarded by reading
	left    atomic.Bool
	whole   atomic.Bool
	out     atomic.Int64 // bytes that were let out
}

var errLeft = errors.New("the body is not wanted any more")

// admit says under which rule the body passes. One that is encoded cannot be
// looked into: gzip, which git speaks, is decoded and sent on as it is then;
// every other encoding is refused.
func (b *body) admit(by passage, p *Proxy, header http.Header) error {
	b.charge = func(n int) error { return p.charge(by.rule, n) }
	if !by.reads() {
		return nil
	}
	if b.scan = newScan(by.entry.DenyBody, p.reading.all); b.scan == nil {
		return nil
	}
	switch encodings := header["Content-Encoding"]; {
	case len(encodings) == 0 || len(encodings) == 1 && encodings[0] == "identity":
		return nil
	case len(encodings) == 1 && (encodings[0] == "gzip" || encodings[0] == "x-gzip"):
		header.Del("Content-Encoding")
		b.src, b.length = &gunzip{src: ended{Reader: b.src}}, -1
		return nil
	}
	return &Refused{ClassBody, "its body is encoded, and bodies are looked into here; send it without Content-Encoding, or as gzip"}
}

// Read gives out only what may be sent.
func (b *body) Read(p []byte) (int, error) {
	b.reading.Lock()
	defer b.reading.Unlock()
	if b.err == nil && b.left.Load() {
		b.err = errLeft
	}
	if b.err != nil {
		return 0, b.err
	}
	if b.begin != nil {
		b.begin()
		b.begin = nil
	}
	n, err := b.src.Read(p)
	if n > 0 {
		if b.err = b.let(p[:n]); b.err != nil {
			return 0, b.err
		}
	}
	if err != nil {
		b.err = err
	}
	if err == io.EOF {
		b.whole.Store(true)
		if b.end != nil {
			b.end()
		}
	}
	return n, err
}

func (b *body) let(p []byte) error {
	if b.scan != nil {
		if err := b.scan.check(p); err != nil {
			return err
		}
	}
	if err := b.charge(len(p)); err != nil {
		return err
	}
	b.out.Add(int64(len(p)))
	return nil
}

// Close says that no more is wanted. It does not wait for a Read; net/http's
// HTTP/2 does, and wants it ended.
func (b *body) Close() error {
	b.left.Store(true)
	if b.stop != nil {
		b.stop.Close()
	}
	return nil
}

// refused is why the body was not let out, nil if it was.
func (b *body) refused() *Refused {
	b.reading.Lock()
	defer b.reading.Unlock()
	var r *Refused
	errors.As(b.err, &r)
	return r
}

// leave returns when nothing reads from conn, which the body comes from, for
// this body any more. When it was not read to its end, conn cannot be read again.
func (b *body) leave(conn net.Conn) {
	b.Close()
	if b.whole.Load() {
		return
	}
	conn.SetReadDeadline(longAgo)
	b.reading.Lock()
	defer b.reading.Unlock()
}

// longAgo as a deadline ends what waits.
var longAgo = time.Unix(1, 0)

// gunzip decodes a body. It reads its head with the first Read only: a client
// may wait for 100 (Continue) before it sends any.
type gunzip struct {
	src ended
	z   *gzip.Reader
}

func (g *gunzip) Read(p []byte) (n int, err error) {
	if g.z == nil {
		if g.z, err = gzip.NewReader(&g.src); err != nil {
			return 0, g.problem(err)
		}
	}
	n, err = g.z.Read(p)
	if err != nil && err != io.EOF {
		err = g.problem(err)
	}
	return n, err
}

// problem tells bytes that are no gzip from a connection that ended.
func (g *gunzip) problem(err error) error {
	var corrupt flate.CorruptInputError
	if g.src.end || errors.Is(err, gzip.ErrHeader) || errors.Is(err, gzip.ErrChecksum) || errors.As(err, &corrupt) {
		return malformed("its body is not the gzip that it says")
	}
	return err
}

// ended remembers whether a reader came to its end.
type ended struct {
	io.Reader
	end bool
}

func (e *ended) Read(p []byte) (int, error) {
	n, err := e.Reader.Read(p)
	e.end = e.end || err == io.EOF
	return n, err
}
