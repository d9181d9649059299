package shim_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/runner/shim/protocol"
)

func TestExitStatus(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return p
	}
	at := func(j protocol.Job, cwd string, env ...string) protocol.Job {
		j.Cwd = cwd
		if env != nil {
			j.Env = env
		}
		return j
	}
	script := write("script", "#!/bin/sh\nexit 9\n", 0o755)
	for name, c := range map[string]struct {
		job        protocol.Job
		code       int
		signal     int
		notStarted string
	}{
		"success":                {sh("exit 0"), 0, 0, ""},
		"failure":                {sh("exit 3"), 3, 0, ""},
		"its own 125":            {sh("exit 125"), 125, 0, ""},
		"signal":                 {sh("kill -KILL $$"), 137, 9, ""},
		"abort":                  {sh("kill -ABRT $$"), 134, 6, ""},
		"looked up in PATH":      {at(job("script"), "/", "PATH=/nowhere:"+dir), 9, 0, ""},
		"relative to cwd":        {at(job("./script"), dir), 9, 0, ""},
		"absolute":               {job(script), 9, 0, ""},
		"missing":                {job("no-such-program"), 127, 0, "in no directory of PATH"},
		"missing path":           {job("/no/such/program"), 127, 0, "does not exist"},
		"missing interpreter":    {job(write("bad", "#!/no/such/interpreter\n", 0o755)), 127, 0, "interpreter"},
		"empty PATH entry":       {at(job("script"), dir, "PATH=:relative"), 127, 0, "in no directory of PATH"},
		"no PATH":                {at(job("script"), dir, "HOME=/"), 127, 0, "sets no PATH"},
		"not executable":         {job(write("plain", "x", 0o644)), 126, 0, "not executable"},
		"not executable in PATH": {at(job("plain"), "/", "PATH="+dir), 126, 0, "not executable"},
		"directory":              {job(dir), 126, 0, "is a directory"},
		"device":                 {job("/dev/null"), 126, 0, "not a regular file"},
		"no format":              {job(write("text", "echo hi\n", 0o755)), 126, 0, "#! line"},
		"missing cwd":            {at(sh("true"), "/no/such/directory"), 125, 0, "working directory"},
		"bad job":                {at(sh("true"), "relative"), 125, 0, "not an absolute path"},
	} {
		t.Run(name, func(t *testing.T) {
			h := start(t, "init")
			r := h.run(c.job, nil)
			if r.Code != c.code || r.Signal != c.signal || !strings.Contains(r.NotStarted, c.notStarted) || (c.notStarted == "") != (r.NotStarted == "") {
				t.Errorf("exited %+v, want code %d, signal %d, not started %q", r.Exited, c.code, c.signal, c.notStarted)
			}
			if r.started != (c.notStarted == "") {
				t.Errorf("started: %v", r.started)
			}
			if r.TimedOut || r.Killed != 0 {
				t.Errorf("timed out %v, killed %d", r.TimedOut, r.Killed)
			}
			h.bye(c.code)
		})
	}
}

