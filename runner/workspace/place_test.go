package workspace_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/countersign-dev/countersign/runner/workspace"
)

// TestBothWaysAreAlike loads one tree directly and by stream and compares every
// node, .git too. The index holds inode numbers, so of it git's listing is taken.
func TestBothWaysAreAlike(t *testing.T) {
	dir := newRepo(t, `mkdir -p a/b a-b z/y/x; echo 1 > a/b/f; echo 2 > a-b/f; echo 3 > a.f; : > empty; echo run > run; chmod +x run; ln -s a/b l; echo k > z/key
seq 1 900000 > big; seq 1 300000 > z/y/x/middle; git add .; git update-index --add --cacheinfo 160000,1111111111111111111111111111111111111111,m/sub; `+commit+` -m one; rm a.f; echo 9 > a-b/f`)
	const look = `find . -mindepth 1 ! -path ./.git/index -printf '%P %y %m %U %l ' \( -type f -printf '%T@ %s ' -exec md5sum '{}' \; -o -printf '\n' \) | sort; git ls-files -s; git status --porcelain`
	for _, source := range []string{dir, bare(t, dir)} {
		_, tree := start(t, source, workspace.StartOptions{SHA: sh(t, dir, "git rev-parse HEAD"), Deny: []string{"z/key"}})
		var got [2]string
		for i, way := range []func(root string) workspace.Transport{
			func(root string) workspace.Transport { return workspace.Direct{Root: root, UID: owner()} },
			func(root string) workspace.Transport { return streamed{root, owner()} },
		} {
			root := newRoot(t, owner())
			if _, err := way(root).Load(t.Context(), tree); err != nil {
				t.Fatal(err)
			}
			got[i] = shAs(root, owner())(t, look)
		}
		if got[0] != got[1] || strings.Count(got[0], "\n") < 30 {
			t.Errorf("directly:\n%s\nby stream:\n%s", got[0], got[1])
		}
	}
}

func bare(t *testing.T, dir string) string {
	to := filepath.Join(t.TempDir(), "bare.git")
	sh(t, dir, "git clone -q --bare . "+to)
	return to
}

// TestCheckoutIsOnlyASource shows that a file of the checkout is delivered in
// place of an object only when it is that object.
func TestCheckoutIsOnlyASource(t *testing.T) {
	for _, c := range []struct{ name, change string }{
		{"other contents of the same size", "echo BBB > d/f"},
		{"shorter", "echo b > d/f"},
		{"longer", "echo bbbbbbbb > d/f"},
		{"nothing", "rm -r d"},
		{"a link to the same contents", "mv d/f g; ln -s ../g d/f"},
		{"a linked directory", "mv d e; echo BBB > e/f; ln -s e d"},
		{"a directory", "rm d/f; mkdir d/f"},
		{"a pipe", "rm d/f; mkfifo d/f"},
	} {
		dir := newRepo(t, `mkdir d; echo bbb > d/f; echo x > x; git add .; `+commit+` -m one`)
		_, tree := start(t, dir, workspace.StartOptions{})
		sh(t, dir, c.change)
		if got := sh(t, load(t, tree), "cat d/f; stat -c %F d d/f; git status --porcelain"); got != "bbb\ndirectory\nregular file" {
			t.Errorf("%s: got %q", c.name, got)
		}
	}
}

// TestCheckoutIsASource takes the objects away, so that only the checkout can
// have been read, and by nothing but its contents.
func TestCheckoutIsASource(t *testing.T) {
	for _, c := range []struct {
		name, change string
		ok           bool
	}{
		{"as committed", "true", true},
		{"touched", "touch f; chmod +x f", true},
		{"changed", "echo y > f", false},
	} {
		dir := newRepo(t, `echo x > f; git add .; `+commit+` -m one`)
		_, tree := start(t, dir, workspace.StartOptions{})
		sh(t, dir, "rm -r .git/objects/??; "+c.change)
		_, err := workspace.Direct{Root: newRoot(t, -1), UID: -1}.Load(t.Context(), tree)
		if sent := tree.Send(t.Context(), io.Discard); (err == nil) != c.ok || (sent == nil) != c.ok {
			t.Errorf("%s: placing %v, sending %v", c.name, err, sent)
		}
	}
}

func TestLoadIsGivenUp(t *testing.T) {
	dir := newRepo(t, `for i in 1 2 3 4 5 6 7 8 9; do echo $i > f$i; done; git add .; `+commit+` -m one`)
	_, tree := start(t, dir, workspace.StartOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (workspace.Direct{Root: newRoot(t, -1), UID: -1}).Load(ctx, tree); !errors.Is(err, context.Canceled) {
		t.Errorf("placing: %v", err)
	}
	if err := tree.Send(ctx, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("sending: %v", err)
	}
}

func TestLoadWithoutRoom(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	dir := newRepo(t, `seq 1 50000 > a; seq 1 50000 > b; echo c > c; git add .; `+commit+` -m one`)
	_, tree := start(t, dir, workspace.StartOptions{})
	for _, options := range []string{"size=512k", "nr_inodes=8"} {
		root := t.TempDir()
		if err := unix.Mount("tmpfs", root, "tmpfs", 0, options); err != nil {
			t.Fatal(err)
		}
		defer unix.Unmount(root, unix.MNT_DETACH)
		_, err := workspace.Direct{Root: root, UID: owner()}.Load(t.Context(), tree)
		full, ok := errors.AsType[*workspace.Full](err)
		if !ok || full.Written.Entries < 2 || !strings.Contains(err.Error(), "limits.disk") {
			t.Errorf("%s: got %v", options, err)
		}
	}
}
