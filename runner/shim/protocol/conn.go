package protocol

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// headerSize is a kind byte and a 32-bit length.
const headerSize = 5

// ErrFrameSize says that a frame is longer than [MaxFrame], in either direction.
var ErrFrameSize = errors.New("frame is over the bound")

// ErrNoDeadline says that the connection under a Conn has no deadlines.
var ErrNoDeadline = errors.New("the connection has no deadlines")

// Conn frames messages on one connection. One goroutine may receive while any
// number send; each frame is written whole. The first error in a direction
// stays: a connection that lost its framing is never read or written again.
//
// A Conn never buffers what it sends, and holds at most one message of what it
// receives.
type Conn struct {
	rwc io.ReadWriteCloser

	wmu  sync.Mutex
	werr error

	br   *bufio.Reader
	left int // of the body of the frame that is being read
	rerr error
}

// NewConn frames messages on rwc, which the Conn closes.
func NewConn(rwc io.ReadWriteCloser) *Conn {
	return &Conn{rwc: rwc, br: bufio.NewReaderSize(rwc, 64<<10)}
}

// Close closes the connection; whoever sends or receives gets an error.
func (c *Conn) Close() error { return c.rwc.Close() }

// CloseWhenDone closes the connection when ctx ends, which is how a blocked
// Send or Receive is given up. The returned function undoes it, as
// [context.AfterFunc] says.
func (c *Conn) CloseWhenDone(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() { c.rwc.Close() })
}

// SetDeadline bounds sends and receives to an instant, the zero time to none.
// A frame that was cut by a deadline makes its direction unusable. It returns
// [ErrNoDeadline] when the connection under it cannot do that.
func (c *Conn) SetDeadline(t time.Time) error {
	d, ok := c.rwc.(interface{ SetDeadline(time.Time) error })
	if !ok {
		return ErrNoDeadline
	}
	return d.SetDeadline(t)
}

// SetReadDeadline bounds receives alone, as [Conn.SetDeadline] does both.
func (c *Conn) SetReadDeadline(t time.Time) error {
	d, ok := c.rwc.(interface{ SetReadDeadline(time.Time) error })
	if !ok {
		return ErrNoDeadline
	}
	return d.SetReadDeadline(t)
}

// Send writes one message. The value is encoded as JSON; nil is an empty body.
// JSON text is UTF-8: other bytes in a string do not arrive as they were, so a
// [Job] is checked by [Job.Validate] before it is sent.
func (c *Conn) Send(kind Kind, value any) error {
	var body []byte
	if value != nil {
		var err error
		if body, err = json.Marshal(value); err != nil {
			return fmt.Errorf("encoding %s message: %v", kind, err)
		}
	}
	return c.SendBytes(kind, body)
}

// SendBytes writes one message whose body is parts joined, as they are.
func (c *Conn) SendBytes(kind Kind, parts ...[]byte) error {
	frame, size := make(net.Buffers, 1, 1+len(parts)), 0
	for _, p := range parts {
		if size += len(p); len(p) > 0 {
			frame = append(frame, p)
		}
	}
	if size > MaxFrame {
		return fmt.Errorf("sending %s message of %d bytes: %w of %d", kind, size, ErrFrameSize, MaxFrame)
	}
	frame[0] = binary.BigEndian.AppendUint32([]byte{byte(kind)}, uint32(size))

	c.wmu.Lock()
	defer c.wmu.Unlock()
	if c.werr != nil {
		return c.werr
	}
	if _, err := frame.WriteTo(c.rwc); err != nil { // writev(2) on a socket: nothing is copied
		c.werr = fmt.Errorf("sending %s message: %w", kind, err)
	}
	return c.werr
}

// Receive reads one message. The payload belongs to the caller. The error is
// [io.EOF] when the other side closed between two frames.
func (c *Conn) Receive() (Kind, []byte, error) {
	kind, size, err := c.header()
	if err != nil {
		return 0, nil, err
	}
	payload, err := c.payload(size)
	if err != nil {
		return 0, nil, err
	}
	return kind, payload, nil
}

// payload reads the whole body of the frame that was begun.
func (c *Conn) payload(size int) ([]byte, error) {
	payload := make([]byte, size)
	for rest := payload; len(rest) > 0; {
		n, err := c.body(rest)
		if err != nil {
			return nil, err
		}
		rest = rest[n:]
	}
	return payload, nil
}

// header reads a frame's header; its body is left for body.
func (c *Conn) header() (Kind, int, error) {
	if c.rerr == nil && c.left > 0 {
		c.rerr = errors.New("receiving a message: the stream before it was not read to its end")
	}
	if c.rerr != nil {
		return 0, 0, c.rerr
	}
	kind, size, err := readHeader(c.br)
	c.left, c.rerr = size, err
	return kind, size, err
}

// body reads some of the frame that was begun.
func (c *Conn) body(p []byte) (int, error) {
	if c.rerr != nil {
		return 0, c.rerr
	}
	n, err := c.br.Read(p[:min(len(p), c.left)])
	if c.left -= n; n > 0 || err == nil {
		return n, nil
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	c.rerr = fmt.Errorf("receiving a frame's body: %w", err)
	return 0, c.rerr
}

func readHeader(r io.Reader) (Kind, int, error) {
	var header [headerSize]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		if err == io.EOF {
			return 0, 0, io.EOF
		}
		return 0, 0, fmt.Errorf("receiving a frame's header: %w", err)
	}
	kind := Kind(header[0])
	if !kind.known() {
		return 0, 0, fmt.Errorf("receiving a frame: kind %#02x is unknown", header[0])
	}
	size := binary.BigEndian.Uint32(header[1:])
	if size > MaxFrame {
		return 0, 0, fmt.Errorf("receiving %s message of %d bytes: %w of %d", kind, size, ErrFrameSize, MaxFrame)
	}
	return kind, int(size), nil
}

// Expect receives one message of the kind wanted and decodes it into value,
// which may be nil for a message without a body. A Failed in its place is
// returned as a [*RemoteError].
func (c *Conn) Expect(want Kind, value any) error {
	kind, payload, err := c.Receive()
	if err != nil {
		return err
	}
	if kind != want {
		return unexpected(kind, payload, want)
	}
	if value == nil {
		if len(payload) != 0 {
			return fmt.Errorf("receiving %s message: %d bytes where none belong", kind, len(payload))
		}
		return nil
	}
	return Decode(payload, value)
}

// Decode reads a message's body strictly: an unknown key or anything after the
// object is an error. Host and shim come from one build, so a difference is a
// fault and never a newer version.
func Decode(payload []byte, value any) error {
	dec := json.NewDecoder(bytes.NewReader(payload))
	dec.DisallowUnknownFields()
	if err := dec.Decode(value); err != nil {
		return fmt.Errorf("decoding %T: %v", value, err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return fmt.Errorf("decoding %T: text after its end", value)
	}
	return nil
}

// unexpected turns a message that should not come here into an error.
func unexpected(kind Kind, payload []byte, want Kind) error {
	if kind != KindFailed {
		return fmt.Errorf("receiving a message: %s came where %s belongs", kind, want)
	}
	var f Failed
	if err := Decode(payload, &f); err != nil {
		return err
	}
	return &RemoteError{Failed: f}
}

// RemoteError is a Failed that the other side sent in place of an answer.
// Its text is a claim of the shim and may hold any character.
type RemoteError struct{ Failed Failed }

func (e *RemoteError) Error() string {
	return fmt.Sprintf("the shim could not %s: %q", e.Failed.Op, e.Failed.Message)
}
