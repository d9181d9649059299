package policy

import (
	"fmt"
	"sort"
	"strings"
)

// maxProblems bounds how many problems one parse reports.
const maxProblems = 50

// Problem is one thing that is wrong with a policy, a ceiling or a test case.
// Line and Column count from 1; Suggestion is the nearest word that would have
// been right, "" if none is near.
type Problem struct {
	File       string
	Line       int
	Column     int
	Message    string
	Suggestion string
}

// String gives the problem in the form editors and CI logs recognise:
// `file:line:column: message (did you mean "x"?)`.
func (p Problem) String() string {
	s := fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Column, p.Message)
	if p.Suggestion != "" {
		s += fmt.Sprintf(" (did you mean %q?)", p.Suggestion)
	}
	return s
}

// Problems is the error of [Parse], [ParseCeiling] and [RunCases]: everything
// that is wrong, in the order of the file, not only the first.
type Problems []Problem

// Error gives one line for each problem.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// asError is nil for no problems, so that an empty list is never a non-nil error.
func (ps Problems) asError() error {
	if len(ps) == 0 {
		return nil
	}
	sort.SliceStable(ps, func(i, j int) bool {
		if ps[i].Line != ps[j].Line {
			return ps[i].Line < ps[j].Line
		}
		return ps[i].Column < ps[j].Column
	})
	if len(ps) > maxProblems {
		ps = ps[:maxProblems]
	}
	return ps
}

// nearest is the word of words that is closest to got, or "" when none is close
// enough to be what was meant.
func nearest(got string, words []string) string {
	if len(got) > 64 {
		return ""
	}
	best, bound := "", max(2, len(got)/3)+1
	for _, w := range words {
		if d := distance(strings.ToLower(got), strings.ToLower(w)); d < bound && d < max(len(got), len(w)) {
			best, bound = w, d
		}
	}
	return best
}

// distance is the Levenshtein distance of two short words, with a swap of two
// neighbours counted as one (optimal string alignment).
func distance(a, b string) int {
	before, prev, cur := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], before[j-2]+1)
			}
		}
		before, prev, cur = prev, cur, before
	}
	return prev[len(b)]
}
