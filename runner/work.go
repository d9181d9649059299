package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/policy/ledger"
	"github.com/countersign-dev/countersign/runner/redact"
	"github.com/countersign-dev/countersign/runner/workspace"
)

// work gives the sandbox its job and returns when the workload has ended,
// however it did. Only a sandbox that broke off is an error.
func (r *run) work(ctx context.Context) error {
	log, err := r.openOutput()
	if err != nil {
		return err
	}
	r.bundle.Record("workload.starting", map[string]any{"program": clip(r.job.Argv[0]), "arguments": len(r.job.Argv) - 1, "timeout_sec": r.job.Stop.TimeoutSec})
	r.bundle.Secure(true)
	if err := r.bundle.Err(); err != nil {
		r.fail("capture", err) // what cannot be told is not begun
		return err
	}
	r.started = true
	r.log.Store(log)
	ctx, release := r.guard(ctx)
	exited, err := r.session.work(ctx, r.job, func() {}, log.write)
	release()
	if err != nil {
		r.session.close()
		if r.stop() != "" {
			return nil // it did not stop when asked, and the engine ended it
		}
		return fmt.Errorf("the sandbox broke off: %w", r.whyBroken(err))
	}
	r.seen.Claimed = &exited
	r.bundle.Record("workload.exited", map[string]any{"claimed": exited, "stopped": r.stop()})
	r.bundle.Secure(false)
	r.s.failPoint("exited")
	return nil
}

// guard ends the workload when its time is over or the caller wants it to end.
// First the shim is asked; if it does not answer in time, the engine kills the
// container, which the returned context then says.
func (r *run) guard(ctx context.Context) (context.Context, func()) {
	broken, breakOff := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		if !r.awaitStop(ctx, done) || r.askToStop(done) {
			return
		}
		kill, cancel := context.WithTimeout(broken, endTime)
		defer cancel()
		if err := r.sandbox.Kill(kill); err != nil {
			r.s.Log.Error("killing the sandbox", "error", err)
		}
		breakOff()
	}()
	return broken, func() { close(done); <-finished; breakOff() }
}

// awaitStop blocks until the workload ended by itself (false) or has to be
// ended (true), and notes why.
func (r *run) awaitStop(ctx context.Context, done <-chan struct{}) bool {
	timeout := time.NewTimer(time.Duration(r.c.Limits.TimeoutSec) * time.Second)
	defer timeout.Stop()
	select {
	case <-done:
		return false
	case <-timeout.C:
		r.setStop(ReasonTimeout)
	case <-ctx.Done():
		r.stopped()
	}
	return true
}

// askToStop has the shim end the workload, and says whether it did so within
// the grace and some slack. A kill meanwhile takes the rest of the grace away.
func (r *run) askToStop(done <-chan struct{}) bool {
	grace := int64(stopGraceSec)
	kill := r.s.Kill
	if r.killed() {
		grace, kill = 0, nil
	}
	if err := r.session.stop(grace); err != nil {
		return false
	}
	slack := time.NewTimer(time.Duration(grace)*time.Second + stopSlack)
	defer slack.Stop()
	for {
		select {
		case <-done:
			return true
		case <-slack.C:
			return false
		case <-kill:
			kill = nil
			if err := r.session.stop(0); err != nil {
				return false
			}
		}
	}
}

// whyBroken says more than "connection reset" when the engine knows more.
func (r *run) whyBroken(err error) error {
	select {
	case <-r.end.done:
	case <-time.After(stopSlack):
		return err
	}
	if r.end.err != nil {
		return err
	}
	return fmt.Errorf("the container ended with %d (out of memory: %t): %v", r.end.exit.Code, r.end.exit.OOMKilled, err)
}

// outputLog is output.log while a workload runs: both streams as they came,
// redacted, bounded. The live copy is redacted too, and not bounded.
type outputLog struct {
	mu      sync.Mutex // the proxy writes too
	ended   bool
	file    io.WriteCloser
	bounded *redact.Bounded
	masks   [3]*redact.Redactor
}

