package policy

import (
	"fmt"
	"strings"
)

// RenderChecked is what `countersign policy check` prints: one line for each
// profile.
func RenderChecked(name string, checked []Checked) string {
	var b strings.Builder
	width, bad := 0, 0
	for _, c := range checked {
		width = max(width, len(c.Profile))
		if c.Refusal != nil {
			bad++
		}
	}
	fmt.Fprintf(&b, "%s: %d profiles", name, len(checked))
	if bad > 0 {
		fmt.Fprintf(&b, ", %d refused", bad)
	}
	b.WriteByte('\n')
	for _, c := range checked {
		fmt.Fprintf(&b, "  %-*s  ", width, c.Profile)
		switch {
		case c.Base:
			b.WriteString("–   only extended by others, as it has no image")
		case c.Refusal != nil:
			fmt.Fprintf(&b, "refused (%s): %s", c.Refusal.Code, oneLine(c.Refusal.Error()))
		default:
			fmt.Fprintf(&b, "%s  %s", c.Level, oneLine(c.Why))
			if c.LocalOnly {
				b.WriteString("; local runs only, as its image is named by tag")
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// RenderCases is what `countersign policy test` prints: a line for each case
// that failed with what was found, then the count. It says whether all held.
func RenderCases(results []CaseResult) (string, bool) {
	var b strings.Builder
	failed := 0
	for _, r := range results {
		if len(r.Failures) == 0 {
			continue
		}
		failed++
		fmt.Fprintf(&b, "FAIL %s:%d: %s\n", r.File, r.Line, oneLine(r.Name))
		for _, f := range r.Failures {
			fmt.Fprintf(&b, "     %s\n", oneLine(f))
		}
	}
	if failed > 0 {
		fmt.Fprintf(&b, "%d of %d cases failed\n", failed, len(results))
		return b.String(), false
	}
	fmt.Fprintf(&b, "ok: %d cases\n", len(results))
	return b.String(), true
}
