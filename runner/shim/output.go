package shim

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// outputChunk is how much of a workload's output one message holds: half a
// pipe, so that the workload can go on writing while the first is sent.
const outputChunk = 32 << 10

// drain sends what comes out of a workload's pipe, as it comes. It copies by
// itself: the profile refuses splice(2), which [io.Copy] would try.
//
// A pipe ends when its last writer does, and a descriptor that was passed away
// over a socket is a writer that no signal reaches. So when the last process is
// gone (empty is closed) what is in the pipe is read and nothing is waited for.
func drain(r *os.File, send func([]byte) error, empty <-chan struct{}) {
	defer r.Close()
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-empty:
			_ = r.SetReadDeadline(time.Unix(1, 0))
		case <-stop:
		}
	}()

	buf := make([]byte, outputChunk)
	lost := false // the connection is gone; PID 1 ends by itself, the pipe stays open until then
	pass := func(p []byte) {
		if len(p) > 0 && !lost {
			lost = send(p) != nil
		}
	}
	for {
		n, err := r.Read(buf)
		pass(buf[:n])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			return
		}
	}
	_ = r.SetReadDeadline(time.Time{})
	for {
		n, err := readNow(r, buf)
		if n <= 0 || err != nil {
			return
		}
		pass(buf[:n])
	}
}

// readNow reads what is there, without waiting.
func readNow(r *os.File, buf []byte) (n int, err error) {
	raw, err := r.SyscallConn()
	if err != nil {
		return 0, err
	}
	var inner error
	err = raw.Read(func(fd uintptr) bool {
		n, inner = unix.Read(int(fd), buf)
		return true
	})
	return n, errors.Join(err, inner)
}
