package docker

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/image"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/runner"
)

// An image takes part in a run by its files alone. What its configuration says
// is either replaced by the Spec (user, working directory, entrypoint and
// command, stop signal, health check), deleted (environment: a bare KEY in a
// container's configuration removes the image's), covered (volumes, see
// covers), or means nothing without a network (exposed ports).

// Image says what a local reference is; it never pulls.
func (e *Engine) Image(ctx context.Context, ref string) (*contract.ImageFact, error) {
	if ref == "" {
		return nil, fmt.Errorf("inspecting image: the reference is empty")
	}
	found, err := e.api.ImageInspect(ctx, ref)
	if cerrdefs.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("inspecting image %q: %w", ref, e.explain(err))
	}
	return imageFact(found), nil
}

func imageFact(i image.InspectResponse) *contract.ImageFact {
	fact := &contract.ImageFact{
		ID:          i.ID,
		RepoDigests: sorted(i.RepoDigests),
		Platform:    i.Os + "/" + i.Architecture,
		EnvKeys:     []string{},
		Volumes:     []string{},
	}
	if c := i.Config; c != nil {
		fact.EnvKeys = envKeys(c.Env)
		fact.Volumes = slices.Sorted(maps.Keys(c.Volumes))
		fact.Entrypoint = len(c.Entrypoint) > 0
		fact.User = c.User
	}
	return fact
}

// envKeys are the names in an environment, sorted, each once.
func envKeys(env []string) []string {
	keys := make([]string, 0, len(env))
	for _, kv := range env {
		key, _, _ := strings.Cut(kv, "=")
		keys = append(keys, key)
	}
	return sorted(keys)
}

// imageOf inspects the image of a Spec and refuses one that cannot take part.
func (e *Engine) imageOf(ctx context.Context, spec runner.Spec, platform string) (image.InspectResponse, error) {
	found, err := e.api.ImageInspect(ctx, spec.Image)
	if cerrdefs.IsNotFound(err) {
		return found, &runner.Unavailable{
			What: "the image " + spec.Image + " is not on this machine",
			Hint: "images are never pulled by a run: build it (make sandbox-image), load it (docker load), or pull it by digest beforehand",
		}
	}
	if err != nil {
		return found, fmt.Errorf("inspecting image %s: %w", spec.Image, e.explain(err))
	}
	return found, checkImage(found, spec, platform)
}

// checkImage compares an image with the Spec that wants it. Pure.
func checkImage(i image.InspectResponse, spec runner.Spec, platform string) error {
	if i.ID != spec.Image {
		return fmt.Errorf("checking image: asked for %s, the engine has %s", spec.Image, i.ID)
	}
	fact := imageFact(i)
	if fact.Platform != platform {
		return &runner.Unavailable{
			What: fmt.Sprintf("the image %s is for %s, this machine is %s", spec.Image, fact.Platform, platform),
			Hint: "build or pull it for this platform; it is never emulated",
		}
	}
	replaced := slices.Concat(envKeys(spec.Env), spec.DropEnv)
	for _, key := range fact.EnvKeys {
		if key == "" || strings.ContainsAny(key, "\x00\n") {
			return &runner.Unavailable{
				What: fmt.Sprintf("the image %s has a variable without a proper name (%q), which cannot be removed", spec.Image, key),
				Hint: "rebuild the image without it",
			}
		}
		if !slices.Contains(replaced, key) {
			return fmt.Errorf("checking image %s: its variable %s is neither set nor dropped by the spec", spec.Image, key)
		}
	}
	if i.Config != nil {
		for _, key := range ourLabels() {
			if _, claimed := i.Config.Labels[key]; claimed {
				return &runner.Unavailable{
					What: fmt.Sprintf("the image %s carries the label %s, by which the containers of runs are told apart", spec.Image, key),
					Hint: "rebuild the image without it",
				}
			}
		}
	}
	return nil
}

func ourLabels() []string {
	return []string{runner.LabelManaged, runner.LabelSandbox, runner.LabelDeadline, runner.LabelRunDir, runner.LabelUID}
}
