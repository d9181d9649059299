package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/policy/contract"
)

// writerProgram writes without an end: a whole number to "first", the same to
// "second", a line to "log". A tree that stood still when it was read has
// numbers that belong together. It ignores SIGTERM and runs in a session of its
// own, so that whoever only ends the workload's first process leaves it.
const writerProgram = `
import os, signal, sys
def put(name, text):
    with open(name + "~", "w") as f: f.write(text)
    os.rename(name + "~", name)
put("first", "0\n"); put("second", "0\n")
log = open("log", "w", buffering=1)
if os.fork() == 0:
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    n = 0
    while True:
        n += 1
        put("first", "%d\n" % n); put("second", "%d\n" % n); log.write("%d\n" % n)
        if n == 50: os.kill(os.getppid(), signal.SIGUSR1)
else:
    ready = []
    signal.signal(signal.SIGUSR1, lambda *_: ready.append(1))
    while not ready: signal.pause()
    print("ready", flush=True)
    END
`

// However a run ends, the patch is the tree as it was then: complete, of one
// moment, and applicable.
func TestFrozenCapture(t *testing.T) {
	needDocker(t)
	pause := "\n    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n    while True: signal.pause()"
	for _, tt := range []struct {
		name, limits, end string
		// meanwhile is done from outside once the writer writes.
		meanwhile func(t *testing.T, cmd *exec.Cmd, evidence string)
		state     contract.State
		exit      int
		reason    string
	}{
		{"end", "", "sys.exit(0)", nil, contract.StateCompleted, 0, "exit: "},
		{"time-out", "timeout=2s", pause, nil, contract.StateTimedOut, 124, "timeout: "},
		{"memory of the workload", "memory=192MiB", "x = bytearray(1 << 30)", nil, contract.StateFailed, 137, "memory: "},
		{"cancelled", "", pause, func(_ *testing.T, cmd *exec.Cmd, _ string) { cmd.Process.Signal(os.Interrupt) }, contract.StateCancelled, 130, "cancelled: "},
		{"PID 1 killed from outside", "", pause, killContainer, contract.StateFailClosed, 125, "lost: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, way := range ways(t) {
				frozenCapture(t, way, tt.limits, strings.Replace(writerProgram, "END", tt.end, 1), tt.meanwhile, func(out contract.Outcome) bool {
					return out.State == tt.state && out.ExitCode == tt.exit && strings.HasPrefix(out.Reason, tt.reason)
				})
			}
		})
	}
}

// ways are the isolations with the transports that tell them apart: under
// gVisor the streamed one has its kernel between the files and their reader.
func ways(t *testing.T) [][2]string {
	var out [][2]string
	for _, transport := range transports() {
		out = append(out, [2]string{"runc", transport})
	}
	if slices.Contains(isolations(t), "runsc") {
		out = append(out, [2]string{"runsc", "streamed"})
	}
	return out
}

// killContainer ends a run's container with all that is in it, as the kernel
// does when PID 1 dies.
func killContainer(t *testing.T, _ *exec.Cmd, evidence string) {
	t.Helper()
	spec, err := os.ReadFile(filepath.Join(evidence, "spec.json"))
	if err != nil {
		t.Error(err)
		return
	}
	var s struct{ Name string }
	if err := json.Unmarshal(spec, &s); err != nil {
		t.Error(err)
	}
	if _, err := dockerOutput("kill", "--signal", "KILL", s.Name); err != nil {
		t.Error(err)
	}
}

func frozenCapture(t *testing.T, way [2]string, change, program string, meanwhile func(*testing.T, *exec.Cmd, string), right func(contract.Outcome) bool) {
	t.Helper()
	transport := strings.Join(way[:], " ")
	c := newCheckout(t, map[string]string{"a": "a\n"})
	c.env = append(c.env, "COUNTERSIGN_TRANSPORT="+way[1])
	evidence := filepath.Join(t.TempDir(), "evidence")
	cmd := c.command(append(append([]string{"run", "--json", "--evidence", evidence}, policyFile(t, isolated(way[0], change))...), "--", "python3", "-c", program)...)
	var stdout, said bytes.Buffer
	cmd.Stdout = &stdout
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		if lines.Text() == "ready" && meanwhile != nil {
			meanwhile(t, cmd, evidence)
		}
		said.WriteString(lines.Text() + "\n")
	}
	cmd.Wait()
	r := result{stderr: said.String()}
	if err := json.Unmarshal(stdout.Bytes(), &r.outcome); err != nil {
		t.Fatalf("%s: %q: %v\n%s", transport, stdout.String(), err, said.String())
	}
	if !right(r.outcome) {
		t.Errorf("%s: exit %d, %s (%s)\n%s", transport, r.outcome.ExitCode, r.outcome.State, r.outcome.Reason, r.stderr)
	}
	oneMoment(t, transport, c.apply(r))
	if v := c.exec("verify", evidence); v.code != 0 {
		t.Errorf("%s: verify: %s", transport, v.stdout)
	}
	if left := leftovers(t); len(left) > 0 {
		t.Errorf("%s: left behind: %v", transport, left)
	}
}

// apply gives a clone of the checkout with the patch of r.
func (c *checkout) apply(r result) string {
	c.t.Helper()
	clone := filepath.Join(c.t.TempDir(), "clone")
	c.git("clone", "-q", c.dir, clone)
	cmd := exec.Command("git", "apply", "--binary", filepath.Join(r.outcome.Evidence, "changes.patch"))
	cmd.Dir, cmd.Env = clone, c.env
	if out, err := cmd.CombinedOutput(); err != nil {
		c.t.Errorf("git apply: %v\n%s%s", err, out, r.stderr)
	}
	return clone
}

// oneMoment wants the writer's files to be of one moment.
func oneMoment(t *testing.T, transport, dir string) {
	t.Helper()
	number := func(name string) int {
		text, err := os.ReadFile(filepath.Join(dir, name))
		n, bad := strconv.Atoi(strings.TrimSpace(string(text)))
		if err := errors.Join(err, bad); err != nil {
			t.Error(err)
		}
		return n
	}
	first, second := number("first"), number("second")
	text, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Fields(string(text))
	for i, l := range lines {
		if l != strconv.Itoa(i+1) {
			t.Fatalf("%s: line %d of the log is %q", transport, i+1, l)
		}
	}
	if first < 50 || first-second < 0 || first-second > 1 || !slices.Contains([]int{second, second - 1}, len(lines)) {
		t.Errorf("%s: first %d, second %d, %d lines: not of one moment", transport, first, second, len(lines))
	}
}
