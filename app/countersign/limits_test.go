package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/policy/contract"
)

const forkBomb = `python3 -c '
import os, signal
while True:
    if os.fork() == 0: signal.pause()
'`

// Every limit is hit, and named where it ended the workload; a bystander, in a
// sandbox of its own meanwhile, still gets all that its contract gives, and
// nothing is left.
func TestLimits(t *testing.T) {
	needDocker(t)
	next := startBystander(t)
	c := newCheckout(t, map[string]string{"a": "a\n"})
	for _, tt := range []struct {
		name, policy, script string
		exit                 int
		reason               string
	}{
		{"workspace bytes", limits("disk=8MiB"), "head -c 9000000 /dev/zero > big", 1, "disk: the workspace of 8 MiB and 4000 files was full"},
		{"workspace inodes", limits("files=200"), "i=0; while :; do i=$((i+1)); : > f$i || exit 4; done", 2, "disk: the workspace of 64 MiB and 200 files was full"},
		{"temporary bytes", limits("tmp=4MiB"), "head -c 5000000 /dev/zero > /tmp/big", 1, "disk: /tmp was full"},
		{"temporary inodes", limits("tmp=1MiB"), "i=0; while :; do i=$((i+1)); : > /tmp/f$i || exit 4; done", 2, "disk: /tmp was full"},
		{"home", limits("home=4MiB"), "head -c 5000000 /dev/zero > ~/big", 1, "disk: /home/agent was full"},
		{"shared memory", limits("shm=4MiB"), "head -c 5000000 /dev/zero > /dev/shm/big", 1, "disk: /dev/shm was full"},
		{"full and content with it", limits("tmp=4MiB"), "head -c 5000000 /dev/zero > /tmp/big; exit 0", 0, "exit: "},
		{"processes", limits("pids=40"), forkBomb, 1, "pids: the limit of 40"},
		{"memory of the workload", limits("memory=128MiB"), "exec python3 -c 'x = bytearray(1 << 30)'", 137, "memory: the memory limit of 128 MiB"},
		{"memory of a child", limits("memory=128MiB"), "python3 -c 'x = bytearray(1 << 30)'; exit 5", 5, "memory: the memory limit of 128 MiB"},
		{"open files", "", "python3 -c 'f = [open(\"a\") for _ in range(9000)]'", 1, "exit: "},
		{"file size", limits("disk=8MiB home=1MiB tmp=1MiB shm=1MiB"), "exec python3 -c 'import signal; signal.signal(signal.SIGXFSZ, signal.SIG_DFL); open(\"a\", \"w\").truncate(9 << 20)'", 153, "file_size: "},
		{"daemons that ignore SIGTERM", "", "trap '' TERM; for i in 1 2 3; do setsid sh -c 'setsid sleep 1000 & sleep 1000' & done; sleep 0; exit 6", 6, "exit: "},
		{"zombies", "", "python3 -c '\nimport os\nfor i in range(30):\n    if os.fork() == 0: os._exit(0)\nos._exit(7)'", 7, "exit: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			here := *c
			here.t = t
			r := here.sh(tt.policy, tt.script)
			if r.code != tt.exit || !strings.HasPrefix(r.outcome.Reason, tt.reason) {
				t.Errorf("exit %d (%s), want %d and %q\n%s", r.code, r.outcome.Reason, tt.exit, tt.reason, r.stderr)
			}
			if v := here.exec("verify", r.outcome.Evidence); v.code != 0 {
				t.Errorf("verify: %s", v.stdout)
			}
		})
	}
	next.finish(t)
	if left := leftovers(t); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// The limits that hold under gVisor as well; what is weaker there is in
