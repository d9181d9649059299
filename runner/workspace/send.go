package workspace

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"os"
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

// Entries is how many files and directories the tree makes with its .git: what
// [ReceiveOptions] and the workspace's inodes must have room for.
func (t *Tree) Entries() int64 {
	s := &treeSender{t: t, e: newEncoder(io.Discard, treeMagic)}
	for _, e := range t.delivered {
		s.enter(e.path)
		s.done.Entries++
	}
	const synthetic = 5 + 6 // directories and files of send.git; see git
	return s.done.Entries + synthetic
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
	dir := ""
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		dir = path[:i]
	}
	if dir == s.dir {
		return
	}
	for i := 0; i <= len(dir); i++ {
		if (i == len(dir) || dir[i] == '/') && i > 0 && !within(s.dir, dir[:i]) {
			s.record(recDir, dir[:i])
		}
	}
	s.dir = dir
}

// files sends the delivered leaves in git's order, in which what lies in one
// directory comes together.
func (s *treeSender) files(ctx context.Context) error {
	var oids []string
	var blobs []int
	for i, e := range s.t.delivered {
		if e.mode != modeGitlink {
			oids = append(oids, e.oid)
			blobs = append(blobs, i)
		}
	}
	next := 0
	modules := func(until int) {
		for ; next < until; next++ {
			e := s.t.delivered[next]
			s.enter(e.path)
			s.record(recModule, e.path)
			s.oid(e.oid)
		}
	}
	err := s.t.store.start.blobs(ctx, oids, func(i int, size int64, r io.Reader) error {
		modules(blobs[i])
		next = blobs[i] + 1
		return s.blob(s.t.delivered[blobs[i]], size, r)
	})
	if err == nil {
		modules(len(s.t.delivered))
	}
	return err
}

func (s *treeSender) oid(id string) {
	b, err := hex.DecodeString(id)
	if err != nil {
		panic("unreachable: an object id of ours is not hexadecimal")
	}
	s.e.w.Write(b)
}

func (s *treeSender) blob(e treeEntry, size int64, r io.Reader) error {
	s.enter(e.path)
	if e.mode == modeLink {
		target, err := readAll(r, size)
		if err != nil {
			return err
		}
		if strings.IndexByte(string(target), 0) >= 0 {
			return fmt.Errorf("the commit holds the link %q, whose target has a NUL", clip(e.path))
		}
		s.record(recLink, e.path)
		s.e.string(string(target))
		s.oid(e.oid)
		return nil
	}
	flags := uint64(flagIndex)
	if e.mode == modeExec {
		flags |= flagExec
	}
	s.record(recFile, e.path)
	s.e.uint(flags)
	s.e.uint(uint64(size))
	s.oid(e.oid)
	return s.contents(size, r)
}

func (s *treeSender) contents(size int64, r io.Reader) error {
	n, err := io.Copy(s.e.w, io.LimitReader(r, size))
	if err == nil && n != size {
		err = errTruncated
	}
	s.done.Bytes += n
	return err
}

// git sends the synthetic .git. The index comes last and is made by the
// receiver, who alone knows what the kernel says of the files.
func (s *treeSender) git() error {
	s.record(recDir, ".git")
	s.record(recDir, ".git/objects")
	s.record(recDir, ".git/objects/pack")
	for _, suffix := range []string{".pack", ".idx"} {
		if err := s.file(".git/objects/pack/pack-"+s.t.commit+suffix, s.t.pack+suffix); err != nil {
			return err
		}
	}
	s.record(recDir, ".git/refs")
	s.record(recDir, ".git/refs/heads")
	s.text(".git/refs/heads/main", s.t.commit+"\n")
	s.text(".git/HEAD", "ref: refs/heads/main\n")
	s.text(".git/config", bareConfig(s.t.store.oidLen, false,
		"[user]\n\tname = Countersign sandbox\n\temail = sandbox@countersign.invalid\n[gc]\n\tauto = 0\n"))
	s.record(recIndex, ".git/index")
	return nil
}

func (s *treeSender) text(path, text string) {
	s.record(recFile, path)
	s.e.uint(0)
	s.e.uint(uint64(len(text)))
	s.e.w.WriteString(text)
	s.done.Bytes += int64(len(text))
}

func (s *treeSender) file(path, from string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	s.record(recFile, path)
	s.e.uint(0)
	s.e.uint(uint64(st.Size()))
	return s.contents(st.Size(), f)
}
