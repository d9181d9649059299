package redact

import (
	"fmt"
	"io"
)

// Bounded passes the first bytes of a stream on and counts the rest, so that a
// flood costs no room and is said to be one. It never refuses a write because
// it is full: whoever writes is not to notice. One goroutine at a time.
type Bounded struct {
	w    io.Writer
	left int64
	size int64
	cut  int64
	last byte // written
	done bool
}

// NewBounded keeps the first size bytes of what is written to it.
func NewBounded(w io.Writer, size int64) *Bounded {
	return &Bounded{w: w, left: max(size, 0), size: max(size, 0)}
}

// Write passes on what there is room for.
func (b *Bounded) Write(p []byte) (int, error) {
	keep := p[:min(int64(len(p)), b.left)]
	if len(keep) > 0 {
		n, err := b.w.Write(keep)
		b.left -= int64(n)
		if n > 0 {
			b.last = keep[n-1]
		}
		if err != nil {
			return n, err
		}
	}
	b.cut += int64(len(p) - len(keep))
	return len(p), nil
}

// Cut is how many bytes were not passed on.
func (b *Bounded) Cut() int64 { return b.cut }

// Close writes, when something was cut, one last line that says how much. The
// line comes on top of the bound. It does not close the writer behind it; a
// second call does nothing.
func (b *Bounded) Close() error {
	if b.done || b.cut == 0 {
		return nil
	}
	b.done = true
	line := fmt.Sprintf("[countersign: the output goes on for %d bytes that were not kept; the bound is %d bytes]\n", b.cut, b.size)
	if b.last != '\n' && b.size > 0 {
		line = "\n" + line
	}
	_, err := io.WriteString(b.w, line)
	return err
}
