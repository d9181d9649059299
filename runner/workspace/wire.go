package workspace

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The streams of this package are sequences of records: one byte that says what
// follows, then numbers as unsigned varints and strings as a length and their
// bytes. Each stream opens with its magic and closes with a record of its own,
// so that one that was cut short is never taken for whole.

const wireBuffer = 256 << 10

var errTruncated = errors.New("the stream ends early")

// encoder writes records; the first error sticks and is returned by flush.
type encoder struct {
	w   *bufio.Writer
	tmp [binary.MaxVarintLen64]byte
}

func newEncoder(w io.Writer, magic string) *encoder {
	e := &encoder{w: bufio.NewWriterSize(w, wireBuffer)}
	e.w.WriteString(magic)
	return e
}

func (e *encoder) byte(b byte) { e.w.WriteByte(b) }

func (e *encoder) uint(n uint64) {
	e.w.Write(e.tmp[:binary.PutUvarint(e.tmp[:], n)])
}

func (e *encoder) string(s string) {
	e.uint(uint64(len(s)))
	e.w.WriteString(s)
}

func (e *encoder) flush() error { return e.w.Flush() }

// decoder reads records. It reads ahead: what it is given must be the stream
// alone. Nothing is allocated for a length before the length was checked.
type decoder struct {
	r   *bufio.Reader
	buf []byte
}

func newDecoder(r io.Reader, magic string) (*decoder, error) {
	d := &decoder{r: bufio.NewReaderSize(r, wireBuffer), buf: make([]byte, wireBuffer)}
	got := d.buf[:len(magic)]
	if _, err := io.ReadFull(d.r, got); err != nil {
		return nil, early(err)
	}
	if string(got) != magic {
		return nil, fmt.Errorf("the stream is not a %q stream", magic[:len(magic)-1])
	}
	return d, nil
}

func early(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return errTruncated
	}
	return err
}

func (d *decoder) byte() (byte, error) {
	b, err := d.r.ReadByte()
	return b, early(err)
}

// uint reads a number and refuses one above limit.
func (d *decoder) uint(what string, limit int64) (int64, error) {
	n, err := binary.ReadUvarint(d.r)
	if err != nil {
		return 0, early(err)
	}
	if limit < 0 || n > uint64(limit) {
		return 0, fmt.Errorf("%s of %d, more than %d", what, n, max(limit, 0))
	}
	return int64(n), nil
}

func (d *decoder) string(what string, limit int) (string, error) {
	n, err := d.uint("length of "+what, int64(limit))
	if err != nil {
		return "", err
	}
	b := d.buf
	if int(n) > len(b) {
		b = make([]byte, n)
	}
	if _, err := io.ReadFull(d.r, b[:n]); err != nil {
		return "", early(err)
	}
	return string(b[:n]), nil
}

// path reads a path and checks it.
func (d *decoder) path() (string, error) {
	p, err := d.string("path", MaxPath)
	if err != nil {
		return "", err
	}
	return p, CheckPath(p)
}

// pieces hands n bytes on in pieces that are valid during the call.
func (d *decoder) pieces(n int64, f func([]byte) error) error {
	for n > 0 {
		b, err := d.r.Peek(int(min(n, wireBuffer)))
		if err != nil {
			return early(err)
		}
		if err := f(b); err != nil {
			return err
		}
		n -= int64(len(b))
		d.r.Discard(len(b))
	}
	return nil
}
