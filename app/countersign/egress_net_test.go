package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/cgi"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// outside is what a sealed run can reach in these tests: a name server and a web
// server with TLS and without, all on this machine's loopback.
type outside struct {
	t     *testing.T
	names *nameServer
	ca    string // PEM file of the authority that signs the web server's certificates
	https int    // port
	http  int    // port

	mu    sync.Mutex
	seen  []seenRequest
	taken int64 // bytes of bodies
}

// seenRequest is one request as it arrived at the web server.
type seenRequest struct {
	Host, Method, Path string
	Header             http.Header
}

// newOutside starts it all; names that end in .example.com are this machine.
func newOutside(t *testing.T) *outside {
	t.Helper()
	o := &outside{t: t, names: newNameServer(t)}
	issue := newTestCA(t, &o.ca)
	secure, plain := listenLoopback(t), listenLoopback(t)
	o.https, o.http = portOf(secure.Addr()), portOf(plain.Addr())
	server := &http.Server{
		Handler:   o.handler(),
		ErrorLog:  log.New(io.Discard, "", 0), // of handshakes that the proxy cut
		TLSConfig: &tls.Config{GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) { return issue(hello.ServerName) }},
	}
	go server.ServeTLS(secure, "", "")
	go server.Serve(plain)
	t.Cleanup(func() { server.Close() })
	return o
}

func listenLoopback(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func portOf(a net.Addr) int { return int(netip.MustParseAddrPort(a.String()).Port()) }

// newTestCA makes an authority, writes its certificate to a file, and returns
// what issues certificates for host names.
func newTestCA(t *testing.T, file *string) func(host string) (*tls.Certificate, error) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "countersign test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	*file = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(*file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644); err != nil {
		t.Fatal(err)
	}
	return func(host string) (*tls.Certificate, error) {
		leaf := &x509.Certificate{
			SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host}, NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
			KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		}
		der, err := x509.CreateCertificate(rand.Reader, leaf, ca, key.Public(), key)
		if err != nil {
			return nil, err
		}
		return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
	}
}

// handler notes each request. Paths: /hello, a git repository below /repo.git,
// a package registry below /npm/, /echo answers with the request's headers,
// /to/HOST:PORT redirects there, and everything else takes a body.
func (o *outside) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/hello", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "hello from %s\n", r.Host) })
	mux.Handle("/repo.git/", gitRepository(o.t))
	mux.HandleFunc("/npm/", servePackages)
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		r.Header.Write(w)
		if _, password, ok := r.BasicAuth(); ok {
			fmt.Fprintln(w, "this was not the password:", password)
		}
	})
	mux.HandleFunc("/to/", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://"+strings.TrimPrefix(r.URL.Path, "/to/")+"/hello", http.StatusFound)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		o.mu.Lock()
		o.taken += n
		o.mu.Unlock()
		fmt.Fprintf(w, "took %d bytes\n", n)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.mu.Lock()
		o.seen = append(o.seen, seenRequest{Host: r.Host, Method: r.Method, Path: r.URL.Path, Header: r.Header.Clone()})
		o.mu.Unlock()
		mux.ServeHTTP(w, r)
	})
}

// requests are those that arrived so far.
func (o *outside) requests() []seenRequest {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]seenRequest{}, o.seen...)
}

// gitRepository serves one repository with one file as any host of code does.
func gitRepository(t *testing.T) http.Handler {
	t.Helper()
	root := t.TempDir()
	c := newCheckout(t, map[string]string{"README": "cloned\n"})
	c.git("clone", "-q", "--bare", c.dir, filepath.Join(root, "repo.git"))
	program, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err)
	}
	return &cgi.Handler{Path: program, Args: []string{"http-backend"}, Env: []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1"}}
}

// servePackages is a registry with one package, tiny.
func servePackages(w http.ResponseWriter, r *http.Request) {
	archive := tinyPackage()
	if strings.HasSuffix(r.URL.Path, ".tgz") {
		w.Write(archive)
		return
	}
	scheme := "https"
	if r.TLS == nil {
		scheme = "http"
	}
	sum := sha512.Sum512(archive)
	version := map[string]any{"name": "tiny", "version": "1.0.0", "dist": map[string]any{
		"tarball": scheme + "://" + r.Host + "/npm/tiny/-/tiny-1.0.0.tgz", "integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:]),
	}}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(map[string]any{"name": "tiny", "dist-tags": map[string]string{"latest": "1.0.0"}, "versions": map[string]any{"1.0.0": version}})
}

