package workspace

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
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
	fileMode   = 0o644
	execMode   = 0o755
	dirMode    = 0o755
	treeMTime  = 1577836800 // 2020-01-01T00:00:00Z, see Receive
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

// Full says that a workspace has no room for its start tree.
type Full struct {
	Written Stats
	Err     error // the system's: ENOSPC, EDQUOT or EFBIG
}

func (e *Full) Error() string {
	what := "the workspace is full"
	if errors.Is(e.Err, unix.EFBIG) {
		what = "a file is larger than the sandbox allows"
	}
	return fmt.Sprintf("%s after %d entries and %d bytes (%v): raise limits.disk or limits.files, or start from a smaller tree",
		what, e.Written.Entries, e.Written.Bytes, e.Err)
}

func (e *Full) Unwrap() error { return e.Err }

// Receive writes the tree stream of [Tree.Send] under root, which must be an
// empty directory. It follows no link: root's own last part must be a real
// directory and all else it made itself. Every file gets one fixed modification
// time, so that make sees nothing as older than another and git's index is
// never "racy". On an error what was written stays for the caller to discard.
// Without room the error is a [*Full].
func Receive(ctx context.Context, r io.Reader, root string, o ReceiveOptions) (Stats, error) {
	rc := &receiver{o: o}
	defer rc.close()
	if err := rc.open(root); err != nil {
		return Stats{}, fmt.Errorf("receiving tree into %s: %w", root, err)
	}
	err := rc.run(ctx, r)
	if err != nil {
		return rc.done, fmt.Errorf("receiving tree: %w", err)
	}
	return rc.done, nil
}

type receiver struct {
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

// open opens root and refuses one that holds anything.
func (rc *receiver) open(root string) error {
	if os.Geteuid() != 0 {
		rc.o.UID = -1
	}
	fd, err := openAt(unix.AT_FDCWD, root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	rc.dirs = []openDir{{"", fd}}
	names, err := readNames(fd, 1)
	if err != nil {
		return err
	}
	if len(names) > 0 {
		return fmt.Errorf("it is not empty (it holds %q): a start tree goes only into an empty directory", clip(names[0]))
	}
	return nil
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
			return rc.full(err)
		}
	}
}

// full turns the errors of a file system without room into a *Full.
func (rc *receiver) full(err error) error {
	for _, e := range []error{unix.ENOSPC, unix.EDQUOT, unix.EFBIG} {
		if errors.Is(err, e) {
			return &Full{Written: rc.done, Err: e}
		}
	}
	return err
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
		err = rc.mkdir(dir, path, name)
	case recModule:
		if err = rc.mkdir(dir, path, name); err == nil {
			err = rc.note(path, modeGitlink, unix.Stat_t{})
		}
	case recFile:
		err = rc.file(dir, path, name)
	case recLink:
		err = rc.link(dir, path, name)
	case recIndex:
		err = rc.writeFile(dir, name, fileMode, encodeIndex(rc.index, rc.oidLen))
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

func (rc *receiver) mkdir(dir int, path, name string) error {
	if len(rc.dirs) > MaxDepth {
		return fmt.Errorf("more than %d directories deep", MaxDepth)
	}
	if err := retry(func() error { return unix.Mkdirat(dir, name, dirMode) }); err != nil {
		return err
	}
	fd, err := openAt(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	rc.dirs = append(rc.dirs, openDir{path, fd})
	return rc.own(fd, dirMode)
}

// own sets owner and mode, whatever the process's umask is.
func (rc *receiver) own(fd int, mode uint32) error {
	if rc.o.UID >= 0 {
		if err := unix.Fchown(fd, rc.o.UID, rc.o.UID); err != nil {
			return err
		}
	}
	return unix.Fchmod(fd, mode)
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
	st, err := rc.create(dir, name, mode, func(fd int) error {
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

// create makes a new file, fills it, and says what it is once nothing about it
// changes any more.
func (rc *receiver) create(dir int, name string, mode uint32, fill func(fd int) error) (st unix.Stat_t, err error) {
	fd, err := openAt(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return st, err
	}
	defer func() {
		if cerr := unix.Close(fd); err == nil {
			err = cerr
		}
	}()
	if err := fill(fd); err != nil {
		return st, err
	}
	if err := rc.own(fd, mode); err != nil {
		return st, err
	}
	if err := unix.Futimes(fd, []unix.Timeval{{Sec: treeMTime}, {Sec: treeMTime}}); err != nil {
		return st, err
	}
	return st, unix.Fstat(fd, &st)
}

func (rc *receiver) writeFile(dir int, name string, mode uint32, contents []byte) error {
	fd, err := openAt(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := writeAll(fd, contents); err != nil {
		return err
	}
	return rc.own(fd, mode)
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
	if err := unix.Symlinkat(target, dir, name); err != nil {
		return err
	}
	if rc.o.UID >= 0 {
		if err := unix.Fchownat(dir, name, rc.o.UID, rc.o.UID, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
	}
	fixed := []unix.Timespec{{Sec: treeMTime}, {Sec: treeMTime}}
	if err := unix.UtimesNanoAt(dir, name, fixed, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	return unix.Fstatat(dir, name, &rc.index[len(rc.index)-1].stat, unix.AT_SYMLINK_NOFOLLOW)
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
