package workspace

import (
	"errors"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// treeFiles opens regular files under a root, each relative to its directory,
// without a link on the way, without waiting, on the root's own device. It
// keeps the directories of the last file open, so that files that come in an
// order of their tree cost one look-up each.
type treeFiles struct {
	dev  node      // of the root
	dirs []openDir // from the root to where the last file was
}

// openTree opens root, which must be a directory and no link.
func openTree(root string) (*treeFiles, error) { return openTreeAt(unix.AT_FDCWD, root) }

// openTreeAt is openTree for a path that is relative to an open directory.
func openTreeAt(dir int, root string) (*treeFiles, error) {
	fd, err := openAt(dir, root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	t := &treeFiles{dirs: []openDir{{"", fd}}}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		t.close()
		return nil, err
	}
	t.dev = nodeOf(&st)
	return t, nil
}

func (t *treeFiles) close() {
	for _, d := range t.dirs {
		unix.Close(d.fd)
	}
	t.dirs = nil
}

// file opens the regular file at p, which must have passed [CheckPath], and
// says how large it is, in bytes.
func (t *treeFiles) file(p string) (fd int, size int64, err error) {
	dir, err := t.directory(p)
	if err != nil {
		return -1, 0, err
	}
	// To open a device can have effects of its own, so it is looked at first.
	var st unix.Stat_t
	if err := unix.Fstatat(dir, path.Base(p), &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return -1, 0, err
	}
	if _, err := t.regular(&st); err != nil {
		return -1, 0, err
	}
	fd, err = openAt(dir, path.Base(p), unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return -1, 0, err
	}
	if size, err = t.check(fd); err != nil {
		unix.Close(fd)
		return -1, 0, err
	}
	return fd, size, nil
}

// directory opens the directory of p, from the deepest one that is open already.
func (t *treeFiles) directory(p string) (int, error) {
	parent := path.Dir(p)
	if parent == "." {
		parent = ""
	}
	for len(t.dirs) > 1 {
		top := t.dirs[len(t.dirs)-1]
		if within(parent, top.path) {
			break
		}
		unix.Close(top.fd)
		t.dirs = t.dirs[:len(t.dirs)-1]
	}
	for {
		top := t.dirs[len(t.dirs)-1]
		if top.path == parent {
			return top.fd, nil
		}
		rest := strings.TrimPrefix(parent[len(top.path):], "/")
		name, _, _ := strings.Cut(rest, "/")
		fd, err := openAt(top.fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
		if err != nil {
			return -1, err
		}
		t.dirs = append(t.dirs, openDir{path.Join(top.path, name), fd})
	}
}

func (t *treeFiles) check(fd int) (int64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, err
	}
	return t.regular(&st)
}

func (t *treeFiles) regular(st *unix.Stat_t) (int64, error) {
	n := nodeOf(st)
	switch {
	case n.mode&unix.S_IFMT != unix.S_IFREG:
		return 0, errors.New("is no longer a regular file")
	case n.major != t.dev.major || n.minor != t.dev.minor:
		return 0, errors.New("is on another mount")
	}
	return n.size, nil
}

// readSome is read(2).
func readSome(fd int, b []byte) (n int, err error) {
	err = retry(func() (err error) {
		n, err = unix.Read(fd, b)
		return err
	})
	return n, err
}
