package shim_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/runner/shim/protocol"
	"github.com/countersign-dev/countersign/runner/workspace"
	"github.com/countersign-dev/countersign/runner/workspace/workspacetest"
)

// wire is a [workspace.Transport] through a running shim, as a supervisor has
// one: files are loaded by load and read by read, which may be two shims.
type wire struct {
	load, read *protocol.Conn
	dir        string
}

func (w wire) Load(ctx context.Context, t *workspace.Tree) (workspace.Stats, error) {
	if err := w.load.Send(protocol.KindLoad, protocol.Load{Dir: w.dir, Stream: true}); err != nil {
		return workspace.Stats{}, err
	}
	out := w.load.WriteStream()
	var got protocol.Loaded
	err := errors.Join(t.Send(ctx, out), out.Close(), w.load.Expect(protocol.KindLoaded, &got))
	return workspace.Stats{Entries: got.Entries, Bytes: got.Bytes}, err
}

func (w wire) capture(b workspace.Bounds) protocol.Capture {
	return protocol.Capture{Dir: w.dir, Bounds: protocol.CaptureBounds{
		Entries: b.Entries, Depth: b.Depth, Bytes: b.Bytes, File: b.File, Seconds: int64(b.Time.Seconds()),
	}}
}

func (w wire) List(_ context.Context, b workspace.Bounds) (*workspace.Listing, error) {
	if err := w.read.Send(protocol.KindCapture, w.capture(b)); err != nil {
		return nil, err
	}
	stream := w.read.ReadStream()
	list, err := workspace.DecodeListing(stream, b)
	if err != nil {
		return nil, err
	}
	var got protocol.Captured
	return list, errors.Join(protocol.Drain(stream, 0), w.read.Expect(protocol.KindCaptured, &got))
}

func (w wire) Fetch(_ context.Context, paths []string, b workspace.Bounds) (io.ReadCloser, error) {
	if err := w.read.Send(protocol.KindFetch, w.capture(b)); err != nil {
		return nil, err
	}
	out := w.read.WriteStream()
	if err := errors.Join(workspace.EncodePaths(out, paths), out.Close()); err != nil {
		return nil, err
	}
	return &fetched{conn: w.read, Reader: w.read.ReadStream()}, nil
}

type fetched struct {
	io.Reader
	conn *protocol.Conn
}

func (f *fetched) Close() error {
	if err := protocol.Drain(f.Reader, 1<<20); err != nil {
		return err
	}
	return f.conn.Expect(protocol.KindCaptured, &protocol.Captured{})
}

func workspaceAt(t *testing.T) (string, func(testing.TB, string) string) {
	root := t.TempDir()
	return root, func(t testing.TB, script string) string {
		t.Helper()
		out, err := workspacetest.Script(context.Background(), root, func(*exec.Cmd) {}, script)
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return out
	}
}

// The shim's transport passes the suite that the direct one passes.
func TestTransport(t *testing.T) {
	t.Run("init", func(t *testing.T) {
		workspacetest.Run(t, func(t *testing.T) workspacetest.Harness {
			root, sh := workspaceAt(t)
			h := start(t, "init")
			return workspacetest.Harness{Transport: wire{load: h.conn, read: h.conn, dir: root}, Sh: sh}
		})
	})
	t.Run("loaded by init, read by hold", func(t *testing.T) {
		workspacetest.Run(t, func(t *testing.T) workspacetest.Harness {
			root, sh := workspaceAt(t)
			h, hold := start(t, "init"), start(t, "hold")
			return workspacetest.Harness{Transport: wire{load: h.conn, read: hold.conn, dir: root}, Sh: sh}
		})
	})
}

