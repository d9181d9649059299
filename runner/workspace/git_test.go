package workspace_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/runner/workspace"
	"github.com/countersign-dev/countersign/runner/workspace/workspacetest"
)

const commit = "git -c user.name=t -c user.email=t@t commit -q --allow-empty"

func sh(t testing.TB, dir, script string) string {
	t.Helper()
	out, err := workspacetest.Script(t.Context(), dir, nil, script)
	if err != nil {
		t.Fatalf("%s\n%v: %s", script, err, out)
	}
	return strings.TrimSuffix(out, "\n")
}

// newRepo makes a repository in a fresh directory by a script.
func newRepo(t testing.TB, script string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "repo")
	sh(t, filepath.Dir(dir), "git init -q -b main repo")
	sh(t, dir, script)
	return dir
}

func open(t testing.TB, dir string) *workspace.Repo {
	t.Helper()
	r, err := workspace.OpenRepo(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func resolve(t testing.TB, r *workspace.Repo, rev string) string {
	t.Helper()
	sha, err := r.Resolve(t.Context(), rev)
	if err != nil {
		t.Fatal(err)
	}
	return sha
}

func start(t testing.TB, dir string, o workspace.StartOptions) (*workspace.Store, *workspace.Tree) {
	t.Helper()
	r := open(t, dir)
	s, err := workspace.NewStore(t.Context(), filepath.Join(t.TempDir(), "store"), r)
	if err != nil {
		t.Fatal(err)
	}
	if o.SHA == "" {
		o.SHA = resolve(t, r, "HEAD")
	}
	tree, err := s.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return s, tree
}

func TestOpenRepo(t *testing.T) {
	dir := newRepo(t, `mkdir -p in/side; echo x > in/side/f; git add .; `+commit+` -m one; git worktree add -q ../linked; git clone -q --bare . ../bare.git
git -c protocol.file.allow=always submodule --quiet add ../bare.git module; mkdir -p ../none/empty; mkdir ../broken; echo "gitdir: /gone" > ../broken/.git; ln -s repo ../alias`)
	up := filepath.Dir(dir)
	for _, c := range []struct{ at, worktree, err string }{
		{"repo", "repo", ""},
		{"repo/in/side", "repo", ""},
		{"alias/in", "repo", ""},
		{"linked", "linked", ""},
		{"bare.git", "", ""},
		{"repo/.git", "", ""},
		{"repo/module", "repo/module", ""},
		{"broken", "", "moved or removed"},
		{"absent", "", "no such file"},
	} {
		r, err := workspace.OpenRepo(t.Context(), filepath.Join(up, c.at))
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: got %v, want …%s…", c.at, err, c.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.at, err)
			continue
		}
		want := c.worktree
		if want != "" {
			want = filepath.Join(up, want)
		}
		if r.Worktree != want {
			t.Errorf("%s: worktree %q, want %q", c.at, r.Worktree, want)
		}
		if _, err := r.Resolve(t.Context(), "HEAD"); err != nil {
			t.Errorf("%s: %v", c.at, err)
		}
	}
	outside := t.TempDir() // never below this repository
	if _, err := workspace.OpenRepo(t.Context(), outside); err == nil || !strings.Contains(err.Error(), "git init") {
		t.Errorf("outside of any repository: %v", err)
	}
}

func TestResolve(t *testing.T) {
	dir := newRepo(t, commit+` -m one; `+commit+` -m two; git tag -a -m t v1 HEAD~1 2>/dev/null || git -c user.name=t -c user.email=t@t tag -a -m t v1 HEAD~1; git branch side v1; echo b | git hash-object -w --stdin > blob`)
	r := open(t, dir)
	one, two := sh(t, dir, "git rev-parse HEAD~1"), sh(t, dir, "git rev-parse HEAD")
	for _, c := range []struct{ rev, want string }{
		{"HEAD", two},
		{"main", two},
		{"main~1", one},
		{"v1", one},
		{"side", one},
		{two[:10], two},
		{two, two},
		{":/two", two},
		{"", ""},
		{"--all", ""},
		{"-h", ""},
		{"absent", ""},
		{sh(t, dir, "cat blob"), ""},
		{strings.Repeat("0", 40), ""},
		{"a\x00b", ""},
		{"HEAD\nmain", ""},
	} {
		got, err := r.Resolve(t.Context(), c.rev)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%q: got %q, %v, want %q", c.rev, got, err, c.want)
		}
	}
}

