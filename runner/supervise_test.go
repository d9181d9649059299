package runner

import (
	"bytes"
	"context"
	"crypto/rand"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/policy/ledger"
)

// fakeEngine makes no containers. An error in a field is what that call
// answers; calls lists what was asked.
type fakeEngine struct {
	preflight, image, create, start, remove error
	exit                                    *Exit // the container ends at once, before it greets

	calls []string
}

func (e *fakeEngine) call(name string) { e.calls = append(e.calls, name) }

func (e *fakeEngine) Preflight(context.Context, contract.Isolation) (EngineFacts, error) {
	e.call("preflight")
	return place().Engine, e.preflight
}

func (e *fakeEngine) Image(context.Context, string) (*contract.ImageFact, error) {
	e.call("image")
	if e.image != nil {
		return nil, nil
	}
	fact := place().Image
	return &fact, nil
}

func (e *fakeEngine) Create(context.Context, Spec) (Sandbox, error) {
	e.call("create")
	if e.create != nil {
		return nil, e.create
	}
	return fakeSandbox{e}, nil
}

func (e *fakeEngine) Reap(context.Context, func(Labels) bool) (Reaped, error) {
	e.call("reap")
	return Reaped{}, nil
}

type fakeSandbox struct{ e *fakeEngine }

func (s fakeSandbox) Start(context.Context) (Started, error) {
	s.e.call("start")
	return Started{}, s.e.start
}

func (s fakeSandbox) Wait(ctx context.Context) (Exit, error) {
	if s.e.exit != nil {
		return *s.e.exit, nil
	}
	<-ctx.Done()
	return Exit{}, ctx.Err()
}

func (s fakeSandbox) Kill(context.Context) error { return nil }

func (s fakeSandbox) Remove(context.Context) error {
	s.e.call("remove")
	return s.e.remove
}

// supervised is one run of sample on a fake engine.
type supervised struct {
	engine *fakeEngine
	change func(*contract.Contract)
	now    time.Time
	order  func(*Order)
	deep   bool // the state directory's path is long
}

func (s supervised) run(t *testing.T, ctx context.Context) (Report, string, error) {
	t.Helper()
	repo := t.TempDir()
	state, err := os.MkdirTemp("", "cs") // short: a socket's path is bounded
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(state) })
	if s.deep {
		state = filepath.Join(state, strings.Repeat("d", 100))
	}
	git := func(args ...string) string {
		cmd := exec.Command("git", args...)
		cmd.Dir = repo
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t@example.com", "GIT_COMMITTER_NAME=t", "GIT_COMMITTER_EMAIL=t@example.com")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	git("init", "-q")
	git("commit", "-q", "--allow-empty", "-m", "start")
	c := sample()
	c.Head.SHA = git("rev-parse", "HEAD")
	c.Start.SHA = c.Head.SHA
	if s.change != nil {
		s.change(&c)
	}
	c.Level, _ = contract.LevelOf(c)
	order := Order{Contract: sealed(t, c).Bytes(), Repo: repo, Evidence: filepath.Join(t.TempDir(), "e")}
	if s.order != nil {
		s.order(&order)
	}
	shim, err := staticProgram()
	if err != nil {
		t.Fatal(err)
	}
	now := s.now
	if now.IsZero() {
		now = place().Now
	}
	sup := &Supervisor{Engine: s.engine, StateDir: state, Shim: shim, Now: func() time.Time { return now }, Rand: rand.Reader, Log: slog.New(slog.DiscardHandler)}
	report, err := sup.Supervise(ctx, order)
	left, _ := filepath.Glob(filepath.Join(state, "run_*"))
	if len(left) > 0 {
		t.Errorf("left in the state directory: %v", left)
	}
	return report, order.Evidence, err
}

// staticProgram is something that passes for a shim: a static executable of a
// few bytes, since nothing here starts it. ELF header and one program header
// (elf(5)); no PT_INTERP.
var staticProgram = sync.OnceValues(func() (string, error) {
	var b bytes.Buffer
	err := errors.Join(
		binary.Write(&b, binary.LittleEndian, elf.Header64{
			Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
			Type:  uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT), Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 1,
		}),
		binary.Write(&b, binary.LittleEndian, elf.Prog64{Type: uint32(elf.PT_LOAD)}),
	)
	path := filepath.Join(os.TempDir(), fmt.Sprintf("countersign-test-shim-%d", os.Getpid()))
	return path, errors.Join(err, os.WriteFile(path, b.Bytes(), 0o755))
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := staticProgram(); err == nil {
		os.Remove(path)
	}
	os.Exit(code)
}

