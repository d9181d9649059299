package shim

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// socket is a listening or connected socket that never blocks in the kernel.
//
// What it does often (accept, read, write, shutdown) it does without telling
// Go's scheduler, which otherwise lends the processor of a call that takes long
// to another thread and makes one if there is none: with hundreds of connections
// on a machine that a fork bomb keeps busy that would be any number of threads,
// and the shim may have protocol.ShimPids.
type socket struct {
	file *os.File
	raw  syscall.RawConn
}

// newSocket takes fd, which is in non-blocking mode, and closes it on an error.
func newSocket(fd int) (*socket, error) {
	file := os.NewFile(uintptr(fd), "socket")
	if file == nil {
		return nil, errors.New("taking a socket: not a descriptor")
	}
	raw, err := file.SyscallConn()
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("taking a socket: %v", err)
	}
	return &socket{file: file, raw: raw}, nil
}

const socketFlags = unix.SOCK_STREAM | unix.SOCK_NONBLOCK | unix.SOCK_CLOEXEC

// listenTCP listens on an IPv4 address of this machine.
func listenTCP(at netip.AddrPort) (*socket, error) {
	fd, err := unix.Socket(unix.AF_INET, socketFlags, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	// Without it an address whose last connections linger could not be bound.
	err = os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1))
	if err == nil {
		err = os.NewSyscallError("bind", unix.Bind(fd, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}))
	}
	if err == nil {
		err = os.NewSyscallError("listen", unix.Listen(fd, unix.SOMAXCONN))
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("listening on %s: %w", at, err)
	}
	return newSocket(fd)
}

// dialUnix connects to a Unix socket. Unlike TCP one whose queue is full says so
// at once, with EAGAIN (unix(7)).
func dialUnix(path string) (*socket, error) {
	fd, err := unix.Socket(unix.AF_UNIX, socketFlags, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	err = unix.EINTR
	for errors.Is(err, unix.EINTR) {
		err = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
	}
	if err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("connect", err)
	}
	return newSocket(fd)
}

// again says that a call has to wait until the socket is ready.
func again(errno syscall.Errno) bool { return errno == unix.EAGAIN }

// accept waits for a connection and returns its descriptor.
func (s *socket) accept() (fd int, err error) {
	var errno syscall.Errno
	waited := s.raw.Read(func(l uintptr) bool {
		r, _, e := unix.RawSyscall6(unix.SYS_ACCEPT4, l, 0, 0, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
		fd, errno = int(r), e
		return !again(e)
	})
	return fd, failed("accept", errno, waited)
}

// Read waits for bytes; io.EOF says that the other side has written its last.
func (s *socket) Read(p []byte) (n int, err error) {
	var errno syscall.Errno
	waited := s.raw.Read(func(fd uintptr) bool {
		n, errno = readOnce(fd, p)
		return !again(errno)
	})
	return n, readResult(n, errno, waited)
}

// receive is Read into a buffer that is taken from the pool only when there are
// bytes: a connection that waits holds none. The caller puts it back.
func (s *socket) receive(pool *buffers) (buf, got []byte, err error) {
	var n int
	var errno syscall.Errno
	waited := s.raw.Read(func(fd uintptr) bool {
		buf = pool.take()
		n, errno = readOnce(fd, buf)
		if n > 0 {
			return true
		}
		pool.put(buf)
		buf = nil
		return !again(errno)
	})
	return buf, buf[:n], readResult(n, errno, waited)
}

// readOnce reads what is there; n is 0 with every error.
func readOnce(fd uintptr, p []byte) (n int, errno syscall.Errno) {
	for {
		r, _, e := unix.RawSyscall(unix.SYS_READ, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
		if e == 0 {
			return int(r), 0
		}
		if e != unix.EINTR {
			return 0, e
		}
	}
}

func readResult(n int, errno syscall.Errno, waited error) error {
	if err := failed("read", errno, waited); err != nil {
		return err
	}
	if n == 0 {
		return io.EOF
	}
	return nil
}

// Write writes all of p.
func (s *socket) Write(p []byte) (written int, err error) {
	for written < len(p) {
		var n int
		var errno syscall.Errno
		waited := s.raw.Write(func(fd uintptr) bool {
			rest := p[written:]
			r, _, e := unix.RawSyscall6(unix.SYS_SENDTO, fd, uintptr(unsafe.Pointer(unsafe.SliceData(rest))), uintptr(len(rest)), unix.MSG_NOSIGNAL, 0, 0)
			n, errno = int(r), e
			return !again(e)
		})
		if errno == unix.EINTR {
			continue
		}
		if err := failed("write", errno, waited); err != nil {
			return written, err
		}
		written += n
	}
	return written, nil
}

// closeWrite says that nothing more will be written.
func (s *socket) closeWrite() error {
	var errno syscall.Errno
	waited := s.raw.Control(func(fd uintptr) {
		_, _, errno = unix.RawSyscall(unix.SYS_SHUTDOWN, fd, unix.SHUT_WR, 0)
	})
	return failed("shutdown", errno, waited)
}

// option sets an option of TCP or of the socket.
func (s *socket) option(set func(fd int) error) error {
	var inner error
	err := s.raw.Control(func(fd uintptr) { inner = set(int(fd)) })
	return errors.Join(err, inner)
}

// noDelay sends small pieces at once; Nagle's rule would hold them up.
func (s *socket) noDelay() error {
	return s.option(func(fd int) error { return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1) })
}

// interrupt wakes whatever waits for the socket, for good.
func (s *socket) interrupt() { _ = s.file.SetDeadline(time.Unix(1, 0)) }

// close ends the socket; a second close does nothing.
func (s *socket) close() { _ = s.file.Close() }

// abort ends a TCP connection as a fault (RST), so that the other side does not
// take what it got for the whole.
func (s *socket) abort() {
	_ = s.option(func(fd int) error { // a connection that is gone already
		return unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	})
	s.close()
}

// failed is the error of a call, or of waiting for it.
func failed(call string, errno syscall.Errno, waited error) error {
	if waited != nil {
		return waited
	}
	if errno != 0 {
		return os.NewSyscallError(call, errno)
	}
	return nil
}