func TestDefaultBranch(t *testing.T) {
	for _, c := range []struct{ name, script, ref, rev string }{
		{"main", commit + " -m x", "main", "main"},
		{"origin/HEAD wins", commit + " -m x; " + commit + " -m y; git update-ref refs/remotes/origin/dev HEAD~1; git symbolic-ref refs/remotes/origin/HEAD refs/remotes/origin/dev", "dev", "HEAD~1"},
		{"a stale origin/HEAD", commit + " -m x; git symbolic-ref refs/remotes/origin/HEAD refs/remotes/origin/gone", "main", "main"},
		{"main of the remote", commit + " -m x; git update-ref refs/remotes/origin/main HEAD; git checkout -q -b w; git branch -q -D main", "main", "w"},
		{"another name", commit + " -m x; git branch -q -m trunk", "", ""},
	} {
		dir := newRepo(t, c.script)
		ref, sha, err := open(t, dir).DefaultBranch(t.Context())
		want := ""
		if c.rev != "" {
			want = sh(t, dir, "git rev-parse "+c.rev)
		}
		if ref != c.ref || sha != want || (c.ref == "") != errors.Is(err, workspace.ErrNoDefaultBranch) {
			t.Errorf("%s: got %q %q %v, want %q %q", c.name, ref, sha, err, c.ref, want)
		}
	}
}

func TestReadFile(t *testing.T) {
	dir := newRepo(t, `mkdir -p .github 'odd*name'; echo policy > .github/countersign.yml; echo star > 'odd*name/[f]'; ln -s /etc/passwd link; ln -s .github linkdir
: > empty; head -c 1048577 /dev/zero > large; git add .; `+commit+` -m x; rm -r .github`)
	r := open(t, dir)
	head := resolve(t, r, "HEAD")
	for _, c := range []struct {
		path, want string
		found      bool
		err        string
	}{
		{".github/countersign.yml", "policy\n", true, ""},
		{"odd*name/[f]", "star\n", true, ""},
		{"empty", "", true, ""},
		{"absent", "", false, ""},
		{"odd*", "", false, ""},
		{"linkdir/countersign.yml", "", false, ""},
		{"link", "", false, "not a regular file"},
		{".github", "", false, "not a regular file"},
		{"large", "", false, "more than 1048576"},
		{"../x", "", false, "leaves"},
		{"", "", false, "empty"},
	} {
		b, found, err := r.ReadFile(t.Context(), head, c.path)
		if string(b) != c.want || found != c.found || (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: got %q %t %v", c.path, b, found, err)
		}
	}
	if _, _, err := r.ReadFile(t.Context(), "HEAD", "empty"); err == nil {
		t.Error("a name in place of an object id is taken")
	}
}

