package workspace

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"time"
)

// dirtyBounds bound the walk of a person's own checkout. It passes through what
// is ignored too, so it is wide; what is kept is bounded by the sandbox.
var dirtyBounds = Bounds{Entries: 4 << 20, Depth: MaxDepth, Bytes: 1 << 50, File: 1 << 40, Time: 10 * time.Minute}

// applyDirty makes the start tree that of a checkout's present files. They are
// read by our walker, and git decides what is ignored by the checkout's own
// .gitignore files and the repository's info/exclude; no git runs in the
// checkout, so its filters (git-lfs, line ends) take no part and files are
// taken as they are.
func (t *Tree) applyDirty(ctx context.Context, dir string) error {
	s := t.store
	given, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if top, err := os.Stat(s.from.Worktree); err != nil || !os.SameFile(given, top) {
		return fmt.Errorf("it is not the top directory of the repository's checkout (%q)", s.from.Worktree)
	}
	dir = s.from.Worktree // without a link as its last part
	list, err := Walk(ctx, dir, dirtyBounds)
	if err != nil {
		return err
	}
	exclude, err := readExclude(filepath.Join(s.from.CommonDir, "info", "exclude"))
	if err != nil {
		return err
	}
	dropNested(t, list)
	sel, err := s.selectEntries(ctx, t, list, dirtyRules(dir, list), exclude)
	if err != nil {
		return err
	}
	pr, pw := io.Pipe()
	go func() {
		_, err := SendFiles(ctx, pw, dir, sel.WantPaths(), dirtyBounds)
		pw.CloseWithError(err)
	}()
	id, err := importTree(ctx, s.start, s.oidLen, t.entries, sel, pr, dirtyBounds)
	pr.Close()
	if err != nil {
		return fmt.Errorf("%w (if a file changed meanwhile, run again)", err)
	}
	t.Omissions = Omissions(list.LeftOut, sel.LeftOut)
	return t.rebase(ctx, id)
}

// rebase makes id the start tree and remembers the patch that leads to it.
func (t *Tree) rebase(ctx context.Context, id string) error {
	if id == t.ID {
		return nil
	}
	var out bytes.Buffer
	s := t.store
	p, err := s.patch(ctx, patchJob{
		repo: s.start, base: t.entries, baseTree: t.ID, newTree: id,
		objects: filepath.Join(s.from.CommonDir, "objects"), limit: maxStartPatch,
	}, &out)
	if err != nil {
		return err
	}
	t.Patch, t.PatchDigest = out.Bytes(), p.Digest
	t.ID = id
	return t.list(ctx)
}

// dropNested leaves out what lies in a repository inside the checkout, as git
// does, unless the commit has it.
func dropNested(t *Tree, l *Listing) {
	nested := map[string]bool{}
	for _, x := range l.LeftOut {
		if dir := path.Dir(x.Path); x.Reason == ReasonGit && dir != "." {
			nested[dir] = true
		}
	}
	if len(nested) == 0 {
		return
	}
	has := make(map[string]bool, len(t.entries))
	for _, e := range t.entries {
		has[e.path] = true
	}
	kept := l.Entries[:0]
	for _, e := range l.Entries {
		if has[e.Path] || !anyAbove(nested, e.Path) {
			kept = append(kept, e)
		}
	}
	l.Entries = kept
}

// dirtyRules copies the checkout's ignore files.
func dirtyRules(dir string, l *Listing) func(*os.Root) error {
	return func(to *os.Root) error {
		from, err := os.OpenRoot(dir)
		if err != nil {
			return err
		}
		defer from.Close()
		for _, e := range l.Entries {
			if e.Kind == Symlink || !isIgnoreFile(e.Path) || e.Size > 1<<20 || len(e.Path) > maxCheckout {
				continue
			}
			b, err := from.ReadFile(e.Path)
			if err != nil {
				return err
			}
			if err := writeRules(to, e.Path, b); err != nil {
				return err
			}
		}
		return nil
	}
}

func readExclude(file string) ([]byte, error) {
	st, err := os.Stat(file)
	if err != nil || !st.Mode().IsRegular() || st.Size() > 1<<20 {
		return nil, nil
	}
	return os.ReadFile(file)
}
