package shim

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// relayPatience ends a test that hangs; nothing here is expected to take as long.
const relayPatience = 30 * time.Second

// proxied is a relay between clients on loopback and a proxy of the test.
type proxied struct {
	t     *testing.T
	relay *relay
	at    string
	proxy *net.UnixListener
}

func newProxied(t *testing.T, head string) *proxied {
	t.Helper()
	dir, err := os.MkdirTemp("", "cs-relay") // not t.TempDir: a socket's path has 108 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "egress.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	front, err := listenTCP(netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	p := &proxied{t: t, relay: newRelay(path), at: portOf(t, front), proxy: l.(*net.UnixListener)}
	served := make(chan struct{})
	go func() {
		p.relay.serve(front, head)
		close(served)
	}()
	t.Cleanup(func() {
		l.Close()
		front.close()
		<-served
	})
	return p
}

func portOf(t *testing.T, l *socket) string {
	t.Helper()
	var at unix.Sockaddr
	err := l.option(func(fd int) (err error) {
		at, err = unix.Getsockname(fd)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", at.(*unix.SockaddrInet4).Port)
}

// ends are the two outer ends of one connection through the relay.
type ends struct {
	client *net.TCPConn
	proxy  *net.UnixConn
	asked  string // what the proxy was asked first
}

// dial connects, and has the proxy answer as reply does.
func (p *proxied) dial(reply string) ends {
	p.t.Helper()
	c, err := net.Dial("tcp", p.at)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { c.Close() })
	e := ends{client: c.(*net.TCPConn)}
	p.proxy.SetDeadline(time.Now().Add(relayPatience))
	up, err := p.proxy.AcceptUnix()
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { up.Close() })
	e.proxy = up
	e.client.SetDeadline(time.Now().Add(relayPatience))
	up.SetDeadline(time.Now().Add(relayPatience))
	if reply != "" {
		r := bufio.NewReader(up)
		for !strings.HasSuffix(e.asked, "\r\n\r\n") {
			line, err := r.ReadString('\n')
			if err != nil {
				p.t.Fatalf("the proxy was asked %q, then %v", e.asked+line, err)
			}
			e.asked += line
		}
		io.WriteString(up, reply)
	}
	return e
}

const established = "HTTP/1.1 200 OK\r\n\r\n"

func TestRelayAsksForTheName(t *testing.T) {
	p := newProxied(t, connectHead("git.example.com", 443))
	e := p.dial(established + "220 ready\r\n") // the server speaks first
	const want = "CONNECT git.example.com:443 HTTP/1.1\r\nHost: git.example.com:443\r\nCountersign-Client: transparent\r\n\r\n"
	if e.asked != want {
		t.Errorf("the proxy was asked %q", e.asked)
	}
	line, err := bufio.NewReader(e.client).ReadString('\n')
	if err != nil || line != "220 ready\r\n" {
		t.Errorf("the client got %q, %v", line, err)
	}
}

// An end of one way leaves the other open, in both orders.
func TestRelayKeepsHalfClosed(t *testing.T) {
	for _, first := range []string{"client", "proxy"} {
		t.Run(first, func(t *testing.T) {
			e := newProxied(t, "").dial("")
			type half interface {
				io.ReadWriter
				CloseWrite() error
			}
			a, b := half(e.client), half(e.proxy)
			if first == "proxy" {
				a, b = b, a
			}
			io.WriteString(a, "question")
			if err := a.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(b)
			if err != nil || string(got) != "question" {
				t.Errorf("one side got %q, %v", got, err)
			}
			io.WriteString(b, "answer")
			b.CloseWrite()
			got, err = io.ReadAll(a)
			if err != nil || string(got) != "answer" {
				t.Errorf("the other got %q, %v", got, err)
			}
		})
	}
}

// A fault is passed on as one: what was cut must not look whole.
func TestRelayPassesFaultsOn(t *testing.T) {
	t.Run("client", func(t *testing.T) {
		e := newProxied(t, "").dial("")
		e.client.SetLinger(0)
		e.client.Close()
		if n, err := e.proxy.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("the proxy reads %d bytes, %v", n, err)
		}
	})
	t.Run("proxy", func(t *testing.T) {
		e := newProxied(t, "").dial("")
		io.WriteString(e.proxy, "part")
		if _, err := io.ReadFull(e.client, make([]byte, 4)); err != nil {
			t.Fatal(err)
		}
		io.WriteString(e.client, "unread")
		awaitUnread(t, e.proxy)
		e.proxy.Close() // with bytes unread: a reset (unix(7))
		if _, err := e.client.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the client reads %v, want a reset", err)
		}
	})
	for name, reply := range map[string]string{
		"a refusal":       "HTTP/1.1 403 Forbidden\r\n\r\nno",
		"another version": "HTTP/1.0 200 OK\r\n\r\n",
		"no HTTP":         "hello\r\n\r\n",
		"a long head":     "HTTP/1.1 200 OK\r\n" + strings.Repeat("X: y\r\n", 300) + "\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			e := newProxied(t, connectHead("git.example.com", 443)).dial(reply)
			if got, err := io.ReadAll(e.client); len(got) != 0 || !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the client reads %q, %v, want a reset", got, err)
			}
		})
	}
	t.Run("half a head", func(t *testing.T) {
		e := newProxied(t, connectHead("git.example.com", 443)).dial("HTTP/1.1 200 OK\r\n")
		e.proxy.Close()
		if got, err := io.ReadAll(e.client); len(got) != 0 || !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the client reads %q, %v, want a reset", got, err)
		}
	})
	t.Run("no proxy", func(t *testing.T) {
		p := newProxied(t, "")
		p.proxy.Close()
		wantReset(t, p.at)
	})
}

