package egress

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestFirstLine(t *testing.T) {
	for _, c := range []struct {
		sent  string
		kind  protocol
		known bool
	}{
		{"", protocolOther, false},
		{"GE", protocolOther, false},
		{"GET", protocolOther, false},
		{"GET ", protocolHTTP, true},
		{"CONNECT ", protocolHTTP, true},
		{"PRI ", protocolHTTP, true},
		{"\r\n\r\n \tPOST ", protocolHTTP, true},
		{"\r\n", protocolOther, false},
		{"BREW /pot HTTP/1.1", protocolHTTP, true},
		{"BREW /pot ", protocolOther, false},
		{"get / http/1.1\r\n", protocolHTTP, true},
		{"EHLO a.example", protocolOther, false},
		{"EHLO a.example\r\n", protocolOther, true},
		{"QUIT\r\n", protocolOther, true},
		{"SSH-2.0-x\r\n", protocolOther, true},
		{"\x00\x00\x00\x08\x04\xd2\x16\x2f", protocolOther, true},
		{"*1", protocolOther, false}, // a token of RFC 9110 so far
		{"*1\r\n$4\r\nPING\r\n", protocolOther, true},
		{"\x80\x2e", protocolTLS, false},
		{"\x80\x2e\x01\x03", protocolTLS, true},
		{"\x80\x2e\x01\x07", protocolOther, true},
		{"\x80\x2e\x02", protocolOther, true},
		{"\xff\xfd\x01", protocolOther, true}, // telnet
	} {
		if kind, known := firstLine([]byte(c.sent)); known != c.known || known && kind != c.kind {
			t.Errorf("%q: %v, %v, want %v, %v", c.sent, kind, known, c.kind, c.known)
		}
	}
}

// A tunnel carries any protocol both ways, also from the server first, and ends
// each side by itself.
func TestTunnelCarries(t *testing.T) {
	const chunk = 1 << 20
	for _, c := range []struct {
		what, client, server string
		serverFirst          bool
	}{
		{"client first", "\x00ping", "pong", false},
		{"server first", "EHLO a.example\r\n", "220 ready\r\n", true},
		{"a silent client", "", "bye", true},
		{"a silent server", "\x00ping", "", false},
		{"much", "\x00" + strings.Repeat("a", chunk-1), strings.Repeat("b", 3*chunk), true},
	} {
		for _, transparent := range []bool{true, false} {
			b := newBench(t, allowOpaque("a.example", 22))
			heard := make(chan string, 1)
			b.listen(22, func(conn net.Conn) {
				if c.serverFirst {
					io.WriteString(conn, c.server)
				}
				got, _ := io.ReadAll(conn)
				if !c.serverFirst {
					io.WriteString(conn, c.server)
				}
				heard <- string(got)
			})
			conn := b.tunnel("a.example:22", transparent)
			if c.serverFirst {
				if _, err := io.ReadFull(conn, make([]byte, len(c.server))); err != nil {
					t.Errorf("%s: the server's greeting: %v", c.what, err)
				}
			}
			io.WriteString(conn, c.client)
			conn.CloseWrite()
			if rest := conn.all(); !c.serverFirst && rest != c.server {
				t.Errorf("%s: the client heard %.20q", c.what, rest)
			}
			if got := <-heard; got != c.client {
				t.Errorf("%s: the server heard %.20q (%d bytes)", c.what, got, len(got))
			}
			want := closedRecord{Connection: 1, Host: "a.example", Port: 22, BytesOut: int64(len(c.client)), BytesIn: int64(len(c.server)), Reason: reasonEnd}
			if got := b.closed(); got != want {
				t.Errorf("%s: %+v, want %+v", c.what, got, want)
			}
		}
	}
}

// What a client sends with its CONNECT, before it was answered, is its tunnel's.
func TestTunnelTakesWhatCameEarly(t *testing.T) {
	b := newBench(t, allowOpaque("a.example", 22))
	heard := make(chan string, 1)
	b.listen(22, func(conn net.Conn) {
		got, _ := io.ReadAll(conn)
		heard <- string(got)
	})
	c := b.dial()
	io.WriteString(c, "CONNECT a.example:22 HTTP/1.1\r\n\r\n\x00early")
	c.CloseWrite()
	io.ReadAll(c)
	if got := <-heard; got != "\x00early" {
		t.Errorf("the server heard %q", got)
	}
}

