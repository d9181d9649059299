package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/runner/redact"
)

// lab is a bench whose proxy reads requests: servers speak TLS under
// certificates of the test, and clients trust the run's authority.
type lab struct {
	*bench
	authority *Authority
	roots     *x509.CertPool // inside the sandbox
}

// labHost is the name of the server that tests mostly ask for; gatewayHost
// leads to it.
const (
	labHost     = "api.example.com"
	gatewayHost = "api.internal"
)

var httpRule = contract.NetRule{
	Host: labHost, Port: 443, Mode: contract.RuleInspect, Methods: []string{"GET", "HEAD", "POST", "PUT"}, Paths: []string{"/**"},
	UploadBytes: 1 << 40, Private: true, Coverage: contract.CoverageEnforced,
}

func inspectRule(edit ...func(*contract.NetRule)) contract.NetRule {
	r := httpRule
	for _, e := range edit {
		e(&r)
	}
	return r
}

func gatewayRule(edit ...func(*contract.NetRule)) contract.NetRule {
	r := httpRule
	r.Host, r.Port, r.Mode, r.Upstream = gatewayHost, 80, contract.RuleGateway, "https://"+labHost+":443"
	for _, e := range edit {
		e(&r)
	}
	return r
}

// newLab starts a proxy; labHost and the names of rules are on loopback.
func newLab(t *testing.T, edit func(*Config), rules ...contract.NetRule) *lab {
	t.Helper()
	b := &bench{t: t, ports: map[int]string{}, answers: map[string]Answer{}, grown: make(chan struct{})}
	b.answers[labHost] = Answer{Addresses: []netip.Addr{loopback}}
	for _, r := range rules {
		b.answers[r.Host] = b.answers[labHost]
	}
	l := &lab{bench: b, authority: newAuthority(t, "run_test"), roots: x509.NewCertPool()}
	l.roots.AppendCertsFromPEM(l.authority.PEM())
	cfg := b.config(compiled(t, rules...))
	cfg.Authority = l.authority
	if edit != nil {
		edit(&cfg)
	}
	var err error
	if b.proxy, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	b.sock = filepath.Join(t.TempDir(), "egress.sock")
	listener, err := net.Listen("unix", b.sock)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- b.proxy.Serve(listener) }()
	t.Cleanup(func() {
		b.proxy.Close()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return l
}

func newAuthority(t testing.TB, name string) *Authority {
	t.Helper()
	a, err := NewAuthority(name, time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// classes are the classes that were denied, in order.
func (l *lab) classes() (classes []Class) {
	for _, d := range l.of(TypeDenied) {
		classes = append(classes, d.(deniedRecord).Class)
	}
	return classes
}

func (l *lab) requests() (requests []requestRecord) {
	for _, q := range l.of(TypeRequest) {
		requests = append(requests, *q.(*requestRecord))
	}
	return requests
}

// serveTLS starts a server for labHost on port 443, that speaks HTTP/1.1 and
// HTTP/2. The proxy must have been made with serverRoots.
func (l *lab) serveTLS(h http.Handler) *httptest.Server {
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{Certificates: []tls.Certificate{labCertificate()}}
	s.StartTLS()
	l.t.Cleanup(s.Close)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ports[443] = s.Listener.Addr().String()
	return s
}

func (l *lab) servePlain(port int, h http.Handler) *httptest.Server {
	s := httptest.NewServer(h)
	l.t.Cleanup(s.Close)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ports[port] = s.Listener.Addr().String()
	return s
}

// labServers signs for the test's servers.
var labServers = sync.OnceValue(func() *Authority {
	a, err := NewAuthority("servers", time.Now(), time.Hour)
	if err != nil {
		panic(err)
	}
	return a
})

func labCertificate() tls.Certificate {
	c, err := labServers().certificate(labHost)
	if err != nil {
		panic(err)
	}
	return *c
}

func serverRoots(c *Config) {
	c.Roots = x509.NewCertPool()
	c.Roots.AppendCertsFromPEM(labServers().PEM())
}

// withSecrets gives the proxy credentials to inject and secrets of the run.
func withSecrets(credentials map[string]string, secrets ...string) func(*Config) {
	return func(c *Config) {
		serverRoots(c)
		c.Credentials = map[string]redact.Secret{}
		for name, v := range credentials {
			c.Credentials[name] = *redact.NewSecret([]byte(v))
		}
		for _, v := range secrets {
			c.Secrets = append(c.Secrets, *redact.NewSecret([]byte(v)))
		}
	}
}

// dialTunnel opens a transparent tunnel, as the sandbox's own client does.
func (l *lab) dialTunnel(target string) (net.Conn, error) {
	c, err := net.Dial("unix", l.sock)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(c, "CONNECT %[1]s HTTP/1.1\r\nHost: %[1]s\r\nCountersign-Client: transparent\r\n\r\n", target)
	const established = "HTTP/1.1 200 Connection established\r\n\r\n"
	answer := make([]byte, len(established))
	if _, err := io.ReadFull(c, answer); err != nil || string(answer) != established {
		c.Close()
		return nil, fmt.Errorf("the tunnel was answered %q, %v", answer, err)
	}
	return c, nil
}

// client speaks to any host through transparent tunnels.
func (l *lab) client(http2 bool) *http.Client {
	t := &http.Transport{
		DialContext: func(_ context.Context, _, address string) (net.Conn, error) {
			return l.dialTunnel(address)
		},
		TLSClientConfig: &tls.Config{RootCAs: l.roots},
		Protocols:       new(http.Protocols),
	}
	t.Protocols.SetHTTP1(!http2)
	t.Protocols.SetHTTP2(http2)
	l.t.Cleanup(t.CloseIdleConnections)
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func textOf(t *testing.T, r *http.Response, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
