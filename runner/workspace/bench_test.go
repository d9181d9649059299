package workspace_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/runner/workspace"
)

// BenchmarkRound times each half of a run on the repository that
// COUNTERSIGN_BENCH_REPO names.
func BenchmarkRound(b *testing.B) {
	dir := os.Getenv("COUNTERSIGN_BENCH_REPO")
	if dir == "" {
		b.Skip("COUNTERSIGN_BENCH_REPO names no repository")
	}
	r, err := workspace.OpenRepo(b.Context(), dir)
	if err != nil {
		b.Fatal(err)
	}
	sha, err := r.Resolve(b.Context(), "HEAD")
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		store, err := workspace.NewStore(b.Context(), filepath.Join(b.TempDir(), "store"), r)
		if err != nil {
			b.Fatal(err)
		}
		lap := stopwatch(b)
		t, err := store.Start(b.Context(), workspace.StartOptions{SHA: sha})
		if err != nil {
			b.Fatal(err)
		}
		lap("start-ms")
		root := newRoot(b, owner())
		d := workspace.Direct{Root: root, UID: owner()}
		if _, err := d.Load(b.Context(), t); err != nil {
			b.Fatal(err)
		}
		lap("load-ms")
		bounds := workspace.Bounds{Entries: 1 << 20, Depth: 100, Bytes: 4 << 30, File: 1 << 30, Time: workspace.WalkTime}
		c, err := store.Capture(b.Context(), d, t, bounds)
		if err != nil {
			b.Fatal(err)
		}
		lap("capture-ms")
		var out bytes.Buffer
		if _, err := store.Patch(b.Context(), t, c.Tree, &out, 1<<30); err != nil {
			b.Fatal(err)
		}
		lap("patch-ms")
	}
}

// stopwatch reports what passed since the last lap.
func stopwatch(b *testing.B) func(string) {
	last := time.Now()
	return func(name string) {
		b.ReportMetric(float64(time.Since(last).Milliseconds()), name)
		last = time.Now()
	}
}
