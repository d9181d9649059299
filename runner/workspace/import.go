package workspace

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os/exec"
	"slices"
)

// wholeFile is the largest file, in bytes, that is compared with the start tree
// before it is handed to git.
const wholeFile = 4 << 20

// Import reads the contents of sel.Want, as [SendFiles] sends them, and returns
// the id of the result tree: what the selection keeps and what it carries over.
// Files that are as they were are recognised by their own object id and stored
// nowhere again.
func (s *Store) Import(ctx context.Context, t *Tree, sel *Selection, contents io.Reader, b Bounds) (string, error) {
	entries, err := importBlobs(ctx, s.result, s.oidLen, t.entries, sel, contents, b)
	if err == nil && sameEntries(entries, t.entries) {
		return t.ID, nil
	}
	var id string
	if err == nil {
		id, err = s.result.writeTree(ctx, entries, false)
	}
	if err != nil {
		return "", fmt.Errorf("importing result: %w", err)
	}
	return id, nil
}

// sameEntries says whether a result has the leaves of the start tree, which are
// sorted.
func sameEntries(result, start []treeEntry) bool {
	sorted := slices.SortedFunc(slices.Values(result), func(a, b treeEntry) int { return cmp.Compare(a.path, b.path) })
	return slices.EqualFunc(sorted, start, func(a, b treeEntry) bool { return a.path == b.path && a.mode == b.mode && a.oid == b.oid })
}

func importTree(ctx context.Context, g git, oidLen int, start []treeEntry, sel *Selection, contents io.Reader, b Bounds) (string, error) {
	entries, err := importBlobs(ctx, g, oidLen, start, sel, contents, b)
	if err != nil {
		return "", err
	}
	return g.writeTree(ctx, entries, false)
}

// importBlobs stores what is new and returns the leaves of the result.
func importBlobs(ctx context.Context, g git, oidLen int, start []treeEntry, sel *Selection, contents io.Reader, b Bounds) ([]treeEntry, error) {
	im := &importer{g: g, oidLen: oidLen, start: make(map[string]treeEntry, len(start)), tree: sel.carried}
	for _, e := range start {
		im.start[e.path] = e
	}
	defer im.abort()
	for _, e := range sel.Keep {
		if e.Kind == Symlink {
			if err := im.small(ctx, e, []byte(e.Target)); err != nil {
				return nil, err
			}
		}
	}
	_, err := ReceiveFiles(contents, sel.Want, b, func(e Entry, r io.Reader) error {
		return im.file(ctx, e, r)
	})
	if err != nil {
		return nil, err
	}
	return im.tree, im.finish(ctx)
}

// importer stores blobs through one `git fast-import`, started for the first
// blob that is new.
type importer struct {
	g      git
	oidLen int
	start  map[string]treeEntry
	tree   []treeEntry
	buf    []byte // of one file

	cmd    *exec.Cmd
	in     io.WriteCloser
	call   gitCall
	stderr tail
}

func (im *importer) add(e Entry, oid string) {
	mode := uint32(modeFile)
	switch e.Kind {
	case Executable:
		mode = modeExec
	case Symlink:
		mode = modeLink
	}
	im.tree = append(im.tree, treeEntry{path: e.Path, mode: mode, oid: oid, size: e.Size})
}

func (im *importer) file(ctx context.Context, e Entry, r io.Reader) error {
	if e.Size <= wholeFile {
		im.buf = slices.Grow(im.buf[:0], int(e.Size)+1)[:e.Size] // and the line break of small
		if _, err := io.ReadFull(r, im.buf); err != nil {
			return early(err)
		}
		return im.small(ctx, e, im.buf)
	}
	if err := im.begin(ctx, e.Size); err != nil {
		return err
	}
	h := newHash(im.oidLen)
	h.Write(blobHeader(e.Size))
	n, err := io.Copy(io.MultiWriter(h, im.in), r)
	if err == nil && n != e.Size {
		err = errTruncated
	}
	if err != nil {
		return err
	}
	im.add(e, fmt.Sprintf("%x", h.Sum(nil)))
	_, err = io.WriteString(im.in, "\n")
	return err
}

func (im *importer) small(ctx context.Context, e Entry, b []byte) error {
	oid := oidOf(im.oidLen, b)
	im.add(e, oid)
	if was, ok := im.start[e.Path]; ok && was.oid == oid {
		return nil
	}
	if err := im.begin(ctx, int64(len(b))); err != nil {
		return err
	}
	_, err := im.in.Write(append(b, '\n'))
	return err
}

// begin opens a blob of size bytes in the stream.
// https://git-scm.com/docs/git-fast-import#_blob
func (im *importer) begin(ctx context.Context, size int64) error {
	if im.cmd == nil {
		im.call = gitCall{args: []string{"fast-import", "--quiet", "--depth=0", "--done"}, set: []string{"fastimport.unpackLimit=1"}}
		cmd := im.g.command(ctx, im.call, &im.stderr)
		in, err := cmd.StdinPipe()
		if err != nil {
			return err
		}
		if err := cmd.Start(); err != nil {
			return err
		}
		im.cmd, im.in = cmd, in
	}
	_, err := fmt.Fprintf(im.in, "blob\ndata %d\n", size)
	return err
}

func (im *importer) finish(ctx context.Context) error {
	if im.cmd == nil {
		return nil
	}
	_, err := io.WriteString(im.in, "done\n")
	im.in.Close()
	werr := im.cmd.Wait()
	im.cmd = nil
	if werr != nil {
		return callError(ctx, im.call, werr, &im.stderr)
	}
	return err
}

// abort ends a fast-import whose stream will not be finished; without its
// "done" it keeps nothing.
func (im *importer) abort() {
	if im.cmd != nil {
		im.in.Close()
		im.cmd.Wait()
	}
}
