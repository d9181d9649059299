package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/runner"
)

// policyFile writes a policy and returns its flags.
func policyFile(t *testing.T, text string) []string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "policy.yml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return []string{"--policy", path}
}

// neighbour is a run that stays alive until it is told to end.
type neighbour struct {
	id   string
	stop func() result
}

// others are the leftovers that are not the neighbour's own: its container,
// volume and directory, and without root the holder of its volume.
func (n *neighbour) others(t *testing.T) []string {
	t.Helper()
	return slices.DeleteFunc(leftovers(t), func(s string) bool { return strings.Contains(s, n.id) })
}

// startNeighbour returns when the workload runs.
func startNeighbour(t *testing.T, c *checkout) *neighbour {
	t.Helper()
	args := append([]string{"run", "--json"}, policyFile(t, smallPolicy(""))...)
	cmd := c.command(append(args, "--", "/bin/sh", "-c", "echo neighbour is here; echo mine > mine; exec sleep 1000")...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stdout bytes.Buffer
	cmd.Stdout = &stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	n := &neighbour{}
	lines := bufio.NewScanner(stderr)
	for lines.Scan() && !strings.Contains(lines.Text(), "neighbour is here") {
		if words := strings.Fields(lines.Text()); len(words) > 2 && strings.HasPrefix(words[2], "run_") {
			n.id = words[2]
		}
	}
	if n.id == "" {
		t.Fatal("the neighbour did not say which run it is")
	}
	n.stop = func() result {
		n.stop = func() result { return result{} }
		cmd.Process.Signal(os.Interrupt)
		for lines.Scan() {
		}
		cmd.Wait()
		r := result{code: cmd.ProcessState.ExitCode(), stdout: stdout.String()}
		if err := json.Unmarshal(stdout.Bytes(), &r.outcome); err != nil {
			t.Errorf("the neighbour printed %q: %v", stdout.String(), err)
		}
		return r
	}
	t.Cleanup(func() { n.stop() })
	return n
}

// The supervising process is killed at each stage, as kill -9 would. The run
// ends 125, the bundle says that it is incomplete, nothing is left, and a run
// beside it goes on.
func TestKilledAtEachStage(t *testing.T) {
	needDocker(t)
	c := newCheckout(t, map[string]string{"a": "a\n"})
	n := startNeighbour(t, c)
	for _, point := range runner.FailPoints() {
		t.Run(point, func(t *testing.T) {
			here := *c
			here.t, here.env = t, append(append([]string{}, c.env...), "COUNTERSIGN_FAILPOINT="+point)
			r := here.run(append(policyFile(t, smallPolicy("")), "--", "/bin/sh", "-c", "echo changed > a")...)
			if r.code != contract.ExitFailClosed || r.outcome.State != contract.StateFailClosed || !strings.HasPrefix(r.outcome.Reason, "lost: ") {
				t.Errorf("exit %d, %s (%s)\n%s", r.code, r.outcome.State, r.outcome.Reason, r.stderr)
			}
			if left := n.others(t); len(left) != 0 {
				t.Errorf("left beside the neighbour's: %v", left)
			}
			v := c.exec("verify", r.outcome.Evidence)
			if v.code == 0 || !strings.Contains(v.stdout+v.stderr, "incomplete") {
				t.Errorf("verify exits with %d and does not say that the bundle is incomplete:\n%s%s", v.code, v.stdout, v.stderr)
			}
		})
	}
	end := n.stop()
	if end.code != contract.ExitCancelled || end.outcome.State != contract.StateCancelled || end.outcome.Patch.Files != 1 {
		t.Errorf("the neighbour: exit %d, %s (%s), %d files", end.code, end.outcome.State, end.outcome.Reason, end.outcome.Patch.Files)
	}
	if left := leftovers(t); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// The whole program is killed, parent and child, at each stage: what is left is
// removed by the next start of any run.
func TestNextStartReaps(t *testing.T) {
	needDocker(t)
	c := newCheckout(t, map[string]string{"a": "a\n"})
	n := startNeighbour(t, c)
	for _, point := range []string{"claim", "create", "start", "load", "work", "capture"} {
		t.Run(point, func(t *testing.T) {
			evidence := killWhole(t, c, point)
			next := c.sh(smallPolicy(""), "true")
			if next.code != 0 {
				t.Fatalf("the next run: exit %d (%s)", next.code, next.outcome.Reason)
			}
			if left := n.others(t); len(left) != 0 {
				t.Errorf("left beside the neighbour's: %v", left)
			}
			if v := c.exec("verify", evidence); !strings.Contains(v.stdout+v.stderr, "incomplete") {
				t.Errorf("verify does not say that the bundle is incomplete:\n%s%s", v.stdout, v.stderr)
			}
		})
	}
	if end := n.stop(); end.outcome.State != contract.StateCancelled {
		t.Errorf("the neighbour: %s (%s)", end.outcome.State, end.outcome.Reason)
	}
	if left := leftovers(t); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// killWhole starts a run whose supervising process stops itself at point, kills
// the parent first and then the child, and returns the bundle's directory.
func killWhole(t *testing.T, c *checkout, point string) string {
	t.Helper()
	evidence := filepath.Join(t.TempDir(), "evidence")
	args := append([]string{"run", "--json", "--evidence", evidence}, policyFile(t, smallPolicy(""))...)
	cmd := c.command(append(args, "--", "/bin/sh", "-c", "echo changed > a")...)
	cmd.Env = append(append([]string{}, c.env...), "COUNTERSIGN_FAILPOINT=stop:"+point)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	child := 0
	for lines := bufio.NewScanner(stderr); child == 0 && lines.Scan(); {
		fmt.Sscanf(lines.Text(), "fail point: process %d stands still", &child)
	}
	if child == 0 {
		t.Fatal("the supervising process did not reach the fail point")
	}
	cmd.Process.Kill()
	syscall.Kill(child, syscall.SIGKILL)
	cmd.Wait()
	return evidence
}

// A supervising process whose parent was killed ends its run by itself.
func TestParentKilled(t *testing.T) {
	needDocker(t)
	c := newCheckout(t, map[string]string{"a": "a\n"})
	evidence := filepath.Join(t.TempDir(), "evidence")
	args := append([]string{"run", "--evidence", evidence}, policyFile(t, smallPolicy(""))...)
	cmd := c.command(append(args, "--", "/bin/sh", "-c", "echo started; exec sleep 1000")...)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	// The child inherits standard error: its end is the end of this pipe.
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	bufio.NewReader(stdout).ReadString('\n')
	cmd.Process.Kill()
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
	}
	cmd.Wait()
	if left := leftovers(t); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	if v := c.exec("verify", evidence); !strings.Contains(v.stdout+v.stderr, "incomplete") {
		t.Errorf("a bundle that nobody signed: %s%s", v.stdout, v.stderr)
	}
}

// Evidence that could not be signed is evidence that could not be written.
func TestKilledBeforeSigning(t *testing.T) {
	needDocker(t)
	c := newCheckout(t, map[string]string{"a": "a\n"})
	c.env = append(c.env, "COUNTERSIGN_FAILPOINT=sign")
	evidence := filepath.Join(t.TempDir(), "evidence")
	r := c.exec(append(append([]string{"run", "--evidence", evidence}, policyFile(t, smallPolicy(""))...), "--", "true")...)
	if r.code != 128+9 {
		t.Fatalf("exit %d\n%s", r.code, r.stderr)
	}
	if v := c.exec("verify", evidence); v.code == 0 || !strings.Contains(v.stdout+v.stderr, "incomplete") {
		t.Errorf("exit %d\n%s%s", v.code, v.stdout, v.stderr)
	}
	if left := leftovers(t); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// The first interrupt ends the workload with SIGTERM and keeps its patch, the
// second at once.
func TestInterrupts(t *testing.T) {
	needDocker(t)
	c := newCheckout(t, map[string]string{"a": "a\n"})
	for _, tt := range []struct {
		name, script string
		signals      int
		state        contract.State
		workload     int
	}{
		{"heeds SIGTERM", "trap 'echo bye > a; exit 7' TERM; echo ready; sleep 1000 & wait", 1, contract.StateCancelled, 7},
		{"ignores SIGTERM", "trap '' TERM; echo bye > a; echo ready; while :; do sleep 1000; done", 1, contract.StateCancelled, 137},
		{"twice", "trap '' TERM; echo bye > a; echo ready; while :; do sleep 1000; done", 2, contract.StateCancelled, 137},
		{"again while it stops", "trap 'echo ready' TERM; echo bye > a; echo ready; while :; do sleep 1000 & wait; done", 2, contract.StateCancelled, 137},
	} {
		t.Run(tt.name, func(t *testing.T) {
			args := append([]string{"run", "--json"}, policyFile(t, smallPolicy(""))...)
			cmd := c.command(append(args, "--", "/bin/sh", "-c", tt.script)...)
			var stdout bytes.Buffer
			cmd.Stdout = &stdout
			stderr, err := cmd.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(stderr)
			ready := func() {
				for lines.Scan() && lines.Text() != "ready" {
				}
			}
			ready()
			for i := range tt.signals {
				if i > 0 && strings.Contains(tt.name, "again") {
					ready()
				}
				cmd.Process.Signal(os.Interrupt)
			}
			for lines.Scan() {
			}
			cmd.Wait()
			var out contract.Outcome
			if err := json.Unmarshal(stdout.Bytes(), &out); err != nil {
				t.Fatalf("%q: %v", stdout.String(), err)
			}
			if code := cmd.ProcessState.ExitCode(); code != contract.ExitCancelled || out.State != tt.state {
				t.Errorf("exit %d, %s (%s)", code, out.State, out.Reason)
			}
			if out.WorkloadExit == nil || *out.WorkloadExit != tt.workload {
				t.Errorf("the workload's exit: %v", out.WorkloadExit)
			}
			if out.Patch.Files != 1 {
				t.Errorf("%d files in the patch: what was changed before the end is lost", out.Patch.Files)
			}
			if left := leftovers(t); len(left) != 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// A reader that goes away ends the run, and nothing is left of it.
func TestReaderGone(t *testing.T) {
	needDocker(t)
	c := newCheckout(t, map[string]string{"a": "a\n"})
	args := append([]string{"run"}, policyFile(t, smallPolicy(""))...)
	cmd := c.command(append(args, "--", "/bin/sh", "-c", "echo changed > a; exec yes")...)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	bufio.NewReader(stdout).ReadString('\n')
	stdout.Close()
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != contract.ExitCancelled {
		t.Errorf("exit %d", code)
	}
	if left := leftovers(t); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	bundles, _ := filepath.Glob(filepath.Join(c.dir, ".countersign/runs/*"))
	if len(bundles) != 1 {
		t.Fatal(bundles)
	}
	if v := c.exec("verify", bundles[0]); v.code != 0 {
		t.Errorf("verify: %s", v.stdout)
	}
}
