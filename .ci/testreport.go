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
	"strings"
)

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
	skips  []string
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
		r.skips = append(r.skips, fmt.Sprintf("%s %s: %s", e.Package, e.Test, reason(r.text[key])))
		delete(r.text, key)
	case e.Action == "pass":
		r.passed++
		delete(r.text, key)
	}
}

// reason is the line that a test gave to t.Skip.
func reason(output string) string {
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "===") && !strings.HasPrefix(line, "---") {
			return line
		}
	}
	return "no reason given"
}

// close prints the totals and says what to exit with.
func (r *report) close(strict bool) int {
	for _, s := range r.skips {
		fmt.Fprintf(r.out, "left out: %s\n", s)
	}
	// Tests that never ended: their package was killed or timed out.
	for key, text := range r.text {
		if r.broken > 0 && text != "" && !strings.Contains(text, "=== PAUSE") {
			fmt.Fprintf(r.out, "not ended: %s\n%s", key, text)
		}
	}
	fmt.Fprintf(r.out, "%d passed, %d failed, %d skipped\n", r.passed, r.failed, len(r.skips))
	switch {
	case r.failed > 0 || r.broken > 0:
		return 1
	case strict && len(r.skips) > 0:
		fmt.Fprintln(r.out, "FAIL: a skipped test is not a passed test")
		return 1
	case r.passed == 0:
		fmt.Fprintln(r.out, "FAIL: no test ran")
		return 1
	}
	return 0
}