func (r *run) openOutput() (*outputLog, error) {
	file, err := r.bundle.Create(ledger.FileOutput)
	if err != nil {
		return nil, err
	}
	l := &outputLog{file: file}
	l.bounded = redact.NewBounded(io.MultiWriter(file, countWriter{&r.logged}), r.c.Limits.LogMB*mib)
	for _, fd := range []int{1, 2} {
		l.masks[fd] = r.masks.Writer(io.MultiWriter(l.bounded, liveWriter{fd, r.s.Output}))
	}
	return l, nil
}

// secrets are the values that no output may show.
func (r *run) secrets() []redact.Named {
	var all []redact.Named
	for _, ref := range r.c.SecretRefs {
		value := r.order.Secrets[ref.Name]
		all = append(all, redact.Named{Name: ref.Name, Secret: redact.NewSecret([]byte(value))})
		if _, password, ok := strings.Cut(value, ":"); ok && injectedAsBasic(r.c.Network, ref.Name) {
			all = append(all, redact.Named{Name: ref.Name + " (its password)", Secret: redact.NewSecret([]byte(password))})
		}
	}
	return all
}

// injectedAsBasic says whether a secret is USER:PASSWORD (RFC 7617), of which a
// server knows, and may show, the password alone.
func injectedAsBasic(n contract.Network, name string) bool {
	return slices.ContainsFunc(n.Allow, func(r contract.NetRule) bool {
		return r.Inject != nil && r.Inject.Secret == name && r.Inject.As == contract.InjectBasic
	})
}

// write takes a piece of one stream. Errors of the file stay in the bundle.
func (l *outputLog) write(fd int, p []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended {
		l.masks[fd].Write(p)
	}
}

func (l *outputLog) close(r *run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	err := errors.Join(l.masks[1].Close(), l.masks[2].Close(), l.bounded.Close(), l.file.Close())
	if err != nil {
		r.bundle.keep(err)
	}
	r.cut = l.bounded.Cut()
}

type countWriter struct{ n *int64 }

func (w countWriter) Write(p []byte) (int, error) {
	*w.n += int64(len(p))
	return len(p), nil
}

type liveWriter struct {
	fd   int
	sink func(fd int, p []byte)
}

func (w liveWriter) Write(p []byte) (int, error) {
	if w.sink != nil {
		w.sink(w.fd, p)
	}
	return len(p), nil
}

// settle is what follows a started workload, whatever ended it: the canaries
// again, the capture, and the end of the container. The patch needs nothing of
// the sandbox any more, so it is made while that ends.
func (r *run) settle(ctx context.Context) {
	alive, anyway := r.seen.Claimed != nil, context.WithoutCancel(ctx)
	if alive {
		if err := r.step(ctx, stage{"probe", probeTime, func(r *run, ctx context.Context) error { return r.canaries(ctx, StageAfter) }}); err != nil {
			r.fail("work", err)
		}
	}
	if err := r.closeNetwork(); err != nil {
		r.fail("work", err)
	}
	if log := r.log.Load(); log != nil {
		log.close(r)
	}
	var got *workspace.Captured
	err := r.step(ctx, stage{"capture", captureTime, func(r *run, ctx context.Context) (err error) {
		got, err = r.capture(ctx, alive)
		return err
	}})
	r.endSandbox(anyway, alive)
	if err == nil {
		err = r.step(ctx, stage{"patch", captureTime, func(r *run, ctx context.Context) error { return r.makePatch(ctx, got) }})
	}
	switch {
	case err != nil && ctx.Err() != nil: // at once means without what was not kept yet
		r.bundle.Record("workspace.given_up", map[string]any{})
	case err != nil:
		r.fail("capture", err)
	}
	r.s.failPoint("capture")
	if err := r.step(anyway, stage{"end", endTime, (*run).awaitEnd}); err != nil {
		r.fail("work", err)
	}
}