// TestHardenedRefusals.
func TestLimitsUnderGVisor(t *testing.T) {
	needDocker(t)
	if !slices.Contains(isolations(t), "runsc") {
		return
	}
	c := newCheckout(t, map[string]string{"a": "a\n"})
	for _, tt := range []struct {
		name, change, script string
		exit                 int
		reason               string
	}{
		{"workspace bytes", "disk=8MiB", "head -c 9000000 /dev/zero > big", 1, "disk: the workspace of 8 MiB and 4000 files was full"},
		{"workspace inodes", "files=200", "i=0; while :; do i=$((i+1)); : > f$i || exit 4; done", 2, "disk: the workspace of 64 MiB and 200 files was full"},
		{"temporary bytes", "tmp=4MiB", "head -c 5000000 /dev/zero > /tmp/big", 1, "disk: /tmp was full"},
		{"shared memory", "shm=4MiB", "head -c 5000000 /dev/zero > /dev/shm/big", 1, "disk: /dev/shm was full"},
		{"memory", "memory=256MiB", "exec python3 -c 'x = bytearray(1 << 30)'", 137, "memory: the memory limit of 256 MiB"},
		{"open files", "", "python3 -c 'f = [open(\"a\") for _ in range(9000)]'", 1, "exit: "},
		{"file size", "disk=8MiB home=1MiB tmp=1MiB shm=1MiB", "python3 -c 'open(\"a\", \"w\").truncate(9 << 20)'", 1, "exit: "},
		{"wall clock and daemons", "timeout=2s", "trap '' TERM; setsid sh -c 'trap \"\" TERM; sleep 1000' & while :; do sleep 1000; done", 124, "timeout: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			here := *c
			here.t = t
			r := here.sh(isolated("runsc", tt.change), tt.script)
			if r.code != tt.exit || !strings.HasPrefix(r.outcome.Reason, tt.reason) {
				t.Errorf("exit %d (%s), want %d and %q\n%s", r.code, r.outcome.Reason, tt.exit, tt.reason, r.stderr)
			}
			if left := leftovers(t); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// A memory death of a child is reported also when the workload goes on and
// succeeds: by PID 1, which lives.
func TestMemoryOfAChild(t *testing.T) {
	needDocker(t)
	c := newCheckout(t, map[string]string{"a": "a\n"})
	r := c.sh(limits("memory=128MiB"), "python3 -c 'x = bytearray(1 << 30)'; echo on > a; exit 0")
	if r.code != 0 || !r.outcome.OOM || r.outcome.Patch.Files != 1 {
		t.Errorf("exit %d, out of memory %t, %d files: %s", r.code, r.outcome.OOM, r.outcome.Patch.Files, r.outcome.Reason)
	}
}

// A workload that takes itself for as dear as PID 1 and fills its memory with
// files has the kernel kill PID 1, the largest process. The engine's record says
// so, and the tree is still captured.
func TestMemoryOfInit(t *testing.T) {
	needDocker(t)
	for _, transport := range transports() {
		c := newCheckout(t, map[string]string{"a": "a\n"})
		c.env = append(c.env, "COUNTERSIGN_TRANSPORT="+transport)
		r := c.sh(limits("memory=64MiB disk=512MiB"), "echo changed > a; echo 500 > /proc/$$/oom_score_adj; exec cat /dev/zero > big")
		if r.code != 137 || r.outcome.State != contract.StateFailed || !r.outcome.OOM || !strings.HasPrefix(r.outcome.Reason, "memory: the memory limit of 64 MiB") {
			t.Errorf("%s: exit %d, %s: %s\n%s", transport, r.code, r.outcome.State, r.outcome.Reason, r.stderr)
		}
		if ledger := r.file(t, "ledger.jsonl"); !strings.Contains(ledger, "the sandbox broke off") || strings.Contains(ledger, `"workload.exited"`) {
			t.Errorf("%s: PID 1 lived: the test tests nothing\n%s", transport, ledger)
		}
		if patch := r.file(t, "changes.patch"); !strings.Contains(patch, "+changed") {
			t.Errorf("%s: the patch lacks what was changed:\n%.500s", transport, patch)
		}
		if v := c.exec("verify", r.outcome.Evidence); v.code != 0 {
			t.Errorf("%s: verify: %s", transport, v.stdout)
		}
	}
	if left := leftovers(t); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// Memory that files keep full after the workload leaves none for the checks
// that follow it. A workload that ended well does not pass then; one that failed
// has failed. Which process the kernel ends for the checks' sake is its choice:
// when it is PID 1, the sandbox has ended with 137.
func TestMemoryKeptFull(t *testing.T) {
	needDocker(t)
	c := newCheckout(t, map[string]string{"a": "a\n"})
	for _, tt := range []struct {
		status string
		exit   int
		state  contract.State
		reason string
	}{
		{"0", 125, contract.StateFailClosed, "lost: the memory limit of 64 MiB was reached, and probing the sandbox"},
		{"3", 3, contract.StateFailed, "memory: the memory limit of 64 MiB was reached"},
	} {
		r := c.sh(limits("memory=64MiB disk=512MiB"), "echo changed > a; cat /dev/zero > big; exit "+tt.status)
		told := r.code == tt.exit && r.outcome.State == tt.state && strings.HasPrefix(r.outcome.Reason, tt.reason)
		fell := r.code == 137 && r.outcome.State == contract.StateFailed && strings.HasSuffix(r.outcome.Reason, "64 MiB was reached, and the sandbox ended with 137")
		if !told && !fell || !r.outcome.OOM || r.outcome.Patch.Files != 2 {
			t.Errorf("exit %d, %s, %d files: %s\n%s", r.code, r.outcome.State, r.outcome.Patch.Files, r.outcome.Reason, r.stderr)
		}
		if v := c.exec("verify", r.outcome.Evidence); v.code != 0 {
			t.Errorf("verify: %s", v.stdout)
		}
	}
}

// A processor's share is enforced by the kernel: who wants more is throttled.
func TestProcessorShare(t *testing.T) {
	needDocker(t)
	c := newCheckout(t, map[string]string{"a": "a\n"})
	r := c.sh(limits("cpu=0.1"), `python3 -c '
import glob, sys
stat = (glob.glob("/sys/fs/cgroup/cpu.stat") + glob.glob("/sys/fs/cgroup/cpu*/cpu.stat"))[0]
while True:
    for i in range(1 << 20): pass
    if dict(l.split() for l in open(stat))["nr_throttled"] != "0": sys.exit(0)
'`)
	if r.code != 0 {
		t.Errorf("exit %d: %s\n%s", r.code, r.outcome.Reason, r.stderr)
	}
}

// A gigabyte of output passes through a bounded log: no file grows with it, in
// the evidence, in the state directory, or at the engine.
func TestLogFlood(t *testing.T) {
	needDocker(t)
	c := newCheckout(t, map[string]string{"a": "a\n"})
	cmd := c.command(append(append([]string{"run"}, policyFile(t, limits("log=1MiB"))...), "--", "/bin/sh", "-c", "yes 0123456789abcde | head -c 1073741824")...)
	live := &countingWriter{}
	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = live, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	if live.n != 1<<30 {
		t.Errorf("%d bytes were seen live", live.n)
	}
	if live.most > 8<<20 {
		t.Errorf("%d bytes were on disk for the run meanwhile", live.most)
	}
	if evidence := usage(t, filepath.Join(c.dir, ".countersign")); evidence > 2<<20 {
		t.Errorf("the evidence has %d bytes", evidence)
	}
	if !strings.Contains(stderr.String(), "1072693248 bytes of output are not in it") {
		t.Errorf("it is not said how much is missing:\n%s", stderr.String())
	}
}

// countingWriter counts, and looks now and then at what lies on disk for the
// containers of this test.
type countingWriter struct{ n, looked, most int64 }

func (w *countingWriter) Write(p []byte) (int, error) {
	w.n += int64(len(p))
	if w.n-w.looked > 256<<20 {
		w.looked = w.n
		ids, _ := dockerOutput("ps", "-q", "--no-trunc", "--filter", "label=countersign.managed")
		for id := range strings.FieldsSeq(ids) {
			dir, _ := dockerOutput("inspect", "--format", "{{.LogPath}}", id)
			if info, err := os.Stat(strings.TrimSpace(dir)); err == nil {
				w.most = max(w.most, info.Size())
			}
			filepath.WalkDir("/var/lib/docker/containers/"+id, func(_ string, d os.DirEntry, err error) error {
				if err == nil && d.Type().IsRegular() {
					if info, err := d.Info(); err == nil {
						w.most = max(w.most, info.Size())
					}
				}
				return nil
			})
		}
	}
	return len(p), nil
}

func usage(t *testing.T, dir string) (n int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			n += info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// bystander is a run beside others that uses all that its contract gives it,
// round after round, until it is ended, and says each round.
type bystander struct {
	cmd    *exec.Cmd
	rounds chan struct{} // one for each, closed at the end
	stdout bytes.Buffer
	stderr bytes.Buffer // may be read once rounds is closed
}

const bystanderProgram = `
import os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
while True:
    for root in ("/workspace", "/tmp", "/home/agent", "/dev/shm"):
        with open(root + "/big", "wb") as f: f.write(b"x" * (8 << 20))
        os.remove(root + "/big")
    held = bytearray(100 << 20)
    files = [open("/workspace/a") for _ in range(4000)]
    kids = []
    for _ in range(40):
        kid = os.fork()
        if kid == 0: signal.pause()
        kids.append(kid)
    for kid in kids: os.kill(kid, 9); os.waitpid(kid, 0)
    del held, files
    print("round", flush=True)
`

func startBystander(t *testing.T) *bystander {
	t.Helper()
	c := newCheckout(t, map[string]string{"a": "a\n"})
	b := &bystander{rounds: make(chan struct{}, 1<<20)}
	b.cmd = c.command(append(append([]string{"run", "--json"}, policyFile(t, limits("timeout=300s"))...), "--", "python3", "-c", bystanderProgram)...)
	b.cmd.Stdout = &b.stdout
	stderr, err := b.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := b.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.cmd.Process.Kill() })
	go func() {
		defer close(b.rounds)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			if lines.Text() == "round" {
				b.rounds <- struct{}{}
			}
			fmt.Fprintln(&b.stderr, lines.Text())
		}
	}()
	<-b.rounds
	return b
}

// finish wants one whole round after all that happened, and ends it.
func (b *bystander) finish(t *testing.T) {
	t.Helper()
	for range len(b.rounds) + 2 { // the one that goes on, and a whole one
		if _, ok := <-b.rounds; !ok {
			break
		}
	}
	b.cmd.Process.Signal(os.Interrupt)
	for range b.rounds {
	}
	b.cmd.Wait()
	var out contract.Outcome
	if err := json.Unmarshal(b.stdout.Bytes(), &out); err != nil {
		t.Fatalf("the bystander: %v: %q\n%s", err, b.stdout.String(), b.stderr.String())
	}
	if out.State != contract.StateCancelled || out.WorkloadExit == nil || *out.WorkloadExit != 0 || out.OOM {
		t.Errorf("the bystander came to harm: %+v\n%s", out, b.stderr.String())
	}
}
