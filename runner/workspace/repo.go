package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// Repo is a user's git repository, read only: its refs and objects.
type Repo struct {
	GitDir    string // absolute; of a linked worktree its own directory
	CommonDir string // holds objects and refs
	Worktree  string // the checkout's top directory, "" for a bare repository

	git    git
	format string // of object ids, as git names it
}

// MaxReadFile is the largest file in bytes that [Repo.ReadFile] returns.
const MaxReadFile = 1 << 20

// ErrNoDefaultBranch says that a repository names no default branch.
var ErrNoDefaultBranch = errors.New("no default branch: neither origin/HEAD nor main exists; set one with `git remote set-head origin --auto`, or name the policy by file")

// OpenRepo finds the repository that dir lies in: a checkout or any directory of
// it, a linked worktree, a submodule, or a bare repository. It starts nothing:
// the search is our own, so that no configuration is read for it.
func OpenRepo(ctx context.Context, dir string) (*Repo, error) {
	bin, err := findGit()
	if err != nil {
		return nil, err
	}
	r, err := discover(dir)
	if err != nil {
		return nil, fmt.Errorf("opening repository: %w", err)
	}
	r.git = git{bin, r.GitDir}
	if r.format, err = r.git.line(ctx, "rev-parse", "--show-object-format"); err != nil {
		return nil, fmt.Errorf("opening repository %s: %w", r.GitDir, err)
	}
	return r, nil
}

func discover(dir string) (*Repo, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	top, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return nil, err
	}
	for d := top; ; d = filepath.Dir(d) {
		r, err := repoAt(d)
		if r != nil || err != nil {
			return r, err
		}
		if d == filepath.Dir(d) {
			return nil, fmt.Errorf("no git repository at %s or above it: run inside one, name one with --repo, or make one with `git init` and a first commit", abs)
		}
	}
}

// repoAt looks at one directory; nil when it is no repository.
func repoAt(d string) (*Repo, error) {
	dotGit := filepath.Join(d, ".git")
	st, err := os.Stat(dotGit)
	switch {
	case err == nil && st.IsDir():
		if common, ok := commonDir(dotGit); ok {
			return &Repo{GitDir: dotGit, CommonDir: common, Worktree: d}, nil
		}
	case err == nil && st.Mode().IsRegular():
		to, err := pointer(dotGit, "gitdir: ")
		if err != nil {
			return nil, err
		}
		common, ok := commonDir(to)
		if !ok {
			return nil, fmt.Errorf("%s points to %s, which is no git directory: its repository was moved or removed (see `git worktree repair`)", dotGit, to)
		}
		return &Repo{GitDir: to, CommonDir: common, Worktree: d}, nil
	}
	if common, ok := commonDir(d); ok {
		return &Repo{GitDir: d, CommonDir: common}, nil
	}
	return nil, nil
}

// commonDir says where the objects and refs of a git directory are, and whether
// it is a git directory at all.
func commonDir(d string) (string, bool) {
	if _, err := os.Lstat(filepath.Join(d, "HEAD")); err != nil {
		return "", false
	}
	common := d
	if to, err := pointer(filepath.Join(d, "commondir"), ""); err == nil {
		common = to
	}
	for _, name := range []string{"objects", "refs"} {
		if st, err := os.Stat(filepath.Join(common, name)); err != nil || !st.IsDir() {
			return "", false
		}
	}
	return common, true
}

