package main

import (
	"io"
	"os"

	"golang.org/x/term"
)

// inert wraps a terminal so that what a workload prints can colour it and
// nothing else: control sequences that move the cursor, set a title, answer
// queries or write the clipboard are dropped. Anything that is not a terminal
// gets the bytes as they are.
func inert(w io.Writer) io.Writer {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return w
	}
	return &inertWriter{w: w}
}

// inertWriter keeps text, tab, newline, carriage return and SGR sequences
// (ECMA-48 §8.3.117, CSI … m). Its state lives across writes.
type inertWriter struct {
	w     io.Writer
	state inertState
	seq   []byte
}

type inertState int

const (
	inText   inertState = iota
	inEscape            // after ESC
	inCSI               // after ESC [
	inString            // after ESC ] P X ^ _, until BEL or ESC
	inC2                // after 0xC2, which begins U+0080 to U+00BF in UTF-8
)

const maxSGR = 32

// Write never reports fewer bytes than it was given: dropped ones count.
func (t *inertWriter) Write(p []byte) (int, error) {
	var out []byte
	for _, b := range p {
		out = t.next(out, b)
	}
	if len(out) > 0 {
		if _, err := t.w.Write(out); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

func (t *inertWriter) next(out []byte, b byte) []byte {
	switch t.state {
	case inText:
		switch {
		case b == 0x1b:
			t.state = inEscape
		case b == 0xc2:
			t.state = inC2
		case b >= 0x20 && b != 0x7f, b == '\n', b == '\r', b == '\t':
			out = append(out, b)
		}
	case inC2:
		t.state = inText
		if b > 0x9f { // U+0080 to U+009F are control characters (C1)
			return append(out, 0xc2, b)
		}
		if b < 0x80 { // the 0xC2 stood alone
			return t.next(out, b)
		}
	case inEscape:
		t.state = afterEscape(b)
		t.seq = append(t.seq[:0], 0x1b, '[')
	case inCSI:
		if len(t.seq) < maxSGR {
			t.seq = append(t.seq, b)
		}
		if b >= 0x40 && b <= 0x7e { // the final byte
			t.state = inText
			if b == 'm' && t.seq[len(t.seq)-1] == 'm' && plainSGR(t.seq[2:]) {
				out = append(out, t.seq...)
			}
		} else if b < 0x20 {
			t.state = inText
		}
	case inString:
		if b == 0x07 || b == 0x1b {
			t.state = inText
			if b == 0x1b {
				t.state = inEscape
			}
		}
	}
	return out
}

func afterEscape(b byte) inertState {
	switch b {
	case '[':
		return inCSI
	case ']', 'P', 'X', '^', '_':
		return inString
	case 0x1b:
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
