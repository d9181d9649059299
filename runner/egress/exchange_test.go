package egress

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

func both(t *testing.T, f func(t *testing.T, http2 bool)) {
	t.Run("http1", func(t *testing.T) { f(t, false) })
	t.Run("http2", func(t *testing.T) { f(t, true) })
}

func TestInspect(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		l := newLab(t, serverRoots, inspectRule())
		l.serveTLS(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			w.Header().Set("X-Seen", fmt.Sprint(r.Host, " ", r.RequestURI, " ", r.ProtoMajor, " ", r.Header.Get("User-Agent")))
			io.WriteString(w, strings.ToUpper(string(b)))
		}))
		r, err := l.client(http2).Post("https://"+labHost+"/a/%7eb%2fc?q=%41&", "text/plain", strings.NewReader("hello"))
		if got := textOf(t, r, err); got != "HELLO" {
			t.Errorf("answered %q", got)
		}
		want := fmt.Sprintf("%s /a/~b%%2Fc?q=%%41& %d Go-http-client/%d.%s", labHost, r.ProtoMajor, r.ProtoMajor, map[bool]string{true: "0", false: "1"}[http2])
		if got := r.Header.Get("X-Seen"); got != want {
			t.Errorf("the server saw %q, want %q", got, want)
		}
		q := l.requests()
		if len(q) != 1 || q[0].Status != 200 || q[0].BytesIn != 5 || q[0].Path != "/a/~b%2Fc?q=%41&" || q[0].Rule != 0 || q[0].Method != "POST" {
			t.Errorf("recorded %+v", q)
		}
	})
}

func TestGateway(t *testing.T) {
	l := newLab(t, serverRoots, gatewayRule())
	l.serveTLS(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Host, r.TLS != nil) }))
	c := l.client(false)
	for range 2 {
		r, err := c.Get("http://" + gatewayHost + "/x")
		if got := textOf(t, r, err); got != labHost+"true" {
			t.Errorf("answered %q", got)
		}
	}
}
