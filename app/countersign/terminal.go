package main

import (
	"io"
	"os"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
)

// inert wraps a terminal so that what a workload prints can colour it and
// nothing else: control sequences that move the cursor, set a title, answer
// queries or write the clipboard are dropped. Anything that is not a terminal
// gets the bytes as they are.
func inert(w io.Writer) io.Writer {
	if !isTerminal(w) {
		return w
	}
	return &inertWriter{w: w}
}

// plain wraps a terminal for this program's own words: whatever colour or
// concealment a workload has left on is taken off before each.
func plain(w io.Writer) io.Writer {
	if !isTerminal(w) {
		return w
	}
	return plainWriter{w}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

type plainWriter struct{ w io.Writer }

func (p plainWriter) Write(b []byte) (int, error) {
	if _, err := io.WriteString(p.w, "\x1b[0m"); err != nil {
		return 0, err
	}
	return p.w.Write(b)
}

// inertWriter keeps text, tab, newline, carriage return and SGR sequences
// (ECMA-48 §8.3.117, CSI … m). It reads UTF-8, so that the control characters
// above ASCII (C1) are seen too; bytes that are none become U+FFFD. Its state
// lives across writes.
type inertWriter struct {
	w       io.Writer
	pending []byte // the beginning of a character
	state   inertState
	seq     []byte
}

type inertState int

const (
	inText   inertState = iota
	inEscape            // after ESC
	inCSI               // after ESC [
	inString            // after ESC ] P X ^ _, until BEL or ESC
)

const maxSGR = 32

// Write never reports fewer bytes than it was given: dropped ones count.
func (t *inertWriter) Write(p []byte) (int, error) {
	in := append(t.pending, p...)
	var out []byte
	for len(in) > 0 && utf8.FullRune(in) {
		r, size := utf8.DecodeRune(in)
		in = in[size:]
		out = t.next(out, r)
	}
	t.pending = append([]byte(nil), in...)
	if len(out) > 0 {
		if _, err := t.w.Write(out); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

func (t *inertWriter) next(out []byte, r rune) []byte {
	switch t.state {
	case inText:
		switch {
		case r == esc:
			t.state = inEscape
		case r == '\n' || r == '\r' || r == '\t' || !unicode.IsControl(r):
			out = utf8.AppendRune(out, r)
		}
	case inEscape:
		t.state = afterEscape(r)
		t.seq = append(t.seq[:0], esc, '[')
	case inCSI:
		if r < 0x20 || r > 0x7e { // no part of a sequence
			t.state = inText
			return t.next(out, r)
		}
		if len(t.seq) < maxSGR {
			t.seq = append(t.seq, byte(r))
		}
		if r >= 0x40 { // the final character
			t.state = inText
			if r == 'm' && t.seq[len(t.seq)-1] == 'm' && plainSGR(t.seq[2:]) {
				out = append(out, t.seq...)
			}
		}
	case inString:
		switch r {
		case bel:
			t.state = inText
		case esc:
			t.state = inEscape
		}
	}
	return out
}

const (
	bel = 0x07
	esc = 0x1b
)

func afterEscape(r rune) inertState {
	switch r {
	case '[':
		return inCSI
	case ']', 'P', 'X', '^', '_':
		return inString
	case esc:
		return inEscape
	}
	return inText
}

// plainSGR keeps digits, ';' and ':' only: private forms (CSI ? … m, CSI > … m)
// set terminal modes.
func plainSGR(seq []byte) bool {
	for _, b := range seq[:len(seq)-1] {
		if (b < '0' || b > '9') && b != ';' && b != ':' {
			return false
		}
	}
	return true
}
