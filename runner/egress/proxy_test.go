package egress

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/policy/contract"
)

func TestNewWantsItsConfig(t *testing.T) {
	b := newBench(t)
	whole := b.config(compiled(t))
	if _, err := New(whole); err != nil {
		t.Fatalf("a whole configuration: %v", err)
	}
	for _, c := range []struct {
		name  string
		spoil func(*Config)
	}{
		{"Rules", func(c *Config) { c.Rules = nil }},
		{"Resolver", func(c *Config) { c.Resolver = nil }},
		{"Own", func(c *Config) { c.Own = nil }},
		{"Record", func(c *Config) { c.Record = nil }},
		{"Notify", func(c *Config) { c.Notify = nil }},
		{"Now", func(c *Config) { c.Now = nil }},
		{"Log", func(c *Config) { c.Log = nil }},
		{"Authority", func(c *Config) {
			c.Rules = compiled(t, contract.NetRule{Host: "a.example", Port: 443, Mode: contract.RuleInspect})
		}},
	} {
		cfg := whole
		c.spoil(&cfg)
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), c.name) {
			t.Errorf("without %s: %v", c.name, err)
		}
	}
}

func TestServeOnce(t *testing.T) {
	b := newBench(t)
	res, _ := b.connect("a.example:443", false) // Serve runs
	if res.StatusCode != 403 {
		t.Fatal(res.Status)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.proxy.Serve(l); err == nil {
		t.Error("Serve may be called twice")
	}
}

func TestServeAfterClose(t *testing.T) {
	b := newBench(t)
	p, err := New(b.config(compiled(t)))
	if err != nil {
		t.Fatal(err)
	}
	p.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Serve(l); err != nil {
		t.Errorf("Serve: %v", err)
	}
	if _, err := net.Dial("tcp", l.Addr().String()); err == nil {
		t.Error("the listener is still open")
	}
}

// failing is a listener that fails as told, then ends.
type failing struct {
	net.Listener
	errs chan error
}

func (l failing) Accept() (net.Conn, error) { return nil, <-l.errs }

func TestServeGoesOnWhenTheMachineIsShort(t *testing.T) {
	b := newBench(t)
	p, err := New(b.config(compiled(t)))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	errs := make(chan error, 2)
	errs <- fmt.Errorf("accept: %w", syscall.EMFILE)
	errs <- errors.New("broken")
	if err := p.Serve(failing{inner, errs}); err == nil || !strings.Contains(err.Error(), "broken") {
		t.Errorf("Serve: %v", err)
	}
}

func TestPeerIsChecked(t *testing.T) {
	b := newBench(t)
	cfg := b.config(compiled(t, allowOpaque("a.example", 80)))
	cfg.Peer = func(*net.UnixConn) error { return errors.New("user 7 is not this run's") }
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for _, network := range []string{"unix", "tcp"} {
		address := "127.0.0.1:0"
		if network == "unix" {
			address = b.sock + "2"
		}
		l, err := net.Listen(network, address)
		if err != nil {
			t.Fatal(err)
		}
		conn := make(chan net.Conn, 1)
		go func() {
			c, _ := l.Accept()
			p.accept(c)
			conn <- c
		}()
		c, err := net.Dial(network, l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("%s: a stranger was answered", network)
		}
		<-conn
		c.Close()
		l.Close()
	}
	if d := b.of(TypeDenied); len(d) != 2 || d[0].(deniedRecord).Class != ClassPeer {
		t.Errorf("denied: %v", d)
	}
}

func TestConnectRefusals(t *testing.T) {
	far := allowOpaque("far.example", 443)
	public := allowOpaque("public.example", 443)
	public.Private = false
	b := newBench(t, allowOpaque("a.example", 443), far, public, allowOpaque("none.example", 443), allowOpaque("meta.example", 80))
	b.answers["none.example"] = Answer{}
	b.answers["meta.example"] = Answer{Addresses: []netip.Addr{netip.MustParseAddr("169.254.169.254"), netip.MustParseAddr("::ffff:169.254.169.254")}}
	for _, c := range []struct {
		target string
		status int
		class  Class
		says   string
	}{
		{"b.example:443", 403, ClassHost, "countersign request network b.example:443 --reason"},
		{"a.example:444", 403, ClassPort, "443"},
		{"127.0.0.1:443", 403, ClassName, "127.0.0.1"},
		{"0x7f.1:443", 403, ClassName, "0x7f.1"},
		{"a.example", 400, ClassMalformed, "port"},
		{"far.example:443", 502, ClassUnreachable, "cannot be reached"},
		{"public.example:443", 403, ClassAddress, "loopback"},
		{"none.example:443", 502, ClassUnresolved, "no address"},
		{"meta.example:80", 403, ClassAddress, "metadata"},
	} {
		res, _ := b.connect(c.target, false)
		body, err := io.ReadAll(res.Body)
		if res.StatusCode != c.status || err != nil {
			t.Errorf("%s: %s, want %d (%v)", c.target, res.Status, c.status, err)
		}
		host, _, _ := strings.Cut(c.target, ":")
		if s := string(body); !strings.HasPrefix(s, "countersign: "+host) || !strings.Contains(s, c.says) || len(s) > maxSentence+1 {
			t.Errorf("%s: the answer is %q, want %q in it", c.target, s, c.says)
		}
		wait(b, TypeDenied, func(d deniedRecord) bool {
			return d.Class == c.class && (d.Port == 0 && d.Host == c.target || (Target{d.Host, d.Port}).String() == c.target)
		})
	}
	if n := len(b.of(TypeConnected)); n != 0 {
		t.Errorf("%d connections were made", n)
	}
	if got := b.proxy.Totals(); got.Allowed != 0 || got.Denied != 9 || got.BytesOut != 0 {
		t.Errorf("totals: %+v", got)
	}
}

func TestHeadRefusals(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct {
		sent   string
		status int
	}{
		{"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n", 400}, // names no host to a proxy
		{"OPTIONS * HTTP/1.1\r\nHost: a.example\r\n\r\n", 400},
		{"GET / HTTP/1.1\nHost: a.example\r\n\r\n", 400},
		{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 403},
		{"GET /" + strings.Repeat("a", 128<<10), 503},
		{"\x16\x03\x01\r\n", 400}, // TLS to the proxy itself
	} {
		conn := b.dial()
		io.WriteString(conn, c.sent)
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || res.StatusCode != c.status {
			t.Errorf("%.40q: %v, %v, want %d", c.sent, res, err, c.status)
		}
	}
}

// A connection that is closed without a word leaves no record.
func TestSilentConnection(t *testing.T) {
	b := newBench(t)
	c := b.dial()
	c.CloseWrite()
	if rest, err := io.ReadAll(c); len(rest) > 0 || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
	if len(b.records) != 0 {
		t.Errorf("records: %v", b.records)
	}
}

func TestCanary(t *testing.T) {
	b := newBench(t)
	for _, transparent := range []bool{true, false} {
		c := b.tunnel("canary.internal:80", transparent)
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: canary.internal\r\n\r\n")
		res, err := http.ReadResponse(c.r, nil)
		if err != nil {
			t.Fatal(err)
		}
		if body, _ := io.ReadAll(res.Body); res.StatusCode != 200 || string(body) != "countersign canary\n" {
			t.Errorf("%s: %q", res.Status, body)
		}
	}
	for _, refused := range []string{"canary.internal:443", UnlistedHost + ":443"} {
		if res, _ := b.connect(refused, false); res.StatusCode != 403 {
			t.Errorf("%s: %s", refused, res.Status)
		}
	}
	if got := b.proxy.Totals(); got.Allowed != 0 || got.Denied != 0 || len(b.boundaries) != 0 || len(b.records) != 0 {
		t.Errorf("totals %+v, boundaries %v, records %v", got, b.boundaries, b.records)
	}
}

// What a client in a tunnel hears of a refusal is in what it speaks.
func TestRefusedInside(t *testing.T) {
	b := newBench(t)
	hello := string(recordsOf(helloWith(serverNames(serverName{0, "b.example"})), 9))
	for _, c := range []struct{ sent, want string }{
		{hello, "\x15\x03\x03\x00\x02\x02\x31"},
		{"GET / HTTP/1.1\r\nHost: b.example\r\n\r\n", "HTTP/1.1 403 Forbidden\r\n"},
		{"SSH-2.0-x\r\n", ""},
		{"", ""},
	} {
		conn := b.tunnel("b.example:443", true)
		for i := range len(c.sent) { // a byte at a time
			io.WriteString(conn, c.sent[i:i+1])
		}
		conn.CloseWrite()
		got := conn.all()
		if !strings.HasPrefix(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%q is answered %q", c.sent, got)
		}
		if strings.HasPrefix(got, "HTTP") && !strings.Contains(got, "\r\n\r\ncountersign: b.example:443 is not in this run's contract (") {
			t.Errorf("the sentence is not in %q", got)
		}
	}
	if n := len(b.of(TypeDenied)); n != 4 || len(b.boundaries) != 1 {
		t.Errorf("%d records, boundaries %v; want 4 and one", n, b.boundaries)
	}
}

// More connections than the bound are turned away, and room comes back.
func TestConnectionsAreBounded(t *testing.T) {
	b := newBench(t)
	var open []net.Conn
	for range maxOpen {
		open = append(open, b.dial())
	}
	res, _ := b.connect("b.example:443", false)
	if body, _ := io.ReadAll(res.Body); res.StatusCode != 503 || !strings.Contains(string(body), "512 connections are open") {
		t.Errorf("connection 513: %s %q", res.Status, body)
	}
	for _, c := range open {
		c.Close()
	}
	for limit := time.Now().Add(time.Minute); ; runtime.Gosched() {
		if res, _ := b.connect("b.example:443", false); res.StatusCode == 403 {
			return
		}
		if time.Now().After(limit) {
			t.Fatal("there is no room after all were closed")
		}
	}
}

// Nothing is left of connections in every state.
func TestCloseLeavesNothing(t *testing.T) {
	// What the runtime keeps (netpoll, the test's own) is there before.
	warm := newBench(t)
	warm.connect("b.example:443", false)
	warm.proxy.Close()
	goroutines, descriptors := runtime.NumGoroutine(), openDescriptors(t)

	t.Run("200", func(t *testing.T) {
		held := allowOpaque("held.example", 1)
		held.HoldSec = 3600
		b := newBench(t, allowOpaque("echo.example", 1), allowOpaque("stalled.example", 2), allowOpaque("flood.example", 3), held)
		b.listen(1, func(c net.Conn) { io.Copy(c, c) })
		b.listen(2, func(c net.Conn) { io.Copy(io.Discard, c) })
		b.listen(3, func(c net.Conn) {
			for {
				if _, err := c.Write(make([]byte, 64<<10)); err != nil {
					return
				}
			}
		})
		var clients sync.WaitGroup
		for i := range 200 {
			switch i % 8 {
			case 0: // an echo, and stays
				c := b.tunnel("echo.example:1", true)
				io.WriteString(c, "\x00hello")
				io.ReadFull(c, make([]byte, 6))
			case 1: // an echo, and ends
				c := b.tunnel("echo.example:1", false)
				io.WriteString(c, "\x00hello")
				c.CloseWrite()
				c.all()
			case 2: // a stalled server
				io.WriteString(b.tunnel("stalled.example:2", true), "\x00hello")
			case 3: // a slow reader: nothing is read
				io.WriteString(b.tunnel("flood.example:3", true), "\x00")
			case 4: // a killed client
				c := b.tunnel("echo.example:1", true)
				io.WriteString(c, "\x00hello")
				c.Close()
			case 5: // a killed client before it said a word
				b.tunnel("stalled.example:2", true).Close()
			case 6: // half a head
				io.WriteString(b.dial(), "CONNECT echo.exam")
			case 7: // waits for a person
				c := b.dial()
				io.WriteString(c, "CONNECT held.example:2 HTTP/1.1\r\n\r\n")
				clients.Go(func() { io.Copy(io.Discard, c) })
			}
		}
		if err := b.proxy.Close(); err != nil {
			t.Error(err)
		}
		clients.Wait()
		if c, d := len(b.of(TypeConnected)), len(b.of(TypeClosed)); c != d || c == 0 {
			t.Errorf("%d connections were made and %d closed", c, d)
		}
		if last := b.records[len(b.records)-1]; last.typ != TypeTotals {
			t.Errorf("the last record is %v", last)
		}
		n := len(b.records)
		b.proxy.Close()
		b.proxy.recorder.put(TypeClosed, nil)
		if b.proxy.record(TypeRequest, nil) == nil || len(b.records) != n {
			t.Error("something is recorded after the totals")
		}
	})
	settle(t, goroutines, descriptors)
}

func TestEndRecords(t *testing.T) {
	b := newBench(t, allowOpaque("a.example", 1), allowOpaque("b.example", 1))
	b.listen(1, func(c net.Conn) { io.Copy(c, c) })
	for range 2 {
		c := b.tunnel("a.example:1", true)
		io.WriteString(c, "\x00hello")
		c.CloseWrite()
		if got := c.all(); got != "\x00hello" {
			t.Fatalf("the echo is %q", got)
		}
	}
	for range maxDenialsOfKey + 3 {
		b.connect("c.example:1", false)
	}
	b.proxy.Close()
	b.proxy.Replace(compiled(t)) // comes too late
	if n := len(b.proxy.RuleTotals()); n != 2 {
		t.Errorf("%d rules are counted", n)
	}
	want := []any{
		ruleRecord{Rule: 0, Host: "a.example", Port: 1, Connections: 2, BytesOut: 12, BytesIn: 12, Charged: 12},
		ruleRecord{Rule: 1, Host: "b.example", Port: 1},
		moreRecord{Host: "c.example", Port: 1, Class: ClassHost, Count: 3},
		totalsRecord{Allowed: 2, Denied: maxDenialsOfKey + 3, BytesOut: 12, BytesIn: 12},
	}
	got := slices.Concat(b.of(TypeRule), b.of(TypeMore), b.of(TypeTotals))
	if !slices.Equal(got, want) {
		t.Errorf("the end is\n%+v, want\n%+v", got, want)
	}
	if n := len(b.of(TypeDenied)); n != maxDenialsOfKey {
		t.Errorf("%d denials have records", n)
	}
}
