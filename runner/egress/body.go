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
	stop   io.Closer // ends a Read of src that waits; src is not read again

	scan   *scan // nil: not looked into
	charge func(n int) error

	reading sync.Mutex // held while src is read, which may take as long as the client likes
	err     error      // guarded by reading
	refused atomic.Pointer[Refused]
	begun   atomic.Bool // some of it was asked for
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
	b.begun.Store(true)
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
		b.err = b.let(p[:n])
	}
	if b.err == nil {
		b.err = err
	}
	if b.err != nil && b.err != io.EOF {
		if r := (*Refused)(nil); errors.As(b.err, &r) {
			b.refused.Store(r)
		}
		return 0, b.err
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
	if b.left.Load() {
		return errLeft
	}
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

// Close says that no more is wanted, and ends a Read that waits for the client.
func (b *body) Close() error {
	b.left.Store(true)
	if !b.whole.Load() {
		return b.stop.Close()
	}
	return nil
}

// leave returns when nothing is read for this body any more.
func (b *body) leave() {
	b.Close()
	b.reading.Lock() // also when it is whole: end may be on its way
	defer b.reading.Unlock()
}

// readStop ends what waits to read from a connection.
type readStop struct{ net.Conn }

func (s readStop) Close() error { return s.SetReadDeadline(longAgo) }

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
