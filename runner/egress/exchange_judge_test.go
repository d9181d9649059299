package egress

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/countersign-dev/countersign/policy/contract"
)

// counting answers 200 and counts.
func counting(n *atomic.Int64) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.Add(1)
		io.Copy(io.Discard, r.Body)
		io.WriteString(w, "ok")
	})
}

// Requests that no server may see, on a gateway whose rule allows GET and POST
// below /v1/.
func TestRefusedRequests(t *testing.T) {
	const host = "Host: api.internal\r\n"
	for name, c := range map[string]struct {
		request string
		status  int
		class   Class
	}{
		"method":                {"DELETE /v1/a HTTP/1.1\r\n" + host + "\r\n", 403, ClassMethod},
		"trace":                 {"TRACE /v1/a HTTP/1.1\r\n" + host + "\r\n", 403, ClassMethod},
		"path":                  {"GET /v2/a HTTP/1.1\r\n" + host + "\r\n", 403, ClassPath},
		"no websocket":          {"GET /v1/a HTTP/1.1\r\n" + host + "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n", 403, ClassWebSocket},
		"websocket without key": {"GET /v1/a HTTP/1.1\r\n" + host + "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\r\n", 400, ClassMalformed},
		"h2c":                   {"GET /v1/a HTTP/1.1\r\n" + host + "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n", 403, ClassProtocol},
		"two upgrades":          {"GET /v1/a HTTP/1.1\r\n" + host + "Upgrade: websocket\r\nUpgrade: h2c\r\n\r\n", 403, ClassProtocol},
		"http2 preface":         {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 403, ClassProtocol},
		"other host":            {"GET /v1/a HTTP/1.1\r\nHost: other.internal\r\n\r\n", 403, ClassMismatch},
		"other port":            {"GET /v1/a HTTP/1.1\r\nHost: api.internal:81\r\n\r\n", 403, ClassMismatch},
		"no host":               {"GET /v1/a HTTP/1.1\r\n\r\n", 400, ClassMalformed},
		"two hosts":             {"GET /v1/a HTTP/1.1\r\n" + host + host + "\r\n", 400, ClassMalformed},
		"user in host":          {"GET /v1/a HTTP/1.1\r\nHost: api.internal@other\r\n\r\n", 403, ClassName},
		"absolute other":        {"GET http://other.internal/v1/a HTTP/1.1\r\nHost: other.internal\r\n\r\n", 403, ClassMismatch},
		"absolute and host":     {"GET http://api.internal/v1/a HTTP/1.1\r\nHost: other.internal\r\n\r\n", 403, ClassMismatch},
		"asterisk":              {"OPTIONS * HTTP/1.1\r\n" + host + "\r\n", 403, ClassProtocol},
		"dot segment":           {"GET /v1/../v2 HTTP/1.1\r\n" + host + "\r\n", 400, ClassMalformed},
		"encoded dots":          {"GET /v1/%2e%2e/v2 HTTP/1.1\r\n" + host + "\r\n", 400, ClassMalformed},
		"dots by slashes":       {"GET /v1/x%2f..%2fv2 HTTP/1.1\r\n" + host + "\r\n", 400, ClassMalformed},
		"two slashes":           {"GET //v1/a HTTP/1.1\r\n" + host + "\r\n", 400, ClassMalformed},
		"backslash":             {"GET /v1/a%5c..%5cb HTTP/1.1\r\n" + host + "\r\n", 400, ClassMalformed},
		"encoded NUL":           {"GET /v1/a%00 HTTP/1.1\r\n" + host + "\r\n", 400, ClassMalformed},
		"length and coding":     {"POST /v1/a HTTP/1.1\r\n" + host + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, ClassMalformed},
		"two lengths":           {"POST /v1/a HTTP/1.1\r\n" + host + "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", 400, ClassMalformed},
		"identity coding":       {"POST /v1/a HTTP/1.1\r\n" + host + "Transfer-Encoding: identity\r\n\r\n", 400, ClassMalformed},
		"expectation":           {"POST /v1/a HTTP/1.1\r\n" + host + "Content-Length: 3\r\nExpect: miracles\r\n\r\nabc", 403, ClassProtocol},
		"bare line feed":        {"GET /v1/a HTTP/1.1\nHost: api.internal\n\n", 400, ClassMalformed},
		"folded field":          {"GET /v1/a HTTP/1.1\r\n" + host + "X: a\r\n b\r\n\r\n", 400, ClassMalformed},
		"space before colon":    {"POST /v1/a HTTP/1.1\r\n" + host + "Content-Length : 3\r\n\r\nabc", 400, ClassMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, serverRoots, gatewayRule(func(r *contract.NetRule) { r.Paths = []string{"/v1/**"} }))
			var seen atomic.Int64
			l.serveTLS(counting(&seen))
			conn := l.tunnel("api.internal:80", true)
			// What is behind a refused request must not be read as one.
			io.WriteString(conn, c.request+"GET /v1/smuggled HTTP/1.1\r\n"+host+"\r\n")
			r, err := http.ReadResponse(conn.r, nil)
			if err != nil {
				t.Fatal(err)
			}
			text, _ := io.ReadAll(r.Body)
			if r.StatusCode != c.status || !strings.HasPrefix(string(text), "countersign: ") {
				t.Errorf("answered %d %q, want %d and a sentence", r.StatusCode, text, c.status)
			}
			if got := l.classes(); !slices.Equal(got, []Class{c.class}) {
				t.Errorf("denied %v, want %v", got, c.class)
			}
			if r.Close && seen.Load() != 0 {
				t.Error("the server saw a request")
			}
		})
	}
}