// What keeps a run from its sandbox: how it ends, and what the engine was asked
// before and after.
func TestSuperviseWithoutASandbox(t *testing.T) {
	broken := errors.New("broken")
	missing := &Unavailable{What: "no engine here"}
	for _, tt := range []struct {
		name   string
		run    supervised
		state  contract.State
		reason string
		calls  string
	}{
		{"a tool", supervised{change: func(c *contract.Contract) { c.Tools = []contract.Tool{{Name: "shell"}} }}, contract.StateRefused, "refused: ", ""},
		{"a secret that was not handed over", supervised{change: func(c *contract.Contract) {
			c.SecretRefs = []contract.SecretRef{{Name: "key", Ref: "env://KEY", Deliver: contract.DeliverFile}}
		}}, contract.StateFailClosed, "unavailable: the secret key (env://KEY) was not handed over", ""},
		{"contract too old", supervised{now: place().Now.Add(2 * time.Hour)}, contract.StateFailClosed, "unavailable: ", ""},
		{"no engine", supervised{engine: &fakeEngine{preflight: missing}}, contract.StateFailClosed, "unavailable: no engine here", "reap preflight"},
		{"no image", supervised{engine: &fakeEngine{image: broken}}, contract.StateFailClosed, "unavailable: image ", "reap preflight image"},
		{"no such commit", supervised{change: func(c *contract.Contract) { c.Start.SHA = strings.Repeat("e", 40) }}, contract.StateFailClosed, "", "reap"},
		{"create", supervised{engine: &fakeEngine{create: broken}}, contract.StateFailClosed, "internal: broken", "reap preflight image create"},
		{"create, control missing", supervised{engine: &fakeEngine{create: missing}}, contract.StateFailClosed, "unavailable: ", "reap preflight image create"},
		{"start", supervised{engine: &fakeEngine{start: missing}}, contract.StateFailClosed, "unavailable: ", "reap preflight image create start remove"},
		{"start, and cannot be removed", supervised{engine: &fakeEngine{start: missing, remove: broken}}, contract.StateFailClosed, "unavailable: ", "reap preflight image create start remove"},
		{"state directory too deep for a socket", supervised{deep: true}, contract.StateFailClosed, "unavailable: the state directory's path is too long", "reap preflight image"},
		{"volume not reachable", supervised{order: func(o *Order) { o.Transport = TransportDirect }}, contract.StateFailClosed, "unavailable: ", "reap preflight image create start remove"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.run.engine == nil {
				tt.run.engine = &fakeEngine{}
			}
			report, evidence, err := tt.run.run(t, t.Context())
			if err != nil {
				t.Fatal(err)
			}
			out := report.Outcome
			if out.State != tt.state || !strings.HasPrefix(out.Reason, tt.reason) || out.WorkloadExit != nil {
				t.Errorf("%s (%s), workload %v", out.State, out.Reason, out.WorkloadExit)
			}
			if got := strings.Join(tt.run.engine.calls, " "); got != tt.calls {
				t.Errorf("the engine was asked %q, want %q", got, tt.calls)
			}
			if report.Statement == nil {
				t.Fatal("there is nothing to sign")
			}
			if _, err := os.Stat(filepath.Join(evidence, ledger.FileLedger)); err != nil {
				t.Error(err)
			}
		})
	}
}

// A container that ends before its shim greets is not waited for.
func TestSuperviseContainerEndsAtOnce(t *testing.T) {
	e := &fakeEngine{exit: &Exit{Code: 127, Error: "no such file"}}
	report, _, err := supervised{engine: e, order: func(o *Order) { o.Transport = TransportStreamed }}.run(t, t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if r := report.Outcome.Reason; !strings.HasPrefix(r, "unavailable: waiting for the sandbox: the sandbox ended with 127 before it answered: no such file") {
		t.Errorf("%s", r)
	}
}

// A run that is cancelled before there is a sandbox is cancelled, and gone.
func TestSuperviseCancelledBefore(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	e := &fakeEngine{}
	report, _, err := supervised{engine: e}.run(t, ctx)
	if err != nil {
		t.Fatal(err)
	}
	if out := report.Outcome; out.State != contract.StateCancelled || out.ExitCode != contract.ExitCancelled {
		t.Errorf("%s, exit %d (%s)", out.State, out.ExitCode, out.Reason)
	}
	for _, c := range e.calls {
		if c == "create" || c == "start" {
			t.Errorf("a cancelled run asked the engine to %s", c)
		}
	}
}

// Evidence has one place of its own, and no contract runs without it.
func TestSuperviseNeedsItsOwnEvidence(t *testing.T) {
	e := &fakeEngine{}
	_, _, err := supervised{engine: e, order: func(o *Order) {
		if err := os.Mkdir(o.Evidence, 0o700); err != nil {
			t.Fatal(err)
		}
	}}.run(t, t.Context())
	if err == nil || len(e.calls) > 0 {
		t.Errorf("error %v, engine asked %v", err, e.calls)
	}
}

// Bytes that are not exactly a sealed contract's never reach the engine.
func TestSuperviseOpensTheContract(t *testing.T) {
	e := &fakeEngine{}
	_, _, err := supervised{engine: e, order: func(o *Order) { o.Contract = append(o.Contract, '\n') }}.run(t, t.Context())
	if err == nil || len(e.calls) > 0 {
		t.Errorf("error %v, engine asked %v", err, e.calls)
	}
}
