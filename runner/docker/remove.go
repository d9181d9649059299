package docker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
)

// removeTries bounds how often a removal that somebody else has begun, or a
// volume that is just being let go, is asked for again; the pauses between add
// up to about ten seconds.
const removeTries = 12

// remove removes the container first: a volume in use cannot go.
func (b *sandbox) remove(ctx context.Context) error {
	var errs []error
	if b.id != "" {
		errs = append(errs, b.engine.removeContainer(ctx, b.id))
	}
	if b.volume != "" {
		errs = append(errs, b.engine.removeVolume(ctx, b.volume))
	}
	return errors.Join(errs...)
}

// removeContainer kills and removes a container with its anonymous volumes. One
// that is not there is no error.
func (e *Engine) removeContainer(ctx context.Context, id string) error {
	err := e.retry(ctx, func() error {
		return e.api.ContainerRemove(ctx, id, container.RemoveOptions{Force: true, RemoveVolumes: true})
	})
	if err != nil {
		return fmt.Errorf("removing container %s: %w", id, e.explain(err))
	}
	return nil
}

// removeVolume removes a volume. One that is not there is no error.
func (e *Engine) removeVolume(ctx context.Context, name string) error {
	err := e.retry(ctx, func() error { return e.api.VolumeRemove(ctx, name, false) })
	if err != nil {
		return fmt.Errorf("removing volume %s: %w", name, e.explain(err))
	}
	return nil
}

// retry repeats a removal while the engine says that the thing is busy.
func (e *Engine) retry(ctx context.Context, attempt func() error) error {
	for try, pause := 1, 20*time.Millisecond; ; try, pause = try+1, min(2*pause, 2*time.Second) {
		err := attempt()
		if err == nil || cerrdefs.IsNotFound(err) {
			return nil
		}
		if try == removeTries || !isBusy(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(pause):
		}
	}
}

// isBusy tells a state that passes from one that stays. Docker's older engines
// say some of it as an internal error ("device or resource busy").
func isBusy(err error) bool {
	text := err.Error()
	return cerrdefs.IsConflict(err) || strings.Contains(text, "already in progress") || strings.Contains(text, "resource busy")
}