// wantReset wants a new connection to be reset, which the client may see as
// early as in its own connect.
func wantReset(t *testing.T, at string) {
	t.Helper()
	c, err := net.Dial("tcp", at)
	if err == nil {
		defer c.Close()
		c.SetDeadline(time.Now().Add(relayPatience))
		_, err = c.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a new connection ends with %v, want a reset", err)
	}
}

// awaitUnread returns when the other side's bytes have come.
func awaitUnread(t *testing.T, c *net.UnixConn) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Read(func(fd uintptr) bool {
		n, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK)
		return n > 0 || !errors.Is(err, unix.EAGAIN)
	})
}

// A proxy that answers before it has read all, and goes, is heard.
func TestRelayDeliversAnEarlyAnswer(t *testing.T) {
	e := newProxied(t, "").dial("")
	io.WriteString(e.client, "POST")
	if _, err := io.ReadFull(e.proxy, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	const answer = "HTTP/1.1 403 Forbidden\r\n\r\nno"
	io.WriteString(e.proxy, answer)
	e.proxy.Close()
	got := make([]byte, len(answer))
	if _, err := io.ReadFull(e.client, got); err != nil || string(got) != answer {
		t.Fatalf("the client got %q, %v", got, err)
	}
	if _, err := e.client.Read(got); err != io.EOF {
		t.Errorf("then %v, want an end", err)
	}
	// What is sent after that is taken and dropped, not answered with a reset
	// that could cost the client its answer.
	if _, err := e.client.Write(bytes.Repeat([]byte("x"), 1<<20)); err != nil {
		t.Errorf("sending on: %v", err)
	}
}

// Every byte arrives, in order, both ways at once, on many connections: more
// than there are large buffers.
func TestRelayCarriesAll(t *testing.T) {
	p := newProxied(t, "")
	data := make([]byte, 3<<20)
	rand.Read(data)
	var all sync.WaitGroup
	for range 2 * largeBuffers {
		e := p.dial("")
		for _, way := range []struct {
			from io.Writer
			to   io.Reader
			end  func() error
		}{{e.client, e.proxy, e.client.CloseWrite}, {e.proxy, e.client, e.proxy.CloseWrite}} {
			all.Go(func() {
				if _, err := way.from.Write(data); err != nil {
					t.Error(err)
				}
				way.end()
			})
			all.Go(func() {
				if got, err := io.ReadAll(way.to); err != nil || !bytes.Equal(got, data) {
					t.Errorf("%d bytes of %d arrived, or others; %v", len(got), len(data), err)
				}
			})
		}
	}
	all.Wait()
}

// The bound on connections refuses the next one, and only for as long as it is
// reached.
func TestRelayIsBounded(t *testing.T) {
	p := newProxied(t, "")
	for range mostConnections - 1 {
		p.relay.slots <- struct{}{}
	}
	e := p.dial("")
	wantReset(t, p.at)
	io.WriteString(e.client, "x")
	if _, err := io.ReadFull(e.proxy, make([]byte, 1)); err != nil {
		t.Errorf("the one within it: %v", err)
	}
	e.client.Close()
	e.proxy.Close()
	p.relay.slots <- struct{}{} // the relay has given its place up
	<-p.relay.slots
	io.WriteString(p.dial("").client, "x")
}

// A connection that waits holds no memory of the pool's.
func TestIdleConnectionsHoldNoBuffer(t *testing.T) {
	p := newProxied(t, "")
	for range 2 * largeBuffers {
		e := p.dial("")
		io.WriteString(e.client, "x")
		if _, err := io.ReadFull(e.proxy, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range largeBuffers { // each put back after its piece
		select {
		case buf := <-p.relay.buffers.large:
			defer func() { p.relay.buffers.large <- buf }()
		case <-time.After(relayPatience):
			t.Fatalf("only %d large buffers are in the pool", i)
		}
	}
}

// A Unix socket says that its queue is full; the relay waits for it.
func TestRelayWaitsForABusyProxy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "b.sock")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: path}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	first, err := dialUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	defer first.close()
	if s, err := dialUnix(path); !errors.Is(err, unix.EAGAIN) {
		t.Fatalf("the queue is not full: %v, %v", s, err)
	}
	dialled := make(chan error, 1)
	go func() {
		s, err := newRelay(path).dial()
		if err == nil {
			s.close()
		}
		dialled <- err
	}()
	if _, _, err := unix.Accept(fd); err != nil {
		t.Fatal(err)
	}
	if err := <-dialled; err != nil {
		t.Errorf("when there was room: %v", err)
	}
}

