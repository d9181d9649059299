package workspace

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"strings"

	"golang.org/x/sys/unix"
)

// Records of the tree stream. Directories come before what they hold and the
// order is depth-first, so that the receiver never has to look a path up: it
// holds the open directories from the root to where it is, all made by itself.
const (
	treeMagic = "countersign tree 1\n"

	recDir     = 'D' // path
	recFile    = 'F' // path, flags, size, object id if flagIndex, contents
	recLink    = 'L' // path, target, object id
	recModule  = 'M' // path, object id: an empty directory
	recIndex   = 'I' // path: git's index of everything that came with an object id
	recEnd     = 'E' // entries, bytes
	flagExec   = 1
	flagIndex  = 2
	maxOIDSize = sha256.Size
)

// ReceiveOptions bound what [Receive] writes. The zero bounds are closed.
type ReceiveOptions struct {
	// UID becomes owner and group of everything when it is not negative and
	// the process is root; else files belong to the process.
	UID     int
	Entries int64
	Bytes   int64 // of contents, those of the synthetic .git too
}

// Receive writes the tree stream of [Tree.Send] under root, which must be an
// empty directory. It follows no link: root's own last part must be a real
// directory and all else it made itself. Every file gets one fixed modification
// time, so that make sees nothing as older than another and git's index is
// never "racy". On an error what was written stays for the caller to discard.
// Without room the error is a [*Full].
func Receive(ctx context.Context, r io.Reader, root string, o ReceiveOptions) (Stats, error) {
	fd, err := openEmpty(root)
	if err != nil {
		return Stats{}, fmt.Errorf("receiving tree into %s: %w", root, err)
	}
	rc := &receiver{o: o, maker: newMaker(o.UID), dirs: []openDir{{"", fd}}}
	defer rc.close()
	if err := rc.run(ctx, r); err != nil {
		return rc.done, fmt.Errorf("receiving tree: %w", err)
	}
	return rc.done, nil
}

type receiver struct {
	maker
	o      ReceiveOptions
	d      *decoder
	oidLen int
	dirs   []openDir // from the root to where the stream is
	index  []indexEntry
	done   Stats
}

// openDir is a directory that this stream made, with its path; the root's is "".
type openDir struct {
	path string
	fd   int
}

func (rc *receiver) close() {
	for _, d := range rc.dirs {
		unix.Close(d.fd)
	}
	rc.dirs = nil
}

func (rc *receiver) run(ctx context.Context, r io.Reader) (err error) {
	if rc.d, err = newDecoder(r, treeMagic); err != nil {
		return err
	}
	n, err := rc.d.uint("object id size", maxOIDSize)
	if err != nil {
		return err
	}
	if rc.oidLen = int(n); rc.oidLen != sha1.Size && rc.oidLen != sha256.Size {
		return fmt.Errorf("object ids of %d bytes", n)
	}
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		kind, err := rc.d.byte()
		if err != nil {
			return err
		}
		if kind == recEnd {
			return rc.end()
		}
		if rc.done.Entries++; rc.done.Entries > rc.o.Entries {
			return fmt.Errorf("more than %d entries", rc.o.Entries)
		}
		if err := rc.record(kind); err != nil {
			return full(err, rc.done)
		}
	}
}

func (rc *receiver) record(kind byte) error {
	path, err := rc.d.path()
	if err != nil {
		return err
	}
	dir, name, err := rc.place(path)
	if err != nil {
		return err
	}
	switch kind {
	case recDir:
		err = rc.enter(dir, path, name)
	case recModule:
		if err = rc.enter(dir, path, name); err == nil {
			err = rc.note(path, modeGitlink, unix.Stat_t{})
		}
	case recFile:
		err = rc.file(dir, path, name)
	case recLink:
		err = rc.link(dir, path, name)
	case recIndex:
		err = rc.makeIndex(dir, name, encodeIndex(rc.index, rc.oidLen))
	default:
		return fmt.Errorf("record of unknown kind %q", kind)
	}
	if err != nil {
		return fmt.Errorf("writing %q: %w", clip(path), err)
	}
	return nil
}

// place finds the directory of path among those that are open, and closes the
// ones that the stream has left.
func (rc *receiver) place(path string) (fd int, name string, err error) {
	parent, name := "", path
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		parent, name = path[:i], path[i+1:]
	}
	for i := len(rc.dirs) - 1; i >= 0; i-- {
		d := rc.dirs[i]
		if d.path == parent {
			return d.fd, name, nil
		}
		if i == 0 {
			break
		}
		unix.Close(d.fd)
		rc.dirs = rc.dirs[:i]
	}
	return -1, "", fmt.Errorf("%q comes without its directory, or out of order", clip(path))
}

// enter makes a directory and goes into it.
func (rc *receiver) enter(dir int, path, name string) error {
	if len(rc.dirs) > MaxDepth {
		return fmt.Errorf("more than %d directories deep", MaxDepth)
	}
	fd, err := rc.mkdir(dir, name)
	if err == nil {
		rc.dirs = append(rc.dirs, openDir{path, fd})
	}
	return err
}

func (rc *receiver) file(dir int, path, name string) error {
	flags, err := rc.d.uint("flags", flagExec|flagIndex)
	if err != nil {
		return err
	}
	size, err := rc.d.uint("size", rc.o.Bytes-rc.done.Bytes)
	if err != nil {
		return err
	}
	mode := uint32(fileMode)
	gitMode := uint32(modeFile)
	if flags&flagExec != 0 {
		mode, gitMode = execMode, modeExec
	}
	if flags&flagIndex != 0 {
		if err := rc.note(path, gitMode, unix.Stat_t{}); err != nil {
			return err
		}
	}
	st, err := rc.makeFile(dir, name, mode, func(fd int) error {
		return rc.d.pieces(size, func(b []byte) error {
			rc.done.Bytes += int64(len(b))
			return writeAll(fd, b)
		})
	})
	if err == nil && flags&flagIndex != 0 {
		rc.index[len(rc.index)-1].stat = st
	}
	return err
}

func (rc *receiver) link(dir int, path, name string) error {
	target, err := rc.d.string("link target", MaxTarget)
	if err != nil {
		return err
	}
	if target == "" || strings.IndexByte(target, 0) >= 0 {
		return errors.New("a link target that is empty or holds a NUL")
	}
	if err := rc.note(path, modeLink, unix.Stat_t{}); err != nil {
		return err
	}
	st, err := rc.makeLink(dir, name, target)
	rc.index[len(rc.index)-1].stat = st
	return err
}

// note reads an object id and remembers it for the index.
func (rc *receiver) note(path string, mode uint32, st unix.Stat_t) error {
	oid := make([]byte, rc.oidLen)
	if _, err := io.ReadFull(rc.d.r, oid); err != nil {
		return early(err)
	}
	rc.index = append(rc.index, indexEntry{path, mode, oid, st})
	return nil
}

// end compares the sender's counts with ours.
func (rc *receiver) end() error {
	for _, want := range []int64{rc.done.Entries, rc.done.Bytes} {
		got, err := rc.d.uint("count", 1<<62)
		if err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("the sender counts %d where %d arrived", got, want)
		}
	}
	return nil
}
