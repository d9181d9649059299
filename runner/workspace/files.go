package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

const (
	pathsMagic = "countersign paths 1\n"
	filesMagic = "countersign files 1\n"

	recPath     = 'p' // path
	recContents = 'c' // path, size, contents
)

// EncodePaths writes the paths whose contents are wanted.
func EncodePaths(w io.Writer, paths []string) error {
	e := newEncoder(w, pathsMagic)
	for _, p := range paths {
		e.byte(recPath)
		e.string(p)
	}
	e.byte(recEnd)
	if err := e.flush(); err != nil {
		return fmt.Errorf("sending paths: %w", err)
	}
	return nil
}

// DecodePaths reads what EncodePaths wrote: strictly ascending by
// [ComparePaths], at most b.Entries.
func DecodePaths(r io.Reader, b Bounds) ([]string, error) {
	paths, err := decodePaths(r, b)
	if err != nil {
		return nil, fmt.Errorf("receiving paths: %w", err)
	}
	return paths, nil
}

func decodePaths(r io.Reader, b Bounds) (paths []string, err error) {
	d, err := newDecoder(r, pathsMagic)
	if err != nil {
		return nil, err
	}
	names := 0
	for {
		kind, err := d.byte()
		if err != nil {
			return nil, err
		}
		if kind == recEnd {
			return paths, nil
		}
		if kind != recPath || int64(len(paths)) >= b.Entries {
			return nil, fmt.Errorf("record of unknown kind %q, or more than %d paths", kind, b.Entries)
		}
		p, err := d.path()
		if err != nil {
			return nil, err
		}
		if names += len(p); names > MaxNames {
			return nil, fmt.Errorf("more than %d bytes of names", MaxNames)
		}
		if n := len(paths); n > 0 {
			if err := follows(paths[n-1], p); err != nil {
				return nil, err
			}
		}
		paths = append(paths, p)
	}
}

// SendFiles writes the contents of the regular files at paths, in that order,
// for [ReceiveFiles]. Each is opened relative to its directory, without a link
// on the way, without waiting, on root's own device; one that is not a regular
// file any more, or larger than the bounds, is an error, because the receiver
// was promised it.
func SendFiles(ctx context.Context, w io.Writer, root string, paths []string, b Bounds) (Stats, error) {
	s := &fileSender{b: b, e: newEncoder(w, filesMagic), buf: make([]byte, wireBuffer)}
	if err := s.sendAll(ctx, root, paths); err != nil {
		return s.done, fmt.Errorf("sending files: %w", err)
	}
	return s.done, nil
}

type fileSender struct {
	b     Bounds
	e     *encoder
	files *treeFiles
	buf   []byte
	done  Stats
}

func (s *fileSender) sendAll(ctx context.Context, root string, paths []string) (err error) {
	if s.files, err = openTree(root); err != nil {
		return err
	}
	defer s.files.close()
	for _, p := range paths {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.send(p); err != nil {
			return fmt.Errorf("%q: %w", clip(p), err)
		}
	}
	s.e.byte(recEnd)
	return s.e.flush()
}

func (s *fileSender) send(p string) error {
	if err := CheckPath(p); err != nil {
		return err
	}
	if s.done.Entries++; s.done.Entries > s.b.Entries {
		return fmt.Errorf("more than %d files", s.b.Entries)
	}
	fd, size, err := s.files.file(p)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if size > s.b.File || size > s.b.Bytes-s.done.Bytes {
		return fmt.Errorf("has %d bytes, more than the bounds leave", size)
	}
	s.e.byte(recContents)
	s.e.string(p)
	s.e.uint(uint64(size))
	s.done.Bytes += size
	return s.copy(fd, size)
}

// copy sends exactly size bytes of fd.
func (s *fileSender) copy(fd int, size int64) error {
	for size > 0 {
		n, err := readSome(fd, s.buf[:min(size, int64(len(s.buf)))])
		if err != nil {
			return err
		}
		if n <= 0 {
			return errors.New("became shorter while it was read")
		}
		if _, err := s.e.w.Write(s.buf[:n]); err != nil {
			return err
		}
		size -= int64(n)
	}
	return nil
}

// ReceiveFiles reads the contents of exactly the files of want, in that order,
// from a sender that may be hostile, and hands each to sink. Sink need not read
// to the end. Any other file, order, size or a stream that goes on or ends
// early is an error.
func ReceiveFiles(r io.Reader, want []Entry, b Bounds, sink func(Entry, io.Reader) error) (Stats, error) {
	done, err := receiveFiles(r, want, b, sink)
	if err != nil {
		return done, fmt.Errorf("receiving files: %w", err)
	}
	return done, nil
}

func receiveFiles(r io.Reader, want []Entry, b Bounds, sink func(Entry, io.Reader) error) (done Stats, err error) {
	d, err := newDecoder(r, filesMagic)
	if err != nil {
		return done, err
	}
	for _, x := range want {
		if x.Size > b.File || x.Size > b.Bytes-done.Bytes || done.Entries >= b.Entries {
			return done, fmt.Errorf("%q goes past the bounds", clip(x.Path))
		}
		if err := expect(d, x); err != nil {
			return done, err
		}
		body := io.LimitedReader{R: d.r, N: x.Size}
		if err := sink(x, &body); err != nil {
			return done, fmt.Errorf("%q: %w", clip(x.Path), err)
		}
		if err := d.pieces(body.N, func([]byte) error { return nil }); err != nil {
			return done, err
		}
		done.Entries++
		done.Bytes += x.Size
	}
	kind, err := d.byte()
	if err == nil && kind != recEnd {
		err = errors.New("more files than were asked for")
	}
	return done, err
}

// expect reads the head of one file and refuses any but x's.
func expect(d *decoder, x Entry) error {
	kind, err := d.byte()
	if err != nil {
		return err
	}
	if kind != recContents {
		return fmt.Errorf("the stream ends before %q", clip(x.Path))
	}
	p, err := d.string("path", MaxPath)
	if err != nil {
		return err
	}
	if p != x.Path {
		return fmt.Errorf("%q came where %q was asked for", clip(p), clip(x.Path))
	}
	size, err := d.uint("size", 1<<62)
	if err != nil {
		return err
	}
	if size != x.Size {
		return fmt.Errorf("%q has %d bytes and was listed with %d", clip(p), size, x.Size)
	}
	return nil
}

// readAll reads exactly size bytes; a shorter stream is an error.
func readAll(r io.Reader, size int64) ([]byte, error) {
	var b bytes.Buffer
	b.Grow(int(size))
	n, err := io.Copy(&b, r)
	if err == nil && n != size {
		err = errTruncated
	}
	return b.Bytes(), err
}
