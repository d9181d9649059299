package policy

import (
	"fmt"
	"strings"
)

// Explain draws a derivation as a tree: each field with its value, and below it
// what made it so, the first cause first. A refusal stands at the end.
func Explain(d Derivation) string {
	var b strings.Builder
	width := 0
	for _, r := range d.Reasons {
		width = max(width, min(len(r.Field), 28))
	}
	for i, r := range d.Reasons {
		branch, trunk := "├─ ", "│  "
		if i == len(d.Reasons)-1 && d.Refusal == nil {
			branch, trunk = "└─ ", "   "
		}
		fmt.Fprintf(&b, "%s%-*s  %s\n", branch, width, r.Field, oneLine(r.Value))
		for _, cause := range r.Because {
			fmt.Fprintf(&b, "%s%*s  · %s\n", trunk, width, "", oneLine(cause))
		}
	}
	if r := d.Refusal; r != nil {
		fmt.Fprintf(&b, "└─ refused (%s): %s\n", r.Code, oneLine(r.Message))
		if r.Hint != "" {
			fmt.Fprintf(&b, "   %*s  · %s\n", width, "", oneLine(r.Hint))
		}
	}
	return b.String()
}

// oneLine keeps text of others from drawing on the terminal: every control or
// format character is shown as its code.
func oneLine(s string) string {
	if s == "" {
		return "–"
	}
	var b strings.Builder
	for _, r := range s {
		if r < 0x20 || r >= 0x7f && r < 0xa0 || r == '\u061c' || r >= 0x200b && r <= 0x200f || r >= 0x2028 && r <= 0x202e || r >= 0x2060 && r <= 0x206f || r == 0xfeff {
			fmt.Fprintf(&b, "\\u%04x", r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}
