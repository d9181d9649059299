package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/policy/ledger"
	"github.com/countersign-dev/countersign/runner"
	"github.com/countersign-dev/countersign/runner/docker"
)

// warmPool is a pool of real supervising processes and what its runs print.
type warmPool struct {
	*runner.Pool
	t       *testing.T
	c       *checkout
	waiting chan int
	failAt  string // fail point of the processes started from now on
}

func newWarmPool(t *testing.T, c *checkout, memoryMB int64) *warmPool {
	t.Helper()
	w := &warmPool{t: t, c: c, waiting: make(chan int, 100)}
	w.Pool = runner.NewPool(runner.PoolConfig{
		Command: func() (*exec.Cmd, error) {
			cmd := c.command(superviseName, "--state-dir", built.state, "--shim", filepath.Join(built.dir, "countersign-shim"), "--fail-point", w.failAt)
			cmd.Stderr = testWriter{t}
			return cmd, nil
		},
		MemoryBytes: memoryMB << 20, Depth: 1,
		Waiting: func(n int) { w.waiting <- n },
		Log:     newLogger(testWriter{t}),
	})
	t.Cleanup(w.Close)
	return w
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Logf("%s", bytes.TrimSpace(p))
	return len(p), nil
}

// await returns once so many sandboxes wait.
func (w *warmPool) await(n int) {
	w.t.Helper()
	for got := range w.waiting {
		if got == n {
			return
		}
	}
}

// leavesNothing closes the pool.
func (w *warmPool) leavesNothing() {
	w.t.Helper()
	w.Close()
	if left := leftovers(w.t); len(left) > 0 {
		w.t.Errorf("left after the pool was closed: %v", left)
	}
}

// run is `countersign run --json` by way of the pool.
func (w *warmPool) run(policy, script string) result {
	w.t.Helper()
	engine, err := docker.New(docker.Config{Logger: newLogger(testWriter{w.t})})
	if err != nil {
		w.t.Fatal(err)
	}
	var out, own bytes.Buffer
	l := &localRun{
		f:      &runFlags{repo: w.c.dir, rev: "HEAD", policy: policyFile(w.t, policy)[1], approve: "deny", json: true},
		env:    environment{StateDir: built.state, ConfigDir: filepath.Join(built.dir, "config")},
		engine: engine, pool: w.Pool, stdout: &own, stderr: &own, own: &own, result: &out,
	}
	w.c.t.Setenv("GIT_CONFIG_NOSYSTEM", "1")
	err = l.run(w.t.Context(), []string{"/bin/sh", "-c", script})
	r := result{code: exitCode(err), stdout: out.String(), stderr: own.String()}
	if err := json.Unmarshal(out.Bytes(), &r.outcome); err != nil {
		w.t.Fatalf("%v\n%s", err, own.String())
	}
	return r
}

func exitCode(err error) int {
	if s, ok := err.(exitStatus); ok {
		return s.code
	}
	return 0
}

// sandbox is the container that a run had, by its ledger, and whether it waited
// for the run.
func (r result) sandbox(t *testing.T) (warm bool, name string) {
	t.Helper()
	for line := range strings.Lines(r.file(t, ledger.FileLedger)) {
		var rec struct {
			Type string
			Data struct{ Name string }
		}
		if err := json.Unmarshal([]byte(line), &rec); err != nil {
			t.Fatal(err)
		}
		if rec.Type == ledger.TypeCreating || rec.Type == ledger.TypeTaken {
			return rec.Type == ledger.TypeTaken, rec.Data.Name
		}
	}
	t.Fatalf("the ledger names no sandbox: %s", r.stderr)
	return false, ""
}