// A tree that the host placed is only checked.
func TestLoadPlaced(t *testing.T) {
	dir := t.TempDir()
	file, link, foreign := filepath.Join(dir, "file"), filepath.Join(dir, "link"), filepath.Join(dir, "foreign")
	err := errors.Join(os.WriteFile(file, nil, 0o644), os.Symlink(dir, link), os.Mkdir(foreign, 0o755))
	if err != nil {
		t.Fatal(err)
	}
	need(t, os.Geteuid() == 0, "root, to give a directory away")
	if err := os.Chown(foreign, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ dir, want string }{
		"its own":        {dir, ""},
		"missing":        {dir + "/missing", "no such file"},
		"a file":         {file, "not a directory"},
		"a link":         {link, "not a directory"},
		"somebody's own": {foreign, "does not belong to uid 0"},
	} {
		t.Run(name, func(t *testing.T) {
			h := start(t, "init")
			h.send(protocol.KindLoad, protocol.Load{Dir: c.dir})
			err := h.conn.Expect(protocol.KindLoaded, &protocol.Loaded{})
			if (c.want == "") != (err == nil) || (err != nil && !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
			h.bye(0)
		})
	}
}

// A stream that cannot be received is read to its end, so that the connection
// says why and lives on.
func TestLoadFails(t *testing.T) {
	h := start(t, "init")
	dir := t.TempDir()
	for name, target := range map[string]string{"not a tree": dir, "nowhere to put it": dir + "/missing"} {
		h.send(protocol.KindLoad, protocol.Load{Dir: target, Stream: true})
		out := h.conn.WriteStream()
		if _, err := out.Write([]byte(strings.Repeat("not a tree\n", 100_000))); err != nil {
			t.Fatal(err)
		}
		if err := out.Close(); err != nil {
			t.Fatal(err)
		}
		var remote *protocol.RemoteError
		if err := h.conn.Expect(protocol.KindLoaded, &protocol.Loaded{}); !errors.As(err, &remote) || remote.Failed.Op != "load" {
			t.Errorf("%s: %v", name, err)
		}
	}
	h.bye(0)

	h = start(t, "init")
	h.send(protocol.KindLoad, protocol.Load{Dir: dir})
	h.expect(protocol.KindLoaded, &protocol.Loaded{})
	h.send(protocol.KindLoad, protocol.Load{Dir: dir, Stream: true})
	if err := h.conn.WriteStream().Close(); err != nil {
		t.Fatal(err)
	}
	if err := h.conn.Expect(protocol.KindLoaded, &protocol.Loaded{}); err == nil || !strings.Contains(err.Error(), "loaded once") {
		t.Errorf("loading twice: %v", err)
	}
	h.bye(0)
}

func TestCaptureFails(t *testing.T) {
	for _, verb := range []string{"init", "hold"} {
		t.Run(verb, func(t *testing.T) {
			h := start(t, verb)
			w := wire{load: h.conn, read: h.conn, dir: "/no/such/directory"}
			var remote *protocol.RemoteError
			if _, err := w.List(t.Context(), workspacetest.Bounds); !errors.As(err, &remote) || remote.Failed.Op != "capture" {
				t.Errorf("capturing nothing: %v", err)
			}
			w.dir = t.TempDir()
			if list, err := w.List(t.Context(), workspacetest.Bounds); err != nil || len(list.Entries) != 0 {
				t.Errorf("afterwards: %+v, %v", list, err)
			}
			h.bye(0)
		})
	}
}

// A holder answers nothing but what it is for, and dies with its connection.
func TestHold(t *testing.T) {
	for _, kind := range []protocol.Kind{protocol.KindLoad, protocol.KindProbe, protocol.KindStart, protocol.KindStop, protocol.KindData} {
		t.Run(fmt.Sprint("refuses ", kind), func(t *testing.T) {
			h := start(t, "hold")
			h.send(kind, nil)
			if got := h.wait(); got != 125 {
				t.Errorf("exited %d, want 125", got)
			}
		})
	}
	t.Run("lost connection", func(t *testing.T) {
		h := start(t, "hold")
		h.conn.Close()
		if got := h.wait(); got != 125 {
			t.Errorf("exited %d, want 125", got)
		}
	})
}
