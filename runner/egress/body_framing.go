package egress

import (
	"bufio"
	"io"
	"strings"
)

// Bounds of what a chunked body may have beside its data.
const (
	maxChunkLine = 256     // bytes, with an extension
	maxTrailers  = 8 << 10 // bytes in all
)

// newBody reads the body that follows a head on r; nil when there is none.
func newBody(r *bufio.Reader, kind bodyKind, length int64) *body {
	switch {
	case kind == bodyChunked:
		return &body{src: &chunked{r: r}, length: -1}
	case kind == bodyLength && length > 0:
		return &body{src: &counted{r, length}, length: length}
	}
	return nil
}

// counted is a body of a known length. Its last bytes come with io.EOF.
type counted struct {
	r    io.Reader
	left int64
}

func (c *counted) Read(p []byte) (int, error) {
	if c.left == 0 {
		return 0, io.EOF
	}
	n, err := c.r.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	switch {
	case c.left == 0:
		return n, io.EOF
	case err == io.EOF:
		return n, io.ErrUnexpectedEOF
	}
	return n, err
}

// chunked is a body in the coding of RFC 9112 §7.1, read strictly: lines end in
// CR LF, sizes have at most 15 hexadecimal digits and nothing around them.
// Extensions and trailers are read and dropped.
type chunked struct {
	r     *bufio.Reader
	left  int64 // of the chunk
	begun bool
	err   error
}

func (c *chunked) Read(p []byte) (int, error) {
	if c.left == 0 && c.err == nil {
		c.left, c.err = c.next()
	}
	if c.err != nil {
		return 0, c.err
	}
	n, err := c.r.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	c.err = unexpected(err)
	return n, c.err
}

// next reads up to the data of the next chunk. Behind the last one it is io.EOF.
func (c *chunked) next() (int64, error) {
	if c.begun {
		if end, err := c.line(2); err != nil || end != "" {
			return 0, malformedChunk(err)
		}
	}
	c.begun = true
	line, err := c.line(maxChunkLine)
	if err != nil {
		return 0, err
	}
	size, ok := chunkSize(line)
	switch {
	case !ok:
		return 0, malformedChunk(nil)
	case size > 0:
		return size, nil
	}
	return 0, c.trailers()
}

func (c *chunked) trailers() error {
	for left := maxTrailers; ; {
		line, err := c.line(left)
		switch {
		case err != nil:
			return err
		case line == "":
			return io.EOF
		case strings.IndexByte(line, ':') < 1:
			return malformedChunk(nil)
		}
		left -= len(line) + 2
	}
}

// line reads a line of at most limit bytes with its end, and gives it without.
func (c *chunked) line(limit int) (string, error) {
	b, err := c.r.ReadSlice('\n')
	if err != nil && err != bufio.ErrBufferFull {
		return "", unexpected(err)
	}
	text, ok := strings.CutSuffix(string(b[:min(len(b), limit+1)]), "\r\n")
	if !ok || len(b) > limit || strings.ContainsFunc(text, isControl) {
		return "", malformedChunk(nil)
	}
	return text, nil
}

func isControl(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }

func chunkSize(line string) (size int64, ok bool) {
	digits, _, _ := strings.Cut(line, ";")
	if digits == "" || len(digits) > 15 {
		return 0, false
	}
	for _, d := range []byte(digits) {
		if !isHex(d) {
			return 0, false
		}
		size = size<<4 | int64(unhex(d))
	}
	return size, true
}

func malformedChunk(err error) error {
	if err != nil {
		return err
	}
	return &Refused{ClassMalformed, "its chunked body is malformed"}
}

// unexpected is err for a stream that ends too soon.
func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
