package drill

import (
	"fmt"
	"io"
	"strings"

	"github.com/countersign-dev/countersign/policy/contract"
)

// Verdict on one control.
type Verdict string

const (
	Holds   Verdict = "holds"   // tried from inside, and nothing got through
	Refused Verdict = "refused" // nothing was started at all, as it must be
	Weaker  Verdict = "weaker"  // less than under runc, exactly as stated for this isolation
	Fails   Verdict = "FAILS"
)

// Row says of one control what was tried and what happened.
type Row struct {
	Control  string  `json:"control"`
	Tried    string  `json:"tried"`
	Happened string  `json:"happened"`
	Verdict  Verdict `json:"verdict"`
}

// Report is the result of a drill.
type Report struct {
	Isolation  contract.Isolation `json:"isolation"`
	Image      string             `json:"image"`
	OK         bool               `json:"ok"` // no row fails
	Attempts   int                `json:"attempts"`
	Rows       []Row              `json:"rows"`
	DurationMS int64              `json:"duration_ms"`
}

// Count is the number of rows with a verdict.
func (r Report) Count(v Verdict) int {
	n := 0
	for _, row := range r.Rows {
		if row.Verdict == v {
			n++
		}
	}
	return n
}

// Print writes the table for people: a line for each control, and below it what
// was tried and what happened. Nothing in it can steer a terminal.
func (r Report) Print(w io.Writer) error {
	var b strings.Builder
	for _, row := range r.Rows {
		fmt.Fprintf(&b, "%-8s %s\n         %s: %s\n", row.Verdict, row.Control, row.Tried, contract.Escape(row.Happened))
	}
	fmt.Fprintf(&b, "\n%s: %d attempts; %d controls hold, %d refused before a start, %d weaker and stated, %d fail (%.0f s)\n",
		r.Isolation, r.Attempts, r.Count(Holds), r.Count(Refused), r.Count(Weaker), r.Count(Fails), float64(r.DurationMS)/1000)
	_, err := io.WriteString(w, b.String())
	return err
}
