package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/countersign-dev/countersign/policy"
	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/runner/docker"
	"github.com/countersign-dev/countersign/runner/drill"
)

func newDrillCommand() *cobra.Command {
	var isolation string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "drill",
		Short: "Try every control of a sandbox on this machine, with hostile workloads",
		Long: `Drill runs hostile workloads through the same path as run does, on the image of
make sandbox-image, and prints for each control what was tried and what
happened. Everything it makes, a repository and planted secrets among it, is in
a temporary directory and is removed again. What runs reach through their way
out are servers of the drill on loopback: no other network is needed.

Verdicts: "holds"; "refused" (nothing was started, as it must be); "weaker" (less
than under runc, exactly as stated for this isolation); "FAILS".

Exit status: 0 when no control fails; 1 when one does; 125 when no sandbox could
be had to try anything in.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt)
			defer stop()
			report, err := runDrill(ctx, contract.Isolation(isolation), cmd.ErrOrStderr())
			if err != nil {
				return exitStatus{contract.ExitFailClosed, err}
			}
			return tellDrill(report, asJSON, inert(cmd.OutOrStdout()))
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&isolation, "isolation", string(contract.IsolationRunc), "runc or runsc, `NAME` of the OCI runtime")
	fl.BoolVar(&asJSON, "json", false, "print one JSON object on standard output")
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return exitStatus{contract.ExitFailClosed, fmt.Errorf("%v; see countersign drill --help", err)}
	})
	return cmd
}

func tellDrill(report drill.Report, asJSON bool, out io.Writer) error {
	if asJSON {
		data, err := json.Marshal(report)
		if err != nil {
			return exitStatus{contract.ExitFailClosed, err}
		}
		fmt.Fprintf(out, "%s\n", data)
	} else if err := report.Print(out); err != nil {
		return exitStatus{contract.ExitFailClosed, err}
	}
	if !report.OK {
		return exitStatus{code: 1}
	}
	return nil
}

func runDrill(ctx context.Context, isolation contract.Isolation, stderr io.Writer) (report drill.Report, err error) {
	if isolation != contract.IsolationRunc && isolation != contract.IsolationRunsc {
		return report, fmt.Errorf("--isolation is %q: want %s or %s", isolation, contract.IsolationRunc, contract.IsolationRunsc)
	}
	env, err := readEnvironment()
	if err != nil {
		return report, err
	}
	dir, err := os.MkdirTemp("", "countersign-drill-")
	if err != nil {
		return report, fmt.Errorf("making the drill's directory: %v", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s, err := newSealedRuns(env, dir, stderr)
	if err != nil {
		return report, err
	}
	return drill.Run(ctx, drill.Config{
		Sealed: s, Isolation: isolation, Image: policy.BuiltinImage, Dir: filepath.Join(dir, "host"), Rand: rand.Reader, Now: time.Now,
		Progress: func(name string) { fmt.Fprintf(stderr, "countersign: drill: %s\n", name) },
	})
}

// sealedRuns performs a drill's works as a person would: by `countersign run`,
// in a repository, with a key and evidence of the drill's own. Everything it
// makes is below dir.
type sealedRuns struct {
	self   string
	env    environment
	dir    string
	engine *docker.Engine
	stderr io.Writer
	runs   atomic.Int64
}

var _ drill.Sealed = (*sealedRuns)(nil)

func newSealedRuns(env environment, dir string, stderr io.Writer) (*sealedRuns, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %v", err)
	}
	engine, err := docker.New(docker.Config{Host: env.DockerHost, Logger: newLogger(stderr)})
	return &sealedRuns{self: self, env: env, dir: dir, engine: engine, stderr: stderr}, err
}

func (s *sealedRuns) repo() string { return filepath.Join(s.dir, "repository") }

// Commit makes the repository, with what people leave in one beside the commit:
// a remote with a password, hooks that would run here, a file that was deleted.
func (s *sealedRuns) Commit(ctx context.Context, files map[string]string) error {
	for name, text := range files {
		path := filepath.Join(s.repo(), filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o755)); err != nil {
			return fmt.Errorf("making the drill's repository: %v", err)
		}
	}
	for _, args := range [][]string{
		{"init", "--quiet", "--initial-branch=main"},
		{"add", "--all"},
		{"commit", "--quiet", "--message=hostile work"},
		{"remote", "add", "origin", "https://example.invalid/repository.git"},
	} {
		c := exec.CommandContext(ctx, "git", args...)
		c.Dir = s.repo()
		c.Env = append(os.Environ(),
			"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=drill", "GIT_AUTHOR_EMAIL=drill@example.invalid",
			"GIT_COMMITTER_NAME=drill", "GIT_COMMITTER_EMAIL=drill@example.invalid",
		)
		if said, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("making the drill's repository: git %s: %v\n%s", args[0], err, said)
		}
	}
	return nil
}

// Run performs one work.
func (s *sealedRuns) Run(ctx context.Context, w drill.Work) (drill.Result, error) {
	base := filepath.Join(s.dir, fmt.Sprintf("run-%d", s.runs.Add(1)))
	if err := errors.Join(os.MkdirAll(base, 0o755), os.WriteFile(filepath.Join(base, "policy.yml"), []byte(w.Policy), 0o600)); err != nil {
		return drill.Result{}, fmt.Errorf("writing the policy: %v", err)
	}
	host, stop, err := s.engineFor(w, base)
	if err != nil {
		return drill.Result{}, err
	}
	defer stop()
	before, err := digestTree(s.repo())
	if err != nil {
		return drill.Result{}, err
	}
	evidence := filepath.Join(base, "evidence")
	args := append([]string{
		"run", "--json", "--repo", s.repo(), "--policy", filepath.Join(base, "policy.yml"), "--isolation", w.Isolation, "--evidence", evidence, "--resolver", w.Resolver, "--",
	}, w.Argv...)
	c := exec.CommandContext(ctx, s.self, args...)
	c.Env = append(s.environ(host, w.Home), w.HostEnv...)
	// A Ctrl-C at the terminal is for the drill, which hands it on once.
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	r, err := s.watch(ctx, c, w)
	if err != nil {
		return r, err
	}
	if _, err := os.Lstat(evidence); err == nil {
		r.Evidence = evidence
		if r.Verified, err = s.verify(ctx, evidence); err != nil {
			return r, err
		}
	}
	after, err := digestTree(s.repo())
	r.RepoChanged = before != after
	if err != nil {
		return r, err
	}
	r.Left, err = s.left(ctx, r.Outcome.RunID)
	return r, err
}

// verify returns what is said of evidence that is not consistent.
func (s *sealedRuns) verify(ctx context.Context, evidence string) (string, error) {
	said, err := exec.CommandContext(ctx, s.self, "verify", evidence).CombinedOutput()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return exit.Error() + ": " + string(said), nil
	}
	return "", err
}

// environ is what the asking process gets: no more than it needs.
func (s *sealedRuns) environ(host, home string) []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + home, "DOCKER_HOST=" + host, "COUNTERSIGN_SHIM=" + s.env.Shim,
		"COUNTERSIGN_STATE_DIR=" + s.env.StateDir, "COUNTERSIGN_CONFIG_DIR=" + filepath.Join(s.dir, "config"), "COUNTERSIGN_TRANSPORT=" + s.env.Transport,
	}
}

// watch reads what a run prints, and looks at its container where the work says:
// until that is done nothing more is read, so the workload cannot end.
func (s *sealedRuns) watch(ctx context.Context, c *exec.Cmd, work drill.Work) (drill.Result, error) {
	var r drill.Result
	var result bytes.Buffer
	c.Stdout = &result
	said, err := c.StderrPipe()
	if err != nil {
		return r, fmt.Errorf("running countersign: %v", err)
	}
	if err := c.Start(); err != nil {
		return r, fmt.Errorf("running countersign: %v", err)
	}
	w := &watcher{showAt: work.ShowAt, show: func(runID string) ([]byte, error) {
		d, err := s.engine.Describe(ctx, runID)
		if err == nil && work.Look != nil {
			work.Look(d.Text)
		}
		return d.Text, err
	}}
	io.Copy(w, said) // all of it, whatever is found wrong: a run that cannot speak cannot end
	err = c.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return r, fmt.Errorf("running countersign: %v", err)
	}
	if w.err != nil {
		return r, fmt.Errorf("looking at a run: %v", w.err)
	}
	r.Exit, r.Said, r.Shown = c.ProcessState.ExitCode(), w.said.Bytes(), w.shown
	if err := json.Unmarshal(result.Bytes(), &r.Outcome); err != nil {
		return r, fmt.Errorf("reading a run's outcome: %v\n%s", err, contract.Escape(w.said.String()))
	}
	return r, nil
}

// watcher keeps what is written to it, line by line, and has the run shown once.
// It takes everything; what was wrong with showing stays in err.
type watcher struct {
	showAt string
	show   func(runID string) ([]byte, error)
	said   bytes.Buffer
	line   []byte
	runID  string
	shown  []byte
	err    error
}

func (w *watcher) Write(p []byte) (int, error) {
	w.said.Write(p)
	if w.showAt == "" {
		return len(p), nil
	}
	w.line = append(w.line, p...)
	for {
		line, rest, whole := bytes.Cut(w.line, []byte("\n"))
		if !whole {
			return len(p), nil
		}
		w.line = rest
		if after, ok := strings.CutPrefix(string(line), "countersign: run "); ok && w.runID == "" {
			w.runID, _, _ = strings.Cut(after, " ")
		}
		if strings.HasSuffix(string(line), w.showAt) && w.shown == nil && w.err == nil {
			w.shown, w.err = w.show(w.runID)
		}
	}
}

// left names what is still there of a run that has ended.
func (s *sealedRuns) left(ctx context.Context, runID string) ([]string, error) {
	if runID == "" {
		return nil, nil
	}
	d, err := s.engine.Describe(ctx, runID)
	left := slices.Concat(d.Containers, d.Volumes)
	dir := filepath.Join(s.env.StateDir, runID)
	if _, statErr := os.Lstat(dir); statErr == nil {
		left = append(left, dir)
	}
	return left, err
}

// digestTree names everything below dir: names, modes, contents, link targets.
func digestTree(dir string) (string, error) {
	sum := sha256.New()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fmt.Fprintf(sum, "%q %v ", path, d.Type())
		switch {
		case d.Type().IsRegular():
			text, err := os.ReadFile(path)
			fmt.Fprintf(sum, "%x\n", sha256.Sum256(text))
			return err
		case d.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			fmt.Fprintf(sum, "%q\n", target)
			return err
		}
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("reading the drill's repository: %v", err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
