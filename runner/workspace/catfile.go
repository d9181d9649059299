package workspace

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
)

// objectReader is one `git cat-file` that is asked again and again. The first
// question starts it; close ends it. It is used by one goroutine at a time.
type objectReader struct {
	g      git
	call   gitCall
	cancel context.CancelFunc
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr tail
}

func newObjectReader(g git) *objectReader {
	return &objectReader{g: g, call: gitCall{args: []string{"cat-file", "--batch"}}}
}

// blobs reads objects in order and hands each to f, which need not read it whole.
func (g git) blobs(ctx context.Context, oids []string, f func(i int, size int64, r io.Reader) error) error {
	o := newObjectReader(g)
	defer o.close()
	return o.blobs(ctx, oids, f)
}

// blobs is [git.blobs]. After an error the reader can only be closed, and a
// later ctx must not outlive the first.
func (o *objectReader) blobs(ctx context.Context, oids []string, f func(i int, size int64, r io.Reader) error) error {
	if len(oids) == 0 {
		return nil
	}
	if o.cmd == nil {
		if err := o.start(ctx); err != nil {
			return err
		}
	}
	// Beside the reading: a pipe holds only so many names, and git answers the
	// first before it reads the last. An error shows in the answers.
	go io.WriteString(o.in, strings.Join(oids, "\n")+"\n")
	err := readBatch(o.out, oids, f)
	if err == nil {
		return nil
	}
	o.close()
	if ctx.Err() != nil {
		return fmt.Errorf("git cat-file: %w", ctx.Err())
	}
	if s := o.stderr.String(); s != "" && errors.Is(err, errTruncated) {
		return fmt.Errorf("git cat-file: %s", s)
	}
	return err
}

func (o *objectReader) start(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	cmd := o.g.command(ctx, o.call, &o.stderr)
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	err := errors.Join(inErr, outErr)
	if err == nil {
		err = callError(ctx, o.call, cmd.Start(), &o.stderr)
	}
	if err != nil {
		cancel()
		return err
	}
	o.cmd, o.cancel, o.in, o.out = cmd, cancel, in, bufio.NewReaderSize(out, wireBuffer)
	return nil
}

// close ends git, whether or not it has answered. How it exits tells nothing:
// each answer was whole or an error.
func (o *objectReader) close() {
	if o.cmd != nil {
		o.cancel()
		o.cmd.Wait()
		o.cmd = nil
	}
}

func readBatch(r *bufio.Reader, oids []string, f func(i int, size int64, r io.Reader) error) error {
	for i, oid := range oids {
		head, err := r.ReadString('\n')
		if err != nil {
			return early(err)
		}
		parts := strings.Fields(head)
		if len(parts) != 3 {
			return &missing{oid}
		}
		size, err := strconv.ParseInt(parts[2], 10, 64)
		if err != nil || parts[0] != oid {
			return fmt.Errorf("git cat-file: unexpected answer %q", head)
		}
		body := io.LimitedReader{R: r, N: size}
		if err := f(i, size, &body); err != nil {
			return err
		}
		if _, err := io.CopyN(io.Discard, r, body.N+1); err != nil {
			return early(err)
		}
	}
	return nil
}
