package workspace

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/countersign-dev/countersign/policy/contract"
)

// Patch says what a patch does.
type Patch struct {
	Stats   contract.PatchStats
	Digest  string // sha256:… of its bytes
	Changes []Change
}

// Change is one changed path. Modes are octal as in a tree, "" where the path
// is not there.
type Change struct {
	Status  string `json:"status"` // A added, D deleted, M changed, T another kind, R renamed
	Path    string `json:"path"`
	From    string `json:"from"` // of a rename
	OldMode string `json:"old_mode"`
	NewMode string `json:"new_mode"`
}

// TooLarge says that a patch has more than Limit bytes.
type TooLarge struct{ Limit int64 }

func (e *TooLarge) Error() string {
	return fmt.Sprintf("the patch has more than %d bytes: change less, have ignore rules cover generated files, or raise outputs.max_bytes", e.Limit)
}

// Patch writes the patch from the start tree to newTree, an id from [Import], in
// git's format with binary contents. No attribute, driver or configuration takes
// part in making it. Before a byte is written to w, git applied it to the start
// tree, in a repository that has nothing but what was delivered, and got
// newTree. A patch of more than maxBytes is a [*TooLarge].
func (s *Store) Patch(ctx context.Context, t *Tree, newTree string, w io.Writer, maxBytes int64) (*Patch, error) {
	p, err := s.patch(ctx, patchJob{
		repo: s.result, base: t.entries, baseTree: t.ID, newTree: newTree,
		objects: filepath.Join(s.send.dir, "objects"), limit: maxBytes,
	}, w)
	if err != nil {
		return nil, fmt.Errorf("making patch: %w", err)
	}
	return p, nil
}

// patchJob is one patch to make and prove.
type patchJob struct {
	repo     git         // has both trees
	base     []treeEntry // all leaves of baseTree
	baseTree string
	newTree  string
	objects  string // directory with the base's objects and not the result's
	limit    int64
}

func (s *Store) patch(ctx context.Context, j patchJob, w io.Writer) (*Patch, error) {
	if !isOID(j.newTree) {
		return nil, fmt.Errorf("%q is not a tree id", j.newTree)
	}
	if j.newTree == j.baseTree { // nothing to make, and nothing to prove
		return &Patch{Digest: contract.DigestBytes(nil), Changes: []Change{}}, nil
	}
	name := s.scratch("patch")
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	defer os.Remove(name)
	defer f.Close()
	h := sha256.New()
	// Renames make a patch short to read, but git does not apply every rename
	// that it finds (a link that makes room for a directory, say). The proof
	// decides; without renames nothing of the kind is left.
	for _, renames := range []string{"-M", "--no-renames"} {
		if err := errors.Join(f.Truncate(0), seekStart(f)); err != nil {
			return nil, err
		}
		h.Reset()
		n, err := diff(ctx, j, renames, io.MultiWriter(f, h))
		if err != nil {
			return nil, err
		}
		if err = s.prove(ctx, j, name, n); err != nil {
			if _, ok := errors.AsType[*unproved](err); ok && renames == "-M" {
				continue
			}
			return nil, err
		}
		changes, err := changes(ctx, j, renames)
		if err != nil {
			return nil, err
		}
		if err := seekStart(f); err != nil {
			return nil, err
		}
		_, err = io.Copy(w, f)
		return &Patch{
			Stats:   contract.PatchStats{Files: len(changes), Bytes: n},
			Digest:  fmt.Sprintf("sha256:%x", h.Sum(nil)),
			Changes: changes,
		}, err
	}
	panic("unreachable: the last way either proves or fails")
}

func seekStart(f *os.File) error {
	_, err := f.Seek(0, io.SeekStart)
	return err
}

func diffTree(j patchJob, renames string, format ...string) []string {
	args := []string{"diff-tree", "-r", renames, "-l400", "--no-ext-diff", "--no-textconv", "--no-color",
		"--ignore-submodules=none", "--diff-algorithm=histogram", "--src-prefix=a/", "--dst-prefix=b/", "--no-relative", "-O/dev/null"}
	return append(append(args, format...), j.baseTree, j.newTree)
}

// diff writes the patch and counts its bytes.
func diff(ctx context.Context, j patchJob, renames string, w io.Writer) (int64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lw := &limitWriter{w: w, left: j.limit, stop: cancel}
	err := j.repo.run(ctx, gitCall{args: diffTree(j, renames, "-p", "--binary", "--full-index"), stdout: lw})
	if lw.over {
		return 0, &TooLarge{j.limit}
	}
	return lw.n, err
}

// limitWriter stops its source when it is full.
type limitWriter struct {
	w    io.Writer
	n    int64
	left int64
	over bool
	stop func()
}

func (l *limitWriter) Write(p []byte) (int, error) {
	if int64(len(p)) > l.left {
		l.over = true
		l.stop()
		return 0, errors.New("full")
	}
	n, err := l.w.Write(p)
	l.n += int64(n)
	l.left -= int64(n)
	return n, err
}

// unproved says that a patch does not lead to the tree it was made from.
type unproved struct{ why string }

func (u *unproved) Error() string {
	return "the patch does not reproduce the result: " + u.why
}

// prove applies the patch to the base in a repository that has the base's
// objects only: with the result's in reach, git would take them from there
// instead of from the patch.
func (s *Store) prove(ctx context.Context, j patchJob, patch string, size int64) error {
	g := git{s.start.bin, s.scratch("proof") + ".git"}
	defer os.RemoveAll(g.dir)
	if err := initBare(g.dir, s.oidLen, j.objects); err != nil {
		return err
	}
	index := filepath.Join(g.dir, "index")
	if err := g.fillIndex(ctx, index, j.base); err != nil {
		return err
	}
	if size > 0 { // git refuses an empty patch
		err := g.run(ctx, gitCall{
			args: []string{"apply", "--cached", "--whitespace=nowarn", patch},
			env:  []string{"GIT_INDEX_FILE=" + index},
		})
		if e, ok := errors.AsType[*gitError](err); ok {
			return &unproved{e.Error()}
		}
		if err != nil {
			return err
		}
	}
	got, err := g.indexTree(ctx, index, true)
	if err != nil {
		return err
	}
	if got != j.newTree {
		return &unproved{fmt.Sprintf("it leads to tree %s, not %s", got, j.newTree)}
	}
	return nil
}

// changes lists what a patch touches.
// https://git-scm.com/docs/git-diff-tree#_raw_output_format
func changes(ctx context.Context, j patchJob, renames string) ([]Change, error) {
	var out bytes.Buffer
	if err := j.repo.run(ctx, gitCall{args: diffTree(j, renames, "--raw", "-z"), stdout: &out}); err != nil {
		return nil, err
	}
	list := []Change{}
	fields := strings.Split(strings.TrimSuffix(out.String(), "\x00"), "\x00")
	for len(fields) > 1 {
		meta := strings.Fields(strings.TrimPrefix(fields[0], ":"))
		if len(meta) != 5 {
			return nil, fmt.Errorf("git diff-tree: unexpected record %q", clip(fields[0]))
		}
		c := Change{Status: meta[4][:1], Path: fields[1], OldMode: present(meta[0]), NewMode: present(meta[1])}
		fields = fields[2:]
		if c.Status == "R" {
			if len(fields) == 0 {
				return nil, errors.New("git diff-tree: a rename without its target")
			}
			c.From, c.Path = c.Path, fields[0]
			fields = fields[1:]
		}
		list = append(list, c)
	}
	return list, nil
}

func present(mode string) string {
	if mode == "000000" {
		return ""
	}
	return mode
}
