package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/countersign-dev/countersign/runner/docker"
	"github.com/countersign-dev/countersign/runner/drill"
)

// engineFor returns the address of the engine that a work asks for, and what
// closes it again. What is made for it lies in dir.
func (s *sealedRuns) engineFor(w drill.Work, dir string) (host string, stop func(), err error) {
	switch w.Engine {
	case drill.EngineMissing:
		return "unix://" + filepath.Join(dir, "none.sock"), func() {}, nil
	case drill.EngineWithoutIsolation:
		return withoutRuntime(s.env.DockerHost, w.Isolation, dir)
	}
	return s.env.DockerHost, func() {}, nil
}

// withoutRuntime serves the real engine on a socket in dir, with one runtime
// taken out of what it says of itself: a machine without that isolation.
func withoutRuntime(host, runtime, dir string) (string, func(), error) {
	if host == "" {
		host = docker.DefaultHost
	}
	socket := strings.TrimPrefix(host, "unix://")
	l, err := net.Listen("unix", filepath.Join(dir, "lesser.sock"))
	if err != nil {
		return "", nil, fmt.Errorf("serving an engine without %s: %v", runtime, err)
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}}
	server := &http.Server{Handler: &httputil.ReverseProxy{
		Transport: transport,
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: "engine"}) },
		ModifyResponse: func(r *http.Response) error {
			if !strings.HasSuffix(r.Request.URL.Path, "/info") {
				return nil
			}
			return dropRuntime(r, runtime)
		},
	}}
	go server.Serve(l)
	return "unix://" + l.Addr().String(), func() { server.Close(); transport.CloseIdleConnections() }, nil
}

func dropRuntime(r *http.Response, runtime string) error {
	defer r.Body.Close()
	var info map[string]json.RawMessage
	if err := json.NewDecoder(r.Body).Decode(&info); err != nil {
		return fmt.Errorf("reading what the engine is: %v", err)
	}
	var runtimes map[string]json.RawMessage
	if err := json.Unmarshal(info["Runtimes"], &runtimes); err != nil {
		return fmt.Errorf("reading the engine's runtimes: %v", err)
	}
	delete(runtimes, runtime)
	text, err := json.Marshal(runtimes)
	if err != nil {
		return err
	}
	info["Runtimes"] = text
	if text, err = json.Marshal(info); err != nil {
		return err
	}
	r.Body = io.NopCloser(bytes.NewReader(text))
	r.ContentLength = int64(len(text))
	r.Header.Set("Content-Length", strconv.Itoa(len(text)))
	return nil
}
