package contract

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Escape makes a string safe to print and to record, in a way that can be
// undone: what is not a printable character (controls, C1 controls, direction
// overrides, zero-width characters, line separators, bytes that are not UTF-8)
// is written as Go writes it in a string literal, and a backslash is doubled.
// Quotes stay as they are.
func Escape(s string) string {
	if Printable(s) && !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case r == '\'' || r == '"':
			b.WriteRune(r)
		default:
			q := strconv.QuoteRune(r)
			b.WriteString(q[1 : len(q)-1])
		}
		s = s[size:]
	}
	return b.String()
}

// Printable reports whether s is UTF-8 that a terminal shows as it is.
func Printable(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if !strconv.IsPrint(r) {
			return false
		}
	}
	return true
}