// endSandbox lets a living shim exit with the workload's status, and has the
// engine kill what does not answer any more.
func (r *run) endSandbox(ctx context.Context, alive bool) {
	if alive {
		if err := r.session.bye(); err != nil {
			r.s.Log.Warn("ending the sandbox", "error", err)
		}
	} else if err := r.step(ctx, stage{"kill", endTime, func(r *run, ctx context.Context) error { return r.sandbox.Kill(ctx) }}); err != nil {
		r.s.Log.Error("killing the sandbox", "error", err)
	}
}

func (r *run) awaitEnd(ctx context.Context) error {
	select {
	case <-r.end.done:
	case <-ctx.Done():
		return fmt.Errorf("waiting for the sandbox to end: %v", ctx.Err())
	}
	if r.end.err != nil {
		return r.end.err
	}
	r.seen.Engine = &r.end.exit
	r.bundle.Record(ledger.TypeExited, map[string]any{"code": r.end.exit.Code, "oom_killed": r.end.exit.OOMKilled, "pids_failures": r.end.exit.PidsFailures, "error": clip(r.end.exit.Error)})
	return nil
}

// Bounds of a capture beside the contract's.
const (
	captureDepth = 512
	entrySlack   = 64 // directories that a tree has beside its files' inodes
	// captureFile bounds one file of a patch: git's binary diff counts in ints
	// and fails just below 2 GiB.
	captureFile = 1 << 30
)

func (r *run) captureBounds() workspace.Bounds {
	disk := r.c.Limits.DiskMB * mib
	return workspace.Bounds{Entries: r.c.Limits.Files + entrySlack, Depth: captureDepth, Bytes: disk, File: min(disk, captureFile), Time: captureTime / 2}
}

// capture takes the tree as the workload left it into the run's own store.
// Nothing but the shim lives in the sandbox, or nothing at all.
func (r *run) capture(ctx context.Context, alive bool) (*workspace.Captured, error) {
	transport, err := r.captureTransport(alive)
	if err != nil {
		return nil, err
	}
	got, err := r.store.Capture(ctx, transport, r.tree, r.captureBounds())
	if err != nil {
		return nil, fmt.Errorf("capturing the workspace: %v", err)
	}
	return got, nil
}

// makePatch writes what the captured tree changed.
func (r *run) makePatch(ctx context.Context, got *workspace.Captured) error {
	r.maskNames(got.Omissions)
	r.omissions = got.Omissions
	for _, o := range got.Omissions {
		if o.Reason == workspace.ReasonIgnored.String() {
			r.ignored = o.Count
		}
	}
	file, err := r.bundle.Create(ledger.FilePatch)
	if err != nil {
		return err
	}
	// Base 85 grows by a quarter, and a changed text stands twice.
	guard := secretGuard{file, r.masks.Writer(io.Discard)}
	patch, err := r.store.Patch(ctx, r.tree, got.Tree, guard, 4*r.c.Limits.DiskMB*mib)
	if err != nil { // a part of a patch is none
		err = errors.Join(err, file.Truncate(0))
	}
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("making the patch: %w", err)
	}
	r.patch = patch.Stats
	r.bundle.Record(ledger.TypeCaptured, map[string]any{
		"tree": got.Tree, "files": got.Files, "bytes": got.Bytes, "omissions": brief(got.Omissions),
		"patch": patch.Digest, "changed": patch.Stats,
	})
	return nil
}

// errSecretInPatch ends a run whose patch would carry a secret out: evidence is
// read, and patches are pushed, by people whom the secret was not given to.
var errSecretInPatch = errors.New("it holds a secret of this run, so it was not kept; have the command write what it makes of secrets outside the workspace")

// secretGuard passes on what holds no secret.
type secretGuard struct {
	to     io.Writer
	finder *redact.Redactor
}

// maskNames masks what a workload named files by.
func (r *run) maskNames(omissions []workspace.Omission) {
	for _, o := range omissions {
		for i, n := range o.Names {
			o.Names[i] = string(r.masks.Mask([]byte(n)))
		}
	}
}