func TestTunnelRecords(t *testing.T) {
	b := newBench(t, allowOpaque("a.example", 22))
	b.answers["a.example"] = Answer{
		Addresses: append(b.answers["a.example"].Addresses, loopback.Next()),
		Aliases:   []string{"b.example", "c\x1b.example"},
	}
	b.listen(22, func(net.Conn) {})
	c := b.tunnel("a.example:22", false)
	if rest, err := io.ReadAll(c); len(rest) > 0 || err != nil { // the server ends its side, and the client is told
		t.Errorf("%q, %v", rest, err)
	}
	c.CloseWrite()
	b.closed()
	got := b.of(TypeConnected)[0].(connectedRecord)
	if got.Address != "127.0.0.1:22" || got.Mode != "opaque" || got.Rule != 0 || strings.Join(got.Aliases, " ") != `b.example c\x1b.example` {
		t.Errorf("%+v", got)
	}
}

// The next address is tried when one does not answer; of a mixed answer only
// what may be dialled is.
func TestAddressesAreTriedInOrder(t *testing.T) {
	b := newBench(t, allowOpaque("a.example", 22))
	b.listen(22, func(net.Conn) {})
	cfg := b.config(compiled(t, allowOpaque("a.example", 22)))
	dialled := make(chan string, 9)
	cfg.Dialer = refusing{b, dialled}
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	b.answers["a.example"] = Answer{Addresses: addresses("169.254.169.254", "127.0.0.2", "127.0.0.3", "127.0.0.1")}
	target := Target{"a.example", 22}
	out, err := p.connect(t.Context(), target, 0, target)
	if err != nil {
		t.Fatal(err)
	}
	out.Close()
	out.Close()
	close(dialled)
	var order []string
	for d := range dialled {
		order = append(order, d)
	}
	if got := strings.Join(order, " "); got != "127.0.0.2:22 127.0.0.3:22 127.0.0.1:22" {
		t.Errorf("dialled: %s", got)
	}
	if got := b.of(TypeConnected)[0].(connectedRecord); got.Refused != 1 || got.Address != "127.0.0.1:22" {
		t.Errorf("%+v", got)
	}
	if n := len(b.of(TypeClosed)); n != 1 {
		t.Errorf("closed %d times", n)
	}
}

func TestTLSName(t *testing.T) {
	certificate := selfSigned(t, "a.example")
	for _, name := range []string{"a.example", "b.example"} {
		b := newBench(t, allowOpaque("a.example", 443))
		b.listen(443, func(conn net.Conn) {
			s := tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{certificate}})
			io.Copy(s, s)
		})
		c := tls.Client(slow{b.tunnel("a.example:443", true)}, &tls.Config{ServerName: name, InsecureSkipVerify: true})
		err := c.Handshake()
		if name == "b.example" {
			if err == nil || !strings.Contains(err.Error(), "access denied") {
				t.Errorf("another name: %v", err)
			}
			b.denied(ClassMismatch)
			if got := b.closed(); got.BytesOut != 0 || got.Reason != string(ClassMismatch) {
				t.Errorf("another name: %+v", got)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, "hello")
		if _, err := io.ReadFull(c, make([]byte, 5)); err != nil {
			t.Error(err)
		}
	}
}

// slow writes a byte at a time.
type slow struct{ net.Conn }

func (s slow) Write(b []byte) (int, error) {
	for i := range b {
		if _, err := s.Conn.Write(b[i : i+1]); err != nil {
			return i, err
		}
	}
	return len(b), nil
}

// Once the server has spoken a refusal is the end, and what was refused never
// reached the server.
func TestRefusedAfterTheServerSpoke(t *testing.T) {
	hello := string(recordsOf(helloWith(serverNames(serverName{0, "b.example"})), 99))
	for sent, class := range map[string]Class{
		hello:                         ClassMismatch,
		"GET / HTTP/1.1\r\n":          ClassProtocol,
		"\x80\x2e\x01\x03\x01":        ClassMalformed,
		strings.Repeat("a", 16<<10):   ClassBounds,
		"\x16\x03\x01\x00\x00garbage": ClassMalformed,
	} {
		b := newBench(t, allowOpaque("a.example", 22))
		heard := make(chan string, 1)
		b.listen(22, func(conn net.Conn) {
			io.WriteString(conn, "220 ready\r\n")
			got, _ := io.ReadAll(conn)
			heard <- string(got)
		})
		c := b.tunnel("a.example:22", true)
		io.ReadFull(c, make([]byte, 11))
		io.WriteString(c, sent)
		if rest := c.all(); rest != "" {
			t.Errorf("%.20q: the client heard %q", sent, rest)
		}
		if got := <-heard; got != "" {
			t.Errorf("%.20q: the server heard %.20q", sent, got)
		}
		b.denied(class)
	}
}

