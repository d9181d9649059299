package ledger

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
	if printable(s) && !strings.Contains(s, `\`) {
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

// printable reports whether a terminal shows s as it is.
func printable(s string) bool {
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

// escapeValue escapes every string and every key of a decoded JSON value.
func escapeValue(v any) any {
	switch v := v.(type) {
	case string:
		return Escape(v)
	case []any:
		for i := range v {
			v[i] = escapeValue(v[i])
		}
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[Escape(k)] = escapeValue(e)
		}
		return out
	}
	return v
}

// valuePrintable reports whether every string and key of v is printable.
func valuePrintable(v any) bool {
	switch v := v.(type) {
	case string:
		return printable(v)
	case []any:
		for _, e := range v {
			if !valuePrintable(e) {
				return false
			}
		}
	case map[string]any:
		for k, e := range v {
			if !printable(k) || !valuePrintable(e) {
				return false
			}
		}
	}
	return true
}
