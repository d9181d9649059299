package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/policy/ledger"
	"github.com/countersign-dev/countersign/runner/egress"
	"github.com/countersign-dev/countersign/runner/redact"
	"github.com/countersign-dev/countersign/runner/shim/protocol"
	"github.com/countersign-dev/countersign/runner/workspace"
)

// Supervisor runs one order. Every field without a stated default is required.
type Supervisor struct {
	Engine Engine
	// StateDir holds the directories of live runs. The engine must see it under
	// the same path.
	StateDir string
	// Shim is the host path of the static shim binary.
	Shim string
	Now  func() time.Time
	Rand io.Reader // of uids
	Log  *slog.Logger
	// Output receives what the workload writes (fd 1 or 2), as it comes and
	// redacted. It must not block for long. Nil discards it.
	Output func(fd int, p []byte)
	// Kill, when it closes, ends a cancelled run at once instead of with
	// SIGTERM and a grace. Nil never does.
	Kill <-chan struct{}
	// FailPoint is called at each name of FailPoints, for tests that end the
	// process there. Nil does nothing.
	FailPoint func(name string)
}

// Bounds of the stages, on top of what the contract says of the workload.
const (
	startTime   = 2 * time.Minute // create, start, greeting
	loadTime    = 10 * time.Minute
	probeTime   = time.Minute
	captureTime = 10 * time.Minute
	endTime     = 2 * time.Minute // the container's end, its removal
	stopSlack   = 15 * time.Second
)

// FailPoints lists the names at which a supervisor can be made to die, in the
// order in which a run passes them.
func FailPoints() []string {
	return []string{"bundle", "claim", "source", "engine", "shim", "create", "start", "greet", "load", "network", "probe", "work", "exited", "capture", "remove", "finish"}
}

// Supervise performs the run that order describes and returns when nothing of
// it is left on the machine. A cancelled ctx ends the workload; what was changed
// until then is still captured. The error is nil whenever there is an outcome.
func (s *Supervisor) Supervise(ctx context.Context, order Order) (Report, error) {
	return s.supervise(ctx, order, nil)
}

func (s *Supervisor) supervise(ctx context.Context, order Order, warm *Warm) (Report, error) {
	sealed, err := contract.Open(order.Contract)
	if err != nil {
		return Report{}, fmt.Errorf("opening contract: %w", err)
	}
	c := sealed.Contract()
	r := &run{s: s, order: order, sealed: sealed, c: c, warm: warm, begun: s.Now(), over: make(chan struct{})}
	r.instance = &instance{s: s, name: c.RunID, shape: ShapeOf(c), transport: order.Transport}
	if warm != nil {
		if err := warm.fits(r.instance); err != nil {
			return Report{}, err
		}
		r.instance = warm.instance
	}
	r.seen.Limits = c.Limits
	if r.bundle, err = CreateBundle(order.Evidence, c.RunID, c.Tenant, s.Now); err != nil {
		return Report{}, err
	}
	r.bundle.WriteInputs(order.Inputs, &sealed)
	r.bundle.Record(ledger.TypeAdmitted, ledger.Admitted{Contract: sealed.Digest(), Level: c.Level, Revision: c.Revision})
	s.failPoint("bundle")

	r.seen.Refused = Admit(c)
	if len(r.seen.Refused) == 0 {
		r.perform(ctx)
	} else if warm != nil {
		r.remove(context.WithoutCancel(ctx))
	}
	return r.conclude(), nil
}

func (s *Supervisor) failPoint(name string) {
	if s.FailPoint != nil {
		s.FailPoint(name)
	}
}

