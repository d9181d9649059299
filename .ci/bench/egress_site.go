package main

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// Names of the servers; the name server answers all of them with 127.0.0.1.
const (
	rawHost     = "raw.bench.example"
	webHost     = "web.bench.example"
	controlHost = "control.bench.example"
)

// site is what traffic goes to: servers on loopback, and where clients get their
// orders.
type site struct {
	raw, web, control net.Listener
	names             net.PacketConn
	roots             string        // file with the certificate that signed the web server's
	callers           chan net.Conn // clients that ask for orders
}

func newSite(roots string) (*site, error) {
	s := &site{roots: roots, callers: make(chan net.Conn)}
	var err error
	for _, l := range []*net.Listener{&s.raw, &s.web, &s.control} {
		one, fault := net.Listen("tcp", "127.0.0.1:0")
		*l, err = one, errors.Join(err, fault)
	}
	names, fault := net.ListenPacket("udp", "127.0.0.1:0")
	if s.names = names; errors.Join(err, fault) != nil {
		return nil, errors.Join(err, fault)
	}
	certificate, err := s.certificate()
	if err != nil {
		return nil, err
	}
	web := http.Server{Handler: http.HandlerFunc(serveBody), TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}}, ErrorLog: log.New(io.Discard, "", 0)}
	go web.ServeTLS(s.web, "", "")
	go eachConn(s.raw, serveRaw)
	go eachConn(s.control, s.greet)
	go s.serveNames()
	return s, nil
}

func (s *site) close() {
	for _, l := range []net.Listener{s.raw, s.web, s.control} {
		l.Close()
	}
	s.names.Close()
}

func port(l net.Listener) int { return l.Addr().(*net.TCPAddr).Port }

func eachConn(l net.Listener, serve func(net.Conn)) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go serve(c)
	}
}

func (s *site) greet(c net.Conn) {
	if _, err := io.ReadFull(c, make([]byte, len(clientCalls))); err == nil {
		s.callers <- c
	}
}

// serveRaw does what a connection's first line says: `down N` sends N bytes, `up
// N` takes them and answers one, `echo N` answers each N bytes with the same.
func serveRaw(c net.Conn) {
	defer c.Close()
	r := bufio.NewReaderSize(c, 512) // larger reads go around it
	line, err := r.ReadString('\n')
	kind, size, _ := strings.Cut(strings.TrimSpace(line), " ")
	n, bad := strconv.ParseInt(size, 10, 64)
	if err != nil || bad != nil {
		return
	}
	switch kind {
	case "down":
		pour(c, n)
	case "up":
		if drain(r, n) == nil {
			pour(c, 1)
		}
	case "echo":
		for buf := make([]byte, n); ; {
			if _, err := io.ReadFull(r, buf); err != nil {
				return
			}
			if _, err := c.Write(buf); err != nil {
				return
			}
		}
	}
}

// serveBody sends as many bytes as the path says, or takes what is put.
func serveBody(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.ParseInt(strings.TrimPrefix(r.URL.Path, "/"), 10, 64)
	if err == nil && r.Method == http.MethodPut {
		err = drain(r.Body, n)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if r.Method == http.MethodGet {
		w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
		pour(w, n)
	}
}

// certificate is the web server's; whoever trusts roots trusts it.
func (s *site) certificate() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	leaf := x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: webHost}, DNSNames: []string{webHost},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, IsCA: true, // signed by itself
	}
	der, err := x509.CreateCertificate(rand.Reader, &leaf, &leaf, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, os.WriteFile(s.roots, text, 0o644)
}

// serveNames answers every A with 127.0.0.1 and everything else with nothing.
func (s *site) serveNames() {
	buf := make([]byte, 512)
	for {
		n, from, err := s.names.ReadFrom(buf)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
			continue
		}
		m.Header = dnsmessage.Header{ID: m.ID, Response: true, RecursionDesired: true, RecursionAvailable: true}
		m.Additionals = nil
		if q := m.Questions[0]; q.Type == dnsmessage.TypeA {
			m.Answers = []dnsmessage.Resource{{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 60},
				Body:   &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}},
			}}
		}
		if out, err := m.Pack(); err == nil {
			s.names.WriteTo(out, from)
		}
	}
}
