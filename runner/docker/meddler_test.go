package docker

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// meddler stands between the package and the real engine and changes what it
// is told to: so the engine really makes something else than was asked for, and
// what the package finds and clears up is real.
type meddler struct {
	// path selects requests by the end of their path, such as "/containers/create".
	path string
	// told changes the request, answered the answer; nil changes nothing.
	told, answered func(map[string]any)
	// cut ends the connection after the engine has acted, this many times.
	cut int
}

// through returns an engine that is reached through m.
func (m *meddler) through(t *testing.T, b bench) *Engine {
	t.Helper()
	dir, err := os.MkdirTemp(b.dir, "meddler")
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "engine.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", b.engine.socket)
	}}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.serve(t, w, r, transport) })}
	go server.Serve(l)
	t.Cleanup(func() { server.Close(); transport.CloseIdleConnections() })
	e, err := New(Config{Host: "unix://" + socket})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

func (m *meddler) serve(t *testing.T, w http.ResponseWriter, r *http.Request, engine http.RoundTripper) {
	chosen := strings.HasSuffix(r.URL.Path, m.path)
	body := readAll(t, r.Body)
	if chosen {
		body = change(t, body, m.told)
	}
	onward := r.Clone(r.Context())
	onward.RequestURI, onward.URL.Scheme, onward.URL.Host = "", "http", "engine"
	onward.Body, onward.ContentLength = http.NoBody, 0
	if len(body) > 0 {
		onward.Body, onward.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	reply, err := engine.RoundTrip(onward)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer reply.Body.Close()
	if chosen && m.cut > 0 {
		m.cut--
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		conn.Close()
		return
	}
	answer := readAll(t, reply.Body)
	if chosen {
		answer = change(t, answer, m.answered)
	}
	for k, v := range reply.Header {
		if k != "Content-Length" {
			w.Header()[k] = v
		}
	}
	w.WriteHeader(reply.StatusCode)
	w.Write(answer)
}

func readAll(t *testing.T, r io.Reader) []byte {
	body, err := io.ReadAll(r)
	if err != nil {
		t.Error(err)
	}
	return body
}

func change(t *testing.T, body []byte, f func(map[string]any)) []byte {
	if f == nil {
		return body
	}
	var m map[string]any
	if err := json.Unmarshal(body, &m); err != nil {
		t.Error(err)
		return body
	}
	f(m)
	body, err := json.Marshal(m)
	if err != nil {
		t.Error(err)
	}
	return body
}
