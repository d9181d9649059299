package docker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"strings"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"

	"github.com/countersign-dev/countersign/runner"
)

// Create makes the container of a Spec, and its workspace volume, and starts
// nothing. When it returns an error, nothing that it made is left; if that could
// not be achieved, the error says what is.
func (e *Engine) Create(ctx context.Context, spec runner.Spec) (runner.Sandbox, error) {
	facts, err := e.recentFacts(ctx, spec.Isolation)
	if err != nil {
		return nil, err
	}
	if err := checkSpec(spec, facts); err != nil {
		return nil, err
	}
	if err := checkBinds(spec.Mounts, engineSockets(e.socket), realPath); err != nil {
		return nil, err
	}
	img, err := e.imageOf(ctx, spec, facts.Platform)
	if err != nil {
		return nil, err
	}
	profile, _, err := Profile(runtime.GOARCH, spec.Isolation)
	if err != nil {
		return nil, err
	}
	o, err := compile(spec, img, profile)
	if err != nil {
		return nil, err
	}
	box := &sandbox{engine: e, spec: spec}
	if err := e.make(ctx, box, o, img); err != nil {
		return nil, errors.Join(err, box.abandon(ctx))
	}
	return box, nil
}

// make performs the order. It notes in box what it has made, before anything
// can go wrong with it.
func (e *Engine) make(ctx context.Context, box *sandbox, o order, img image.InspectResponse) error {
	if err := e.makeVolume(ctx, box, o); err != nil {
		return err
	}
	made, err := e.api.ContainerCreate(ctx, o.config, o.host, o.network, nil, box.spec.Name)
	if err != nil {
		// A request that was cut off may still have been carried out.
		if !cerrdefs.IsConflict(err) {
			box.unsure = true
		}
		return e.createFailed(err, box.spec)
	}
	box.id = made.ID
	for _, w := range made.Warnings {
		if !isMeaningless(w) {
			return &runner.Unavailable{What: "the engine warned while making the sandbox: " + w, Hint: "a control may not be in force, so it was removed"}
		}
	}
	got, err := e.api.ContainerInspect(ctx, made.ID)
	if err != nil {
		return fmt.Errorf("reading the container back: %w", e.explain(err))
	}
	return readBack(o, img, got)
}

// makeVolume makes the workspace volume, or makes sure of an existing one.
func (e *Engine) makeVolume(ctx context.Context, box *sandbox, o order) error {
	for _, m := range box.spec.Mounts {
		if m.Kind != runner.MountVolume {
			continue
		}
		was, err := e.api.VolumeInspect(ctx, m.Source)
		switch {
		case err != nil && !cerrdefs.IsNotFound(err):
			return fmt.Errorf("inspecting volume %s: %w", m.Source, e.explain(err))
		case m.Existing && err != nil:
			return fmt.Errorf("inspecting volume %s: it does not exist", m.Source)
		case m.Existing && !sameRun(was, box.spec):
			return fmt.Errorf("inspecting volume %s: it belongs to another run", m.Source)
		case m.Existing:
			want := volumeOf(m, box.spec.UID, was.Labels)
			return readBackVolume(want, was)
		case err == nil:
			return fmt.Errorf("making volume %s: there is one of that name already", m.Source)
		}
	}
	if o.volume == nil {
		return nil
	}
	box.volume = o.volume.Name
	made, err := e.api.VolumeCreate(ctx, *o.volume)
	if err != nil {
		return fmt.Errorf("making volume %s: %w", o.volume.Name, e.explain(err))
	}
	return readBackVolume(*o.volume, made)
}

// isMeaningless says whether a warning of the engine's create concerns nothing
// that a sandbox has. Every other warning means that something was discarded.
func isMeaningless(warning string) bool {
	// Docker 20.10 says so even for a container without a network.
	return strings.HasPrefix(warning, "IPv4 forwarding is disabled")
}

// createFailed puts the engine's refusal into words for a person.
func (e *Engine) createFailed(err error, spec runner.Spec) error {
	text := err.Error()
	switch {
	case strings.Contains(text, "bind source path does not exist"):
		return unseenPath(text)
	case cerrdefs.IsConflict(err):
		return fmt.Errorf("making container %s: there is one of that name already: %v", spec.Name, err)
	case cerrdefs.IsNotFound(err):
		return &runner.Unavailable{What: "the image vanished while the sandbox was made: " + text, Hint: "build or load it again"}
	}
	return fmt.Errorf("making container %s: %w", spec.Name, e.explain(err))
}

// unseenPath: this process sees a path (checkBinds looked) and the engine does
// not, or sees something else there.
func unseenPath(text string) *runner.Unavailable {
	return &runner.Unavailable{
		What: "the engine does not see a directory of this machine: " + text,
		Hint: "a remote engine, Docker Desktop, or a job that itself runs in a container cannot be used: run on the machine of the engine",
	}
}

// abandon removes what a failed make has left, whatever became of ctx.
func (b *sandbox) abandon(ctx context.Context) error {
	ctx, cancel := afterwards(ctx)
	defer cancel()
	if b.unsure {
		b.id = b.engine.foundOurs(ctx, b.spec)
	}
	if err := b.remove(ctx); err != nil {
		return fmt.Errorf("clearing up after that: %w", err)
	}
	return nil
}

// foundOurs looks for the container that a failed request may have made: it has
// the Spec's name and every one of its labels, so it is this run's.
func (e *Engine) foundOurs(ctx context.Context, spec runner.Spec) string {
	got, err := e.api.ContainerInspect(ctx, spec.Name)
	if err != nil || got.Config == nil || !holds(got.Config.Labels, spec.Labels) {
		return ""
	}
	return got.ID
}

// holds says whether have has every entry of want.
func holds(have, want map[string]string) bool {
	merged := maps.Clone(want)
	for k := range merged {
		merged[k] = have[k]
	}
	return maps.Equal(merged, want)
}

// created is the one status in which a container has never run.
const created = container.StateCreated
