package runner

import (
	"slices"

	"github.com/countersign-dev/countersign/policy/contract"
)

// Shape is all of a contract that decides how its sandbox is created. Two
// contracts of one shape can run in sandboxes made alike, so that one can be
// made before its run is known.
type Shape struct {
	Image     contract.Image     `json:"image"`
	Isolation contract.Isolation `json:"isolation"`
	Workdir   string             `json:"workdir"`
	// ReadOnly says that the workspace cannot be written.
	ReadOnly bool `json:"read_only"`
	// Masked are the denied paths that an image could hold, sorted.
	Masked []string        `json:"masked"`
	Limits contract.Limits `json:"limits"`
	// SecretFiles says that there is a place for them.
	SecretFiles bool `json:"secret_files"`
}

// ShapeOf is pure.
func ShapeOf(c contract.Contract) Shape {
	s := Shape{Image: c.Image, Isolation: c.Isolation, Workdir: c.Workdir, ReadOnly: true, Masked: deniedOutside(c.ReadDenied), Limits: c.Limits}
	for _, r := range c.WritableRoots {
		s.ReadOnly = s.ReadOnly && r.Path != WorkspaceDir
	}
	slices.Sort(s.Masked)
	s.SecretFiles = slices.ContainsFunc(c.SecretRefs, func(r contract.SecretRef) bool { return r.Deliver == contract.DeliverFile })
	// What only a running workload is held to is not in the container; the wall
	// clock is in its label.
	s.Limits.LogMB, s.Limits.WaitSec, s.Limits.CostUSD, s.Limits.Grant = 0, 0, 0, nil
	return s
}

// Key names a shape: equal shapes have equal keys.
func (s Shape) Key() (string, error) { return contract.DigestOf(s) }