// The first request is right, and makes the connection to the server.
func TestLaterRequestNamesAnotherHost(t *testing.T) {
	l := newLab(t, serverRoots, gatewayRule())
	var seen atomic.Int64
	l.serveTLS(counting(&seen))
	c := l.tunnel("api.internal:80", true)
	io.WriteString(c, "GET /a HTTP/1.1\r\nHost: api.internal\r\n\r\n")
	r, err := http.ReadResponse(c.r, nil)
	if textOf(t, r, err) != "ok" {
		t.Fatal("the first request was not served")
	}
	io.WriteString(c, "GET /a HTTP/1.1\r\nHost: other.internal\r\n\r\n")
	r, err = http.ReadResponse(c.r, nil)
	if text := textOf(t, r, err); r.StatusCode != 403 || !strings.Contains(text, "other.internal") {
		t.Errorf("answered %d %q", r.StatusCode, text)
	}
	if seen.Load() != 1 || !slices.Equal(l.classes(), []Class{ClassMismatch}) {
		t.Errorf("the server saw %d requests; denied %v", seen.Load(), l.classes())
	}
}

// A refusal that leaves nothing unread is no end of the connection.
func TestRefusalKeepsConnection(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		l := newLab(t, serverRoots, inspectRule())
		var seen atomic.Int64
		l.serveTLS(counting(&seen))
		c := l.client(http2)
		for i := range 3 {
			r, err := c.Do(newRequest(t, "DELETE", "https://"+labHost+"/", nil))
			if text := textOf(t, r, err); r.StatusCode != 403 || !strings.Contains(text, "DELETE") {
				t.Errorf("answered %d %q", r.StatusCode, text)
			}
			r, err = c.Get("https://" + labHost + "/")
			if textOf(t, r, err) != "ok" || seen.Load() != int64(i+1) {
				t.Error("the listed request was not served")
			}
		}
		if n := len(l.of(TypeConnected)); n != 1 {
			t.Errorf("%d connections were made, want one", n)
		}
	})
}

func TestHTTP2Authority(t *testing.T) {
	l := newLab(t, serverRoots, inspectRule())
	var seen atomic.Int64
	l.serveTLS(counting(&seen))
	for _, host := range []string{"other.example.com", "api.example.com:444", "api.example.com.", "127.0.0.1"} {
		q := newRequest(t, "GET", "https://"+labHost+"/", nil)
		q.Host = host
		r, err := l.client(true).Do(q)
		if text := textOf(t, r, err); r.StatusCode != 403 && r.StatusCode != 400 || r.ProtoMajor != 2 {
			t.Errorf("%s: answered %s %d %q", host, r.Proto, r.StatusCode, text)
		}
	}
	if seen.Load() != 0 || len(l.of(TypeConnected)) != 0 {
		t.Error("a server was asked")
	}
}