// pointer reads a file that holds one path, relative to the file's directory.
func pointer(file, prefix string) (string, error) {
	st, err := os.Stat(file)
	if err != nil {
		return "", err
	}
	if !st.Mode().IsRegular() || st.Size() > 8<<10 {
		return "", fmt.Errorf("%s does not name a directory", file)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	to, ok := strings.CutPrefix(strings.TrimRight(string(b), "\r\n"), prefix)
	if !ok || to == "" {
		return "", fmt.Errorf("%s does not name a directory", file)
	}
	if !filepath.IsAbs(to) {
		to = filepath.Join(filepath.Dir(file), to)
	}
	return filepath.Clean(to), nil
}

// Resolve says which commit a revision names, as its full object id.
func (r *Repo) Resolve(ctx context.Context, rev string) (string, error) {
	if rev == "" || strings.HasPrefix(rev, "-") || strings.ContainsRune(rev, 0) {
		return "", fmt.Errorf("resolving revision %q: not a revision; name a commit, branch or tag", rev)
	}
	// In two steps where it is no plain name: after ":/text" a suffix would be
	// part of the text.
	sha, err := rev, error(nil)
	if !plainRev(rev) {
		sha, err = r.git.line(ctx, "rev-parse", "--verify", rev)
	}
	if err == nil {
		sha, err = r.git.line(ctx, "rev-parse", "--verify", sha+"^{commit}")
	}
	if err != nil {
		if ctx.Err() != nil {
			return "", err
		}
		return "", fmt.Errorf("resolving revision %q: no such commit in %s; fetch it, or commit first (%v)", rev, r.GitDir, err)
	}
	if !isOID(sha) {
		return "", fmt.Errorf("resolving revision %q: git answered %q", rev, sha)
	}
	return sha, nil
}

// plainRev says whether a revision is nothing but a name or an object id.
func plainRev(rev string) bool {
	return !strings.ContainsFunc(rev, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '/' && r != '_'
	})
}

// DefaultBranch says which branch the policy is read from and its commit: what
// origin/HEAD points to, else in a bare repository what its own HEAD points to,
// else main. The name is the branch's short one. Without any the error is
// [ErrNoDefaultBranch].
func (r *Repo) DefaultBranch(ctx context.Context) (ref, sha string, err error) {
	const remotes = "refs/remotes/origin/"
	candidates := []string{"refs/heads/main", remotes + "main"}
	if head, err := r.git.line(ctx, "symbolic-ref", "--quiet", remotes+"HEAD"); err == nil && strings.HasPrefix(head, remotes) {
		candidates = append([]string{head}, candidates...)
	} else if head, err := r.git.line(ctx, "symbolic-ref", "--quiet", "HEAD"); r.Worktree == "" && err == nil && strings.HasPrefix(head, "refs/heads/") {
		candidates = append([]string{head}, candidates...)
	}
	for _, c := range candidates {
		sha, err := r.git.line(ctx, "rev-parse", "--verify", "--quiet", c+"^{commit}")
		if ctx.Err() != nil {
			return "", "", ctx.Err()
		}
		if err == nil && isOID(sha) {
			return strings.TrimPrefix(strings.TrimPrefix(c, remotes), "refs/heads/"), sha, nil
		}
	}
	return "", "", ErrNoDefaultBranch
}

// ReadFile returns a regular file of a commit's tree, and false when the tree
// has nothing there. A link, a directory, a submodule or a file over
// [MaxReadFile] bytes is an error. sha is a full object id.
func (r *Repo) ReadFile(ctx context.Context, sha, path string) ([]byte, bool, error) {
	b, found, err := r.readFile(ctx, sha, path)
	if err != nil {
		return nil, false, fmt.Errorf("reading %q of %s: %w", path, sha, err)
	}
	return b, found, nil
}

func (r *Repo) readFile(ctx context.Context, sha, path string) ([]byte, bool, error) {
	if !isOID(sha) {
		return nil, false, errors.New("not a full object id")
	}
	if err := CheckPath(path); err != nil {
		return nil, false, err
	}
	var out bytes.Buffer
	err := r.git.run(ctx, gitCall{args: []string{"ls-tree", "-z", "-l", "--full-tree", sha, "--", path}, stdout: &out})
	if err != nil {
		return nil, false, err
	}
	entries, err := parseTree(out.Bytes())
	if err != nil || len(entries) == 0 {
		return nil, false, err
	}
	e := entries[0]
	switch {
	case len(entries) != 1 || e.path != path || canonical(e.mode) != modeFile && canonical(e.mode) != modeExec:
		return nil, false, errors.New("it is not a regular file")
	case e.size > MaxReadFile:
		return nil, false, fmt.Errorf("it has %d bytes, more than %d", e.size, MaxReadFile)
	}
	var b []byte
	err = r.git.blobs(ctx, []string{e.oid}, func(_ int, size int64, rd io.Reader) (err error) {
		b, err = readAll(rd, size)
		return err
	})
	return b, err == nil, err
}
