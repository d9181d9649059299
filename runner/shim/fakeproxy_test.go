package shim_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/runner/shim/protocol"
)

// fakeProxy stands where a run's proxy does. It lets every tunnel be and is
// itself what answers in it: a web server behind TLS on port 443, one without on
// the others, and on port 22 a server that speaks first. A host named refused.…
// gets what a run's proxy answers when it refuses.
type fakeProxy struct {
	ca      *x509.Certificate
	key     *ecdsa.PrivateKey
	tunnels *handed

	mu    sync.Mutex
	asked []string // heads of tunnels, and requests in absolute form
}

// handed is a listener of connections that others accepted.
type handed struct {
	conns chan net.Conn
	done  context.Context
}

func (h *handed) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.done.Done():
		return nil, net.ErrClosed
	}
}
func (h *handed) Close() error   { return nil }
func (h *handed) Addr() net.Addr { return &net.UnixAddr{Name: "handed", Net: "unix"} }

// newFakeProxy listens at path for as long as the test lives.
func newFakeProxy(t *testing.T, path string) *fakeProxy {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "the run's authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	if ca, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	done, end := context.WithCancel(context.Background())
	p := &fakeProxy{ca: ca, key: key, tunnels: &handed{conns: make(chan net.Conn), done: done}}
	server := &http.Server{Handler: p, ErrorLog: log.New(io.Discard, "", 0), ConnContext: func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, c)
	}}
	go server.Serve(p.tunnels)
	go p.accept(l)
	t.Cleanup(func() {
		l.Close()
		end()
		server.Close()
	})
	return p
}

func (p *fakeProxy) pem() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.ca.Raw}))
}

func (p *fakeProxy) note(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, what)
}

func (p *fakeProxy) heard(what string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Contains(p.asked, what)
}

func (p *fakeProxy) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go p.tunnel(c)
	}
}

// tunnel is a connection that knows its target.
type tunnel struct {
	net.Conn
	r      *bufio.Reader
	target string
}

func (t *tunnel) Read(b []byte) (int, error) { return t.r.Read(b) }

type connKey struct{}

func (p *fakeProxy) tunnel(c net.Conn) {
	t := &tunnel{Conn: c, r: bufio.NewReader(c)}
	if start, err := t.r.Peek(8); err != nil || string(start) != "CONNECT " {
		p.tunnels.conns <- t // a request of an explicit proxy's client
		return
	}
	var head strings.Builder
	for !strings.HasSuffix(head.String(), "\r\n\r\n") {
		line, err := t.r.ReadString('\n')
		if err != nil {
			c.Close()
			return
		}
		head.WriteString(line)
	}
	t.target = strings.Fields(head.String())[1]
	p.note(head.String())
	io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
	switch _, port, _ := net.SplitHostPort(t.target); port {
	case "22":
		io.WriteString(c, "SSH-2.0-test\r\n")
		c.Close()
	case "443":
		p.tunnels.conns <- tls.Server(t, &tls.Config{GetCertificate: p.certify})
	default:
		p.tunnels.conns <- t
	}
}

func (p *fakeProxy) certify(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), DNSNames: []string{hello.ServerName}, NotBefore: p.ca.NotBefore, NotAfter: p.ca.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, p.ca, &p.key.PublicKey, p.key)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: p.key}, err
}

// ServeHTTP says how it was reached.
func (p *fakeProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body) // a close with bytes unread would be a reset
	how, where := "explicit", r.URL.String()
	c := r.Context().Value(connKey{}).(net.Conn)
	if encrypted, ok := c.(*tls.Conn); ok {
		how, c = "TLS", encrypted.NetConn()
	} else if c.(*tunnel).target != "" {
		how = "plain"
	}
	if target := c.(*tunnel).target; target != "" {
		where = target + r.URL.Path
	}
	switch {
	case strings.HasPrefix(where, "canary.internal:80"):
		io.WriteString(w, protocol.CanaryBody)
	case strings.HasPrefix(where, "refused."), strings.HasPrefix(where, "unlisted.invalid:"):
		http.Error(w, "countersign: "+where+" is not in this run's contract", http.StatusForbidden)
	case strings.HasPrefix(where, "missing."):
		http.NotFound(w, r)
	default:
		fmt.Fprintf(w, "%s %s", how, where)
	}
}
