package main

import (
	"bufio"
	"bytes"
	"context"
	"embed"
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

	"github.com/spf13/cobra"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/policy/ledger"
)

// demoFiles is a small repository with a test suite, a policy, and a program
// that tries what a sealed run must not allow.
//
//go:embed all:demo
var demoFiles embed.FS

// demoAttempts is how many attempts demo/probe makes.
const demoAttempts = 18

func newDemoCommand() *cobra.Command {
	var keep bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show one sealed run from contract to verified evidence",
		Long: `Demo makes a small git repository in a temporary directory, runs its test suite
sealed, shows the contract, what the workload tried and was refused, the patch
and the evidence, and removes everything again.

Exit status: 0 when everything was as it must be; 125 when no sandbox could be
had; 1 when an attempt succeeded that must not.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt)
			defer stop()
			return runDemo(ctx, inert(cmd.OutOrStdout()), keep)
		},
	}
	cmd.Flags().BoolVar(&keep, "keep", false, "keep the repository and the evidence, and say where")
	return cmd
}

// demo is one showing. Everything it makes is below dir.
type demo struct {
	self string // this program
	dir  string
	out  io.Writer
}

func runDemo(ctx context.Context, out io.Writer, keep bool) (err error) {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %v", err)
	}
	dir, err := os.MkdirTemp("", "countersign-demo-")
	if err != nil {
		return fmt.Errorf("making demo: %v", err)
	}
	d := &demo{self: self, dir: dir, out: out}
	if !keep {
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	}
	for _, step := range []func(context.Context) error{d.repository, d.contract, d.run, d.patch, d.verify, d.tamper, d.wayOut, d.refusal} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	if keep {
		d.title("Kept in %s", dir)
	} else {
		d.title("Done: everything was as it must be; the sandbox, the repository and the evidence are gone")
	}
	return nil
}

func (d *demo) title(format string, args ...any) {
	fmt.Fprintf(d.out, "\n== "+format+"\n\n", args...)
}

func (d *demo) repo() string     { return filepath.Join(d.dir, "kitchen") }
func (d *demo) evidence() string { return filepath.Join(d.dir, "evidence") }

// repository lays out the embedded files and commits them.
func (d *demo) repository(ctx context.Context) error {
	d.title("A repository with a test suite, and a policy that its owner wrote")
	if err := d.layOut(); err != nil {
		return fmt.Errorf("making demo repository: %v", err)
	}
	for _, args := range [][]string{
		{"init", "--quiet", "--initial-branch=main"},
		{"add", "--all"},
		{"commit", "--quiet", "--message=kitchen: measures, tests, policy"},
	} {
		c := exec.CommandContext(ctx, "git", args...)
		c.Dir = d.repo()
		c.Env = append(os.Environ(),
			"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=demo", "GIT_AUTHOR_EMAIL=demo@example.invalid",
			"GIT_COMMITTER_NAME=demo", "GIT_COMMITTER_EMAIL=demo@example.invalid",
		)
		if said, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("making demo repository: git %s: %v\n%s", args[0], err, said)
		}
	}
	policy, err := demoFiles.ReadFile("demo/.github/countersign.yml")
	fmt.Fprintf(d.out, "%s", policy)
	return err
}

// layOut writes the embedded files. An embedded file has no mode, so that the
// one program gets its own here.
func (d *demo) layOut() error {
	files, err := fs.Sub(demoFiles, "demo")
	if err != nil {
		return err
	}
	if err := os.CopyFS(d.repo(), files); err != nil {
		return err
	}
	return os.Chmod(filepath.Join(d.repo(), "probe"), 0o755)
}

func (d *demo) contract(ctx context.Context) error {
	d.title("The contract for `make test`, fixed before it runs, with a reason for every field")
	return d.filtered(ctx, 0, mainFields(), "contract", "--repo", d.repo(), "--explain", "--", "make", "test")
}

// filtered runs countersign and shows the lines that show picks, or all of them
// when it did not end as wanted.
func (d *demo) filtered(ctx context.Context, want int, show func(line string) bool, args ...string) error {
	var said bytes.Buffer
	err := d.countersign(ctx, &said, &said, want, args...)
	left := 0
	for line := range strings.Lines(said.String()) {
		if err != nil || show(line) {
			fmt.Fprint(d.out, line)
		} else {
			left++
		}
	}
	if left > 0 {
		fmt.Fprintf(d.out, "(and %d lines more)\n", left)
	}
	return err
}

// mainFields picks, from the tree that explains a contract, the fields that
// say most, each with the lines of its reason.
func mainFields() func(line string) bool {
	fields := []string{"image", "isolation", "writable_roots", "read_denied", "limits.memory_mb", "limits.timeout_sec", "network.mode", "outputs.push", "level"}
	shown := false
	return func(line string) bool {
		if name, ok := cutAny(line, "├─ ", "└─ "); ok {
			shown = slices.Contains(fields, strings.SplitN(name, " ", 2)[0])
		}
		return shown
	}
}

func cutAny(s string, prefixes ...string) (after string, ok bool) {
	for _, p := range prefixes {
		if after, ok := strings.CutPrefix(s, p); ok {
			return after, true
		}
	}
	return "", false
}

// run has the test suite run sealed, and holds the workload's own lines against
// what must not be possible.
func (d *demo) run(ctx context.Context) error {
	d.title("The sealed run: tests, a generated file, then %d attempts at the boundary", demoAttempts)
	var seen, result bytes.Buffer
	err := d.countersign(ctx, &result, io.MultiWriter(d.out, &seen), 0,
		"run", "--repo", d.repo(), "--evidence", d.evidence(), "--json", "--", "make", "test")
	if err != nil {
		return err
	}
	refused, succeeded := countAttempts(&seen)
	if len(succeeded) > 0 {
		return fmt.Errorf("the workload got through: %s", strings.Join(succeeded, "; "))
	}
	if refused != demoAttempts {
		return fmt.Errorf("%d attempts were refused: want %d", refused, demoAttempts)
	}
	var o contract.Outcome
	if err := json.Unmarshal(result.Bytes(), &o); err != nil {
		return fmt.Errorf("reading the run's result: %v", err)
	}
	if o.State != contract.StateCompleted || o.Patch.Files != 1 {
		return fmt.Errorf("the run ended %s with %d files changed: want %s with 1", o.State, o.Patch.Files, contract.StateCompleted)
	}
	fmt.Fprintf(d.out, "\n%d attempts, all refused. Run %s took %.1f s.\n", refused, o.RunID, float64(o.DurationMS)/1000)
	return nil
}

// countAttempts reads the lines of demo/probe.
func countAttempts(r io.Reader) (refused int, succeeded []string) {
	for lines := bufio.NewScanner(r); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "refused ") {
			refused++
		}
		if name, ok := strings.CutPrefix(lines.Text(), "SUCCEEDED "); ok {
			succeeded = append(succeeded, strings.TrimSpace(name))
		}
	}
	return refused, succeeded
}

func (d *demo) patch(context.Context) error {
	d.title("What the run changed: changes.patch")
	text, err := os.ReadFile(filepath.Join(d.evidence(), ledger.FilePatch))
	if err != nil {
		return err
	}
	if !bytes.Contains(text, []byte("docs/measures.md")) || bytes.Contains(text, []byte("deploy/")) {
		return errors.New("the patch is not the one that the test suite makes")
	}
	_, err = d.out.Write(text)
	return err
}

func (d *demo) verify(ctx context.Context) error {
	d.title("The evidence, judged again from its own files")
	lines := []string{"ok    signature", "ok    ledger chain", "ok    derivation", "ok    outcome", "ok    file changes.patch", "verified"}
	show := func(line string) bool { _, ok := cutAny(line, lines...); return ok }
	return d.filtered(ctx, 0, show, "verify", d.evidence(), "--key", filepath.Join(d.dir, "config", publicFile))
}

// tamper changes one byte of the evidence and expects that this is found.
func (d *demo) tamper(ctx context.Context) error {
	d.title("The same evidence after one byte of the output was changed")
	path := filepath.Join(d.evidence(), ledger.FileOutput)
	text, err := os.ReadFile(path)
	if err != nil || len(text) == 0 {
		return fmt.Errorf("reading the run's output: %v, %d bytes", err, len(text))
	}
	changed := bytes.Clone(text)
	changed[len(changed)/2] ^= 1
	if err := os.WriteFile(path, changed, 0o600); err != nil {
		return err
	}
	show := func(line string) bool { return strings.HasPrefix(line, "FAIL") }
	if err := d.filtered(ctx, anyFailure, show, "verify", d.evidence()); err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}

// wayOut tries a host that the contract does not name.
func (d *demo) wayOut(ctx context.Context) error {
	d.title("What is not in the contract is refused by name, and the run goes on")
	return d.countersign(ctx, d.out, d.out, 0,
		"run", "--repo", d.repo(), "--allow", "docs.example.com:443", "--", "sh", "-c", "curl -sS https://elsewhere.example.com || echo 'curl ended with' $?")
}

// refusal asks for what no run is given.
func (d *demo) refusal(ctx context.Context) error {
	d.title("A contract that would give the machine away is refused, not weakened")
	return d.countersign(ctx, d.out, d.out, contract.ExitRefused,
		"run", "--repo", d.repo(), "--allow", "engine.example.com:2375", "--", "curl", "http://engine.example.com:2375/info")
}

// anyFailure asks countersign for a status other than 0.
const anyFailure = -1

// countersign runs this program as a person would, with state and key of its
// own below dir, and holds its exit status against want.
func (d *demo) countersign(ctx context.Context, stdout, stderr io.Writer, want int, args ...string) error {
	fmt.Fprintf(d.out, "$ countersign %s\n", strings.ReplaceAll(strings.Join(args, " "), d.dir+"/", ""))
	c := exec.CommandContext(ctx, d.self, args...)
	c.Stdout, c.Stderr = stdout, stderr
	c.Env = append(os.Environ(), "COUNTERSIGN_CONFIG_DIR="+filepath.Join(d.dir, "config"), "COUNTERSIGN_DEMO_HOST_VARIABLE=1")
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return fmt.Errorf("running countersign %s: %v", args[0], err)
	}
	code := c.ProcessState.ExitCode()
	switch {
	case code == want, want == anyFailure && code != 0:
		return nil
	case code == contract.ExitFailClosed:
		return exitStatus{code, fmt.Errorf("countersign %s could not be done here; the lines above say why", args[0])}
	}
	return fmt.Errorf("countersign %s ended with %d: want %d", args[0], code, want)
}
