package shim

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"syscall"
	"time"

	"github.com/countersign-dev/countersign/runner/shim/protocol"
	"github.com/countersign-dev/countersign/runner/workspace"
)

// The host is trusted with what it sends, and the volume has a quota of bytes
// and inodes; so what comes in has no other bound than the volume. What goes out
// is bounded by what the host asks for.

// load receives the start tree, or checks the one that the host placed. A
// stream is read to its end in any case, also when it is refused beforehand.
func load(ctx context.Context, c *protocol.Conn, m protocol.Load, refused error) (protocol.Loaded, error) {
	err := refused
	if err == nil {
		err = owned(m.Dir)
	}
	if !m.Stream {
		return protocol.Loaded{}, err
	}
	stream := c.ReadStream()
	var stats workspace.Stats
	if err == nil {
		stats, err = workspace.Receive(ctx, stream, m.Dir, workspace.ReceiveOptions{
			UID: -1, Entries: math.MaxInt64, Bytes: math.MaxInt64,
		})
	}
	if drained := protocol.Drain(stream, math.MaxInt64-1); err == nil && drained != nil {
		err = drained
	}
	return protocol.Loaded{Entries: stats.Entries, Bytes: stats.Bytes}, err
}

// owned refuses a workspace that is not a directory of this process's user: a
// link, a mount that the engine made as root, a missing volume.
func owned(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("checking the workspace: %v", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("checking the workspace: %s is not a directory", dir)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("checking the workspace: %s does not belong to uid %d", dir, os.Geteuid())
	}
	return nil
}

// capture walks a tree that nobody writes any more and sends its listing.
func capture(ctx context.Context, c *protocol.Conn, m protocol.Capture) (protocol.Captured, error) {
	bounds := walkBounds(m.Bounds)
	ctx, cancel := context.WithTimeout(ctx, bounds.Time)
	defer cancel()
	listing, err := workspace.Walk(ctx, m.Dir, bounds)
	if err != nil {
		return protocol.Captured{}, err
	}
	out := newCounter(c)
	if err := errors.Join(workspace.EncodeListing(out, listing), out.close()); err != nil {
		return protocol.Captured{}, err
	}
	return protocol.Captured{Entries: int64(len(listing.Entries)), Bytes: out.n}, nil
}

// fetch sends the contents of the paths that the host wants.
func fetch(ctx context.Context, c *protocol.Conn, m protocol.Capture) (protocol.Captured, error) {
	bounds := walkBounds(m.Bounds)
	wanted := c.ReadStream()
	paths, err := workspace.DecodePaths(wanted, bounds)
	if drained := protocol.Drain(wanted, workspace.MaxNames); err == nil && drained != nil {
		err = drained
	}
	if err != nil {
		return protocol.Captured{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, bounds.Time)
	defer cancel()
	out := newCounter(c)
	stats, err := workspace.SendFiles(ctx, out, m.Dir, paths, bounds)
	if err := errors.Join(err, out.close()); err != nil {
		return protocol.Captured{}, err
	}
	return protocol.Captured{Entries: stats.Entries, Bytes: stats.Bytes}, nil
}

func walkBounds(b protocol.CaptureBounds) workspace.Bounds {
	return workspace.Bounds{
		Entries: b.Entries,
		Depth:   b.Depth,
		Bytes:   b.Bytes,
		File:    b.File,
		Time:    time.Duration(min(max(b.Seconds, 0), 24*3600)) * time.Second,
	}
}

// counter is an outgoing stream, in frames of some size, that counts. Only
// close ends the stream: after an error the caller sends a Failed in its place.
type counter struct {
	stream io.WriteCloser
	buf    *bufio.Writer
	n      int64
	err    error
}

func newCounter(c *protocol.Conn) *counter {
	s := c.WriteStream()
	return &counter{stream: s, buf: bufio.NewWriterSize(s, 128<<10)}
}

func (w *counter) Write(p []byte) (int, error) {
	n, err := w.buf.Write(p)
	w.n += int64(n)
	if err != nil {
		w.err = err
	}
	return n, err
}

func (w *counter) close() error {
	if w.err != nil {
		return w.err
	}
	if err := w.buf.Flush(); err != nil {
		return err
	}
	return w.stream.Close()
}