// What a workload finds is its job's and nothing of the shim's or the engine's.
func TestWhatAWorkloadGets(t *testing.T) {
	h := start(t, "init")
	dir := t.TempDir()
	j := sh(`echo "env: $(/usr/bin/env | grep -v '^_=' | sort | tr '\n' ' ')"
echo "cwd: $(/bin/pwd)"
echo "stdin: $(readlink /proc/$$/fd/0)"
echo "umask: $(umask)"
echo "oom: $(cat /proc/$$/oom_score_adj)"
echo "init oom: $(cat /proc/1/oom_score_adj)"
set -- $(cat /proc/$$/stat); echo "session: $(( $6 == $$ )) group: $(( $5 == $$ )) tty: $7"
ls -x -w 80 /proc/$$/fd
grep -E '^Sig(Ign|Blk)' /proc/self/status
read line && echo "input: $line"
echo to stderr >&2`)
	j.Cwd = dir
	j.Env = []string{"PATH=/usr/bin:/bin", "CI=1", "EMPTY=", "LINES=a b"}
	r := h.run(j, nil)
	for _, want := range []string{
		"env: CI=1 EMPTY= LINES=a b PATH=/usr/bin:/bin PWD=" + dir + " \n",
		"cwd: " + dir + "\n",
		"stdin: /dev/null\n",
		"umask: 0022\n",
		"oom: 1000\n",
		"init oom: 0\n",
		"session: 1 group: 1 tty: 0\n",
		"0  1  2\n",
		"SigBlk:\t0000000000000000\n",
		"SigIgn:\t0000000000000000\n",
	} {
		if !strings.Contains(r.stdout(), want) {
			t.Errorf("want %q", want)
		}
	}
	if r.stderr() != "to stderr\n" || strings.Contains(r.stdout(), "input:") {
		t.Errorf("stderr is %q", r.stderr())
	}
	if t.Failed() {
		t.Logf("stdout:\n%s", r.stdout())
	}
	h.bye(0)
}

// Everything that a workload leaves is dead when it is reported.
func TestNothingOutlivesAWorkload(t *testing.T) {
	// A daemon says that it is up by opening $F, on which the main one waits.
	const deaf = `sh -c "trap '' TERM HUP INT; : >$F; while :; do sleep 1000; done"`
	for name, c := range map[string]struct {
		script string
		grace  int64
		killed int // at least
	}{
		"background child": {`sleep 1000 & exit 4`, 20, 1},
		"own session":      {`setsid sh -c ': >$F; sleep 1000' & : <$F; exit 4`, 20, 1},
		"double fork":      {`(setsid sh -c 'sleep 1000 & sleep 1000 & : >$F' &) ; : <$F; exit 4`, 20, 2},
		"ignores TERM":     {`setsid ` + deaf + ` & : <$F; exit 4`, 1, 1},
		"stopped":          {`sh -c ': >$F; kill -STOP $$; sleep 1000' & : <$F; exit 4`, 20, 1},
		"closed output":    {`setsid sh -c ': >$F; sleep 1000' >/dev/null 2>&1 & : <$F; exit 4`, 20, 1},
		"zombies":          {`i=0; while [ $i -lt 50 ]; do (sh -c 'exit 0' &); i=$((i+1)); done; exit 4`, 20, 0},
		"no grace":         {`setsid ` + deaf + ` & : <$F; exit 4`, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			h := start(t, "init")
			j := sh("mkfifo $F; " + c.script)
			j.Env = append(j.Env, "F="+filepath.Join(t.TempDir(), "fifo"))
			j.Stop.GraceSec = c.grace
			r := h.run(j, nil)
			if r.Code != 4 || r.Killed < c.killed || r.TimedOut {
				t.Errorf("exited %+v, want code 4 and %d killed", r.Exited, c.killed)
			}
			h.alone()
			h.bye(4)
		})
	}
}

// A descriptor that was passed out of the sandbox keeps the output's pipe open
// for as long as the receiver likes; the end is seen anyway.
func TestOutputPassedAway(t *testing.T) {
	python := "/usr/bin/python3"
	if _, err := os.Stat(python); err != nil {
		need(t, false, python)
	}
	h := start(t, "init")
	outside := filepath.Join(t.TempDir(), "outside.sock")
	l, err := net.Listen("unix", outside) // accepts by its backlog and never reads
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r := h.run(job(python, "-c", `
import socket, array, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [1]))])
print("passed" * 5000, flush=True)
`, outside), nil)
	if r.Code != 0 || r.stdout() != strings.Repeat("passed", 5000)+"\n" {
		t.Errorf("%+v, %d bytes of stdout, stderr %q", r.Exited, len(r.stdout()), r.stderr())
	}
	h.bye(0)
}

