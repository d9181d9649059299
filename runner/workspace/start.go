package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// StartOptions say what the start tree is.
type StartOptions struct {
	SHA string // full id of the commit
	// Dirty is a checkout whose present files are the start tree, in place of
	// the commit's: what the commit has and what it does not ignore. "" for the
	// commit's own tree.
	Dirty string
	// Deny lists paths, relative to the workspace, that are not delivered, with
	// all that lies under them, and that count as unchanged whatever comes back.
	Deny []string
}

// Tree is a start tree: what a workspace begins as and its patch is made
// against.
type Tree struct {
	Commit    string
	ID        string // of the start tree
	Delivered string // of the start tree without what is denied; ID if nothing is
	Stats     TreeStats
	// Patch leads from the commit's tree to ID; empty unless Dirty changed
	// something. PatchDigest is its SHA-256 ("sha256:…"), "" when it is empty.
	Patch       []byte
	PatchDigest string
	// Omissions counts what of a dirty checkout is not in the tree.
	Omissions []Omission

	store     *Store
	entries   []treeEntry // all of ID
	delivered []treeEntry
	deny      []string
	commit    string // the synthetic one
	pack      string // path of its pack, without suffix
}

// TreeStats counts a start tree.
type TreeStats struct {
	Files       int64 `json:"files"`
	Symlinks    int64 `json:"symlinks"`
	Submodules  int64 `json:"submodules"`   // delivered as empty directories
	LFSPointers int64 `json:"lfs_pointers"` // delivered as they are
	Denied      int64 `json:"denied"`       // not delivered
	Bytes       int64 `json:"bytes"`        // of contents
	GitBytes    int64 `json:"git_bytes"`    // of the synthetic .git without its index
}

// maxCheckout is the longest path that can be checked out, PATH_MAX less NUL.
const maxCheckout = 4095

// maxStartPatch bounds the patch of a dirty checkout, in bytes.
const maxStartPatch = 256 << 20

// Start makes ready the start tree of a commit. It reads every object's size,
// so that an object that is missing shows here and not half-way through
// [Tree.Send].
func (s *Store) Start(ctx context.Context, o StartOptions) (*Tree, error) {
	t, err := s.startTree(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("preparing start tree: %w", err)
	}
	return t, nil
}

func (s *Store) startTree(ctx context.Context, o StartOptions) (*Tree, error) {
	if !isOID(o.SHA) || len(o.SHA) != 2*s.oidLen {
		return nil, fmt.Errorf("%q is not a full commit id of this repository", o.SHA)
	}
	for _, d := range o.Deny {
		if err := CheckPath(d); err != nil {
			return nil, fmt.Errorf("denied path: %w", err)
		}
	}
	t := &Tree{Commit: o.SHA, store: s, deny: o.Deny}
	var err error
	if t.ID, err = s.start.line(ctx, "rev-parse", "--verify", o.SHA+"^{tree}"); err != nil {
		return nil, fmt.Errorf("%w (%v)", &missing{o.SHA}, err)
	}
	if err := t.list(ctx); err != nil {
		return nil, err
	}
	if o.Dirty != "" {
		if err := t.applyDirty(ctx, o.Dirty); err != nil {
			return nil, fmt.Errorf("reading checkout %s: %w", o.Dirty, err)
		}
	}
	if err := t.deliver(ctx); err != nil {
		return nil, err
	}
	if err := t.countLFS(ctx); err != nil {
		return nil, err
	}
	return t, t.synthesize(ctx)
}

// list reads the leaves of ID and refuses what no checkout would take.
func (t *Tree) list(ctx context.Context) (err error) {
	if t.entries, err = t.store.start.tree(ctx, t.ID); err != nil {
		return err
	}
	old := false
	for i, e := range t.entries {
		if err := checkStart(e); err != nil {
			return fmt.Errorf("the commit holds %q, which cannot be checked out: %v", clip(e.path), err)
		}
		t.entries[i].mode = canonical(e.mode)
		old = old || e.mode != canonical(e.mode)
	}
	if err := checkOrder(t.entries); err != nil {
		return fmt.Errorf("the commit's tree is malformed: %v", err)
	}
	if old {
		// A tree of an old git holds modes that no index keeps; the patch is
		// made against what a checkout makes of it.
		t.ID, err = t.store.start.writeTree(ctx, t.entries, false)
	}
	return err
}

// checkStart refuses a leaf that git or the kernel would refuse to check out.
func checkStart(e treeEntry) error {
	if err := CheckPath(e.path); err != nil {
		return err
	}
	switch {
	case len(e.path) > maxCheckout:
		return fmt.Errorf("its path has %d bytes", len(e.path))
	case refusedPath(e.path, e.mode == modeLink):
		return errors.New("git refuses the name")
	case e.mode == modeLink && (e.size == 0 || e.size > MaxTarget):
		return fmt.Errorf("its link target has %d bytes", e.size)
	}
	switch canonical(e.mode) {
	case modeFile, modeExec, modeLink, modeGitlink:
		return nil
	}
	return fmt.Errorf("its mode is %o", e.mode)
}

