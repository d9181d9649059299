package protocol

import (
	"fmt"
	"io"
)

// chunk is how much of a stream one Data frame holds at most: small enough that
// a frame fits a socket's buffer, large enough that framing costs nothing.
const chunk = 128 << 10

// WriteStream opens a stream to the other side. Only Close ends it; a writer
// that cannot go on sends a Failed with [Conn.Send] instead, or closes the
// connection. Write in pieces of some size: each becomes a frame of its own.
func (c *Conn) WriteStream() io.WriteCloser { return &streamWriter{conn: c} }

type streamWriter struct {
	conn   *Conn
	closed bool
}

func (w *streamWriter) Write(p []byte) (int, error) {
	if w.closed {
		return 0, io.ErrClosedPipe
	}
	written := 0
	for len(p) > 0 {
		piece := p[:min(len(p), chunk)]
		if err := w.conn.SendBytes(KindData, piece); err != nil {
			return written, err
		}
		written += len(piece)
		p = p[len(piece):]
	}
	return written, nil
}

// Close ends the stream with an empty frame; a second Close does nothing.
func (w *streamWriter) Close() error {
	if w.closed {
		return nil
	}
	w.closed = true
	return w.conn.SendBytes(KindData)
}

// ReadStream reads the stream that comes next, until the other side ended it
// ([io.EOF]). A Failed in it is a [*RemoteError]; any other message is an error
// too. Nothing else may receive on c until the stream has ended: whoever stops
// early reads on with [Drain] or gives the connection up.
func (c *Conn) ReadStream() io.Reader { return &streamReader{conn: c} }

type streamReader struct {
	conn *Conn
	err  error
}

func (r *streamReader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if r.conn.left == 0 && r.err == nil {
		r.err = r.next()
	}
	if r.err != nil {
		return 0, r.err
	}
	n, err := r.conn.body(p)
	r.err = err
	return n, err
}

// next begins the next frame of the stream.
func (r *streamReader) next() error {
	kind, size, err := r.conn.header()
	switch {
	case err == io.EOF:
		return io.ErrUnexpectedEOF
	case err != nil:
		return err
	case kind == KindData && size == 0:
		return io.EOF
	case kind == KindData:
		return nil
	}
	payload, err := r.conn.payload(size)
	if err != nil {
		return err
	}
	return unexpected(kind, payload, KindData)
}

// Drain reads a stream to its end so that the connection stays usable, and
// gives up with an error after limit bytes.
func Drain(r io.Reader, limit int64) error {
	n, err := io.Copy(io.Discard, io.LimitReader(r, limit+1))
	if err != nil {
		return fmt.Errorf("reading a stream to its end: %w", err)
	}
	if n > limit {
		return fmt.Errorf("reading a stream to its end: more than %d bytes are left", limit)
	}
	return nil
}
