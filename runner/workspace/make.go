package workspace

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// What a start tree's nodes are like.
const (
	fileMode  = 0o644
	execMode  = 0o755
	dirMode   = 0o755
	treeMTime = 1577836800 // 2020-01-01T00:00:00Z, see Receive
)

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

// full turns the errors of a file system without room into a *Full.
func full(err error, written Stats) error {
	for _, e := range []error{unix.ENOSPC, unix.EDQUOT, unix.EFBIG} {
		if errors.Is(err, e) {
			return &Full{Written: written, Err: e}
		}
	}
	return err
}

// openEmpty opens root, which must be a directory and no link, and refuses one
// that holds anything.
func openEmpty(root string) (int, error) {
	fd, err := openAt(unix.AT_FDCWD, root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return -1, err
	}
	names, err := readNames(fd, 1)
	if err == nil && len(names) > 0 {
		err = fmt.Errorf("it is not empty (it holds %q): a start tree goes only into an empty directory", clip(names[0]))
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// maker makes the nodes of a start tree, each relative to an open directory.
// Everything it makes is new: what is there already is EEXIST.
type maker struct{ uid int } // the owner; the process's own when negative

// newMaker drops an owner that the process could not give.
func newMaker(uid int) maker {
	if os.Geteuid() != 0 {
		uid = -1
	}
	return maker{uid}
}

// mkdir makes a directory and opens it.
func (m maker) mkdir(dir int, name string) (int, error) {
	if err := retry(func() error { return unix.Mkdirat(dir, name, dirMode) }); err != nil {
		return -1, err
	}
	fd, err := openAt(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return -1, err
	}
	if _, err := m.own(fd, dirMode); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// makeFile makes a file, fills it, and says what it is once nothing about it
// changes any more.
func (m maker) makeFile(dir int, name string, mode uint32, fill func(fd int) error) (st unix.Stat_t, err error) {
	return m.create(dir, name, mode, func(fd int) error {
		if err := fill(fd); err != nil {
			return err
		}
		return unix.Futimes(fd, []unix.Timeval{{Sec: treeMTime}, {Sec: treeMTime}})
	})
}

// makeIndex makes git's index. Its time is the present: one that is not later
// than the files' would make git read them all again.
// https://git-scm.com/docs/racy-git
func (m maker) makeIndex(dir int, name string, index []byte) error {
	_, err := m.create(dir, name, fileMode, func(fd int) error { return writeAll(fd, index) })
	return err
}

func (m maker) create(dir int, name string, mode uint32, fill func(fd int) error) (st unix.Stat_t, err error) {
	fd, err := openAt(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, mode)
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
	return m.own(fd, mode)
}

// own gives a node that was made with mode its owner, and looks at it. The
// umask may have taken bits of the mode away.
func (m maker) own(fd int, mode uint32) (st unix.Stat_t, err error) {
	if m.uid >= 0 {
		if err := unix.Fchown(fd, m.uid, m.uid); err != nil {
			return st, err
		}
	}
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&0o7777 == mode {
		return st, err
	}
	if err := unix.Fchmod(fd, mode); err != nil {
		return st, err
	}
	return st, unix.Fstat(fd, &st)
}

func (m maker) makeLink(dir int, name, target string) (st unix.Stat_t, err error) {
	if err := unix.Symlinkat(target, dir, name); err != nil {
		return st, err
	}
	if m.uid >= 0 {
		if err := unix.Fchownat(dir, name, m.uid, m.uid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return st, err
		}
	}
	fixed := []unix.Timespec{{Sec: treeMTime}, {Sec: treeMTime}}
	if err := unix.UtimesNanoAt(dir, name, fixed, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return st, err
	}
	return st, unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
}