func TestStops(t *testing.T) {
	const traps = `trap 'echo got TERM; exit 5' TERM; echo ready; while :; do sleep 0.05; done`
	const deaf = `trap '' TERM; echo ready; while :; do sleep 0.05; done`
	stop := func(graces ...int64) func(*host) func() {
		return func(h *host) func() {
			return func() {
				for _, g := range graces {
					h.send(protocol.KindStop, protocol.Stop{GraceSec: g})
				}
			}
		}
	}
	for name, c := range map[string]struct {
		script string
		do     func(*host) func()
		code   int
	}{
		"asked":                 {traps, stop(20), 5},
		"killed after grace":    {deaf, stop(1), 137},
		"killed at once":        {deaf, stop(0), 137},
		"second shortens":       {deaf, stop(50, 0), 137},
		"second does not widen": {deaf, stop(1, 50), 137},
		"many":                  {deaf, stop(50, 49, 48, 47, 46, 45, 44, 43, 42, 0, 0), 137},
	} {
		t.Run(name, func(t *testing.T) {
			h := start(t, "init")
			r := h.run(sh(c.script), map[string]func(){"ready": c.do(h)})
			if r.Code != c.code || r.TimedOut {
				t.Errorf("exited %+v, want code %d", r.Exited, c.code)
			}
			h.send(protocol.KindStop, protocol.Stop{}) // one that crossed the end does nothing
			h.alone()
			h.bye(c.code)
		})
	}
}

func TestOwnDeadline(t *testing.T) {
	h := start(t, "init")
	j := sh(`trap '' TERM; setsid sh -c "trap '' TERM; while :; do sleep 1000; done" & while :; do sleep 1000; done`)
	j.Stop = protocol.StopRule{TimeoutSec: 1, GraceSec: 1}
	r := h.run(j, nil)
	if !r.TimedOut || r.Code != 137 {
		t.Errorf("exited %+v, want timed out and 137", r.Exited)
	}
	h.alone()
	h.bye(137)
}

// No signal from inside ends PID 1; SIGTERM and SIGINT stop the workload.
func TestSignalsToInit(t *testing.T) {
	h := start(t, "init")
	r := h.run(sh(`for s in $(seq 1 64); do
	case $s in 2|15|9|19|32|33) continue ;; esac
	kill -$s 1 || echo "signal $s: refused"
done
kill -KILL 1; kill -STOP 1
echo alive; trap 'exit 6' TERM; kill -TERM 1; while :; do sleep 0.05; done`), nil)
	if r.Code != 6 || r.stdout() != "alive\n" {
		t.Errorf("exited %+v, stdout %q, stderr %q", r.Exited, r.stdout(), r.stderr())
	}
	h.alone()
	h.bye(6)
}

func TestLargeOutput(t *testing.T) {
	h := start(t, "init")
	r := h.run(sh(`head -c 20000000 /dev/zero | tr '\0' x; head -c 3000000 /dev/zero | tr '\0' y >&2; printf end`), nil)
	if len(r.stdout()) != 20000003 || !strings.HasSuffix(r.stdout(), "xend") || len(r.stderr()) != 3000000 {
		t.Errorf("%d and %d bytes arrived", len(r.stdout()), len(r.stderr()))
	}
	h.bye(0)
}

// The connection is the shim's life line.
func TestLostConnection(t *testing.T) {
	t.Run("while a workload runs", func(t *testing.T) {
		h := start(t, "init")
		h.send(protocol.KindStart, sh(`trap '' TERM; echo ready; while :; do sleep 1000; done`))
		h.expect(protocol.KindStarted, nil)
		h.conn.Close()
		if got := h.wait(); got != 125 {
			t.Errorf("exited %d, want 125", got)
		}
	})
	t.Run("before a job", func(t *testing.T) {
		h := start(t, "init")
		h.conn.Close()
		if got := h.wait(); got != 125 {
			t.Errorf("exited %d, want 125", got)
		}
	})
	t.Run("after the end", func(t *testing.T) {
		h := start(t, "init")
		h.run(sh("exit 0"), nil)
		h.conn.Close()
		if got := h.wait(); got != 125 {
			t.Errorf("exited %d, want 125: only bye hands the workload's status on", got)
		}
	})
}

