package workspace_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/runner/workspace"
	"github.com/countersign-dev/countersign/runner/workspace/workspacetest"
)

func load(t testing.TB, tree *workspace.Tree) string {
	t.Helper()
	root := newRoot(t, -1)
	if _, err := (workspace.Direct{Root: root, UID: -1}).Load(t.Context(), tree); err != nil {
		t.Fatal(err)
	}
	return root
}

func TestSyntheticGit(t *testing.T) {
	for _, format := range []string{"sha1", "sha256"} {
		t.Run(format, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "repo")
			sh(t, filepath.Dir(dir), "git init -q -b main --object-format="+format+" repo")
			sh(t, dir, `echo old-secret > gone; git add .; `+commit+` -m one; git rm -q gone; mkdir -p a/b; echo x > a/b/f; echo y > a-b; ln -s a/b l; echo z > run; chmod +x run; git add .; `+commit+` -m two
git remote add origin https://example.invalid/x; echo 'echo hook' > .git/hooks/post-checkout`)
			_, tree := start(t, dir, workspace.StartOptions{})
			root := load(t, tree)
			for _, c := range []struct{ script, want string }{
				{"git status --porcelain --ignored", ""},
				{"git diff-index --quiet HEAD; git diff-files --quiet; git diff-index --cached --quiet HEAD", ""},
				{"git log --format='%an <%ae> %ad %s|%P'", "Countersign <start@countersign.invalid> Wed Jan 1 00:00:00 2020 +0000 Start of the run|"},
				{"git fsck --full --strict --no-dangling 2>&1 | grep -v -i '^notice\\|^checking' || true", ""},
				{"git remote; git stash list; ls .git/hooks .git/logs 2>/dev/null || true", ""},
				{"git rev-parse HEAD^{tree}", tree.ID},
				{"git branch --show-current", "main"},
				// commit, 3 trees, 4 blobs: nothing of history
				{"git cat-file --batch-all-objects --batch-check | cut -d' ' -f2 | sort | uniq -c | tr -s ' ' | tr '\\n' ';'", " 4 blob; 1 commit; 3 tree;"},
				{"git cat-file --batch-all-objects --batch | grep -c -a old-secret || true", "0"},
				{"stat -c '%a %Y' a/b/f run l a | tr '\\n' ' ' | cut -d' ' -f1-5,7", "644 1577836800 755 1577836800 777 755"},
				{"echo more >> a-b; git status --porcelain; git commit -qam w && git log --oneline | wc -l", " M a-b\n2"},
			} {
				if got := sh(t, root, c.script); got != c.want {
					t.Errorf("%s\n got %q\nwant %q", c.script, got, c.want)
				}
			}
		})
	}
}

// TestIndexKnowsTheFiles shows that git in the sandbox need not read a file to
// see that it is unchanged: with the contents gone behind its back it must
// still trust the index.
func TestIndexKnowsTheFiles(t *testing.T) {
	dir := newRepo(t, `echo x > f; git add .; `+commit+` -m one`)
	_, tree := start(t, dir, workspace.StartOptions{})
	root := load(t, tree)
	out := sh(t, root, "git ls-files --debug f; stat -c 'ino %i size %s uid %u' f")
	ino := strings.Fields(out[strings.LastIndex(out, "ino "):])[1]
	if !strings.Contains(out, "ino: "+ino) || !strings.Contains(out, "size: 2") || !strings.Contains(out, "mtime: 1577836800:0") {
		t.Errorf("the index does not hold the kernel's word:\n%s", out)
	}
}