func tinyPackage() []byte {
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	files := tar.NewWriter(zipped)
	for _, f := range [][2]string{{"package/package.json", `{"name":"tiny","version":"1.0.0","main":"index.js"}`}, {"package/index.js", "module.exports = 'tiny is here'\n"}} {
		files.WriteHeader(&tar.Header{Name: f[0], Mode: 0o644, Size: int64(len(f[1])), Format: tar.FormatUSTAR})
		io.WriteString(files, f[1])
	}
	files.Close()
	zipped.Close()
	return out.Bytes()
}

// nameServer answers over UDP and TCP what a test says of a name. What it was
// not told is this machine when it ends in .example.com, and else not there.
type nameServer struct {
	addr    string
	mu      sync.Mutex
	answers map[string][]answer // by name; each is given once, the last for ever
	asked   []string
}

// answer is what one question for addresses gets: aliases first.
type answer struct {
	aliases   []string
	addresses []string
}

func newNameServer(t *testing.T) *nameServer {
	t.Helper()
	s := &nameServer{answers: map[string][]answer{}}
	tcp := listenLoopback(t)
	s.addr = tcp.Addr().String()
	udp, err := net.ListenPacket("udp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { udp.Close(); tcp.Close() })
	go func() {
		buf := make([]byte, 4096)
		for {
			n, from, err := udp.ReadFrom(buf)
			if err != nil {
				return
			}
			udp.WriteTo(s.reply(buf[:n]), from)
		}
	}()
	go func() {
		for {
			conn, err := tcp.Accept()
			if err != nil {
				return
			}
			go s.serve(conn)
		}
	}()
	return s
}

// serve answers questions on one TCP connection, each behind its length.
func (s *nameServer) serve(conn net.Conn) {
	defer conn.Close()
	for {
		var length [2]byte
		if _, err := io.ReadFull(conn, length[:]); err != nil {
			return
		}
		question := make([]byte, int(length[0])<<8|int(length[1]))
		if _, err := io.ReadFull(conn, question); err != nil {
			return
		}
		reply := s.reply(question)
		conn.Write(append([]byte{byte(len(reply) >> 8), byte(len(reply))}, reply...))
	}
}

// say sets what a name's questions get, one after another.
func (s *nameServer) say(name string, answers ...answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[name] = answers
}

// questions are the names that were asked for so far, A and AAAA as one each.
func (s *nameServer) questions() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string{}, s.asked...)
}

func (s *nameServer) find(name string, kind dnsmessage.Type) (answer, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if kind == dnsmessage.TypeA {
		s.asked = append(s.asked, name)
	}
	list, told := s.answers[name]
	if !told {
		return answer{addresses: []string{"127.0.0.1"}}, strings.HasSuffix(name, ".example.com")
	}
	if len(list) > 1 && kind == dnsmessage.TypeA {
		s.answers[name] = list[1:]
	}
	return list[0], true
}

func (s *nameServer) reply(question []byte) []byte {
	var p dnsmessage.Parser
	header, err := p.Start(question)
	if err != nil {
		return nil
	}
	q, err := p.Question()
	if err != nil {
		return nil
	}
	found, there := s.find(strings.ToLower(strings.TrimSuffix(q.Name.String(), ".")), q.Type)
	out := dnsmessage.Message{Header: dnsmessage.Header{ID: header.ID, Response: true, RecursionAvailable: true}, Questions: []dnsmessage.Question{q}}
	if !there {
		out.RCode = dnsmessage.RCodeNameError
	}
	name := q.Name
	for _, alias := range found.aliases {
		to := dnsmessage.MustNewName(alias + ".")
		out.Answers = append(out.Answers, dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: name, Class: dnsmessage.ClassINET}, Body: &dnsmessage.CNAMEResource{CNAME: to}})
		name = to
	}
	for _, text := range found.addresses {
		h := dnsmessage.ResourceHeader{Name: name, Class: dnsmessage.ClassINET}
		switch a := netip.MustParseAddr(text); {
		case a.Is4() && q.Type == dnsmessage.TypeA && there:
			out.Answers = append(out.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AResource{A: a.As4()}})
		case a.Is6() && q.Type == dnsmessage.TypeAAAA && there:
			out.Answers = append(out.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AAAAResource{AAAA: a.As16()}})
		}
	}
	packed, err := out.Pack()
	if err != nil {
		return nil
	}
	return packed
}
