package shim_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/countersign-dev/countersign/runner/shim/protocol"
)

// patience ends a test that hangs; nothing here is expected to take as long.
const patience = time.Minute

// need stops a test for which the machine lacks something, as a failure where
// the whole suite is demanded.
func need(t *testing.T, ok bool, what string) {
	t.Helper()
	switch {
	case ok:
	case os.Getenv("COUNTERSIGN_TEST_REQUIRE_DOCKER") == "1":
		t.Fatalf("this test needs %s, and COUNTERSIGN_TEST_REQUIRE_DOCKER=1 demands it", what)
	default:
		t.Skipf("needs %s", what)
	}
}

// binary builds the real shim, once, as the Makefile does.
func binary(t *testing.T) string {
	t.Helper()
	path, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "countersign-shim-")
	if err != nil {
		return "", err
	}
	buildDir = dir
	path := filepath.Join(dir, "shim")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, "./countersign-shim")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", errors.New(string(out))
	}
	return path, os.Chmod(dir, 0o755)
})

var buildDir string

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == loopbackUp {
		fmt.Fprintln(os.Stderr, execWithLoopback(os.Args[2:]))
		os.Exit(1)
	}
	code := m.Run()
	if buildDir != "" {
		os.RemoveAll(buildDir)
	}
	os.Exit(code)
}

// loopbackUp as its first argument has the test's own binary bring the loopback
// of its network name space up, and then execute the rest.
const loopbackUp = "loopback-up"

func execWithLoopback(argv []string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo); err != nil {
		return err
	}
	return syscall.Exec(argv[0], argv, os.Environ())
}

// host is the supervisor's side of one shim that runs as PID 1 of a PID name
// space of its own.
type host struct {
	t      *testing.T
	conn   *protocol.Conn
	cmd    *exec.Cmd
	stderr bytes.Buffer
	waited bool
}

// start runs the shim with a verb and takes its Hello. Words of before are put
// in front of the command.
func start(t *testing.T, verb string, before ...string) *host {
	t.Helper()
	return startWith(t, before, verb)
}

// startWith puts words behind the verb too.
func startWith(t *testing.T, before []string, verb string, behind ...string) *host {
	t.Helper()
	need(t, os.Geteuid() == 0, "root, for a PID name space")
	unshare, err := exec.LookPath("unshare")
	need(t, err == nil, "unshare, from util-linux")
	shim := binary(t)

	dir, err := os.MkdirTemp("", "cs-shim") // not t.TempDir: a socket's path has 108 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "c.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	argv := slices.Concat(before, []string{unshare, "--pid", "--mount-proc", "--fork", "--kill-child", shim, verb, "--control", socket}, behind)
	h := &host{t: t, cmd: exec.Command(argv[0], argv[1:]...)}
	h.cmd.Env = []string{"PATH=/nowhere", "FROM_ENGINE=1"}
	h.cmd.Stderr = &h.stderr
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !h.waited {
			h.cmd.Process.Kill() // --kill-child takes PID 1 along
			h.cmd.Wait()
		}
		if t.Failed() {
			t.Logf("the shim's log: %s", h.stderr.String())
		}
	})
	l.(*net.UnixListener).SetDeadline(time.Now().Add(patience))
	raw, err := l.Accept()
	if err != nil {
		t.Fatalf("the shim did not dial: %v", err)
	}
	h.conn = protocol.NewConn(raw)
	t.Cleanup(func() { h.conn.Close() })
	h.conn.SetDeadline(time.Now().Add(patience))
	var hello protocol.Hello
	h.expect(protocol.KindHello, &hello)
	if hello.PID != 1 || hello.Version != protocol.Version {
		t.Fatalf("hello says %+v", hello)
	}
	return h
}

func (h *host) send(kind protocol.Kind, v any) {
	h.t.Helper()
	if err := h.conn.Send(kind, v); err != nil {
		h.t.Fatalf("sending %s: %v", kind, err)
	}
}

func (h *host) expect(kind protocol.Kind, v any) {
	h.t.Helper()
	if err := h.conn.Expect(kind, v); err != nil {
		h.t.Fatalf("expecting %s: %v", kind, err)
	}
}

// threads counts the tasks of PID 1, the only child of unshare.
func (h *host) threads() int {
	h.t.Helper()
	pid := h.cmd.Process.Pid
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	need(h.t, err == nil, "the kernel's lists of children")
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%s/task", strings.TrimSpace(string(children))))
	if err != nil {
		h.t.Fatal(err)
	}
	return len(tasks)
}

// job is one with a shell's environment and no other.
func job(argv ...string) protocol.Job {
	return protocol.Job{
		Argv: argv,
		Env:  []string{"PATH=/usr/local/bin:/usr/bin:/bin"},
		Cwd:  "/",
		Stop: protocol.StopRule{TimeoutSec: 50, GraceSec: 20},
	}
}

func sh(script string) protocol.Job { return job("/bin/sh", "-c", script) }

// result is what came of a job.
type result struct {
	protocol.Exited
	started bool
	out     [3]strings.Builder
}

func (r *result) stdout() string { return r.out[protocol.Stdout].String() }
func (r *result) stderr() string { return r.out[protocol.Stderr].String() }

// run starts a job and takes its output until it has exited. On the first
// output that holds a word of on, that word's function is called.
func (h *host) run(j protocol.Job, on map[string]func()) *result {
	h.t.Helper()
	h.send(protocol.KindStart, j)
	return h.finish(on)
}

func (h *host) finish(on map[string]func()) *result {
	h.t.Helper()
	r := &result{}
	for {
		kind, payload, err := h.conn.Receive()
		if err != nil {
			h.t.Fatalf("while the job ran: %v; stderr %q", err, r.stderr())
		}
		switch kind {
		case protocol.KindStarted:
			if r.started || r.stdout()+r.stderr() != "" {
				h.t.Fatal("started came twice or after output")
			}
			r.started = true
		case protocol.KindOutput:
			stream, data, err := protocol.ParseOutput(payload)
			if err != nil {
				h.t.Fatal(err)
			}
			r.out[stream].Write(data)
			for word, do := range on {
				if strings.Contains(r.stdout(), word) {
					delete(on, word)
					do()
				}
			}
		case protocol.KindExited:
			if err := protocol.Decode(payload, &r.Exited); err != nil {
				h.t.Fatal(err)
			}
			return r
		default:
			h.t.Fatalf("%s came while the job ran: %q", kind, payload)
		}
	}
}

// wait returns the status that PID 1 exited with, which unshare passes on.
func (h *host) wait() int {
	h.t.Helper()
	h.waited = true
	h.cmd.Wait()
	return h.cmd.ProcessState.ExitCode()
}

// bye ends the shim, which must exit with code.
func (h *host) bye(code int) {
	h.t.Helper()
	h.send(protocol.KindBye, nil)
	if got := h.wait(); got != code {
		h.t.Errorf("the shim exited with %d after bye, want %d", got, code)
	}
}

// alone checks that PID 1 and the probe that looks are all there is.
func (h *host) alone() {
	h.t.Helper()
	h.send(protocol.KindProbe, protocol.Probe{Stage: "after"})
	var got protocol.Probed
	h.expect(protocol.KindProbed, &got)
	if !slices.Equal(got.Proc, []string{"shim", "shim"}) {
		h.t.Errorf("processes after the end: %q, want the shim and its probe", got.Proc)
	}
}
