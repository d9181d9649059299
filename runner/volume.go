package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/runner/shim/protocol"
	"github.com/countersign-dev/countersign/runner/workspace"
)

// openVolume is a workspace volume that this process reaches by itself. The
// open directory keeps the file system alive when the container dies and the
// engine unmounts it (lazily), so that what the workload left can still be
// captured.
type openVolume struct {
	dir *os.File
	uid int
}

func (v *openVolume) transport() workspace.Transport {
	return workspace.Direct{Root: fmt.Sprintf("/proc/self/fd/%d/.", v.dir.Fd()), UID: v.uid}
}

// holder is a second container that keeps the volume alive where this process
// cannot. It is started beside the way to the work, has to be there before that
// begins, and is asked only when the sandbox died.
type holder struct {
	ready   chan struct{}
	giveUp  context.CancelFunc
	sandbox Sandbox
	session *session
	err     error
}

// chooseTransport decides how the workspace is reached.
func (i *instance) chooseTransport(ctx context.Context, started Started) error {
	if i.transport != TransportStreamed && started.WorkspaceDir != "" {
		dir, err := os.Open(started.WorkspaceDir)
		if err != nil {
			return fmt.Errorf("opening the workspace volume: %v", err)
		}
		i.volume = &openVolume{dir: dir, uid: i.spec.UID}
		return nil
	}
	if i.transport == TransportDirect {
		return &Unavailable{What: "the workspace volume cannot be reached by this process", Hint: "run as root beside the engine, or without the direct transport"}
	}
	for _, m := range i.spec.Mounts {
		if m.Kind == MountVolume && m.ReadOnly {
			return &Unavailable{What: "a read-only workspace cannot be filled through the sandbox", Hint: "run as root beside the engine, or list " + WorkspaceDir + " as writable"}
		}
	}
	i.hold = i.startHolder(context.WithoutCancel(ctx))
	return nil
}

func (i *instance) startHolder(ctx context.Context) *holder {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	h := &holder{ready: make(chan struct{}), giveUp: cancel}
	go func() {
		defer close(h.ready)
		defer cancel()
		h.err = h.start(ctx, i.s.Engine, HoldSpec(i.spec, i.claim.Hold), filepath.Join(i.claim.Hold, filepath.Base(protocol.HoldSocket)), i.shape.Isolation)
	}()
	return h
}

func (h *holder) start(ctx context.Context, engine Engine, spec Spec, socket string, isolation contract.Isolation) error {
	door, err := openDoor(socket)
	if err != nil {
		return err
	}
	defer door.close()
	if h.sandbox, err = engine.Create(ctx, spec); err != nil {
		return err
	}
	if _, err = h.sandbox.Start(ctx); err != nil {
		return err
	}
	h.session, err = door.admit(ctx, spec.UID, isolation)
	return err
}

// awaitHolder returns when the workspace would outlive its sandbox.
func (i *instance) awaitHolder(ctx context.Context) error {
	if i.hold == nil {
		return nil
	}
	select {
	case <-i.hold.ready:
	case <-ctx.Done():
		return fmt.Errorf("waiting for the holder of the workspace: %w", ctx.Err())
	}
	if i.hold.err != nil {
		return fmt.Errorf("holding the workspace: %w", i.hold.err)
	}
	return nil
}

// held is the workspace of a sandbox that died, through the holder.
type held struct{ streamed }

// List implements [workspace.Transport]. A workspace had a .git at least when
// its work began: one without anything at all is another, which the engine made
// anew after it let go of the first. Of that nothing may be said to be deleted.
func (h held) List(ctx context.Context, b workspace.Bounds) (*workspace.Listing, error) {
	l, err := h.streamed.List(ctx, b)
	if err == nil && l.Visited == 0 {
		return nil, errors.New("the workspace went with its sandbox")
	}
	return l, err
}

// remove ends the holder, whose sandbox must go before the volume can. One that
// is still on its way is not waited for.
func (h *holder) remove(ctx context.Context) error {
	h.giveUp()
	<-h.ready
	if h.session != nil {
		h.session.close()
	}
	if h.sandbox == nil {
		return nil
	}
	return h.sandbox.Remove(ctx)
}

// captureTransport is how to reach the workspace after the workload's end: the
// volume itself, the living shim, or the holder.
func (r *run) captureTransport(alive bool) (workspace.Transport, error) {
	switch {
	case r.volume != nil:
		return r.volume.transport(), nil
	case alive:
		return streamed{session: r.session, uid: r.spec.UID}, nil
	case r.hold != nil:
		<-r.hold.ready
		if r.hold.err != nil {
			return nil, fmt.Errorf("reaching the workspace: %v", r.hold.err)
		}
		return held{streamed{session: r.hold.session, uid: r.spec.UID}}, nil
	}
	return nil, errors.New("the sandbox died before its workspace could be reached")
}