func TestMessagesOutOfOrder(t *testing.T) {
	for name, c := range map[string]struct {
		kind protocol.Kind
		body any
	}{
		"bye":     {protocol.KindBye, nil},
		"capture": {protocol.KindCapture, protocol.Capture{Dir: "/"}},
		"hello":   {protocol.KindHello, protocol.Hello{}},
		"data":    {protocol.KindData, nil},
	} {
		t.Run(name, func(t *testing.T) {
			h := start(t, "init")
			h.send(protocol.KindStart, sh("sleep 1000"))
			h.expect(protocol.KindStarted, nil)
			h.send(c.kind, c.body)
			if got := h.wait(); got != 125 {
				t.Errorf("exited %d, want 125", got)
			}
		})
	}
	t.Run("second job", func(t *testing.T) {
		h := start(t, "init")
		h.run(sh("exit 0"), nil)
		h.send(protocol.KindStart, sh("exit 1"))
		err := h.conn.Expect(protocol.KindStarted, nil)
		if err == nil || !strings.Contains(err.Error(), "one job") {
			t.Errorf("a second job: %v", err)
		}
		h.bye(0)
	})
	t.Run("bye without a job", func(t *testing.T) { start(t, "init").bye(0) })
}

// A fork bomb that holds every task of the sandbox neither starves nor
// outlives the shim.
func TestForkBomb(t *testing.T) {
	group, err := pidsGroup(t, 100)
	need(t, err == nil, fmt.Sprintf("a pids cgroup (%v)", err))
	h := start(t, "init", "/bin/sh", "-c", `echo $$ > "$0/cgroup.procs" && exec "$@"`, group)
	// A dash that cannot fork exits; those that could wait on a FIFO for good.
	j := sh(`mkfifo $F; trap '' TERM; b() { b & b & : <$F; }; b 2>/dev/null & : <$F`)
	j.Env = append(j.Env, "F="+filepath.Join(t.TempDir(), "fifo"))
	j.Stop = protocol.StopRule{TimeoutSec: 2, GraceSec: 1}
	r := h.run(j, nil)
	if !r.TimedOut || r.Killed < 50 {
		t.Errorf("exited %+v, want timed out and the bomb killed", r.Exited)
	}
	if events, err := os.ReadFile(filepath.Join(group, "pids.events")); err != nil || strings.HasPrefix(string(events), "max 0") {
		t.Errorf("the bomb never reached the bound: %q, %v", events, err)
	}
	h.alone()
	h.bye(r.Code)
}