// TestNothingOfTheRepositoryRuns gives a repository every setting that could
// start a program, plants in each the same marker, and does everything that is
// done on a host.
func TestNothingOfTheRepositoryRuns(t *testing.T) {
	dir := newRepo(t, `echo one > f; echo '* filter=evil diff=evil merge=evil text' > .gitattributes; git add f; git add -f .gitattributes
`+commit+` -m x; git update-ref refs/remotes/origin/main HEAD`)
	marker := filepath.Join(filepath.Dir(dir), "ran")
	evil := filepath.Join(filepath.Dir(dir), "evil")
	if err := os.WriteFile(evil, []byte("#!/bin/sh\necho \"$0 $*\" >> "+marker+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	var config strings.Builder
	for _, k := range []string{
		"core.fsmonitor", "core.sshCommand", "core.pager", "core.editor", "core.askPass", "core.alternateRefsCommand", "core.gitProxy", "diff.external", "diff.evil.command",
		"diff.evil.textconv", "filter.evil.clean", "filter.evil.smudge", "filter.evil.process", "merge.evil.driver", "gpg.program", "credential.helper",
		"uploadpack.packObjectsHook", "pager.rev-parse", "pager.ls-tree", "sequence.editor", "interactive.diffFilter", "alias.cat-file", "alias.ls-tree",
	} {
		v := evil
		if strings.HasPrefix(k, "alias.") {
			v = "!" + evil
		}
		config.WriteString("git config " + k + " '" + v + "'\n")
	}
	sh(t, dir, config.String()+`git config core.hooksPath "$PWD/hooks"; git config extensions.partialClone origin; git config core.repositoryFormatVersion 1
git config remote.origin.url 'ext::`+evil+` %S'; git config remote.origin.promisor true; git config remote.origin.uploadpack `+evil+`; git config protocol.ext.allow always
mkdir hooks; for h in post-checkout post-index-change pre-commit reference-transaction; do cp `+evil+` hooks/$h; done
git config filter.evil.required true`)
	os.Remove(marker) // making it may have run some

	r := open(t, dir)
	head := resolve(t, r, "refs/remotes/origin/main")
	if _, _, err := r.DefaultBranch(t.Context()); err != nil {
		t.Error(err)
	}
	if _, found, err := r.ReadFile(t.Context(), head, "f"); !found || err != nil {
		t.Error(found, err)
	}
	if _, err := r.Resolve(t.Context(), strings.Repeat("1", 40)); err == nil {
		t.Error("a missing commit resolves")
	}
	s, err := workspace.NewStore(t.Context(), filepath.Join(t.TempDir(), "store"), r)
	if err != nil {
		t.Fatal(err)
	}
	for _, dirty := range []string{"", dir} {
		if _, err := s.Start(t.Context(), workspace.StartOptions{SHA: head, Dirty: dirty}); err != nil {
			t.Fatal(err)
		}
	}
	tree, err := s.Start(t.Context(), workspace.StartOptions{SHA: head})
	if err != nil {
		t.Fatal(err)
	}
	root := newRoot(t, -1)
	d := workspace.Direct{Root: root, UID: -1}
	if _, err := d.Load(t.Context(), tree); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(root+"/f", []byte("two\r\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := s.Capture(t.Context(), d, tree, workspacetest.Bounds)
	if err != nil {
		t.Fatal(err)
	}
	var patch bytes.Buffer
	if _, err := s.Patch(t.Context(), tree, c.Tree, &patch, 1<<20); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(patch.String(), "-one\n+two\r\n") {
		t.Errorf("attributes took part in the patch:\n%s", patch.String())
	}
	if b, err := os.ReadFile(marker); err == nil {
		t.Errorf("programs of the repository ran:\n%s", b)
	}
	// The marker works: git itself does run them.
	workspacetest.Script(t.Context(), dir, nil, "git status; git diff; git cat-file -p "+strings.Repeat("1", 40))
	if _, err := os.ReadFile(marker); err != nil {
		t.Error("the test plants nothing that git would run")
	}
}

func TestMissingObjects(t *testing.T) {
	dir := newRepo(t, `echo one > f; git add f; `+commit+` -m x; echo two > f; git add f; `+commit+` -m y`)
	sh(t, filepath.Dir(dir), `git -C repo config uploadpack.allowFilter true; git clone -q --no-local --filter=blob:none --no-checkout "file://$PWD/repo" partial; git clone -q --depth=1 "file://$PWD/repo" shallow`)
	old := sh(t, dir, "git rev-parse HEAD~1")
	for _, c := range []struct {
		repo, sha string
		ok        bool
	}{
		{"partial", sh(t, dir, "git rev-parse HEAD"), false},
		{"shallow", old, false},
		{"shallow", sh(t, dir, "git rev-parse HEAD"), true},
	} {
		r := open(t, filepath.Join(filepath.Dir(dir), c.repo))
		s, err := workspace.NewStore(t.Context(), filepath.Join(t.TempDir(), "s"), r)
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Start(t.Context(), workspace.StartOptions{SHA: c.sha})
		if (err == nil) != c.ok || err != nil && !strings.Contains(err.Error(), "partial or shallow") {
			t.Errorf("%s: %v", c.repo, err)
		}
	}
}

func TestNewStoreRefuses(t *testing.T) {
	dir := newRepo(t, commit+" -m x")
	full := t.TempDir()
	if err := os.WriteFile(full+"/x", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := workspace.NewStore(t.Context(), full, open(t, dir)); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("a store in a full directory: %v", err)
	}
}
