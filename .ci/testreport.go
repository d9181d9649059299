//go:build ignore

// Testreport reads the events of `go test -json` on stdin and prints what
// `go test` would: each package's closing line, and the output of what failed.
// It also names every skipped test, because a skip that nobody sees counts as
// a pass. With -strict a skip, or a run without any test, is a failure.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
)

// place is where a test says something, as package testing writes it.
var place = regexp.MustCompile(`^[a-z0-9_]+\.go:[0-9]+: *`)

// event is one line of `go test -json` (see `go doc test2json`).
type event struct {
	Action     string
	Package    string
	ImportPath string
	Test       string
	Output     string
}

// report collects what the events say.
type report struct {
	out    io.Writer
	text   map[string]string // output of a test that has not ended
	passed int
	failed int
	broken int // packages that failed, also by not building
	// skips counts skipped tests by package, top-level test and reason, in the
	// order in which they came.
	skips   []skip
	skipped int
}

type skip struct {
	pkg, test, reason string
	count             int
}

func main() {
	strict := flag.Bool("strict", false, "fail when a test was skipped or none ran")
	flag.Parse()
	r := report{out: os.Stdout, text: map[string]string{}}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			fmt.Fprintln(r.out, lines.Text())
			continue
		}
		r.add(e)
	}
	if err := lines.Err(); err != nil {
		fmt.Fprintf(os.Stderr, "testreport: reading events: %v\n", err)
		os.Exit(1)
	}
	os.Exit(r.close(*strict))
}

func (r *report) add(e event) {
	key := e.Package + " " + e.Test
	switch {
	case e.Action == "output" && e.Test != "":
		r.text[key] += e.Output
	case e.Action == "output" && !strings.HasPrefix(e.Output, "PASS"), e.Action == "build-output":
		fmt.Fprint(r.out, e.Output)
	case e.Action == "fail" && e.Test == "":
		r.broken++
	case e.Test == "":
	case e.Action == "fail":
		r.failed++
		fmt.Fprint(r.out, r.text[key])
		delete(r.text, key)
	case e.Action == "skip":
		r.skip(e.Package, e.Test, reason(r.text[key]))
		delete(r.text, key)
	case e.Action == "pass":
		r.passed++
		delete(r.text, key)
	}
}

func (r *report) skip(pkg, test, reason string) {
	r.skipped++
	top, _, _ := strings.Cut(test, "/")
	s := skip{pkg: pkg, test: top, reason: reason}
	for i := range r.skips {
		if t := r.skips[i]; t.pkg == s.pkg && t.test == s.test && t.reason == s.reason {
			r.skips[i].count++
			return
		}
	}
	s.count = 1
	r.skips = append(r.skips, s)
}

// reason is the line that a test gave to t.Skip, without its place.
func reason(output string) string {
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "===") && !strings.HasPrefix(line, "---") {
			return place.ReplaceAllString(line, "")
		}
	}
	return "no reason given"
}

// close prints the totals and says what to exit with.
func (r *report) close(strict bool) int {
	for _, s := range r.skips {
		fmt.Fprintf(r.out, "left out: %s %s", s.pkg, s.test)
		if s.count > 1 {
			fmt.Fprintf(r.out, " (%d)", s.count)
		}
		fmt.Fprintf(r.out, ": %s\n", s.reason)
	}
	// Tests that never ended: their package was killed or timed out.
	for key, text := range r.text {
		if r.broken > 0 && text != "" && !strings.Contains(text, "=== PAUSE") {
			fmt.Fprintf(r.out, "not ended: %s\n%s", key, text)
		}
	}
	fmt.Fprintf(r.out, "%d passed, %d failed, %d skipped\n", r.passed, r.failed, r.skipped)
	switch {
	case r.failed > 0 || r.broken > 0:
		return 1
	case strict && r.skipped > 0:
		fmt.Fprintln(r.out, "FAIL: a skipped test is not a passed test")
		return 1
	case r.passed == 0:
		fmt.Fprintln(r.out, "FAIL: no test ran")
		return 1
	}
	return 0
}
