package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Selection is what of a listing becomes the result tree.
type Selection struct {
	Keep    []Entry   // sorted by ComparePaths
	Want    []Entry   // the regular files among Keep, whose contents are needed
	LeftOut []LeftOut // by the selection; what the walk left out is in the listing

	carried []treeEntry // of the start tree, unchanged whatever was listed
}

// WantPaths are the paths of Want.
func (s *Selection) WantPaths() []string {
	paths := make([]string, len(s.Want))
	for i, e := range s.Want {
		paths[i] = e.Path
	}
	return paths
}

// IncompleteError says that a walk could not see the whole tree: what is
// missing from it may be there, so no patch can be made.
type IncompleteError struct {
	Why     Reason
	Visited int64
}

func (e *IncompleteError) Error() string {
	return fmt.Sprintf("the workspace could not be read whole (%s after %d files and directories): remove what the workload left there, or raise limits.files", e.Why, e.Visited)
}

// Select decides which listed entries make the result tree: not what the start
// tree's ignore rules exclude (what the start tree itself has is never
// ignored), not what lies at a denied path or in a submodule, not names that
// git refuses. Submodules, denied paths, and what of the start tree the walk
// could not look at are carried over unchanged, never taken for deleted. The
// ignore rules are those of real git, run in a directory of ours that holds the
// start tree's .gitignore files and nothing else.
func (s *Store) Select(ctx context.Context, t *Tree, l *Listing) (*Selection, error) {
	rules := func(dir *os.Root) error {
		return readBlobs(ctx, s.start, t.entries, func(e treeEntry) bool {
			return e.mode != modeLink && isIgnoreFile(e.path)
		}, func(e treeEntry, b []byte) error { return writeRules(dir, e.path, b) })
	}
	sel, err := s.selectEntries(ctx, t, l, rules, nil)
	if err != nil {
		return nil, fmt.Errorf("selecting files: %w", err)
	}
	return sel, nil
}

func isIgnoreFile(p string) bool { return p == ".gitignore" || strings.HasSuffix(p, "/.gitignore") }

func writeRules(dir *os.Root, path string, b []byte) error {
	if err := dir.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return dir.WriteFile(path, b, 0o600)
}

// selectEntries is Select with the ignore rules that rules writes into a
// directory, and lines that git reads as info/exclude.
func (s *Store) selectEntries(ctx context.Context, t *Tree, l *Listing, rules func(*os.Root) error, exclude []byte) (*Selection, error) {
	if l.Incomplete != 0 {
		return nil, &IncompleteError{l.Incomplete, l.Visited}
	}
	c := newChooser(t, l)
	fresh := c.first(l.Entries)
	ignored, err := s.ignored(ctx, fresh, rules, exclude)
	if err != nil {
		return nil, err
	}
	c.second(ignored)
	return &c.sel, nil
}

// chooser sorts listed entries into kept and left out.
type chooser struct {
	t       *Tree
	start   map[string]treeEntry
	modules map[string]bool
	hidden  map[string]bool // places that the walk could not look at
	cand    []Entry
	sel     Selection
}

func newChooser(t *Tree, l *Listing) *chooser {
	c := &chooser{t: t, start: make(map[string]treeEntry, len(t.entries)), modules: map[string]bool{}, hidden: map[string]bool{}}
	for _, e := range t.entries {
		c.start[e.path] = e
		if e.mode == modeGitlink {
			c.modules[e.path] = true
		}
	}
	for _, x := range l.LeftOut {
		if x.Reason.hides() {
			c.hidden[x.Path] = true
		}
	}
	return c
}

func (c *chooser) leave(p string, why Reason) {
	c.sel.LeftOut = append(c.sel.LeftOut, LeftOut{p, why})
}

// anyAbove says whether set has p or a directory above it.
func anyAbove(set map[string]bool, p string) bool {
	if len(set) == 0 {
		return false
	}
	for i := 0; i <= len(p); i++ {
		if (i == len(p) || p[i] == '/') && set[p[:i]] {
			return true
		}
	}
	return false
}

