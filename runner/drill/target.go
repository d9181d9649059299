package drill

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"path"
	"regexp"
	"slices"
	"sync"
	"time"
)

// Endpoints of a target. A rule names a host and one of their ports.
const (
	portHTTP = "http"
	portTLS  = "tls"  // HTTP in it
	portLine = "line" // one word a line; the server greets first
	portSink = "sink" // counts what comes
)

// target is what is at the other end of the way out: servers on loopback and
// the name server that leads to them. It notes what reached it.
type target struct {
	names   *nameServer
	ca      []byte // PEM; signed the certificate of every name below drill.test
	ports   map[string]int
	meeting *meeting
	closers []io.Closer

	mu       sync.Mutex
	forged   []string // words of what must have been refused
	requests []request
	sunk     int64
}

// request is one that a server read.
type request struct {
	Host, Method, Path string
	Key, Authorization string // what it was sent as credentials
	Body               int64  // bytes that came of it
}

// newTarget opens a target. It is closed by its caller, also after an error.
func newTarget(now time.Time) (*target, error) {
	t := &target{ports: map[string]int{}, meeting: newMeeting()}
	cert, ca, err := certify(now)
	if err != nil {
		return t, fmt.Errorf("making the drill's certificate: %v", err)
	}
	t.ca = ca
	for _, name := range []string{portHTTP, portTLS, portLine, portSink} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return t, fmt.Errorf("opening the drill's target: %v", err)
		}
		t.ports[name] = l.Addr().(*net.TCPAddr).Port
		t.closers = append(t.closers, l)
		switch name {
		case portHTTP:
			s := &http.Server{Handler: t, ErrorLog: silent()}
			t.closers = append(t.closers, s)
			go s.Serve(watched{l, t})
		case portTLS:
			s := &http.Server{Handler: t, ErrorLog: silent(), TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}}}
			t.closers = append(t.closers, s)
			go s.ServeTLS(l, "", "")
		case portLine:
			go t.accept(watched{l, t}, t.serveLine)
		case portSink:
			go t.accept(watched{l, t}, t.serveSink)
		}
	}
	t.names, err = newNameServer(zone())
	if err == nil {
		t.closers = append(t.closers, t.names)
	}
	return t, err
}

// silent: what hostile clients do to a server is not the reader's concern.
func silent() *log.Logger { return log.New(io.Discard, "", 0) }

func (t *target) Close() error {
	t.meeting.end()
	for _, c := range t.closers {
		c.Close()
	}
	return nil
}

// forgery marks what a workload sends where it must be refused; the word behind
// it says what was tried.
var forgery = regexp.MustCompile(`never/([a-z-]+)`)

func (t *target) look(data []byte) {
	for _, m := range forgery.FindAllSubmatch(data, -1) {
		t.mu.Lock()
		if word := string(m[1]); !slices.Contains(t.forged, word) {
			t.forged = append(t.forged, word)
		}
		t.mu.Unlock()
	}
}

// watched looks at every byte that a listener's connections receive, whatever
// the server makes of them.
type watched struct {
	net.Listener
	t *target
}

func (w watched) Accept() (net.Conn, error) {
	c, err := w.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &watchedConn{Conn: c, t: w.t}, nil
}

type watchedConn struct {
	net.Conn
	t    *target
	tail []byte
}

// maxForgery bounds a mark that comes in pieces, in bytes.
const maxForgery = 64

func (c *watchedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.tail = append(c.tail, b[:n]...)
	c.t.look(c.tail)
	c.tail = bytes.Clone(c.tail[max(0, len(c.tail)-maxForgery):])
	return n, err
}

// ServeHTTP answers by the last part of the path; every path else is answered
// with one line.
func (t *target) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var head bytes.Buffer
	r.Header.Write(&head)
	t.look([]byte(r.RequestURI + "\n" + r.Host + "\n" + head.String()))
	body, n := t.read(r.Body)
	seen := request{r.Host, r.Method, r.URL.Path, r.Header.Get(keyHeader), r.Header.Get("Authorization"), n}
	t.mu.Lock()
	t.requests = append(t.requests, seen)
	t.mu.Unlock()
	switch path.Base(r.URL.Path) {
	case "redirect":
		w.Header().Set("Location", fmt.Sprintf("http://%s:%d/never/redirect", hostUnlisted, t.ports[portHTTP]))
		w.WriteHeader(http.StatusFound)
	case "echo":
		w.Header().Set("X-Echo", seen.Key)
		w.Header().Set("Trailer", "X-Echo-End")
		head.WriteTo(w)
		w.Write(body)
		w.Header().Set("X-Echo-End", seen.Key)
	case "script":
		io.WriteString(w, "touch /tmp/drill-download-ran\n")
	case "protocol":
		io.WriteString(w, r.Proto)
	default:
		io.WriteString(w, "drill\n")
	}
}

// read returns the beginning of a body, and how many bytes came of it all.
func (t *target) read(r io.Reader) (head []byte, n int64) {
	head, _ = io.ReadAll(io.LimitReader(r, 1<<16)) // a body that was cut counts as far as it came
	t.look(head)
	more, _ := io.Copy(io.Discard, r)
	return head, int64(len(head)) + more
}

func (t *target) accept(l net.Listener, serve func(net.Conn)) {
	for {
		c, err := l.Accept()
		if err != nil {
			return // closed
		}
		go func() {
			defer c.Close()
			serve(c)
		}()
	}
}

// serveSink counts, and says so to a client that came to its end.
func (t *target) serveSink(c net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := c.Read(buffer)
		t.mu.Lock()
		t.sunk += int64(n)
		t.mu.Unlock()
		if errors.Is(err, io.EOF) {
			io.WriteString(c, "250\n")
		}
		if err != nil {
			return
		}
	}
}

// found is what a target noted, for judges.
type found struct {
	forged    []string
	requests  []request
	sunk      int64
	questions map[string]int
}

func (t *target) found() found {
	t.mu.Lock()
	defer t.mu.Unlock()
	return found{slices.Clone(t.forged), slices.Clone(t.requests), t.sunk, t.names.questions()}
}

// certify makes an authority and a certificate of it for every name below
// drill.test.
func certify(now time.Time) (cert tls.Certificate, ca []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return cert, nil, err
	}
	parent := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "countersign drill"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	root, err := x509.CreateCertificate(rand.Reader, parent, parent, key.Public(), key)
	if err != nil {
		return cert, nil, err
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "drill.test"}, NotBefore: parent.NotBefore, NotAfter: parent.NotAfter,
		DNSNames: []string{"*.drill.test"}, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return cert, nil, err
	}
	signed, err := x509.CreateCertificate(rand.Reader, leaf, parent, own.Public(), key)
	if err != nil {
		return cert, nil, err
	}
	return tls.Certificate{Certificate: [][]byte{signed}, PrivateKey: own}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root}), nil
}