func TestStartCounts(t *testing.T) {
	lfs := "version https://git-lfs.github.com/spec/v1\noid sha256:" + strings.Repeat("a", 64) + "\nsize 12345\n"
	dir := newRepo(t, `printf '*.bin filter=lfs diff=lfs merge=lfs -text\n' > .gitattributes; printf '`+lfs+`' > a.bin; printf '`+lfs+`' > b.bin; echo plain > c.bin
mkdir keys; echo k > keys/id; echo p > keys.pub; ln -s c.bin l; git add .; git update-index --add --cacheinfo 160000,1111111111111111111111111111111111111111,lib/sub; `+commit+` -m one`)
	_, tree := start(t, dir, workspace.StartOptions{Deny: []string{"keys", "absent/file"}})
	got := tree.Stats
	got.GitBytes = 0
	if want := (workspace.TreeStats{Files: 5, Symlinks: 1, Submodules: 1, LFSPointers: 2, Denied: 1, Bytes: got.Bytes}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if tree.ID == tree.Delivered {
		t.Error("what is delivered is the whole tree")
	}
	root := load(t, tree)
	for _, c := range []struct{ script, want string }{
		{"ls -A | tr '\\n' ' '", ".git .gitattributes a.bin b.bin c.bin keys.pub l lib "},
		{"ls -A lib/sub | wc -l", "0"},
		{"git status --porcelain", ""},
		{"git rev-parse HEAD^{tree}", tree.Delivered},
		{"head -1 a.bin", "version https://git-lfs.github.com/spec/v1"},
	} {
		if got := sh(t, root, c.script); got != c.want {
			t.Errorf("%s: got %q, want %q", c.script, got, c.want)
		}
	}
}

func TestSubmoduleIsCarriedOver(t *testing.T) {
	dir := newRepo(t, `echo x > f; git add .; git update-index --add --cacheinfo 160000,1111111111111111111111111111111111111111,sub; `+commit+` -m one`)
	for _, c := range []struct{ name, script, changes string }{
		{"removed", "rmdir sub", ""},
		{"filled", "echo y > sub/y", ""},
		{"replaced", "rmdir sub; echo y > sub; echo z > f", "M f"},
	} {
		s, tree := start(t, dir, workspace.StartOptions{})
		root := load(t, tree)
		sh(t, root, c.script)
		_, p, _ := capture(t, s, tree, root)
		var got []string
		for _, ch := range p.Changes {
			got = append(got, ch.Status+" "+ch.Path)
		}
		if strings.Join(got, ",") != c.changes {
			t.Errorf("%s: changes %q, want %q", c.name, got, c.changes)
		}
	}
}

// capture makes the patch of what root holds now.
func capture(t testing.TB, s *workspace.Store, tree *workspace.Tree, root string) (*workspace.Captured, *workspace.Patch, []byte) {
	t.Helper()
	c, err := s.Capture(t.Context(), workspace.Direct{Root: root, UID: -1}, tree, workspacetest.Bounds)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	p, err := s.Patch(t.Context(), tree, c.Tree, &out, 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	return c, p, out.Bytes()
}

func TestStartRefuses(t *testing.T) {
	dir := newRepo(t, `echo x > f; git add .; `+commit+` -m one`)
	blob := sh(t, dir, "git rev-parse HEAD:f")
	// mktree takes names that no checkout does.
	evil := func(name string) string {
		return sh(t, dir, "t=$(printf '100644 blob "+blob+"\\t"+name+"\\0' | git mktree -z); git -c user.name=t -c user.email=t@t commit-tree -m x $t")
	}
	nested := sh(t, dir, "d=$(printf '100644 blob "+blob+"\\tx\\0' | git mktree -z); t=$(printf '100644 blob "+blob+"\\ta\\n040000 tree '$d'\\ta\\n' | git mktree); git -c user.name=t -c user.email=t@t commit-tree -m x $t || true")
	r := open(t, dir)
	s, err := workspace.NewStore(t.Context(), filepath.Join(t.TempDir(), "s"), r)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		o    workspace.StartOptions
		err  string
	}{
		{".git", workspace.StartOptions{SHA: evil(".git")}, "git refuses the name"},
		{".GIT", workspace.StartOptions{SHA: evil(".GIT")}, "git refuses the name"},
		{"dot dot", workspace.StartOptions{SHA: evil("..")}, "leaves its directory"},
		{"file and directory", workspace.StartOptions{SHA: nested}, "malformed"},
		{"a branch", workspace.StartOptions{SHA: "main"}, "not a full commit id"},
		{"no commit", workspace.StartOptions{SHA: strings.Repeat("1", 40)}, "not in the repository"},
		{"a directory of the checkout", workspace.StartOptions{SHA: resolve(t, r, "HEAD"), Dirty: dir + "/.git"}, "not the top directory"},
		{"another checkout", workspace.StartOptions{SHA: resolve(t, r, "HEAD"), Dirty: t.TempDir()}, "not the top directory"},
		{"denying all", workspace.StartOptions{SHA: resolve(t, r, "HEAD"), Deny: []string{"."}}, "denied path"},
		{"denying outside", workspace.StartOptions{SHA: resolve(t, r, "HEAD"), Deny: []string{"/etc"}}, "denied path"},
	} {
		if _, err := s.Start(t.Context(), c.o); err == nil || !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: got %v, want …%s…", c.name, err, c.err)
		}
	}
}

