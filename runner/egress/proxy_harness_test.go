package egress

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/policy/contract"
)

// record is what a proxy wrote into the run's ledger.
type record struct {
	typ  string
	data any
}

// bench is a proxy under test, on a Unix socket, with every name on loopback.
type bench struct {
	t     *testing.T
	proxy *Proxy
	sock  string
	ports map[int]string // the listener that stands for a port

	mu         sync.Mutex
	records    []record
	boundaries []Boundary
	grown      chan struct{} // closed when a record comes
	answers    map[string]Answer
}

type namesOf struct{ b *bench }

func (n namesOf) Resolve(ctx context.Context, host string) (Answer, error) {
	n.b.mu.Lock()
	defer n.b.mu.Unlock()
	if a, ok := n.b.answers[host]; ok {
		return a, nil
	}
	return Answer{}, errors.New("no such name")
}

// dialTo dials the listener that stands for a port.
type dialTo struct{ b *bench }

func (d dialTo) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	at := netip.MustParseAddrPort(address)
	d.b.mu.Lock()
	to, ok := d.b.ports[int(at.Port())]
	d.b.mu.Unlock()
	if !ok {
		return nil, fmt.Errorf("nothing listens on %s", address)
	}
	return (&net.Dialer{}).DialContext(ctx, network, to)
}

func allowOpaque(host string, port int) contract.NetRule {
	return contract.NetRule{Host: host, Port: port, Mode: contract.RuleOpaque, UploadBytes: 1 << 20, Private: true, Coverage: contract.CoverageTunnel}
}

func compiled(t testing.TB, rules ...contract.NetRule) *Rules {
	t.Helper()
	r, err := Compile(contract.Network{Mode: contract.NetworkAllowlist, Allow: rules})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

var loopback = netip.MustParseAddr("127.0.0.1")

// newBench starts a proxy with rules; the names that rules name are on loopback.
func newBench(t *testing.T, rules ...contract.NetRule) *bench {
	t.Helper()
	b := &bench{t: t, ports: map[int]string{}, answers: map[string]Answer{}, grown: make(chan struct{})}
	for _, r := range rules {
		b.answers[r.Host] = Answer{Addresses: []netip.Addr{loopback}}
	}
	p, err := New(b.config(compiled(t, rules...)))
	if err != nil {
		t.Fatal(err)
	}
	b.proxy = p
	b.sock = filepath.Join(t.TempDir(), "egress.sock")
	l, err := net.Listen("unix", b.sock)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- p.Serve(l) }()
	t.Cleanup(func() {
		p.Close()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return b
}

func (b *bench) config(r *Rules) Config {
	return Config{
		Rules: r, Resolver: namesOf{b}, Dialer: dialTo{b}, Own: func() ([]netip.Addr, error) { return nil, nil },
		Record: func(typ string, data any) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.records = append(b.records, record{typ, data})
			close(b.grown)
			b.grown = make(chan struct{})
		},
		Notify: func(e Boundary) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.boundaries = append(b.boundaries, e)
		},
		Now: time.Now, Log: slog.New(slog.NewTextHandler(b.t.Output(), nil)),
	}
}

// listen stands for the server of a port; handle gets each connection and may
// leave closing to the harness.
func (b *bench) listen(port int, handle func(net.Conn)) {
	b.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.t.Fatal(err)
	}
	b.mu.Lock()
	b.ports[port] = l.Addr().String()
	b.mu.Unlock()
	var handlers sync.WaitGroup
	handlers.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			handlers.Go(func() {
				defer c.Close()
				handle(c)
			})
		}
	})
	b.t.Cleanup(func() {
		l.Close()
		b.proxy.Close()
		handlers.Wait()
	})
}

// dial connects to the proxy's socket.
func (b *bench) dial() *net.UnixConn {
	b.t.Helper()
	c, err := net.Dial("unix", b.sock)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(20 * time.Second)) // a hanging test ends
	return c.(*net.UnixConn)
}

// connect asks for a tunnel as the shim does, or as an explicit client, and
// returns the status and the connection behind the answer's head.
func (b *bench) connect(target string, transparent bool) (*http.Response, *tunnelled) {
	b.t.Helper()
	c := b.dial()
	extra := ""
	if transparent {
		extra = "Countersign-Client: transparent\r\n"
	}
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n%s\r\n", target, target, extra)
	r := bufio.NewReader(c)
	res, err := http.ReadResponse(r, &http.Request{Method: "CONNECT"})
	if err != nil {
		b.t.Fatal(err)
	}
	return res, &tunnelled{c, r}
}

// tunnel wants the tunnel.
func (b *bench) tunnel(target string, transparent bool) *tunnelled {
	b.t.Helper()
	res, c := b.connect(target, transparent)
	if res.StatusCode != 200 {
		b.t.Fatalf("CONNECT %s: %s", target, res.Status)
	}
	return c
}

// tunnelled is a connection whose first bytes may have been read already.
type tunnelled struct {
	*net.UnixConn
	r *bufio.Reader
}

func (c *tunnelled) Read(b []byte) (int, error) { return c.r.Read(b) }

// all reads until the end.
func (c *tunnelled) all() string {
	b, _ := io.ReadAll(c)
	return string(b)
}

// of returns the records of a type so far.
func (b *bench) of(typ string) []any {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []any
	for _, r := range b.records {
		if r.typ == typ {
			out = append(out, r.data)
		}
	}
	return out
}

// wait returns the first record of a type that satisfies ok, when it is there.
func wait[T any](b *bench, typ string, ok func(T) bool) T {
	b.t.Helper()
	limit := time.After(20 * time.Second)
	for {
		b.mu.Lock()
		grown := b.grown
		b.mu.Unlock()
		for _, r := range b.of(typ) {
			if v, is := r.(T); is && ok(v) {
				return v
			}
		}
		select {
		case <-grown:
		case <-limit:
			b.t.Fatalf("no record %s came; there are %v", typ, b.records)
		}
	}
}

func (b *bench) denied(class Class) deniedRecord {
	b.t.Helper()
	return wait(b, TypeDenied, func(d deniedRecord) bool { return d.Class == class })
}

func (b *bench) closed() closedRecord {
	b.t.Helper()
	return wait(b, TypeClosed, func(closedRecord) bool { return true })
}

// settle waits until no more goroutines and descriptors are there than before.
// Pipes of splice(2) are the runtime's and go with its garbage.
func settle(t *testing.T, goroutines, descriptors int) {
	t.Helper()
	for limit := time.Now().Add(30 * time.Second); ; runtime.GC() {
		g, d := runtime.NumGoroutine(), openDescriptors(t)
		if g <= goroutines && d <= descriptors {
			return
		}
		if time.Now().After(limit) {
			var stacks strings.Builder
			buffer := make([]byte, 1<<20)
			stacks.Write(buffer[:runtime.Stack(buffer, true)])
			t.Fatalf("%d goroutines and %d descriptors are left, there were %d and %d\n%s", g, d, goroutines, descriptors, stacks.String())
		}
	}
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func addresses(texts ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range texts {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

// refusing notes what is dialled and refuses all but 127.0.0.1.
type refusing struct {
	b       *bench
	dialled chan<- string
}

func (d refusing) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	d.dialled <- address
	if !strings.HasPrefix(address, "127.0.0.1:") {
		return nil, errors.New("connection refused")
	}
	return dialTo{d.b}.DialContext(ctx, network, address)
}

// selfSigned is a certificate that nobody signed.
func selfSigned(t testing.TB, host string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{host}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}
