package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/runner/drill"
)

// drillHere is a checkout whose temporary files are its own, to see what stays.
func drillHere(t *testing.T) (*checkout, string) {
	t.Helper()
	needDocker(t)
	tmp := t.TempDir()
	c := newCheckout(t, map[string]string{"a": "a\n"})
	c.env = append(c.env, "TMPDIR="+tmp)
	return c, tmp
}

func nothingLeftOf(t *testing.T, tmp string) {
	t.Helper()
	entries, err := os.ReadDir(tmp)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		t.Errorf("left behind: %s", e.Name())
	}
	if left := leftovers(t); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// The whole drill on the real engine, under runc.
func TestDrill(t *testing.T) {
	c, tmp := drillHere(t)
	r := c.exec("drill", "--json")
	var report drill.Report
	if err := json.Unmarshal([]byte(r.stdout), &report); err != nil {
		t.Fatalf("standard output is not one JSON object: %v\n%s\n%s", err, r.stdout, r.stderr)
	}
	for _, row := range report.Rows {
		if row.Verdict != drill.Holds && row.Verdict != drill.Refused {
			t.Errorf("%s %s: %s: %s", row.Verdict, row.Control, row.Tried, row.Happened)
		}
	}
	if r.code != 0 || !report.OK || report.Attempts < 640 || len(report.Rows) < 60 {
		t.Errorf("exit %d, ok %t, %d attempts, %d rows\n%s", r.code, report.OK, report.Attempts, len(report.Rows), r.stderr)
	}
	nothingLeftOf(t, tmp)
}

// Where there is no sandbox there is no verdict, and a sentence.
func TestNoDrill(t *testing.T) {
	c, tmp := drillHere(t)
	for _, tt := range []struct {
		env  string
		args []string
		want string
	}{
		{"DOCKER_HOST=unix:///nonexistent.sock", nil, "no Docker Engine answers"},
		{"COUNTERSIGN_SHIM=/nonexistent", nil, "/nonexistent"},
		{"", []string{"--isolation", "kata"}, "runc or runsc"},
		{"", []string{"--fast"}, "drill --help"},
	} {
		here := *c
		here.t = t
		if tt.env != "" {
			here.env = append(append([]string{}, c.env...), tt.env)
		}
		r := here.exec(append([]string{"drill", "--json"}, tt.args...)...)
		if r.code != 125 || r.stdout != "" || !strings.Contains(r.stderr, tt.want) {
			t.Errorf("%s %v: exit %d\n%s%s", tt.env, tt.args, r.code, r.stdout, r.stderr)
		}
	}
	nothingLeftOf(t, tmp)
}

// An interrupted drill ends its runs, one or two at a time, and leaves nothing.
func TestDrillInterrupted(t *testing.T) {
	for _, work := range []string{"another run's way out", "residue"} {
		t.Run(work, func(t *testing.T) { interruptDrill(t, work) })
	}
}

func interruptDrill(t *testing.T, work string) {
	c, tmp := drillHere(t)
	cmd := c.command("drill", "--json")
	var stdout bytes.Buffer
	cmd.Stdout = &stdout
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(stderr)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(line, "countersign: drill: "+work) {
			break
		}
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(lines)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Wait() // the status is looked at below
	if code := cmd.ProcessState.ExitCode(); code != 125 || stdout.Len() > 0 || !strings.Contains(string(rest), "interrupted") {
		t.Errorf("exit %d\n%s%s", code, stdout.String(), rest)
	}
	nothingLeftOf(t, tmp)
}
