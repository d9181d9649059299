package workspace

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Listing is what a walk saw: everything it visited is an entry, a directory,
// or left out with a reason.
type Listing struct {
	Entries []Entry // strictly ascending by ComparePaths; none lies under another
	LeftOut []LeftOut
	// Incomplete says why the walk ended early (ReasonMany, ReasonTime), 0 when
	// it saw everything. Of an incomplete listing nothing may be concluded
	// about what is missing from it.
	Incomplete Reason
	Visited    int64 // nodes, directories too
}

// Walk lists the tree under root, which must be a directory and no link. It
// opens directories only, each relative to its parent and never through a link
// or into another mount; it opens no FIFO, device or socket. It stays within
// the bounds and says what it left out. What a file's owner may not read counts
// as unreadable even for root, so that every way of walking sees the same.
//
// A tree that changes meanwhile gives a listing that holds for no one moment,
// but never a look outside.
func Walk(ctx context.Context, root string, b Bounds) (*Listing, error) {
	ctx, cancel := context.WithTimeout(ctx, b.Time)
	defer cancel()
	fd, err := openAt(unix.AT_FDCWD, root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("walking %s: %w", root, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("walking %s: %w", root, err)
	}
	w := &walker{b: b, dev: nodeOf(&st), list: &Listing{}}
	w.b.Depth = min(b.Depth, MaxDepth)
	defer w.close()
	if err := w.enter(fd, ""); err != nil {
		return nil, fmt.Errorf("walking %s: %w", root, err)
	}
	w.walk(ctx)
	slices.SortFunc(w.list.LeftOut, func(a, b LeftOut) int { return ComparePaths(a.Path, b.Path) })
	return w.list, nil
}

type walker struct {
	b     Bounds
	dev   node // of the root
	stack []walkDir
	list  *Listing
	bytes int64
	names int64
}

// walkDir is an open directory and the names in it that are still to visit.
type walkDir struct {
	fd    int
	path  string // "" for the root
	names []string
}

func (w *walker) close() {
	for _, d := range w.stack {
		unix.Close(d.fd)
	}
}

// enter takes over fd and reads its names.
func (w *walker) enter(fd int, path string) error {
	// One more than there is room for, so that walk notices.
	names, err := readNames(fd, w.b.Entries-w.list.Visited+1)
	if err != nil {
		unix.Close(fd)
		return err
	}
	slices.Sort(names)
	w.stack = append(w.stack, walkDir{fd, path, names})
	return nil
}

func (w *walker) walk(ctx context.Context) {
	for len(w.stack) > 0 {
		top := &w.stack[len(w.stack)-1]
		if len(top.names) == 0 {
			unix.Close(top.fd)
			w.stack = w.stack[:len(w.stack)-1]
			continue
		}
		name := top.names[0]
		top.names = top.names[1:]
		path := name
		if top.path != "" {
			path = top.path + "/" + name
		}
		if ctx.Err() != nil {
			w.stop(path, ReasonTime)
			return
		}
		if w.names += int64(len(path)); w.list.Visited >= w.b.Entries || w.names > MaxNames {
			w.stop(path, ReasonMany)
			return
		}
		w.list.Visited++
		w.visit(top.fd, path, name)
	}
}

// stop ends the walk early. The path is told only where it may be.
func (w *walker) stop(path string, why Reason) {
	w.list.Incomplete = why
	w.leave(path, why)
}

func (w *walker) leave(path string, why Reason) {
	if len(path) > MaxPath {
		path = path[:strings.LastIndexByte(path[:MaxPath], '/')]
	}
	w.list.LeftOut = append(w.list.LeftOut, LeftOut{path, why})
}

func (w *walker) visit(dir int, path, name string) {
	if len(path) > MaxPath {
		w.leave(path, ReasonDeep)
		return
	}
	if name == ".git" {
		w.leave(path, ReasonGit)
		return
	}
	n, err := lookAt(dir, name)
	switch {
	case err != nil:
		w.leave(path, ReasonUnreadable)
	case n.major != w.dev.major || n.minor != w.dev.minor || n.mount:
		w.leave(path, ReasonMount)
	default:
		w.node(dir, path, name, n)
	}
}

func (w *walker) node(dir int, path, name string, n node) {
	switch n.mode & unix.S_IFMT {
	case unix.S_IFDIR:
		w.directory(dir, path, name, n)
	case unix.S_IFREG:
		w.file(path, n)
	case unix.S_IFLNK:
		w.link(dir, path, name, n)
	case unix.S_IFSOCK:
		w.leave(path, ReasonSocket)
	case unix.S_IFIFO:
		w.leave(path, ReasonFIFO)
	default:
		w.leave(path, ReasonDevice)
	}
}

func (w *walker) directory(dir int, path, name string, n node) {
	if n.mode&0o500 != 0o500 {
		w.leave(path, ReasonUnreadable)
		return
	}
	if len(w.stack) > w.b.Depth {
		w.leave(path, ReasonDeep)
		return
	}
	fd, err := openAt(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		w.leave(path, ReasonUnreadable)
		return
	}
	// The name may stand for something else by now.
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || nodeOf(&st).major != w.dev.major || nodeOf(&st).minor != w.dev.minor {
		unix.Close(fd)
		w.leave(path, ReasonMount)
		return
	}
	if err := w.enter(fd, path); err != nil {
		w.leave(path, ReasonUnreadable)
	}
}

func (w *walker) file(path string, n node) {
	switch {
	case n.mode&0o400 == 0:
		w.leave(path, ReasonUnreadable)
		return
	case n.size > w.b.File:
		w.leave(path, ReasonLarge)
		return
	case n.size > w.b.Bytes-w.bytes:
		w.leave(path, ReasonTotal)
		return
	}
	w.bytes += n.size
	kind := Regular
	if n.mode&0o100 != 0 {
		kind = Executable
	}
	if n.mode&(unix.S_ISUID|unix.S_ISGID|unix.S_ISVTX) != 0 {
		w.leave(path, ReasonSetuid)
	}
	w.list.Entries = append(w.list.Entries, Entry{Path: path, Kind: kind, Size: n.size, Allocated: n.allocated, Links: n.links})
}

func (w *walker) link(dir int, path, name string, n node) {
	target, err := readLinkAt(dir, name)
	if err != nil || target == "" {
		w.leave(path, ReasonUnreadable)
		return
	}
	w.names += int64(len(target))
	w.list.Entries = append(w.list.Entries, Entry{
		Path: path, Kind: Symlink, Size: int64(len(target)), Links: n.links, Target: target,
	})
}

// Total is the bytes of all regular files of a listing.
func (l *Listing) Total() (n int64) {
	for _, e := range l.Entries {
		if e.Kind != Symlink {
			n += e.Size
		}
	}
	return n
}

// WalkTime is the time bound for callers without a reason for another.
const WalkTime = 5 * time.Minute