// What would go past the budget is not sent, also not in part.
func TestUploadBudget(t *testing.T) {
	rule := allowOpaque("a.example", 22)
	rule.UploadBytes = 10
	b := newBench(t, rule)
	heard := make(chan string, 2)
	b.listen(22, func(conn net.Conn) {
		got := make([]byte, 8)
		n, _ := io.ReadFull(conn, got)
		conn.Write([]byte("ok"))
		rest, _ := io.ReadAll(conn)
		heard <- string(got[:n]) + string(rest)
	})
	c := b.tunnel("a.example:22", true)
	io.WriteString(c, "\x001234567")
	io.ReadFull(c, make([]byte, 2))
	io.WriteString(c, "890")
	c.all()
	if got := <-heard; got != "\x001234567" {
		t.Errorf("the server heard %q", got)
	}
	if got := b.closed(); got.BytesOut != 8 || got.Reason != string(ClassBudget) {
		t.Errorf("%+v", got)
	}
	b.denied(ClassBudget)

	// The rest of the budget is there for the next connection.
	c = b.tunnel("a.example:22", true)
	io.WriteString(c, "\x00!")
	c.CloseWrite()
	c.all()
	if got := <-heard; got != "\x00!" {
		t.Errorf("the server heard %q", got)
	}
}

// A server that breaks off before a silent client said anything is told to it.
func TestServerBreaksOff(t *testing.T) {
	b := newBench(t, allowOpaque("a.example", 22))
	made := make(chan bool)
	b.listen(22, func(conn net.Conn) {
		<-made
		conn.(*net.TCPConn).SetLinger(0)
	})
	c := b.tunnel("a.example:22", false) // answered once it is dialled
	close(made)
	if got := c.all(); got != "" {
		t.Errorf("the client heard %q", got)
	}
	if got := b.closed(); got.Reason != reasonReset {
		t.Errorf("%+v", got)
	}
}

// 64 MiB up and down pass through buffers that are used again.
func TestTunnelIsFlat(t *testing.T) {
	const size = 64 << 20
	rule := allowOpaque("a.example", 22)
	rule.UploadBytes = size
	b := newBench(t, rule)
	b.listen(22, func(conn net.Conn) { io.Copy(conn, conn) })
	c := b.tunnel("a.example:22", true)
	c.SetDeadline(time.Now().Add(5 * time.Minute))
	block, sink := make([]byte, 1<<20), onlyWriter{io.Discard}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	go func() {
		for range size / len(block) {
			c.Write(block)
		}
	}()
	if got, err := io.CopyBuffer(sink, io.LimitReader(c, size), make([]byte, 1<<20)); got != size {
		t.Errorf("%d bytes came back: %v", got, err)
	}
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 8<<20 {
		t.Errorf("%d bytes were allocated", used)
	}
}

type onlyWriter struct{ io.Writer }

// Plain HTTP is read in an opaque tunnel, too: each request must name the
// tunnel's target. It goes over the connection that is there already.
func TestPlainHTTPGoesOverTheTunnel(t *testing.T) {
	b := newBench(t, allowOpaque("a.example", 80))
	made, heard := make(chan string, 9), make(chan string, 9)
	b.listen(80, func(conn net.Conn) {
		made <- "one"
		r := bufio.NewReader(conn)
		for {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			heard <- req.Method + " " + req.Host + req.RequestURI
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
		}
	})
	c := b.tunnel("a.example:80", true)
	for _, request := range []struct {
		sent   string
		status int
	}{
		{"DELETE /x HTTP/1.1\r\nHost: a.example\r\n\r\n", 200},
		{"GET /y HTTP/1.1\r\nHost: a.example:80\r\n\r\n", 200},
		{"GET /z HTTP/1.1\r\nHost: b.example\r\n\r\n", 403},
	} {
		io.WriteString(slow{c}, request.sent)
		res, err := http.ReadResponse(c.r, nil)
		if err != nil || res.StatusCode != request.status {
			t.Fatalf("%q: %v, %v, want %d", request.sent, res, err, request.status)
		}
		io.ReadAll(res.Body)
	}
	c.Close()
	b.proxy.Close()
	close(made)
	close(heard)
	var requests []string
	for r := range heard {
		requests = append(requests, r)
	}
	if got := strings.Join(requests, ", "); got != "DELETE a.example/x, GET a.example/y" {
		t.Errorf("the server heard %s", got)
	}
	if n := len(made); n != 1 {
		t.Errorf("%d connections were made", n)
	}
	b.denied(ClassMismatch)
}
