package shim

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of what a relay carries and waits for. The proxy refuses and records
// what is beyond its own bound on connections, so this one is wider.
const (
	mostConnections = 600
	headBound       = 1 << 10          // bytes of the proxy's answer to CONNECT
	greetBound      = 30 * time.Second // for that answer
	lingerBound     = 5 * time.Second  // for a client to notice that nobody reads any more
	busyBound       = 10 * time.Second // for the proxy to take a connection
	busyPause       = 5 * time.Millisecond
)

// setupCalls is how many connections are set up or closed at once: these few
// calls may each hold a thread, see socket.
const setupCalls = 2

// relay carries connections to the run's proxy.
type relay struct {
	path    string // of the proxy's socket
	slots   chan struct{}
	calls   chan struct{}
	buffers *buffers
}

func newRelay(path string) *relay {
	return &relay{
		path: path, slots: make(chan struct{}, mostConnections),
		calls: make(chan struct{}, setupCalls), buffers: newBuffers(),
	}
}

func (r *relay) call(f func()) {
	r.calls <- struct{}{}
	defer func() { <-r.calls }()
	f()
}

// serve takes connections from l until it is closed. Each begins with head on
// its way to the proxy, which then has to answer 200; an empty head is none.
func (r *relay) serve(l *socket, head string) {
	for {
		fd, err := l.accept()
		var fault *os.SyscallError
		switch {
		case errors.As(err, &fault): // aborted before it was taken, or the sandbox lacks descriptors or memory now
			time.Sleep(busyPause)
		case err != nil:
			return
		default:
			r.take(fd, head)
		}
	}
}

// take carries a connection beside the caller, or refuses it.
func (r *relay) take(fd int, head string) {
	var client *socket
	var err error
	r.call(func() {
		if client, err = newSocket(fd); err == nil {
			err = client.noDelay()
		}
	})
	if client == nil {
		return
	}
	select {
	case r.slots <- struct{}{}:
	default:
		err = errors.New("too many connections")
	}
	if err != nil {
		r.call(client.abort)
		return
	}
	go func() {
		r.carry(client, head)
		<-r.slots
	}()
}

// carry is one connection, from the proxy's answer to its end.
func (r *relay) carry(client *socket, head string) {
	proxy, err := r.dial()
	if err != nil {
		r.call(client.abort)
		return
	}
	rest, err := greet(proxy, head)
	if err == nil {
		_, err = client.Write(rest)
	}
	if err == nil {
		err = r.exchange(client, proxy)
	}
	r.call(func() {
		proxy.close()
		if err != nil {
			client.abort()
		}
		client.close()
	})
}

// dial connects to the proxy, and waits while its queue is full.
func (r *relay) dial() (s *socket, err error) {
	deadline := time.Now().Add(busyBound)
	for {
		r.call(func() { s, err = dialUnix(r.path) })
		if !errors.Is(err, unix.EAGAIN) || time.Now().After(deadline) {
			return s, err
		}
		time.Sleep(busyPause)
	}
}

// connectHead asks the proxy for a tunnel that a workload knows nothing of. The
// name is one that contract.ParseHost returned.
func connectHead(name string, port int) string {
	target := fmt.Sprintf("%s:%d", name, port)
	return "CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\nCountersign-Client: transparent\r\n\r\n"
}

// greet sends head and reads the answer to it. rest is what came behind that.
func greet(proxy *socket, head string) (rest []byte, err error) {
	if head == "" {
		return nil, nil
	}
	if err := proxy.file.SetDeadline(time.Now().Add(greetBound)); err != nil {
		return nil, err
	}
	if _, err := io.WriteString(proxy, head); err != nil {
		return nil, err
	}
	rest, err = readTunnelHead(proxy)
	if err != nil {
		return nil, err
	}
	return rest, proxy.file.SetDeadline(time.Time{})
}

// readTunnelHead reads an answer to CONNECT, which has to be 200.
func readTunnelHead(r io.Reader) (rest []byte, err error) {
	buf := make([]byte, 0, headBound)
	for {
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		head, rest, whole := bytes.Cut(buf, []byte("\r\n\r\n"))
		switch {
		case whole && !strings.HasPrefix(string(head), "HTTP/1.1 200 "):
			return nil, errors.New("asking for a tunnel: the proxy refused")
		case whole:
			return rest, nil
		case err != nil:
			return nil, fmt.Errorf("asking for a tunnel: %v", err)
		case len(buf) == cap(buf):
			return nil, errors.New("asking for a tunnel: the answer is too long")
		}
	}
}

// exchange copies both ways until both have ended. An end of one way is passed
// on and leaves the other open; a fault of either side ends both, and is returned.
func (r *relay) exchange(client, proxy *socket) error {
	faults := make(chan error, 2)
	end := func(fault error) {
		faults <- fault
		if fault != nil {
			client.interrupt()
			proxy.interrupt()
		}
	}
	go func() {
		read, wrote := r.copy(proxy, client)
		if wrote != nil { // the proxy is done with this client, which may still have an answer to read
			r.discard(client)
		}
		end(read)
	}()
	read, wrote := r.copy(client, proxy)
	end(errors.Join(read, wrote))
	return errors.Join(<-faults, <-faults)
}

// copy moves bytes until from ends, which to is then told. It copies by itself:
// the profile refuses splice(2), and [io.Copy] would try it for each piece.
func (r *relay) copy(to, from *socket) (read, wrote error) {
	for {
		buf, got, err := from.receive(r.buffers)
		if err == io.EOF {
			return nil, to.closeWrite()
		}
		if err != nil {
			return err, nil
		}
		_, err = to.Write(got)
		r.buffers.put(buf)
		if err != nil {
			return nil, err
		}
	}
}

// discard reads on for a while, since closing a connection with bytes unread
// would have its other side lose what it was sent.
func (r *relay) discard(client *socket) {
	if err := client.file.SetReadDeadline(time.Now().Add(lingerBound)); err != nil {
		return
	}
	for {
		buf, _, err := client.receive(r.buffers)
		if err != nil {
			return
		}
		r.buffers.put(buf)
	}
}