// run is one order being performed. The stages fill it in their order; what
// they saw stands in seen, which Conclude judges.
type run struct {
	s      *Supervisor
	order  Order
	sealed contract.Sealed
	c      contract.Contract
	bundle *Bundle
	begun  time.Time

	*instance // its sandbox
	warm      *Warm
	store     *workspace.Store
	tree      *workspace.Tree
	job       protocol.Job
	masks     *redact.Matcher           // of the run's secrets
	over      chan struct{}             // closes when the run has been performed
	log       atomic.Pointer[outputLog] // while there is one
	cut       int64                     // bytes of output beyond the bound
	logged    int64                     // bytes of output.log
	started   bool                      // the workload was

	network *network // nil without a way out, and once it is closed
	totals  contract.EgressTotals
	byRule  []egress.RuleTotals

	mu   sync.Mutex // guards seen.Stop, which timers write
	seen Observed

	patch     contract.PatchStats
	ignored   int64
	omissions []workspace.Omission
}

// stage is one step of the way to a running workload.
type stage struct {
	name string
	time time.Duration // 0: it bounds itself
	do   func(*run, context.Context) error
}

func stages() []stage {
	return []stage{
		{"claim", startTime, (*run).claimPlace},
		{"source", loadTime, (*run).readSource},
		{"engine", startTime, (*run).preflight},
		{"shim", startTime, (*run).placeShim},
		{"create", startTime, (*run).create},
		{"start", startTime, (*run).start},
		{"greet", startTime, (*run).greet},
		{"load", loadTime, (*run).load},
		{"network", startTime, (*run).openNetwork},
		{"probe", probeTime, (*run).probeBefore},
		{"work", 0, (*run).work},
	}
}

// warmStages begin where a sandbox that waits has got to.
func warmStages() []stage {
	return []stage{
		{"adopt", startTime, (*run).adopt},
		{"source", loadTime, (*run).readSource},
		{"load", loadTime, (*run).load},
		{"network", startTime, (*run).openNetwork},
		{"probe", probeTime, (*run).probeBefore},
		{"work", 0, (*run).work},
	}
}

func (r *run) perform(ctx context.Context) {
	defer close(r.over)
	defer r.remove(context.WithoutCancel(ctx))
	way := stages()
	if r.warm != nil {
		way = warmStages()
	}
	for _, st := range way {
		err := r.step(ctx, st)
		if ctx.Err() != nil {
			r.stopped()
		}
		if r.stop() != "" && !r.started {
			return // ended before there was anything to keep
		}
		if err != nil {
			r.fail(st.name, err)
			break
		}
		r.s.failPoint(st.name)
	}
	if r.started {
		r.settle(r.untilKilled(ctx))
	}
	if ctx.Err() != nil { // also while the run was being settled
		r.stopped()
	}
}

// untilKilled is what a cancelled run may still take: the time to keep what it
// changed. The caller's wish to end it at once is granted by the workload's end
// where it still ran, else by giving up what was not kept yet.
func (r *run) untilKilled(ctx context.Context) context.Context {
	if r.killed() {
		return context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		select {
		case <-r.s.Kill:
			cancel()
		case <-r.over:
			cancel()
		}
	}()
	return ctx
}

func (r *run) step(ctx context.Context, st stage) error {
	if st.time > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, st.time)
		defer cancel()
	}
	return st.do(r, ctx)
}

// fail keeps the first fault and says which kind it is. That what a lost sandbox
// left could not be kept is added to its loss, and makes it one of evidence.
func (r *run) fail(stage string, err error) {
	lost := r.seen.FaultCode == ReasonLost && stage == "capture"
	if r.seen.Fault != "" && !lost {
		return
	}
	var unavailable *Unavailable
	var wrong *canaryError
	switch {
	case lost:
		r.seen.FaultCode, err = ReasonEvidence, fmt.Errorf("%s; %w", r.seen.Fault, err)
	case errors.As(err, &wrong): // the canaries speak for themselves
		return
	case errors.As(err, &unavailable):
		r.seen.FaultCode = ReasonUnavailable
	case stage == "work":
		r.seen.FaultCode = ReasonLost
	case stage == "capture":
		r.seen.FaultCode = ReasonEvidence
	case errors.Is(err, context.DeadlineExceeded):
		r.seen.FaultCode = ReasonUnavailable
	default:
		r.seen.FaultCode = ReasonInternal
	}
	r.seen.Fault = clip(err.Error())
	r.bundle.Record("run.fault", map[string]any{"stage": stage, "code": r.seen.FaultCode, "error": r.seen.Fault})
}