// What net/http's HTTP/2 server lets through and no request may have.
func TestReadStream(t *testing.T) {
	f := &flow{target: Target{labHost, 443}, entry: inspectRule()}
	for name, c := range map[string]struct {
		edit  func(*http.Request)
		class Class
	}{
		"right":            {func(r *http.Request) {}, ""},
		"right Host":       {func(r *http.Request) { r.Header.Set("Host", labHost) }, ""},
		"scheme":           {func(r *http.Request) { r.TLS = nil }, ClassMalformed},
		"other Host field": {func(r *http.Request) { r.Header.Set("Host", "other.example.com") }, ClassMismatch},
		"two Host fields":  {func(r *http.Request) { r.Header["Host"] = []string{labHost, "other.example.com"} }, ClassMismatch},
		"two lengths":      {func(r *http.Request) { r.Header["Content-Length"] = []string{"1", "2"} }, ClassMalformed},
		"signed length":    {func(r *http.Request) { r.Header["Content-Length"] = []string{"+1"} }, ClassMalformed},
		"lower method":     {func(r *http.Request) { r.Method = "get" }, ClassMethod},
		"connect":          {func(r *http.Request) { r.Method = "CONNECT" }, ClassMethod},
		"asterisk":         {func(r *http.Request) { r.RequestURI = "*" }, ClassMalformed},
		"path":             {func(r *http.Request) { r.RequestURI = "/a/../b" }, ClassMalformed},
		"two slashes":      {func(r *http.Request) { r.RequestURI = "//other.example.com/" }, ClassMalformed},
		"many fields":      {func(r *http.Request) { r.Header["X"] = make([]string, 300) }, ClassBounds},
	} {
		r := newRequest(t, "GET", "https://"+labHost+"/a", nil)
		r.RequestURI, r.TLS = "/a", &tls.ConnectionState{}
		c.edit(r)
		q, err := f.readStream(r)
		refused := &Refused{}
		if errors.As(err, &refused); refused.Class != c.class || (err == nil) != (c.class == "") || err == nil && q.path != "/a" {
			t.Errorf("%s: %v, want %q", name, err, c.class)
		}
	}
}

func TestEndToEnd(t *testing.T) {
	in := []field{
		{"connection", "keep-alive, X-Hop"}, {"x-hop", "1"}, {"x-kept", "1"}, {"keep-alive", "1"}, {"proxy-connection", "1"}, {"te", "trailers"},
		{"proxy-authorization", "1"}, {"trailer", "X"}, {"upgrade", "websocket"}, {"http2-settings", "1"}, {"host", "h"}, {"content-length", "1"},
		{"transfer-encoding", "chunked"}, {"expect", "100-continue"}, {"countersign-client", "1"}, {"sec-websocket-extensions", "1"}, {"cookie", "a"},
	}
	if got := fmt.Sprint(endToEnd(in)); got != "[{x-kept 1} {cookie a}]" {
		t.Errorf("%s goes on", got)
	}
}

func newRequest(t *testing.T, method, url string, body io.Reader) *http.Request {
	t.Helper()
	q, err := http.NewRequest(method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func TestRedirectIsDecidedAnew(t *testing.T) {
	l := newLab(t, serverRoots, gatewayRule())
	l.serveTLS(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Alt-Svc", `h3=":443"`)
		http.Redirect(w, r, "http://unlisted.example.com/steal", http.StatusFound)
	}))
	c := l.client(false)
	r, err := c.Get("http://" + gatewayHost + "/")
	if textOf(t, r, err); r.StatusCode != 302 || r.Header.Get("Location") != "http://unlisted.example.com/steal" || r.Header.Get("Alt-Svc") != "" {
		t.Errorf("answered %d %v", r.StatusCode, r.Header)
	}
	c.CheckRedirect = nil
	r, err = c.Get("http://" + gatewayHost + "/")
	if text := textOf(t, r, err); r.StatusCode != 403 || !strings.Contains(text, "unlisted.example.com:80 is not in this run's contract") {
		t.Errorf("answered %d %q", r.StatusCode, text)
	}
}

