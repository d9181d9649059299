package docker

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/volume"

	"github.com/countersign-dev/countersign/runner"
)

// Description is all that the engine holds of one run, for whoever looks for
// what should not be there.
type Description struct {
	// Containers and Volumes are the names of those that carry the run's label.
	Containers []string
	Volumes    []string
	// Text is the engine's own records of them, as JSON: each container with
	// what it changed of its image, each volume, and the images' layers.
	Text []byte
}

// Describe reads what the engine holds of a run. It changes nothing. A run of
// which nothing is left has an empty description and no error.
func (e *Engine) Describe(ctx context.Context, runID string) (Description, error) {
	var d Description
	var records []any
	ours := filters.NewArgs(filters.Arg("label", runner.LabelSandbox+"="+runID))
	containers, err := e.api.ContainerList(ctx, container.ListOptions{All: true, Filters: ours})
	if err != nil {
		return d, fmt.Errorf("listing containers: %w", e.explain(err))
	}
	for _, c := range containers {
		inspected, err := e.api.ContainerInspect(ctx, c.ID)
		if err != nil {
			return d, fmt.Errorf("inspecting container: %w", e.explain(err))
		}
		changes, err := e.api.ContainerDiff(ctx, c.ID)
		if err != nil {
			return d, fmt.Errorf("reading a container's changes: %w", e.explain(err))
		}
		layers, err := e.api.ImageHistory(ctx, c.ImageID)
		if err != nil {
			return d, fmt.Errorf("reading an image's layers: %w", e.explain(err))
		}
		d.Containers = append(d.Containers, inspected.Name)
		records = append(records, inspected, changes, layers)
	}
	volumes, err := e.api.VolumeList(ctx, volume.ListOptions{Filters: ours})
	if err != nil {
		return d, fmt.Errorf("listing volumes: %w", e.explain(err))
	}
	for _, v := range volumes.Volumes {
		d.Volumes = append(d.Volumes, v.Name)
		records = append(records, v)
	}
	if d.Text, err = json.Marshal(records); err != nil {
		return d, fmt.Errorf("encoding the engine's records: %v", err)
	}
	return d, nil
}