// stopped notes that the caller ended the run. How fast it is to end does not
// change what it is called.
func (r *run) stopped() { r.setStop(ReasonCancelled) }

func (r *run) killed() bool {
	select {
	case <-r.s.Kill:
		return true
	default:
		return false
	}
}

func (r *run) stop() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen.Stop
}

// setStop keeps the first reason for ending the workload, and says whether
// this was it.
func (r *run) setStop(reason string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen.Stop != "" {
		return false
	}
	r.seen.Stop = reason
	return true
}

func (r *run) claimPlace(ctx context.Context) error {
	if err := r.ready(); err != nil {
		return err
	}
	return r.takeDirectory(ctx)
}

// ready refuses a run whose time has passed, or that lacks a secret or has one
// that no output could be kept free of.
func (r *run) ready() error {
	if after, err := time.Parse(time.RFC3339, r.c.NotAfter); err != nil || r.s.Now().After(after) {
		return &Unavailable{What: fmt.Sprintf("the contract could be started until %s", r.c.NotAfter), Hint: "derive it anew"}
	}
	for _, ref := range r.c.SecretRefs {
		if r.order.Secrets[ref.Name] == "" {
			return &Unavailable{What: fmt.Sprintf("the secret %s (%s) was not handed over", ref.Name, ref.Ref), Hint: "see that its source has it"}
		}
	}
	var err error
	if r.masks, err = redact.Compile(r.secrets()...); err != nil {
		return &Unavailable{What: err.Error()}
	}
	return nil
}

// Sweep removes what dead runs left on this machine: containers, volumes and
// directories. It spares runs that are alive, of this program or another.
func (s *Supervisor) Sweep(ctx context.Context) (Reaped, error) {
	reaped, err := s.Engine.Reap(ctx, Alive(s.Now()))
	if err != nil {
		return reaped, err
	}
	for _, f := range reaped.Failed {
		s.Log.Warn("could not remove what a dead run left", "what", f)
	}
	dirs, err := SweepState(s.StateDir)
	if reaped.Containers+reaped.Volumes+dirs > 0 {
		s.Log.Info("removed what dead runs left", "containers", reaped.Containers, "volumes", reaped.Volumes, "directories", dirs)
	}
	return reaped, err
}

func (r *run) readSource(ctx context.Context) error {
	repo, err := workspace.OpenRepo(ctx, r.order.Repo)
	if err != nil {
		return err
	}
	if r.store, err = workspace.NewStore(ctx, filepath.Join(r.claim.Scratch, "store"), repo); err != nil {
		return err
	}
	r.tree, err = r.store.Start(ctx, workspace.StartOptions{SHA: r.c.Start.SHA, Dirty: r.order.Dirty, Deny: DeniedInside(r.c.ReadDenied)})
	if err != nil {
		return err
	}
	if r.tree.PatchDigest != r.c.Start.PatchDigest {
		return &Unavailable{What: "the working copy is not what the contract was derived from any more", Hint: "run again"}
	}
	r.bundle.Record("source.read", map[string]any{"commit": r.tree.Commit, "tree": r.tree.ID, "delivered": r.tree.Delivered, "stats": r.tree.Stats, "omissions": brief(r.tree.Omissions)})
	return nil
}

func (r *run) preflight(ctx context.Context) error {
	if err := r.readEngine(ctx); err != nil {
		return err
	}
	r.bundle.Record("engine.preflight", r.engine.record())
	return nil
}