// A server that is not who its name says is no server of the contract.
func TestUntrustedServer(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		l := newLab(t, nil, inspectRule()) // the system's roots
		var seen atomic.Int64
		l.serveTLS(counting(&seen))
		r, err := l.client(http2).Get("https://" + labHost + "/")
		if text := textOf(t, r, err); r.StatusCode != 502 || !strings.Contains(text, "certificate") {
			t.Errorf("answered %d %q", r.StatusCode, text)
		}
		if got := l.classes(); !slices.Equal(got, []Class{ClassUnreachable}) || seen.Load() != 0 {
			t.Errorf("denied %v; the server saw %d requests", got, seen.Load())
		}
	})
}

func TestAddressRefused(t *testing.T) {
	l := newLab(t, serverRoots, inspectRule(func(r *contract.NetRule) { r.Private = false }))
	r, err := l.client(true).Get("https://" + labHost + "/")
	if text := textOf(t, r, err); r.StatusCode != 403 || !strings.Contains(text, "loopback") {
		t.Errorf("answered %d %q", r.StatusCode, text)
	}
}

// Two rules for one host: each request is of the one that allows it.
func TestRuleOfEachRequest(t *testing.T) {
	read := inspectRule(func(r *contract.NetRule) { r.Methods = []string{"GET"} })
	write := inspectRule(func(r *contract.NetRule) { r.Methods, r.Paths, r.UploadBytes = []string{"POST"}, []string{"/in"}, 1000 })
	l := newLab(t, serverRoots, read, write)
	var seen atomic.Int64
	l.serveTLS(counting(&seen))
	c := l.client(false)
	for _, q := range []struct {
		method, path string
		status       int
	}{{"GET", "/in", 200}, {"POST", "/in", 200}, {"POST", "/out", 403}} {
		r, err := c.Do(newRequest(t, q.method, "https://"+labHost+q.path, strings.NewReader(strings.Repeat("x", 10))))
		if textOf(t, r, err); r.StatusCode != q.status {
			t.Errorf("%v: answered %d", q, r.StatusCode)
		}
	}
	if got := fmt.Sprint(l.requests()[0].Rule, l.requests()[1].Rule); got != "0 1" {
		t.Errorf("requests of rules %s", got)
	}
}

// A revision may put another rule in front of the one that a connection was
// made under; what it asks then needs a connection of its own.
func TestRuleOfAnotherMode(t *testing.T) {
	wide := inspectRule(func(r *contract.NetRule) { r.Host = "*.example.com" })
	l := newLab(t, serverRoots, wide)
	var seen atomic.Int64
	l.serveTLS(counting(&seen))
	c := l.client(false)
	r, err := c.Get("https://" + labHost + "/")
	if textOf(t, r, err) != "ok" {
		t.Fatal("the first request was not served")
	}
	l.proxy.Replace(compiled(t, wide, allowOpaque(labHost, 443)))
	r, err = c.Get("https://" + labHost + "/")
	if text := textOf(t, r, err); r.StatusCode != 403 || !strings.Contains(text, "connect again") || seen.Load() != 1 {
		t.Errorf("answered %d %q; the server saw %d requests", r.StatusCode, text, seen.Load())
	}
}

// Two readings of a ClientHello that differ are no handshake.
func TestServerNameReadTwice(t *testing.T) {
	l := newLab(t, serverRoots, inspectRule())
	ours, theirs := net.Pipe()
	defer ours.Close()
	f := &flow{proxy: l.proxy, target: Target{labHost, 443}, entry: inspectRule(), ctx: t.Context(), client: &peeked{Conn: ours}}
	go f.serveTLS(&clientHello{serverName: labHost})
	err := tls.Client(theirs, &tls.Config{ServerName: "other.example.com", InsecureSkipVerify: true}).Handshake()
	if err == nil {
		t.Error("a client that names another server was served")
	}
}