func (g secretGuard) Write(p []byte) (int, error) {
	g.finder.Write(p) // to io.Discard, which takes everything
	if g.finder.Found() {
		return 0, errSecretInPatch
	}
	return g.to.Write(p)
}

// brief keeps the counts and, of the names, what fits a record.
func brief(omissions []workspace.Omission) []workspace.Omission {
	out := slices.Clone(omissions)
	for i, o := range out {
		out[i].Names = nil
		for _, n := range o.Names[:min(len(o.Names), 3)] {
			out[i].Names = append(out[i].Names, clip(n))
		}
	}
	return out
}

// remove leaves nothing of the run on the machine. It is called in every case
// and goes on after a fault.
func (r *run) remove(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, endTime)
	defer cancel()
	if err := r.closeNetwork(); err != nil {
		r.fail("remove", err)
	}
	if err := r.instance.remove(ctx); err != nil {
		// The reaper of the next run will try again.
		r.s.Log.Error("removing the run", "error", err)
		r.fail("remove", fmt.Errorf("removing the run: %v", err))
	}
	r.bundle.Record("sandbox.removed", map[string]any{})
}

// conclude decides the outcome, closes the bundle and makes the statement.
func (r *run) conclude() Report {
	r.bundle.Ensure(ledger.FileOutput)
	r.bundle.Ensure(ledger.FilePatch)
	if err := r.bundle.Err(); err != nil {
		r.fail("capture", err)
	}
	out := Conclude(r.seen)
	out.RunID, out.ContractDigest, out.Evidence = r.c.RunID, r.sealed.Digest(), r.order.Evidence
	out.DurationMS = r.s.Now().Sub(r.begun).Milliseconds()
	out.Promotions = []contract.PromotionRef{}
	out.Patch, out.Egress = r.patch, r.totals
	exit := exitOf(out)
	r.bundle.Record(ledger.TypeConcluded, exit)
	statement, err := r.bundle.Finish(r.predicate(exit))
	if err != nil {
		r.s.Log.Error("finishing the evidence", "error", err)
		out.State, out.ExitCode = contract.StateFailClosed, contract.ExitFailClosed
		out.Reason = ReasonEvidence + ": " + err.Error()
	}
	r.s.failPoint("finish")
	report := Report{Outcome: out, Omissions: r.omissions, Statement: statement, Cut: r.cut}
	if r.tree != nil {
		report.Start, report.NotTaken = r.tree.Stats, r.tree.Omissions
	}
	return report
}

func (r *run) predicate(exit ledger.Exit) ledger.Predicate {
	p := ledger.Predicate{
		RunID: r.c.RunID, Tenant: r.c.Tenant, Contracts: []string{r.sealed.Digest()}, Image: r.c.Image, Policy: r.c.Policy,
		Task: contract.DigestBytes(r.order.Inputs.Task), Snapshot: r.c.SnapshotDigest,
		Canaries: r.seen.Canaries, Exit: exit, Builder: r.order.Builder,
		Patch:  ledger.Patch{Files: r.patch.Files, Bytes: r.patch.Bytes, Ignored: r.ignored},
		Output: ledger.Output{Bytes: r.logged, Dropped: r.cut},
		Egress: r.totals, EgressRules: egressRules(r.c.Network, r.byRule),
	}
	if r.spec.Schema == "" {
		return p
	}
	if data, err := contract.EncodeCanonical(r.spec); err == nil {
		p.Spec = contract.DigestBytes(data)
	}
	p.Controls = Controls(r.c.Isolation)
	for _, m := range r.spec.Mounts {
		p.Mounts = append(p.Mounts, ledger.Mount{Kind: m.Kind, Target: m.Target, ReadOnly: m.ReadOnly, Bytes: m.Bytes, Inodes: m.Inodes})
	}
	p.Engine = r.engine.record()
	return p
}
