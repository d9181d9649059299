package runner

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/runner/shim/protocol"
	"github.com/countersign-dev/countersign/runner/workspace"
)

// instance is one sandbox on its way from a shape to a shim that has greeted
// and waits for its job. It knows of no contract and records nothing, so that it
// can be made before its run is known. Its steps are called in their order.
type instance struct {
	s         *Supervisor
	name      string // of the sandbox, see Placement
	shape     Shape
	transport string        // as in Order
	idle      time.Duration // how long it may wait for its run

	claim     *Claim
	engine    EngineFacts
	spec      Spec
	door      *door
	sandbox   Sandbox
	reachable bool
	session   *session
	end       *ending
	hold      *holder     // nil when the volume is reachable
	volume    *openVolume // nil when it is not
}

func (i *instance) takeDirectory(ctx context.Context) error {
	if _, err := i.s.Sweep(ctx); err != nil {
		return err
	}
	var err error
	i.claim, err = NewClaim(i.s.StateDir, i.name)
	return err
}

func (i *instance) readEngine(ctx context.Context) error {
	var err error
	i.engine, err = i.s.Engine.Preflight(ctx, i.shape.Isolation)
	return err
}

// compile finds the image, puts the shim in its place, and decides what the
// engine is told.
func (i *instance) compile(ctx context.Context) error {
	image, err := i.s.Engine.Image(ctx, imageRef(i.shape.Image))
	if err != nil {
		return err
	}
	if image == nil {
		return &Unavailable{What: fmt.Sprintf("image %s (%s) is not on this machine", i.shape.Image.Ref, i.shape.Image.Digest), Hint: "load or build it; nothing is ever pulled"}
	}
	dir, err := installShim(i.s.Shim, filepath.Join(i.s.StateDir, "shim"))
	if err != nil {
		return err
	}
	uid, err := i.claim.takeUID(i.s.Rand)
	if err != nil {
		return err
	}
	i.spec, err = CompileShape(i.shape, Placement{
		Sandbox: i.name, UID: uid, RunDir: i.claim.Dir, State: i.claim.State, SocketDir: i.claim.Sockets, ShimDir: dir,
		Engine: i.engine, Image: *image, Now: i.s.Now(), Idle: i.idle,
	})
	return err
}

// imageRef is the name under which the engine finds a pinned image.
func imageRef(i contract.Image) string {
	if i.DigestKind == contract.DigestImageID {
		return i.Digest
	}
	return i.Ref
}

func (i *instance) create(ctx context.Context) error {
	var err error
	if i.door, err = openDoor(filepath.Join(i.claim.Sockets, filepath.Base(protocol.ControlSocket))); err != nil {
		return err
	}
	i.sandbox, err = i.s.Engine.Create(ctx, i.spec)
	return err
}

func (i *instance) start(ctx context.Context) error {
	started, err := i.sandbox.Start(ctx)
	if err != nil {
		return err
	}
	i.end = watchEnd(context.WithoutCancel(ctx), i.sandbox)
	i.reachable = started.WorkspaceDir != ""
	return i.chooseTransport(ctx, started)
}

// ending waits for a sandbox's end in the background. exit and err may be read
// once done is closed.
type ending struct {
	done   chan struct{}
	cancel context.CancelFunc
	exit   Exit
	err    error
}

func watchEnd(ctx context.Context, sandbox Sandbox) *ending {
	ctx, cancel := context.WithCancel(ctx)
	e := &ending{done: make(chan struct{}), cancel: cancel}
	go func() {
		defer close(e.done)
		e.exit, e.err = sandbox.Wait(ctx)
	}()
	return e
}

func (i *instance) greet(ctx context.Context) error {
	// A container that ends before it greets will never do so.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-ctx.Done():
		case <-i.end.done:
			cancel(&Unavailable{
				What: strings.TrimSuffix(fmt.Sprintf("the sandbox ended with %d before it answered: %s", i.end.exit.Code, i.end.exit.Error), ": "),
				Hint: "are its limits enough for the sandbox's own process, does the engine see this machine's paths, and does the shim run there?",
			})
		}
	}()
	var err error
	i.session, err = i.door.admit(ctx, i.spec.UID, i.shape.Isolation)
	return err
}

// live is how the workspace is reached while the shim lives.
func (i *instance) live() workspace.Transport {
	if i.volume != nil {
		return i.volume.transport()
	}
	return streamed{session: i.session, uid: i.spec.UID}
}

// remove leaves nothing of the instance on the machine, whatever step it got
// to, and goes on after a fault.
func (i *instance) remove(ctx context.Context) error {
	var errs []error
	if i.session != nil {
		i.session.close()
	}
	if i.door != nil {
		i.door.close()
	}
	if i.volume != nil {
		errs = append(errs, i.volume.dir.Close())
	}
	if i.hold != nil {
		errs = append(errs, i.hold.remove(ctx))
	}
	if i.sandbox != nil {
		errs = append(errs, i.sandbox.Remove(ctx))
	}
	if i.end != nil {
		i.end.cancel()
		<-i.end.done
	}
	i.s.failPoint("remove")
	if i.claim != nil {
		errs = append(errs, i.claim.Release())
	}
	return errors.Join(errs...)
}