// record is what the evidence says of the engine; the long lists stand in
// spec.json.
func (f EngineFacts) record() ledger.Engine {
	return ledger.Engine{
		Name: f.Name, Version: f.Version, APIVersion: f.APIVersion, Runtime: f.Runtime, Kernel: f.Kernel,
		CgroupVersion: f.CgroupVersion, Platform: f.Platform, SeccompDigest: f.SeccompDigest,
	}
}

func (r *run) placeShim(ctx context.Context) error {
	r.job = r.makeJob()
	return r.compile(ctx)
}

// makeJob adds to the contract's job what is in no contract: secrets.
func (r *run) makeJob() protocol.Job {
	j := job(r.c)
	for _, ref := range r.c.SecretRefs {
		if ref.Deliver == contract.DeliverFile {
			j.Secrets = append(j.Secrets, protocol.SecretFile{Name: ref.Name, Data: []byte(r.order.Secrets[ref.Name])})
		}
	}
	return j
}

func (r *run) create(ctx context.Context) error {
	if err := r.recordSpec(ledger.TypeCreating, nil); err != nil {
		return err
	}
	return r.instance.create(ctx)
}

// recordSpec puts spec.json into the bundle and into a record of that type.
func (r *run) recordSpec(typ string, more map[string]any) error {
	data, err := contract.EncodeCanonical(r.spec)
	if err != nil {
		return fmt.Errorf("encoding spec: %v", err)
	}
	r.bundle.Write(ledger.FileSpec, data)
	record := map[string]any{"spec": contract.DigestBytes(data), "name": r.spec.Name, "uid": r.spec.UID}
	maps.Copy(record, more)
	r.bundle.Record(typ, record)
	return nil
}

func (r *run) start(ctx context.Context) error {
	if err := r.instance.start(ctx); err != nil {
		return err
	}
	r.recordStarted()
	return nil
}

func (r *run) recordStarted() {
	r.bundle.Record("sandbox.started", map[string]any{"reachable": r.reachable})
}

func (r *run) greet(ctx context.Context) error { return r.instance.greet(ctx) }

// adopt makes a sandbox that waited this run's own.
func (r *run) adopt(context.Context) error {
	if err := r.ready(); err != nil {
		return err
	}
	r.job = r.makeJob()
	r.bundle.Record("engine.preflight", r.engine.record())
	taken := map[string]any{"sandbox": r.name, "made": contract.FormatTime(r.warm.made)}
	if err := r.recordSpec(ledger.TypeTaken, taken); err != nil {
		return err
	}
	r.recordStarted()
	return nil
}

func (r *run) load(ctx context.Context) error {
	stats, err := r.live().Load(ctx, r.tree)
	if err != nil {
		return fmt.Errorf("loading the workspace: %w", err)
	}
	if r.volume != nil {
		if err := r.session.placed(ctx); err != nil {
			return fmt.Errorf("loading the workspace: %v", err)
		}
	}
	r.bundle.Record("workspace.loaded", map[string]any{"entries": stats.Entries, "bytes": stats.Bytes, "direct": r.volume != nil})
	return nil
}

// canaryError says that the canaries' findings end the run.
type canaryError struct{ wrong int }

func (e *canaryError) Error() string {
	return fmt.Sprintf("%d checks of the sandbox were wrong", e.wrong)
}

func (r *run) probeBefore(ctx context.Context) error {
	if err := r.canaries(ctx, StageBefore); err != nil {
		return err
	}
	return r.awaitHolder(ctx)
}

func (r *run) canaries(ctx context.Context, stage string) error {
	asked := Probe(stage, r.c, r.spec)
	got, err := r.session.probe(ctx, asked)
	if err != nil {
		return fmt.Errorf("probing the sandbox: %v", err)
	}
	found := Judge(r.spec, asked, got)
	r.seen.Canaries = append(r.seen.Canaries, found...)
	wrong := Wrong(found)
	r.bundle.Record("sandbox.probed", map[string]any{"stage": stage, "checks": len(found), "wrong": wrong})
	if len(wrong) > 0 {
		return &canaryError{len(wrong)}
	}
	return nil
}
