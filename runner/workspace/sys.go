package workspace

import (
	"bytes"
	"os"

	"golang.org/x/sys/unix"
)

// retry repeats a call that a signal interrupted; Go's runtime sends signals
// to itself.
func retry(f func() error) error {
	for {
		if err := f(); err != unix.EINTR {
			return err
		}
	}
}

// openAt opens relative to a directory; nothing it opens outlives an exec.
func openAt(dir int, name string, flags int, mode uint32) (fd int, err error) {
	err = retry(func() error {
		fd, err = unix.Openat(dir, name, flags|unix.O_CLOEXEC, mode)
		return err
	})
	return fd, err
}

// writeAll writes with write(2) alone: the sandbox's seccomp profile refuses
// splice, and the ways of copying that try it first.
func writeAll(fd int, b []byte) error {
	for len(b) > 0 {
		var n int
		err := retry(func() (err error) {
			n, err = unix.Write(fd, b)
			return err
		})
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// fdWriter writes to a descriptor with writeAll.
type fdWriter int

func (fd fdWriter) Write(b []byte) (int, error) {
	if err := writeAll(int(fd), b); err != nil {
		return 0, err
	}
	return len(b), nil
}

// readNames reads the names of a directory, at most limit+1 of them.
func readNames(fd int, limit int64) ([]string, error) {
	var names []string
	buf := make([]byte, 64<<10)
	for int64(len(names)) <= limit {
		var n int
		err := retry(func() (err error) {
			n, err = unix.Getdents(fd, buf)
			return err
		})
		if err != nil {
			return names, os.NewSyscallError("getdents", err)
		}
		if n <= 0 {
			break
		}
		_, _, names = unix.ParseDirent(buf[:n], -1, names)
	}
	return names, nil
}

// readLinkAt reads a link's target; one longer than MaxTarget is ENAMETOOLONG.
func readLinkAt(dir int, name string) (string, error) {
	var buf [MaxTarget + 1]byte
	var n int
	err := retry(func() (err error) {
		n, err = unix.Readlinkat(dir, name, buf[:])
		return err
	})
	if err != nil {
		return "", err
	}
	if n > MaxTarget {
		return "", unix.ENAMETOOLONG
	}
	return string(bytes.Clone(buf[:n])), nil
}

// node is what a walk needs to know of a name.
type node struct {
	mode      uint32
	size      int64
	allocated int64
	links     uint64
	major     uint32
	minor     uint32
	mount     bool // it is the root of a mount
}

// lookAt says what a name is, following nothing. statx also tells the root of
// a bind mount, whose device number is no different.
func lookAt(dir int, name string) (node, error) {
	var sx unix.Statx_t
	look := func(flags int) error {
		return retry(func() error { return unix.Statx(dir, name, flags, unix.STATX_BASIC_STATS, &sx) })
	}
	err := look(unix.AT_SYMLINK_NOFOLLOW | unix.AT_NO_AUTOMOUNT)
	if err == unix.EINVAL { // gVisor, which mounts nothing by itself, does not know the second
		err = look(unix.AT_SYMLINK_NOFOLLOW)
	}
	if err == unix.ENOSYS {
		return lookAtOld(dir, name)
	}
	if err != nil {
		return node{}, err
	}
	return node{
		mode: uint32(sx.Mode), size: int64(sx.Size), allocated: int64(sx.Blocks) * 512, links: uint64(sx.Nlink),
		major: sx.Dev_major, minor: sx.Dev_minor,
		mount: sx.Attributes&sx.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT != 0,
	}, nil
}

func lookAtOld(dir int, name string) (node, error) {
	var st unix.Stat_t
	err := retry(func() error { return unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	return nodeOf(&st), err
}

func nodeOf(st *unix.Stat_t) node {
	return node{
		mode: st.Mode, size: st.Size, allocated: st.Blocks * 512, links: uint64(st.Nlink),
		major: unix.Major(uint64(st.Dev)), minor: unix.Minor(uint64(st.Dev)),
	}
}