// first drops what may never be kept and returns the paths that only ignore
// rules can still exclude.
func (c *chooser) first(entries []Entry) (fresh []string) {
	for _, e := range entries {
		switch {
		case c.t.denied(e.Path):
			c.leave(e.Path, ReasonDenied)
		case anyAbove(c.modules, e.Path):
			c.leave(e.Path, ReasonSubmodule)
		case len(e.Path) > maxCheckout || refusedPath(e.Path, e.Kind == Symlink):
			c.leave(e.Path, ReasonName)
		default:
			c.cand = append(c.cand, e)
			if _, ok := c.start[e.Path]; !ok {
				fresh = append(fresh, e.Path)
			}
		}
	}
	return fresh
}

// second drops what is ignored, finds what is carried over, and drops what
// stands in its way.
func (c *chooser) second(ignored map[string]bool) {
	kept := make(map[string]bool, len(c.cand))
	for _, e := range c.cand {
		if !ignored[e.Path] {
			kept[e.Path] = true
		}
	}
	carried, parents := map[string]bool{}, map[string]bool{}
	for _, e := range c.t.entries {
		if e.mode == modeGitlink || c.t.denied(e.path) || !kept[e.path] && anyAbove(c.hidden, e.path) {
			c.sel.carried = append(c.sel.carried, e)
			carried[e.path] = true
			for i := range len(e.path) {
				if e.path[i] == '/' {
					parents[e.path[:i]] = true
				}
			}
		}
	}
	for _, e := range c.cand {
		switch {
		case ignored[e.Path]:
			c.leave(e.Path, ReasonIgnored)
		case parents[e.Path] || anyAbove(carried, e.Path):
			c.leave(e.Path, ReasonConflict)
		default:
			c.sel.Keep = append(c.sel.Keep, e)
			if e.Kind != Symlink {
				c.sel.Want = append(c.sel.Want, e)
			}
		}
	}
	slices.SortStableFunc(c.sel.LeftOut, func(a, b LeftOut) int { return ComparePaths(a.Path, b.Path) })
}

// ignored asks git which paths the rules exclude. The paths do not exist where
// git looks, so it has nothing but the rules to go by.
func (s *Store) ignored(ctx context.Context, paths []string, rules func(*os.Root) error, exclude []byte) (map[string]bool, error) {
	set := map[string]bool{}
	if len(paths) == 0 {
		return set, nil
	}
	dir := s.scratch("ignore")
	defer os.RemoveAll(dir)
	g := git{s.start.bin, filepath.Join(dir, "git")}
	tree := filepath.Join(dir, "tree")
	if err := errors.Join(initBare(g.dir, s.oidLen), os.Mkdir(tree, 0o700)); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(g.dir, "info", "exclude"), exclude, 0o600); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(tree)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	if err := rules(root); err != nil {
		return nil, fmt.Errorf("writing ignore rules: %w", err)
	}
	var out bytes.Buffer
	err = g.run(ctx, gitCall{
		args: []string{"check-ignore", "--no-index", "--stdin", "-z"},
		set:  []string{"core.bare=false"},
		// check-ignore refuses the setting that makes a path literal; a path
		// that begins with "./" has no magic either.
		env:    []string{"GIT_WORK_TREE=" + tree, "GIT_LITERAL_PATHSPECS=0"},
		cwd:    tree,
		stdin:  strings.NewReader("./" + strings.Join(paths, "\x00./") + "\x00"),
		stdout: &out,
	})
	if e, ok := errors.AsType[*gitError](err); ok && e.code == 1 {
		err = nil // none is ignored
	}
	for p := range strings.SplitSeq(strings.TrimSuffix(out.String(), "\x00"), "\x00") {
		set[strings.TrimPrefix(p, "./")] = true
	}
	return set, err
}
