package contract

import (
	"fmt"
	"unicode/utf8"
)

// only says whether every byte of s satisfies ok; true for "".
func only(s string, ok func(byte) bool) bool {
	for i := range len(s) {
		if !ok(s[i]) {
			return false
		}
	}
	return true
}

func isDigit(b byte) bool    { return '0' <= b && b <= '9' }
func isLower(b byte) bool    { return 'a' <= b && b <= 'z' }
func isUpper(b byte) bool    { return 'A' <= b && b <= 'Z' }
func isAlnum(b byte) bool    { return isDigit(b) || isLower(b) || isUpper(b) }
func isLowerHex(b byte) bool { return isDigit(b) || 'a' <= b && b <= 'f' }
func isVisible(b byte) bool  { return '!' <= b && b <= '~' }

// checkText refuses what is not one line of UTF-8 of at most limit bytes:
// control characters, and the marks that make a terminal show text in another
// order than it is stored.
func checkText(s string, limit int) error {
	if len(s) > limit {
		return fmt.Errorf("is %d bytes, the bound is %d", len(s), limit)
	}
	if !utf8.ValidString(s) {
		return fmt.Errorf("is not UTF-8 text: %s", quote(s))
	}
	for _, r := range s {
		if r < ' ' || r >= 0x7f && r < 0xa0 || isReordering(r) {
			return fmt.Errorf("holds the control character %U; remove it", r)
		}
	}
	return nil
}

// isReordering names the bidirectional and line-breaking controls (Unicode
// TR 9 §2, and the two separators).
func isReordering(r rune) bool {
	return r == 0x061c || r == 0x200e || r == 0x200f || 0x2028 <= r && r <= 0x202e || 0x2066 <= r && r <= 0x2069
}

// filled is checkText for text that must be there.
func filled(s string, limit int) error {
	if s == "" {
		return fmt.Errorf("is empty")
	}
	return checkText(s, limit)
}