// checkOrder refuses leaves that occur twice or lie under another.
func checkOrder(entries []treeEntry) error {
	paths := make([]string, len(entries))
	for i, e := range entries {
		if paths[i] = e.path; i > 0 && e.path <= paths[i-1] {
			return fmt.Errorf("%q is out of order", clip(e.path))
		}
	}
	slices.SortFunc(paths, ComparePaths)
	for i := 1; i < len(paths); i++ {
		if err := follows(paths[i-1], paths[i]); err != nil {
			return err
		}
	}
	return nil
}

// denied says whether a path is not to be delivered.
func (t *Tree) denied(p string) bool {
	for _, d := range t.deny {
		if within(p, d) {
			return true
		}
	}
	return false
}

// deliver drops what is denied and counts the rest.
func (t *Tree) deliver(ctx context.Context) (err error) {
	for _, e := range t.entries {
		if t.denied(e.path) {
			t.Stats.Denied++
			continue
		}
		t.delivered = append(t.delivered, e)
		t.Stats.Bytes += e.size
		switch e.mode {
		case modeGitlink:
			t.Stats.Submodules++
		case modeLink:
			t.Stats.Symlinks++
		default:
			t.Stats.Files++
		}
	}
	t.Delivered = t.ID
	if t.Stats.Denied > 0 {
		t.Delivered, err = t.store.start.writeTree(ctx, t.delivered, false)
	}
	return err
}

// blobs are the delivered leaves that have contents, submodules those that have
// none.
func (t *Tree) blobs() []treeEntry {
	return slices.DeleteFunc(slices.Clone(t.delivered), func(e treeEntry) bool { return e.mode == modeGitlink })
}

func (t *Tree) submodules() []treeEntry {
	return slices.DeleteFunc(slices.Clone(t.delivered), func(e treeEntry) bool { return e.mode != modeGitlink })
}

// countLFS counts the pointers of git-lfs. It looks for them only where a
// .gitattributes mentions the filter, since without one they are just text.
// https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md
func (t *Tree) countLFS(ctx context.Context) error {
	uses := false
	err := t.read(ctx, func(e treeEntry) bool {
		return e.mode != modeLink && (e.path == ".gitattributes" || strings.HasSuffix(e.path, "/.gitattributes")) && e.size < 1<<20
	}, func(_ treeEntry, b []byte) error {
		uses = uses || bytes.Contains(b, []byte("lfs"))
		return nil
	})
	if err != nil || !uses {
		return err
	}
	return t.read(ctx, func(e treeEntry) bool {
		return e.mode != modeLink && e.size >= 100 && e.size < 1024
	}, func(_ treeEntry, b []byte) error {
		if bytes.HasPrefix(b, []byte("version https://git-lfs.github.com/spec/")) {
			t.Stats.LFSPointers++
		}
		return nil
	})
}

// read hands on the contents of the delivered blobs that pick chooses.
func (t *Tree) read(ctx context.Context, pick func(treeEntry) bool, f func(treeEntry, []byte) error) error {
	return readBlobs(ctx, t.store.start, t.delivered, pick, f)
}

func readBlobs(ctx context.Context, g git, entries []treeEntry, pick func(treeEntry) bool, f func(treeEntry, []byte) error) error {
	var chosen []treeEntry
	var oids []string
	for _, e := range entries {
		if e.mode != modeGitlink && pick(e) {
			chosen = append(chosen, e)
			oids = append(oids, e.oid)
		}
	}
	return g.blobs(ctx, oids, func(i int, size int64, r io.Reader) error {
		b, err := readAll(r, size)
		if err != nil {
			return err
		}
		return f(chosen[i], b)
	})
}

// synthesize makes the one commit that the sandbox's .git knows, and a pack of
// exactly its objects. Contents that are packed already are copied as they are;
// nothing is searched for deltas.
func (t *Tree) synthesize(ctx context.Context) (err error) {
	const who = "Countersign"
	const mail = "start@countersign.invalid"
	const date = "1577836800 +0000"
	t.commit, err = t.store.start.lineOf(ctx, gitCall{
		args:  []string{"commit-tree", t.Delivered},
		stdin: strings.NewReader("Start of the run\n"),
		env: []string{
			"GIT_AUTHOR_NAME=" + who, "GIT_AUTHOR_EMAIL=" + mail, "GIT_AUTHOR_DATE=" + date,
			"GIT_COMMITTER_NAME=" + who, "GIT_COMMITTER_EMAIL=" + mail, "GIT_COMMITTER_DATE=" + date,
		},
	})
	if err != nil {
		return err
	}
	base := filepath.Join(t.store.send.dir, "objects", "pack", "pack")
	name, err := t.store.start.lineOf(ctx, gitCall{
		args:  []string{"pack-objects", "-q", "--revs", "--delta-base-offset", "--window=0", "--compression=1", base},
		stdin: strings.NewReader(t.commit + "\n"),
	})
	if err != nil {
		return err
	}
	if !isOID(name) {
		return errors.New("git pack-objects: unexpected answer")
	}
	t.pack = base + "-" + name
	for _, suffix := range []string{".pack", ".idx"} {
		st, err := os.Stat(t.pack + suffix)
		if err != nil {
			return err
		}
		t.Stats.GitBytes += st.Size()
	}
	return nil
}