func TestDirty(t *testing.T) {
	dir := newRepo(t, `echo one > f; echo gone > gone; echo key > key; mkdir d; echo t > d/tracked.log; echo '*.log' > .gitignore; git add -f .; `+commit+` -m one
echo two > f; rm gone; echo new > new; echo no > no.log; echo more >> d/tracked.log; echo 'build/' >> .gitignore; mkdir build; echo b > build/b
echo private > .git/info/exclude; echo p > private; git init -q nested; echo n > nested/n; mkfifo pipe; echo changed-key > key; ln -s /etc/passwd l`)
	s, tree := start(t, dir, workspace.StartOptions{Dirty: dir, Deny: []string{"key"}})
	root := load(t, tree)
	for _, c := range []struct{ script, want string }{
		{"ls -A | tr '\\n' ' '", ".git .gitignore d f l new "},
		{"cat f d/tracked.log | tr '\\n' ' '; readlink l", "two t more /etc/passwd"},
		{"git status --porcelain", ""},
	} {
		if got := sh(t, root, c.script); got != c.want {
			t.Errorf("%s: got %q, want %q", c.script, got, c.want)
		}
	}
	if !strings.HasPrefix(tree.PatchDigest, "sha256:") || bytes.Contains(tree.Patch, []byte("changed-key")) {
		t.Errorf("digest %q; patch\n%s", tree.PatchDigest, tree.Patch)
	}
	// The patch leads from the commit to the start tree.
	up := filepath.Dir(dir)
	if err := os.WriteFile(up+"/p", tree.Patch, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := sh(t, up, "git clone -q --no-local repo clone; cd clone; git apply --index ../p; git write-tree"); got != tree.ID {
		t.Errorf("the patch leads to %s, not %s", got, tree.ID)
	}
	// What comes back is compared with the start tree, not with the commit.
	sh(t, root, "echo three > f")
	_, p, patch := capture(t, s, tree, root)
	if len(p.Changes) != 1 || p.Changes[0].Path != "f" || !strings.Contains(string(patch), "-two\n+three\n") {
		t.Errorf("got %+v\n%s", p.Changes, patch)
	}
	want := map[string]string{"ignored": "build/b,no.log,private", "fifo": "pipe", "read_denied": "key"}
	for _, o := range tree.Omissions {
		if w, ok := want[o.Reason]; ok && strings.Join(o.Names, ",") != w {
			t.Errorf("%s: %q, want %q", o.Reason, o.Names, w)
		}
		delete(want, o.Reason)
	}
	if len(want) > 0 {
		t.Errorf("not counted: %v", want)
	}
}

func TestCleanCheckoutHasNoPatch(t *testing.T) {
	dir := newRepo(t, `echo one > f; chmod +x f; git add .; `+commit+` -m one`)
	_, tree := start(t, dir, workspace.StartOptions{Dirty: dir})
	if len(tree.Patch) != 0 || tree.PatchDigest != "" || tree.ID != sh(t, dir, "git rev-parse HEAD^{tree}") {
		t.Errorf("patch %q of a clean checkout", tree.Patch)
	}
}