// A port that is taken at a name's address stays its owner's; the others lead to
// the proxy.
func TestListenSkipsWhatIsTaken(t *testing.T) {
	p := newProxied(t, "")
	at := netip.MustParseAddr("127.64.77.1")
	taken, err := net.Listen("tcp", at.String()+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	free, err := net.Listen("tcp", at.String()+":0")
	if err != nil {
		t.Fatal(err)
	}
	free.Close()
	n := &network{relay: p.relay, ports: []int{taken.Addr().(*net.TCPAddr).Port, free.Addr().(*net.TCPAddr).Port}}
	if err := n.listen("git.example.com", at); err != nil {
		t.Fatal(err)
	}
	p.at = free.Addr().String()
	if e := p.dial(established); !strings.HasPrefix(e.asked, "CONNECT git.example.com:") {
		t.Errorf("the proxy was asked %q", e.asked)
	}
	c, err := net.Dial("tcp", taken.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if own, err := taken.Accept(); err != nil || own.RemoteAddr().String() != c.LocalAddr().String() {
		t.Errorf("the owner of the port accepts %v, %v", own, err)
	}
}

// Names are as many as the open files have room for listeners of.
func TestRoomForNames(t *testing.T) {
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &was)
	for _, c := range []struct {
		files uint64
		ports int
		want  int
	}{{8192, 3, mostNames}, {8192, 10, 692}, {1274, 10, 1}, {1273, 10, 0}, {256, 3, 0}} {
		limit := unix.Rlimit{Cur: c.files, Max: was.Max}
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
		if got, err := roomForNames(c.ports); got != c.want || (err == nil) != (c.want > 0) {
			t.Errorf("%d files, %d ports: %d names, %v, want %d", c.files, c.ports, got, err, c.want)
		}
	}
}

func TestReadTunnelHead(t *testing.T) {
	for name, c := range map[string]struct {
		pieces []string
		rest   string
		ok     bool
	}{
		"at once":           {[]string{"HTTP/1.1 200 OK\r\n\r\n"}, "", true},
		"with fields":       {[]string{"HTTP/1.1 200 OK\r\nX: y\r\n\r\n"}, "", true},
		"byte by byte":      {strings.Split("HTTP/1.1 200 OK\r\n\r\n", ""), "", true},
		"with what follows": {[]string{"HTTP/1.1 200 OK\r\n\r\nSSH-2.0-x\r\n"}, "SSH-2.0-x\r\n", true},
		"refused":           {[]string{"HTTP/1.1 403 Forbidden\r\n\r\n"}, "", false},
		"201":               {[]string{"HTTP/1.1 201 Created\r\n\r\n"}, "", false},
		"2000":              {[]string{"HTTP/1.1 2000 OK\r\n\r\n"}, "", false},
		"cut":               {[]string{"HTTP/1.1 200 OK\r\n"}, "", false},
		"empty":             {nil, "", false},
		"endless":           {[]string{"HTTP/1.1 200 " + strings.Repeat("x", 2*headBound)}, "", false},
	} {
		var readers []io.Reader
		for _, p := range c.pieces {
			readers = append(readers, strings.NewReader(p))
		}
		rest, err := readTunnelHead(io.MultiReader(readers...))
		if (err == nil) != c.ok || string(rest) != c.rest {
			t.Errorf("%s: %q, %v", name, rest, err)
		}
	}
}

func BenchmarkRelay(b *testing.B) {
	dir := b.TempDir()
	path := filepath.Join(dir, "e.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	front, err := listenTCP(netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		b.Fatal(err)
	}
	defer front.close()
	go newRelay(path).serve(front, "")
	var at unix.Sockaddr
	front.option(func(fd int) (err error) { at, err = unix.Getsockname(fd); return err })
	c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", at.(*unix.SockaddrInet4).Port))
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	up, err := l.Accept()
	if err != nil {
		b.Fatal(err)
	}
	defer up.Close()
	piece := make([]byte, 256<<10)
	b.SetBytes(int64(len(piece)))
	go func() {
		for range b.N {
			up.Write(piece)
		}
	}()
	got := make([]byte, len(piece))
	b.ResetTimer()
	for range b.N {
		if _, err := io.ReadFull(c, got); err != nil {
			b.Fatal(err)
		}
	}
}