// container is what the engine has of a warm sandbox.
func container(t *testing.T) string {
	t.Helper()
	out, err := dockerOutput("ps", "-q", "--filter", "name=countersign-warm-")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// supervisorOf is the process that holds the claim of a sandbox, by the kernel's
// own list of locks (proc_locks(5)).
func supervisorOf(t *testing.T, sandbox string) int {
	t.Helper()
	info, err := os.Stat(filepath.Join(built.state, sandbox, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	inode := fmt.Sprint(info.Sys().(*syscall.Stat_t).Ino)
	locks, err := os.ReadFile("/proc/locks")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(locks)) {
		f := strings.Fields(line)
		if len(f) > 5 && f[1] == "FLOCK" && strings.HasSuffix(f[5], ":"+inode) {
			pid, err := strconv.Atoi(f[4])
			if err != nil {
				t.Fatal(err)
			}
			return pid
		}
	}
	t.Fatalf("nobody holds %s", sandbox)
	return 0
}

// shapeOf is the shape of the contract that smallPolicy gives.
func shapeOf(t *testing.T, c *checkout) runner.Shape {
	t.Helper()
	r := c.exec(append(append([]string{"contract"}, policyFile(t, smallPolicy(""))...), "--", "true")...)
	var d contract.Contract
	if err := json.Unmarshal([]byte(r.stdout), &d); err != nil {
		t.Fatalf("%v\n%s", err, r.stderr)
	}
	return runner.ShapeOf(d)
}

// A run whose contract has the shape of a sandbox that waits takes it, with the
// evidence of any other run; each sandbox is used once, and none is left.
func TestPool(t *testing.T) {
	needDocker(t)
	c := newCheckout(t, map[string]string{"seed": "1\n"})
	w := newWarmPool(t, c, 1024)
	const work = `echo made > made; cat seed; test ! -e /tmp/mark; echo x > /tmp/mark; exit 3`
	first := w.run(smallPolicy(""), work)
	if warm, _ := first.sandbox(t); warm || first.code != 3 {
		t.Fatalf("the first run: warm %t, exit %d\n%s", warm, first.code, first.stderr)
	}
	names := map[string]bool{}
	for range 2 {
		w.await(1)
		r := w.run(smallPolicy(""), work)
		warm, name := r.sandbox(t)
		if !warm || r.code != 3 || r.outcome.State != contract.StateFailed || r.outcome.Patch.Files != 1 || !strings.Contains(r.stderr, "1\n") {
			t.Errorf("warm %t, exit %d, %s, %d files changed\n%s", warm, r.code, r.outcome.State, r.outcome.Patch.Files, r.stderr)
		}
		if names[name] {
			t.Errorf("sandbox %s was used twice", name)
		}
		names[name] = true
		if v := c.exec("verify", r.outcome.Evidence); v.code != 0 {
			t.Errorf("verify: %d\n%s%s", v.code, v.stdout, v.stderr)
		}
	}
	// Another create-time setting: the sandbox that waits will not do.
	w.await(1)
	other := w.run(strings.Replace(smallPolicy(""), "pids: 64", "pids: 65", 1), work)
	if warm, _ := other.sandbox(t); warm || other.code != 3 {
		t.Errorf("another shape: warm %t, exit %d\n%s", warm, other.code, other.stderr)
	}
	w.leavesNothing()
}

// A sandbox that died while it waited costs nothing but a cold start, and one
// whose supervising process died leaves nothing that the next run does not
// remove.
func TestPoolLosesSandboxes(t *testing.T) {
	needDocker(t)
	c := newCheckout(t, nil)
	w := newWarmPool(t, c, 1024)
	w.run(smallPolicy(""), "true")
	w.await(1)
	if _, err := dockerOutput("kill", container(t)); err != nil {
		t.Fatal(err)
	}
	w.await(0) // noticed, and
	w.await(1) // made anew
	name, err := dockerOutput("inspect", "--format", `{{index .Config.Labels "countersign.sandbox"}}`, container(t))
	if err != nil {
		t.Fatal(err)
	}
	supervisor := supervisorOf(t, strings.TrimSpace(name))
	if err := syscall.Kill(supervisor, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	w.await(0)
	w.await(1)
	if r := w.run(smallPolicy(""), "echo fine"); r.code != 0 {
		t.Errorf("exit %d\n%s", r.code, r.stderr)
	}
	w.leavesNothing()
}

// A supervising process that dies after it took an order loses the run, which
// is not repeated.
func TestPoolNeverRepeats(t *testing.T) {
	needDocker(t)
	c := newCheckout(t, nil)
	w := newWarmPool(t, c, 1024)
	w.failAt = "adopt"
	w.Want(runner.WarmOrder{Shape: shapeOf(t, c)})
	w.await(1)
	w.failAt = ""
	r := w.run(smallPolicy(""), "true")
	if r.code != contract.ExitFailClosed || !strings.HasPrefix(r.outcome.Reason, runner.ReasonLost) {
		t.Errorf("exit %d, %s\n%s", r.code, r.outcome.Reason, r.stderr)
	}
	w.leavesNothing()
}

// The pool holds no more memory than it may: the shape named last is kept.
func TestPoolMemory(t *testing.T) {
	needDocker(t)
	c := newCheckout(t, nil)
	w := newWarmPool(t, c, 600) // a shape of smallPolicy has 512 MiB
	w.run(smallPolicy(""), "true")
	w.await(1)
	before := container(t)
	w.run(strings.Replace(smallPolicy(""), "pids: 64", "pids: 65", 1), "true")
	w.await(0)
	w.await(1)
	if after := container(t); after == before || strings.Contains(after, "\n") {
		t.Errorf("of two shapes with room for one, %q waits where %q did", after, before)
	}
}
