package workspace

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
)

// Send writes the start tree for [Receive]: what is delivered of it, and a .git
// that holds one commit of exactly that, on branch main, with no remote, no
// hook, no other object and nothing staged. The bytes depend on the tree alone
// (and on how the repository had packed it).
func (t *Tree) Send(ctx context.Context, w io.Writer) error {
	s := &treeSender{t: t, e: newEncoder(w, treeMagic)}
	s.e.uint(uint64(t.store.oidLen))
	err := s.files(ctx)
	if err == nil {
		err = s.git()
	}
	if err == nil {
		s.e.byte(recEnd)
		s.e.uint(uint64(s.done.Entries))
		s.e.uint(uint64(s.done.Bytes))
		err = s.e.flush()
	}
	if err != nil {
		return fmt.Errorf("sending tree: %w", err)
	}
	return nil
}

type treeSender struct {
	t    *Tree
	e    *encoder
	dir  string // the directory that the receiver is in
	done Stats
}

func (s *treeSender) record(kind byte, path string) {
	s.done.Entries++
	s.e.byte(kind)
	s.e.string(path)
}

// enter announces the directories of path that are new after the last one.
func (s *treeSender) enter(path string) {
	s.dir = newDirs(s.dir, path, func(dir string) { s.record(recDir, dir) })
}

// newDirs hands on the directories above path that are not above or at the
// directory last, parents first, and returns path's own.
func newDirs(last, path string, f func(dir string)) string {
	dir := ""
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		dir = path[:i]
	}
	if dir == last {
		return dir
	}
	for i := 1; i <= len(dir); i++ {
		if (i == len(dir) || dir[i] == '/') && !within(last, dir[:i]) {
			f(dir[:i])
		}
	}
	return dir
}

// files sends the delivered leaves in git's order, in which what lies in one
// directory comes together.
func (s *treeSender) files(ctx context.Context) error {
	modules := s.t.submodules()
	err := s.t.store.contents(ctx, s.t.blobs(), func(e treeEntry, r io.Reader) error {
		for len(modules) > 0 && modules[0].path < e.path {
			s.module(modules[0])
			modules = modules[1:]
		}
		return s.blob(e, r)
	})
	if err == nil {
		for _, e := range modules {
			s.module(e)
		}
	}
	return err
}

func (s *treeSender) module(e treeEntry) {
	s.enter(e.path)
	s.record(recModule, e.path)
	s.oid(e.oid)
}

func (s *treeSender) oid(id string) { s.e.w.Write(rawOID(id)) }

func (s *treeSender) blob(e treeEntry, r io.Reader) error {
	s.enter(e.path)
	if e.mode == modeLink {
		target, err := readTarget(e, r)
		if err != nil {
			return err
		}
		s.record(recLink, e.path)
		s.e.string(target)
		s.oid(e.oid)
		return nil
	}
	flags := uint64(flagIndex)
	if e.mode == modeExec {
		flags |= flagExec
	}
	s.record(recFile, e.path)
	s.e.uint(flags)
	s.e.uint(uint64(e.size))
	s.oid(e.oid)
	return s.contents(e.size, r)
}

func (s *treeSender) contents(size int64, r io.Reader) error {
	n, err := io.Copy(s.e.w, io.LimitReader(r, size))
	if err == nil && n != size {
		err = errTruncated
	}
	s.done.Bytes += n
	return err
}

// git sends the synthetic .git.
func (s *treeSender) git() error {
	for _, n := range s.t.dotGit() {
		if n.dir {
			s.record(recDir, n.path)
		} else if err := s.gitFile(n); err != nil {
			return err
		}
	}
	s.record(recIndex, gitIndex)
	return nil
}

func (s *treeSender) gitFile(n gitNode) error {
	from, size, err := n.open()
	if err != nil {
		return err
	}
	defer from.Close()
	s.record(recFile, n.path)
	s.e.uint(0)
	s.e.uint(uint64(size))
	return s.contents(size, from)
}

// readTarget reads where a link of the start tree points.
func readTarget(e treeEntry, r io.Reader) (string, error) {
	target, err := readAll(r, e.size)
	if err == nil && bytes.IndexByte(target, 0) >= 0 {
		err = fmt.Errorf("the commit holds the link %q, whose target has a NUL", clip(e.path))
	}
	return string(target), err
}
