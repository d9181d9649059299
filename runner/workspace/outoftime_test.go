package workspace

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// passing is a context whose time is over after it was asked so often.
type passing struct {
	context.Context
	asks int
}

func (p *passing) Err() error {
	if p.asks--; p.asks < 0 {
		return context.DeadlineExceeded
	}
	return nil
}

// A walk whose time is over says where it was, keeps what it saw, and survives
// the way to the host.
func TestWalkRunsOutOfTime(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"a/1", "a/2", "b/1", "c"} {
		write(t, root+"/"+name, "")
	}
	fd, err := openAt(unix.AT_FDCWD, root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	must(t, err)
	var st unix.Stat_t
	must(t, unix.Fstat(fd, &st))
	w := &walker{b: testBounds, dev: nodeOf(&st), list: &Listing{}}
	defer w.close()
	must(t, w.enter(fd, ""))
	w.walk(&passing{t.Context(), 4}) // a, a/1, a/2, b
	if got, want := flat(w.list), "f a/1 0\nf a/2 0\n- out_of_time b/1\nincomplete out_of_time\n"; got != want || w.list.Visited != 4 {
		t.Errorf("after %d nodes got\n%swant\n%s", w.list.Visited, got, want)
	}
	var wire strings.Builder
	must(t, EncodeListing(&wire, w.list))
	back, err := DecodeListing(strings.NewReader(wire.String()), testBounds)
	must(t, err)
	if flat(back) != flat(w.list) || back.Visited != 4 {
		t.Errorf("the host reads\n%s", flat(back))
	}
}

// Of a tree that could not be read in time nothing is taken, deletions least of
// all, and the error says so.
func TestNothingIsSelectedOutOfTime(t *testing.T) {
	root := t.TempDir()
	must(t, os.WriteFile(root+"/a", nil, 0o644))
	b := testBounds
	b.Time = 0
	l, err := Walk(t.Context(), root, b)
	must(t, err)
	var s Store // which must not be asked for anything
	sel, err := s.Select(t.Context(), &Tree{entries: []treeEntry{{path: "a"}, {path: "b"}}}, l)
	incomplete, ok := errors.AsType[*IncompleteError](err)
	if sel != nil || !ok || incomplete.Why != ReasonTime || incomplete.Visited != 0 {
		t.Fatalf("selected %v: %v", sel, err)
	}
	if text := err.Error(); !strings.Contains(text, "could not be read whole (out_of_time after 0 files and directories)") {
		t.Errorf("it says %q", text)
	}
}
