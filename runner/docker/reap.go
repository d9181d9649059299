package docker

import (
	"context"
	"fmt"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/volume"

	"github.com/countersign-dev/countersign/runner"
)

// Reap removes what dead runs have left: every container, then every volume,
// that carries our label and for which alive says false. One that cannot be
// removed is listed and does not stop the rest; the error is for the engine
// not answering at all.
//
// A container that has the label from its image is a stranger's: somebody ran
// that image by hand, and Create refuses such images.
func (e *Engine) Reap(ctx context.Context, alive func(runner.Labels) bool) (runner.Reaped, error) {
	var reaped runner.Reaped
	ours := filters.NewArgs(filters.Arg("label", runner.LabelManaged+"=1"))
	containers, err := e.api.ContainerList(ctx, container.ListOptions{All: true, Filters: ours})
	if err != nil {
		return reaped, fmt.Errorf("listing containers: %w", e.explain(err))
	}
	for _, c := range containers {
		if !isDead(c.Labels, alive) || e.labelledByImage(ctx, c.ImageID) {
			continue
		}
		if err := e.removeContainer(ctx, c.ID); err != nil {
			reaped.Failed = append(reaped.Failed, err.Error())
			continue
		}
		reaped.Containers++
	}
	volumes, err := e.api.VolumeList(ctx, volume.ListOptions{Filters: ours})
	if err != nil {
		return reaped, fmt.Errorf("listing volumes: %w", e.explain(err))
	}
	for _, v := range volumes.Volumes {
		if v == nil || !isDead(v.Labels, alive) {
			continue
		}
		if err := e.removeVolume(ctx, v.Name); err != nil {
			reaped.Failed = append(reaped.Failed, err.Error())
			continue
		}
		reaped.Volumes++
	}
	return reaped, nil
}

// isDead asks alive about what is ours. The label is looked at again: the
// engine's filter is not what spares a stranger's container.
func isDead(labels map[string]string, alive func(runner.Labels) bool) bool {
	return labels[runner.LabelManaged] == "1" && !alive(labels)
}

func (e *Engine) labelledByImage(ctx context.Context, id string) bool {
	img, err := e.api.ImageInspect(ctx, id)
	return err == nil && img.Config != nil && img.Config.Labels[runner.LabelManaged] != ""
}
