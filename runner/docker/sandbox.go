package docker

import (
	"context"
	"fmt"
	"strings"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"

	"github.com/countersign-dev/countersign/runner"
)

// sandbox is one container of one run.
type sandbox struct {
	engine *Engine
	spec   runner.Spec
	id     string // the engine's, "" until made
	volume string // made for it, "" for none or an existing one
	unsure bool   // a create was cut off: the container may be there
}

// Start starts the container. Every fault is a [*runner.Unavailable]: there is
// then no sandbox.
func (b *sandbox) Start(ctx context.Context) (runner.Started, error) {
	if err := b.engine.api.ContainerStart(ctx, b.id, container.StartOptions{}); err != nil {
		return runner.Started{}, b.startFailed(ctx, err)
	}
	return runner.Started{WorkspaceDir: b.workspaceDir(ctx)}, nil
}

func (b *sandbox) startFailed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("starting container %s: %w", b.spec.Name, ctx.Err())
	}
	if client.IsErrConnectionFailed(err) {
		return b.engine.explain(err)
	}
	text := err.Error()
	if b.namesPath(text) && (strings.Contains(text, "no such file or directory") || strings.Contains(text, "does not exist")) {
		return unseenPath(text)
	}
	return &runner.Unavailable{What: "the engine could not start the sandbox: " + text, Hint: "look at its log: journalctl -u docker"}
}

// namesPath says whether a message speaks of the entrypoint or of a directory
// of the host.
func (b *sandbox) namesPath(text string) bool {
	if strings.Contains(text, b.spec.Entrypoint[0]) {
		return true
	}
	for _, m := range b.spec.Mounts {
		if m.Kind == runner.MountBind && strings.Contains(text, m.Source) {
			return true
		}
	}
	return false
}

// Wait blocks until the container has ended. The engine may go away meanwhile
// and come back: the exit it recorded is read then. How long that may take is
// the caller's to say, by ctx.
func (b *sandbox) Wait(ctx context.Context) (runner.Exit, error) {
	watch := b.watchCounters(ctx)
	exit, err := b.wait(ctx)
	watch.add(ctx, &exit)
	return exit, err
}

func (b *sandbox) wait(ctx context.Context) (runner.Exit, error) {
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		b.waitOnce(ctx)
		if ctx.Err() != nil {
			return runner.Exit{}, fmt.Errorf("waiting for container %s: %w", b.spec.Name, ctx.Err())
		}
		got, err := b.engine.api.ContainerInspect(ctx, b.id)
		switch {
		case cerrdefs.IsNotFound(err):
			return runner.Exit{}, fmt.Errorf("waiting for container %s: it was removed by somebody else, its exit is unknown", b.spec.Name)
		case err == nil && got.ContainerJSONBase != nil && got.State != nil && !got.State.Running && !got.State.Restarting:
			return exitOf(b.spec.Name, got.State)
		case err == nil:
			pause = 100 * time.Millisecond // the engine is there, the container runs on
		}
		b.engine.log.WarnContext(ctx, "waiting for a container was interrupted", "container", b.spec.Name, "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// waitOnce returns when the container has ended, or when the engine can no
// longer be asked; which of the two is found out by the caller.
func (b *sandbox) waitOnce(ctx context.Context) {
	ended, lost := b.engine.api.ContainerWait(ctx, b.id, container.WaitConditionNotRunning)
	select {
	case <-ended:
	case <-lost:
	}
}

func exitOf(name string, s *container.State) (runner.Exit, error) {
	if s.Status == created {
		return runner.Exit{}, fmt.Errorf("waiting for container %s: it was never started", name)
	}
	return runner.Exit{Code: s.ExitCode, OOMKilled: s.OOMKilled, Error: s.Error}, nil
}

// Kill sends SIGKILL to PID 1, with which everything in the container ends.
func (b *sandbox) Kill(ctx context.Context) error {
	err := b.engine.api.ContainerKill(ctx, b.id, "SIGKILL")
	if err == nil || cerrdefs.IsNotFound(err) {
		return nil
	}
	// "is not running" is a conflict, and so are other things.
	if got, lookErr := b.engine.api.ContainerInspect(ctx, b.id); lookErr == nil && got.ContainerJSONBase != nil && got.State != nil && !got.State.Running {
		return nil
	}
	return fmt.Errorf("killing container %s: %w", b.spec.Name, b.engine.explain(err))
}

// Remove ends the container and removes it and the volume made for it.
func (b *sandbox) Remove(ctx context.Context) error { return b.remove(ctx) }
