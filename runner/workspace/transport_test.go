package workspace_test

import (
	"context"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/countersign-dev/countersign/runner/workspace"
	"github.com/countersign-dev/countersign/runner/workspace/workspacetest"
)

// owner is whose the workspace is: as root another uid, so that tests also see
// what ownership does.
func owner() int {
	if os.Geteuid() == 0 {
		return 65533
	}
	return -1
}

func newRoot(t testing.TB, uid int) string {
	// Not t.TempDir: its parents are closed to other users.
	root, err := os.MkdirTemp("", "workspace-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	if uid >= 0 {
		if err := os.Chown(root, uid, uid); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func shAs(root string, uid int) func(t testing.TB, script string) string {
	return func(t testing.TB, script string) string {
		t.Helper()
		out, err := workspacetest.Script(context.Background(), root, func(c *exec.Cmd) {
			if uid >= 0 {
				c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
			}
		}, script)
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return out
	}
}

func TestDirect(t *testing.T) {
	workspacetest.Run(t, func(t *testing.T) workspacetest.Harness {
		root := newRoot(t, owner())
		return workspacetest.Harness{Transport: workspace.Direct{Root: root, UID: owner()}, Sh: shAs(root, owner())}
	})
}

// streamed is what a shim does, with pipes for its socket: every stream is
// encoded and decoded.
type streamed struct {
	root string
	uid  int
}

func (s streamed) Load(ctx context.Context, t *workspace.Tree) (workspace.Stats, error) {
	pr, pw := io.Pipe()
	go func() { pw.CloseWithError(t.Send(ctx, pw)) }()
	st, err := workspace.Receive(ctx, pr, s.root, workspace.ReceiveOptions{UID: s.uid, Entries: 1000, Bytes: 64 << 20})
	pr.CloseWithError(err)
	return st, err
}

func (s streamed) List(ctx context.Context, b workspace.Bounds) (*workspace.Listing, error) {
	pr, pw := io.Pipe()
	go func() {
		l, err := workspace.Walk(ctx, s.root, b)
		if err == nil {
			err = workspace.EncodeListing(pw, l)
		}
		pw.CloseWithError(err)
	}()
	return workspace.DecodeListing(pr, b)
}

func (s streamed) Fetch(ctx context.Context, paths []string, b workspace.Bounds) (io.ReadCloser, error) {
	ask, askw := io.Pipe()
	go func() { askw.CloseWithError(workspace.EncodePaths(askw, paths)) }()
	want, err := workspace.DecodePaths(ask, b)
	if err != nil {
		return nil, err
	}
	return workspace.Direct{Root: s.root}.Fetch(ctx, want, b)
}

func TestStreamed(t *testing.T) {
	workspacetest.Run(t, func(t *testing.T) workspacetest.Harness {
		root := newRoot(t, owner())
		return workspacetest.Harness{Transport: streamed{root, owner()}, Sh: shAs(root, owner())}
	})
}
