package egress

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// proxied speaks to the proxy as programs do that were told of it.
func (l *lab) proxied() *http.Client {
	t := &http.Transport{
		Proxy:       http.ProxyURL(&url.URL{Scheme: "http", Host: "127.0.0.1:3128"}),
		DialContext: func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", l.sock) },
	}
	l.t.Cleanup(t.CloseIdleConnections)
	return &http.Client{Transport: t}
}

func TestForward(t *testing.T) {
	other := allowOpaque("other.example.com", 8080)
	l := newLab(t, serverRoots, gatewayRule(), allowOpaque("plain.example.com", 80), other)
	say := func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s%s", r.Method, r.Host, r.RequestURI, b)
	}
	l.serveTLS(http.HandlerFunc(say))
	l.servePlain(80, http.HandlerFunc(say))
	l.servePlain(8080, http.HandlerFunc(say))
	c := l.proxied()
	for range 2 {
		for _, q := range []struct {
			method, url, body string
			status            int
			want              string
		}{
			{"GET", "http://api.internal/a?b", "", 200, "GET api.example.com /a?b"},
			{"GET", "http://plain.example.com/", "", 200, "GET plain.example.com /"},
			{"PURGE", "http://plain.example.com:80/x//y", "data", 200, "PURGE plain.example.com /x//ydata"},
			{"PUT", "http://other.example.com:8080/?", strings.Repeat("x", 20_000), 200, "PUT other.example.com:8080 /?" + strings.Repeat("x", 20_000)},
			{"DELETE", "http://api.internal/a", "", 403, "countersign: api.internal:80 has a request that is not in this run's contract"},
			{"GET", "http://unlisted.example.com/", "", 403, "countersign: unlisted.example.com:80 is not in this run's contract"},
			{"GET", "http://plain.example.com:81/", "", 403, "countersign: plain.example.com:81 is not in this run's contract"},
			{"GET", "http://canary.internal/", "", 200, canaryBody},
		} {
			r, err := c.Do(newRequest(t, q.method, q.url, strings.NewReader(q.body)))
			if got := textOf(t, r, err); r.StatusCode != q.status || !strings.HasPrefix(got, q.want) {
				t.Errorf("%s %s: answered %d %.100q", q.method, q.url, r.StatusCode, got)
			}
		}
	}
}

// Requests for different hosts may come on one connection; each is decided.
func TestForwardOnOneConnection(t *testing.T) {
	l := newLab(t, serverRoots, allowOpaque("a.example.com", 80), allowOpaque("b.example.com", 80))
	l.servePlain(80, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Host) }))
	c := l.dial()
	answers := bufio.NewReader(c)
	for _, host := range []string{"a.example.com", "b.example.com", "b.example.com", "a.example.com", "c.example.com"} {
		fmt.Fprintf(c, "GET http://%[1]s/ HTTP/1.1\r\nHost: %[1]s\r\n\r\n", host)
		r, err := http.ReadResponse(answers, nil)
		got := textOf(t, r, err)
		if refused := host == "c.example.com"; refused != (r.StatusCode == 403) || !refused && got != host {
			t.Errorf("%s: answered %d %q", host, r.StatusCode, got)
		}
	}
	if n := len(l.of(TypeConnected)); n != 3 {
		t.Errorf("%d connections were made, want 3", n)
	}
	if !slices.Equal(l.classes(), []Class{ClassHost}) {
		t.Errorf("denied %v", l.classes())
	}
}

func TestForwardRefused(t *testing.T) {
	for name, c := range map[string]struct {
		request string
		status  int
		class   Class
	}{
		"other Host": {"GET http://plain.example.com/ HTTP/1.1\r\nHost: other.example.com\r\n\r\n", 403, ClassMismatch},
		"no Host":    {"GET http://plain.example.com/ HTTP/1.1\r\n\r\n", 400, ClassMalformed},
		"user":       {"GET http://u@plain.example.com/ HTTP/1.1\r\nHost: u@plain.example.com\r\n\r\n", 403, ClassName},
		"https":      {"GET https://plain.example.com/ HTTP/1.1\r\nHost: plain.example.com\r\n\r\n", 403, ClassProtocol},
		"slashes":    {"GET http:///plain.example.com/ HTTP/1.1\r\nHost: plain.example.com\r\n\r\n", 403, ClassName},
		"two paths":  {"GET http://plain.example.com//evil.example.com/ HTTP/1.1\r\nHost: plain.example.com\r\n\r\n", 400, ClassMalformed},
		"h2c":        {"GET http://plain.example.com/ HTTP/1.1\r\nHost: plain.example.com\r\nUpgrade: h2c\r\n\r\n", 403, ClassProtocol},
		"decimal":    {"GET http://2130706433/ HTTP/1.1\r\nHost: 2130706433\r\n\r\n", 403, ClassName},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, serverRoots, allowOpaque("plain.example.com", 80))
			l.servePlain(80, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { t.Errorf("the server saw %s", r.RequestURI) }))
			conn := l.dial()
			io.WriteString(conn, c.request)
			r, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if text := textOf(t, r, err); r.StatusCode != c.status || !slices.Equal(l.classes(), []Class{c.class}) {
				t.Errorf("answered %d %q, denied %v", r.StatusCode, text, l.classes())
			}
		})
	}
}

// Plain HTTP is read in an opaque tunnel, too: every request names its host.
func TestPlainHTTPInTunnel(t *testing.T) {
	l := newLab(t, serverRoots, allowOpaque("plain.example.com", 80))
	l.servePlain(80, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Method, " ", r.RequestURI) }))
	c := l.tunnel("plain.example.com:80", true)
	io.WriteString(c, "DELETE /a/../b%2e HTTP/1.1\r\nHost: plain.example.com\r\n\r\n")
	r, err := http.ReadResponse(c.r, nil)
	if got := textOf(t, r, err); got != "DELETE /a/../b%2e" {
		t.Errorf("answered %q", got)
	}
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: other.example.com\r\n\r\n")
	r, err = http.ReadResponse(c.r, nil)
	if textOf(t, r, err); r.StatusCode != 403 || !slices.Equal(l.classes(), []Class{ClassMismatch}) {
		t.Errorf("answered %d, denied %v", r.StatusCode, l.classes())
	}
	if q := l.requests(); len(q) != 1 || q[0].Path != "/a/../b%2e" {
		t.Errorf("recorded %+v", q)
	}
}