// Once a workload runs the shim needs no new thread, however little room the
// sandbox's bound on tasks leaves.
func TestNoNewThreads(t *testing.T) {
	group, err := pidsGroup(t, 100)
	need(t, err == nil, fmt.Sprintf("a pids cgroup (%v)", err))
	bound := func(n string) func() {
		return func() {
			if err := os.WriteFile(filepath.Join(group, "pids.max"), []byte(n), 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	h := start(t, "init", "/bin/sh", "-c", `echo $$ > "$0/cgroup.procs" && exec "$@"`, group)
	if n := h.threads(); n < 10 { // four or five of Go's own, and the spare ones
		t.Errorf("the shim has only %d threads before a workload runs", n)
	}
	j := sh(`yes >&2 & trap 'echo stopping' TERM; echo ready; while :; do echo xxxxxxxxxxxxxxxxxxxxxxxx; done`)
	j.Stop = protocol.StopRule{TimeoutSec: 40, GraceSec: 1}
	r := h.run(j, map[string]func(){
		"ready": func() {
			bound("1")()
			for range 200 {
				h.send(protocol.KindStop, protocol.Stop{GraceSec: 1})
			}
		},
	})
	if r.Code != 137 {
		t.Errorf("exited %+v", r.Exited)
	}
	if n := h.threads(); n > protocol.ShimPids {
		t.Errorf("the shim had %d threads in the end, want at most %d", n, protocol.ShimPids)
	}
	bound("100")()
	h.alone()
	h.bye(137)
}

// When memory runs out a workload's process dies and the shim reports it.
func TestOutOfMemory(t *testing.T) {
	group, err := newGroup(t, "memory", map[string]string{
		"memory.limit_in_bytes": "67108864", "memory.max": "67108864", "memory.swap.max": "0", "memory.swappiness": "0",
	})
	need(t, err == nil, fmt.Sprintf("a memory cgroup (%v)", err))
	h := start(t, "init", "/bin/sh", "-c", `echo $$ > "$0/cgroup.procs" && exec "$@"`, group)
	r := h.run(sh(`head -c 300000000 /dev/zero | tail -c 300000000 | wc -c; echo on`), nil)
	if r.Code != 0 || r.stdout() != "0\non\n" {
		t.Errorf("a child: exited %+v, stdout %q", r.Exited, r.stdout())
	}
	h.alone()
	h.bye(0)

	h = start(t, "init", "/bin/sh", "-c", `echo $$ > "$0/cgroup.procs" && exec "$@"`, group)
	j := sh(`mkfifo $F; head -c 300000000 /dev/zero >$F & exec tail -c 300000000 $F`)
	j.Env = append(j.Env, "F="+filepath.Join(t.TempDir(), "fifo"))
	r = h.run(j, nil)
	if r.Code != 137 || r.Signal != 9 {
		t.Errorf("the main process: exited %+v", r.Exited)
	}
	h.bye(137)
}

func TestWorkspaceFull(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		full   bool
	}{
		"room left":      {`mount -t tmpfs -o size=64k none $D && echo x >$D/f`, false},
		"no block left":  {`mount -t tmpfs -o size=64k none $D && { head -c 100000 /dev/zero >$D/f; true; }`, true},
		"no inode left":  {`mount -t tmpfs -o nr_inodes=2 none $D && : >$D/f`, true},
		"full and freed": {`mount -t tmpfs -o size=64k none $D && { head -c 100000 /dev/zero >$D/f; : >$D/f; }`, false},
	} {
		t.Run(name, func(t *testing.T) {
			h := start(t, "init") // in a mount name space of its own
			j := sh(c.script)
			j.Cwd = t.TempDir()
			j.Env = append(j.Env, "D="+j.Cwd)
			if r := h.run(j, nil); r.Code != 0 || r.WorkspaceFull != c.full {
				t.Errorf("exited %+v, want full %v; stderr %q", r.Exited, c.full, r.stderr())
			}
			h.bye(0)
		})
	}
}

// newGroup makes a cgroup in either version and sets those of the files that
// the version has; at least one must take its value.
func newGroup(t *testing.T, controller string, files map[string]string) (string, error) {
	last := errors.New("no file could be set")
	for _, root := range []string{"/sys/fs/cgroup/" + controller, "/sys/fs/cgroup"} {
		dir := filepath.Join(root, fmt.Sprintf("countersign-test-%s-%d", controller, os.Getpid()))
		if err := os.Mkdir(dir, 0o755); err != nil {
			last = err
			continue
		}
		t.Cleanup(func() { os.Remove(dir) })
		set := false
		for name, value := range files {
			if f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0); err == nil {
				_, err = f.WriteString(value)
				set = set || err == nil
				f.Close()
			}
		}
		if set {
			return dir, nil
		}
	}
	return "", last
}

func pidsGroup(t *testing.T, limit int) (string, error) {
	return newGroup(t, "pids", map[string]string{"pids.max": fmt.Sprint(limit)})
}
