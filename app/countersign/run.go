package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/policy/ledger"
	"github.com/countersign-dev/countersign/runner"
	"github.com/countersign-dev/countersign/runner/docker"
	"github.com/countersign-dev/countersign/runner/workspace"
)

func newRunCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run [flags] -- ARGV...",
		Short: "Run a command sealed, under a contract, and leave evidence",
		Long: `Run derives a contract from the policy, runs ARGV in a sealed container on the
tree of a commit, and leaves evidence with the patch in .countersign/runs/<id>.

Exit status: the command's own; 124 when the wall clock passed; 125 when the
sandbox or the evidence could not be had; 126 when the contract was refused;
130 when the run was cancelled. With --json the reason tells ours from the
command's own.

Ctrl-C ends the command (SIGTERM, then SIGKILL) and keeps its patch; a second
Ctrl-C ends it at once.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			f.timeoutSet = cmd.Flags().Changed("timeout")
			l, err := newLocalRun(cmd, &f)
			if err == nil && len(args) == 0 {
				err = noCommand(cmd)
			}
			if err != nil {
				return l.finish(failClosed("", runner.ReasonUnavailable, err))
			}
			return l.run(cmd.Context(), args)
		},
	}
	f.register(cmd)
	cmd.Flags().StringVar(&f.evidence, "evidence", "", "`DIR` for the evidence, which must not exist (default: .countersign/runs/<id> in the repository)")
	cmd.Flags().BoolVar(&f.json, "json", false, "print one JSON object on standard output, all else on standard error")
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		err = flagError(cmd, err)
		if f.json = f.json || jsonAsked(os.Args); !f.json {
			return err
		}
		l := &localRun{f: &f, own: plain(cmd.ErrOrStderr()), result: cmd.OutOrStdout()}
		return l.finish(failClosed("", runner.ReasonUnavailable, err))
	})
	return cmd
}

// jsonAsked says whether --json is among the flags, also after a mistyped one,
// where parsing ends: a program that asked for an object gets one.
func jsonAsked(args []string) bool {
	if end := slices.Index(args, "--"); end >= 0 {
		args = args[:end]
	}
	return slices.Contains(args, "--json")
}

func flagError(cmd *cobra.Command, err error) error {
	return exitStatus{contract.ExitFailClosed, fmt.Errorf("%v; see countersign %s --help", err, cmd.Name())}
}

func noCommand(cmd *cobra.Command) error {
	return fmt.Errorf("there is no command to run: countersign %s [flags] -- ARGV", cmd.Name())
}

func commandArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return exitStatus{contract.ExitFailClosed, noCommand(cmd)}
	}
	return nil
}

// localRun is one `run` at a terminal.
type localRun struct {
	f      *runFlags
	env    environment
	engine *docker.Engine
	pool   *runner.Pool // nil: every sandbox is made for its run
	stdout io.Writer    // of the workload; standard error with --json
	stderr io.Writer    // of the workload
	own    io.Writer    // what this program says, apart from the workload's words
	result io.Writer    // of the JSON object
}

// newLocalRun returns a localRun that can at least say why it cannot run.
func newLocalRun(cmd *cobra.Command, f *runFlags) (*localRun, error) {
	l := &localRun{
		f: f, stdout: inert(cmd.OutOrStdout()), stderr: inert(cmd.ErrOrStderr()),
		own: plain(cmd.ErrOrStderr()), result: cmd.OutOrStdout(),
	}
	if f.json {
		l.stdout = l.stderr
	}
	var err error
	if l.env, err = readEnvironment(); err != nil {
		return l, err
	}
	l.engine, err = docker.New(docker.Config{Host: l.env.DockerHost, Logger: newLogger(cmd.ErrOrStderr())})
	return l, err
}

// run gathers, decides, and has the decision performed.
func (l *localRun) run(ctx context.Context, argv []string) error {
	begun := time.Now()
	g, err := gather(ctx, l.f, argv, l.env.StateDir, l.engine, begun)
	if err != nil && ctx.Err() != nil {
		return l.finish(runner.Conclude(runner.Observed{Stop: runner.ReasonCancelled}))
	}
	if err != nil {
		return l.finish(failClosed("", runner.ReasonUnavailable, err))
	}
	out, err := l.decide(ctx, g)
	if err != nil {
		out = failClosed(g.task.RunID, runner.ReasonUnavailable, err)
	}
	out.DurationMS = time.Since(begun).Milliseconds()
	return l.finish(out)
}

// decide seals the contract and has it performed, or leaves the evidence of
// why there is none.
func (l *localRun) decide(ctx context.Context, g *facts) (contract.Outcome, error) {
	key, public, err := loadOrCreateKey(l.env.ConfigDir)
	if err != nil {
		return contract.Outcome{}, err
	}
	g.inputs.Signer = public
	order := runner.Order{
		Inputs: g.inputs, Repo: l.f.repo, Builder: ledger.Builder{Name: "countersign", Version: buildVersion()}, Transport: l.env.Transport,
		Resolver: l.f.resolver,
	}
	if l.f.dirty {
		order.Dirty = g.repo.Worktree
	}
	if order.Evidence, err = l.evidenceDir(g); err != nil {
		return contract.Outcome{}, err
	}
	if g.refused != nil {
		report, err := runner.Refuse(order, g.task, g.observed(), time.Now)
		return l.sign(report, order, key), err
	}
	sealed := g.derivation.Sealed
	order.Contract = sealed.Bytes()
	out, err := l.perform(ctx, g, sealed, order, key)
	out.ContractDigest = sealed.Digest()
	return out, err
}

// observed says why there is no contract, for the outcome. A refusal's code
// stands in it, which is what verify compares: file names differ there.
func (g *facts) observed() runner.Observed {
	text := g.refused.Error()
	if r := g.derivation.Refusal; r != nil {
		text = r.Code + ": " + text
	}
	if g.code() == contract.ExitRefused {
		return runner.Observed{Refused: []string{text}}
	}
	return runner.Observed{Fault: text, FaultCode: runner.ReasonUnavailable}
}

// perform launches the supervising process and signs what it states.
func (l *localRun) perform(ctx context.Context, g *facts, sealed contract.Sealed, order runner.Order, key signingKey) (contract.Outcome, error) {
	held, err := l.lease(ctx, sealed.Contract())
	if err != nil {
		return contract.Outcome{}, err
	}
	defer l.giveBack(ctx, held)
	order.Secrets = held.values()
	fmt.Fprintf(l.own, "countersign: run %s under contract %s (%s, %s) of %s\n",
		g.task.RunID, short(sealed.Digest()), sealed.Contract().Level, sealed.Contract().Isolation, contract.Escape(g.policyName))
	for _, line := range given(sealed.Contract()) {
		l.warn("%s", line)
	}
	ctx, kill, stop := interrupts(ctx)
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	output := func(fd int, p []byte) {
		if err := l.output(fd, p); err != nil {
			cancel() // whoever wanted it has gone
		}
	}
	report, err := l.launch(ctx, order, output, kill)
	if errors.Is(err, runner.ErrSupervisorLost) {
		return l.lost(ctx, g, order.Evidence, err), nil
	}
	if err != nil {
		return contract.Outcome{}, err
	}
	l.tell(report)
	return l.sign(report, order, key), nil
}

// launch has the order performed, in a sandbox that waits where there is a pool.
func (l *localRun) launch(ctx context.Context, order runner.Order, output func(int, []byte), kill <-chan struct{}) (runner.Report, error) {
	if l.pool != nil {
		return l.pool.Launch(ctx, order, output, kill)
	}
	command, err := l.supervisor()
	if err != nil {
		return runner.Report{}, err
	}
	return runner.Launch(ctx, command, order, output, kill)
}

// lease takes what the contract names of secrets. For a contract that the
// supervisor will not admit, and say so in the evidence, that is none.
func (l *localRun) lease(ctx context.Context, c contract.Contract) (*leases, error) {
	if len(runner.Admit(c)) > 0 {
		return &leases{}, nil
	}
	return takeLeases(ctx, c, localSecrets(l.warn))
}

func (l *localRun) giveBack(ctx context.Context, held *leases) {
	if err := held.revoke(ctx); err != nil {
		l.warn("%v", err)
	}
}

// warn says on standard error what a person should mend.
func (l *localRun) warn(format string, args ...any) {
	fmt.Fprintf(l.own, "countersign: %s\n", contract.Escape(fmt.Sprintf(format, args...)))
}

func (l *localRun) output(fd int, p []byte) error {
	w := l.stdout
	if fd == 2 {
		w = l.stderr
	}
	_, err := w.Write(p)
	return err
}

// interrupts turns the first SIGINT or SIGTERM into a cancelled context and the
// second into a closed channel.
func interrupts(parent context.Context) (ctx context.Context, kill <-chan struct{}, stop func()) {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	killed, done := make(chan struct{}), make(chan struct{})
	go func() {
		for n := 0; n < 2; n++ {
			select {
			case <-signals:
			case <-done:
				return
			}
			if n == 1 {
				close(killed)
			}
			cancel()
		}
	}()
	return ctx, killed, func() { signal.Stop(signals); close(done); cancel() }
}

// supervisor is the command of the run's own process. It inherits no variable
// but those that its programs need.
func (l *localRun) supervisor() (*exec.Cmd, error) {
	shim, err := l.env.findShim()
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %v", err)
	}
	c := exec.Command(self, superviseName, "--state-dir", l.env.StateDir, "--shim", shim, "--docker-host", l.env.DockerHost, "--fail-point", l.env.FailPoint)
	c.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}, l.env.Roots...)
	c.Stderr = l.own
	return c, nil
}

// lost cleans up after a supervising process that died. Its bundle stays as
// it is: incomplete.
func (l *localRun) lost(ctx context.Context, g *facts, evidence string, err error) contract.Outcome {
	s := &runner.Supervisor{Engine: l.engine, StateDir: l.env.StateDir, Now: time.Now, Log: newLogger(l.own)}
	if _, sweepErr := s.Sweep(context.WithoutCancel(ctx)); sweepErr != nil {
		err = fmt.Errorf("%v; and what it left could not be removed: %v", err, sweepErr)
	}
	out := failClosed(g.task.RunID, runner.ReasonLost, err)
	out.Evidence = evidence
	return out
}

// tell says on standard error what a person should know beside the output.
func (l *localRun) tell(report runner.Report) {
	if report.Cut > 0 {
		fmt.Fprintf(l.own, "countersign: output.log is full: %d bytes of output are not in it\n", report.Cut)
	}
	if s := report.Start; s.Submodules > 0 || s.LFSPointers > 0 {
		fmt.Fprintf(l.own, "countersign: the workspace had %d empty submodules and %d LFS pointers\n", s.Submodules, s.LFSPointers)
	}
	l.tellLeftOut("not taken from the working copy", report.NotTaken)
	l.tellLeftOut("left out of the patch", report.Omissions)
}

func (l *localRun) tellLeftOut(what string, omissions []workspace.Omission) {
	for _, o := range omissions {
		if o.Reason == workspace.ReasonGit.String() && o.Count == 1 {
			continue // a tree's own .git, which never goes in or out
		}
		names := ""
		if len(o.Names) > 0 {
			names = ", such as " + contract.Escape(o.Names[0])
		}
		fmt.Fprintf(l.own, "countersign: %s: %d × %s%s\n", what, o.Count, o.Reason, names)
	}
}

// finish prints the outcome and turns it into an exit status.
func (l *localRun) finish(out contract.Outcome) error {
	if out.Promotions == nil {
		out.Promotions = []contract.PromotionRef{}
	}
	if l.f.json {
		data, err := json.Marshal(out)
		if err != nil {
			return exitStatus{contract.ExitFailClosed, err}
		}
		if _, err := fmt.Fprintf(l.result, "%s\n", data); err != nil {
			return exitStatus{contract.ExitFailClosed, fmt.Errorf("printing the outcome: %v", err)}
		}
	}
	fmt.Fprintf(l.own, "countersign: %s (%s)\n", out.State, contract.Escape(out.Reason))
	if e := out.Egress; e != (contract.EgressTotals{}) {
		fmt.Fprintf(l.own, "countersign: way out: %d allowed, %d refused, %d bytes sent\n", e.Allowed, e.Denied, e.BytesOut)
	}
	if out.Evidence != "" {
		fmt.Fprintf(l.own, "countersign: %d files changed; evidence in %s\n", out.Patch.Files, contract.Escape(out.Evidence))
	}
	if out.ExitCode == 0 {
		return nil
	}
	return exitStatus{code: out.ExitCode}
}

func failClosed(runID, code string, err error) contract.Outcome {
	return contract.Outcome{
		RunID: runID, State: contract.StateFailClosed, ExitCode: contract.ExitFailClosed,
		Reason: code + ": " + err.Error(), Promotions: []contract.PromotionRef{},
	}
}

// short is what a person needs to tell one digest from another.
func short(digest string) string { return digest[:min(len(digest), len("sha256:")+16)] }
