package runner

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/policy/ledger"
)

// TestBundleSecure: what waits for stable storage is what was written while no
// workload could act, and nothing waits when the statement is made.
func TestBundleSecure(t *testing.T) {
	b := newBundle(t)
	waits := func(when string, want int) {
		t.Helper()
		if len(b.wait) != want || b.Err() != nil {
			t.Errorf("%s: %d files wait, want %d (%v)", when, len(b.wait), want, b.Err())
		}
	}
	b.Write(ledger.FileTask, []byte("task"))
	b.Write(ledger.FileSpec, []byte("spec"))
	waits("before the workload", 2)
	b.Secure(true)
	waits("when it starts", 0)
	b.Write(ledger.FileOutput, []byte("output"))
	b.Record("workload.exited", map[string]any{})
	waits("while it runs", 0)
	b.Secure(false)
	b.Write(ledger.FilePatch, nil)
	waits("after its end", 1)
	s, err := b.Finish(ledger.Predicate{RunID: runOfBundle})
	if err != nil {
		t.Fatal(err)
	}
	waits("in the end", 0)
	got := slices.Sorted(maps.Keys(s.Predicate.Files))
	if want := []string{ledger.FilePatch, ledger.FileTask, ledger.FileLedger, ledger.FileOutput, ledger.FileSpec}; !slices.Equal(got, want) {
		t.Errorf("the statement names %q, want %q", got, want)
	}
}

// TestBundleSecureFails: a disk that does not take what was written is a fault
// of the bundle before anything is started on it.
func TestBundleSecureFails(t *testing.T) {
	b := newBundle(t)
	b.Write(ledger.FileTask, []byte("task"))
	b.wait[0].Close()
	b.Secure(true)
	if err := b.Err(); err == nil || !strings.Contains(err.Error(), "writing evidence") {
		t.Errorf("got %v", err)
	}
	if _, err := b.Finish(ledger.Predicate{}); err == nil {
		t.Error("a bundle that lost a file was finished")
	}
}

const runOfBundle = "run_01kb7v2q8tn4yfpm6s0ehr3wxd"

func newBundle(t *testing.T) *Bundle {
	t.Helper()
	b, err := CreateBundle(filepath.Join(t.TempDir(), "e"), runOfBundle, 0, func() time.Time { return time.Unix(0, 0) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.file.Close(); b.root.Close() })
	return b
}
