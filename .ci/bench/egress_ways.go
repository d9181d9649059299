package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// egressBench measures ways from clients to one site.
type egressBench struct {
	*bench
	site *site
	dir  string // what containers see of it is in bin
	peer string // this program, static
}

// way is one way from a client to the site's servers.
type way struct {
	name     string
	raw, web string // HOST:PORT of the servers, as its client names them
	proxy    string // HOST:PORT of a proxy that its client asks
	conn     net.Conn
	in       *json.Decoder
	out      *json.Encoder
	client   *program
	helpers  []*program
}

// ask has the way's client perform an order.
func (w *way) ask(o order) (result, error) {
	o.Proxy = w.proxy
	if o.Addr = w.raw; o.Kind == "get" || o.Kind == "put" {
		o.Addr, o.Host = w.web, webHost
	}
	var r result
	w.conn.SetDeadline(time.Now().Add(2 * time.Minute))
	err := w.out.Encode(o)
	if err == nil {
		err = w.in.Decode(&r)
	}
	if err == nil && r.Error != "" {
		err = fmt.Errorf("%s", r.Error)
	}
	if err != nil {
		return r, fmt.Errorf("%s: %v", w.name, err)
	}
	return r, nil
}

// close dismisses the client, which ends its container.
func (w *way) close() error {
	if w.conn != nil {
		w.conn.Close()
	}
	err := w.client.wait()
	for _, h := range w.helpers {
		h.stop()
	}
	return err
}

// program is something that runs beside the bench.
type program struct {
	cmd  *exec.Cmd
	text bytes.Buffer
	end  context.CancelFunc
	done chan struct{}
	err  error
}

func (e *egressBench) start(env []string, name string, args ...string) (*program, error) {
	ctx, end := context.WithCancel(e.ctx)
	p := &program{cmd: exec.CommandContext(ctx, name, args...), end: end, done: make(chan struct{})}
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(syscall.SIGTERM) }
	p.cmd.WaitDelay = time.Minute
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = slices.Concat(e.env, env), &p.text, &p.text // the last of a name counts
	if err := p.cmd.Start(); err != nil {
		end()
		return nil, err
	}
	go func() {
		defer close(p.done)
		p.err = p.cmd.Wait()
	}()
	return p, nil
}

// wait is how the program ended by itself.
func (p *program) wait() error {
	<-p.done
	defer p.end()
	if p.err != nil {
		return fmt.Errorf("%s: %v: %s", filepath.Base(p.cmd.Path), p.err, bytes.TrimSpace(p.text.Bytes()))
	}
	return nil
}

func (p *program) stop() {
	p.end()
	<-p.done
}

// newEgress makes the site, and a repository that holds the client.
func (b *bench) newEgress() (*egressBench, error) {
	e := &egressBench{bench: b, dir: filepath.Join(b.dir, "net")}
	e.peer = filepath.Join(e.dir, "bin", "bench")
	if err := os.MkdirAll(filepath.Dir(e.peer), 0o755); err != nil {
		return nil, err
	}
	if err := os.Chmod(e.dir, 0o755); err != nil {
		return nil, err
	}
	build := []string{"CGO_ENABLED=0"}
	p, err := e.start(build, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", e.peer, "./.ci/bench")
	if err != nil {
		return nil, err
	}
	if err := p.wait(); err != nil {
		return nil, err
	}
	repo := filepath.Join(e.dir, "repo")
	if err := b.git(nil, "init", "-q", "-b", "main", repo); err != nil {
		return nil, err
	}
	if _, err := b.command(nil, "cp", e.peer, repo); err != nil {
		return nil, err
	}
	if err := b.git(nil, "-C", repo, "add", "-A"); err != nil {
		return nil, err
	}
	if err := b.git(nil, "-C", repo, "commit", "-q", "-m", "start"); err != nil {
		return nil, err
	}
	e.site, err = newSite(filepath.Join(e.dir, "bin", "roots.pem"))
	return e, err
}

// begin starts a way's client and waits until it asks for orders.
func (e *egressBench) begin(w *way, env []string, name string, args ...string) (*way, error) {
	var err error
	if w.client, err = e.start(env, name, args...); err != nil {
		return nil, err
	}
	select {
	case c := <-e.site.callers:
		w.conn, w.in, w.out = c, json.NewDecoder(c), json.NewEncoder(c)
		return w, nil
	case <-w.client.done:
		err = w.client.wait()
	case <-time.After(time.Minute):
		err = fmt.Errorf("its client does not call: %s", bytes.TrimSpace(w.client.text.Bytes()))
		w.client.stop()
	}
	for _, h := range w.helpers {
		h.stop()
	}
	return nil, fmt.Errorf("%s: %v", w.name, err)
}

// sealedWay is ours: a client in a sealed run.
func (e *egressBench) sealedWay(isolation string) (*way, error) {
	policy := filepath.Join(e.dir, "policy.yml")
	if err := os.WriteFile(policy, []byte(e.policy()), 0o600); err != nil {
		return nil, err
	}
	w := &way{name: "sealed", raw: fmt.Sprintf("%s:%d", rawHost, port(e.site.raw)), web: fmt.Sprintf("%s:%d", webHost, port(e.site.web))}
	return e.begin(w, []string{"SSL_CERT_FILE=" + e.site.roots}, filepath.Join(e.bin, "countersign"),
		"run", "--repo", filepath.Join(e.dir, "repo"), "--evidence", filepath.Join(e.dir, "evidence-"+isolation), "--policy", policy,
		"--isolation", isolation, "--resolver", e.site.names.LocalAddr().String(),
		"--", "./bench", "traffic", "client", fmt.Sprintf("%s:%d", controlHost, port(e.site.control)))
}

func (e *egressBench) policy() string {
	return fmt.Sprintf(`version: 1
rev: bench-1
default: bench
profiles:
  bench:
    image: %s
    limits: {cpu: 2, memory: 4GiB, pids: 256, disk: 256MiB, home: 64MiB, tmp: 64MiB, shm: 64MiB, files: 1000, log: 1MiB, timeout: 15m, wait: 15m}
    network:
      allow:
        - {host: %s, port: %d, mode: opaque, private: true, upload: 1024GiB}
        - {host: %s, port: %d, mode: opaque, private: true, upload: 1024GiB}
        - {host: %s, port: %d, mode: inspect, private: true, upload: 1024GiB, methods: [GET, PUT], paths: ["/**"]}
    outputs: {kind: patch, push: never}
`, image, controlHost, port(e.site.control), rawHost, port(e.site.raw), webHost, port(e.site.web))
}

// relayWay is the same in a container like ours, where a relay in it and one on
// the host, a Unix socket between them, do nothing but copy.
func (e *egressBench) relayWay(isolation, how string) (*way, error) {
	sockets := filepath.Join(e.dir, "r-"+isolation+"-"+how)
	if err := os.Mkdir(sockets, 0o755); err != nil {
		return nil, err
	}
	inside, outside := []string{"/bench/bench", "traffic", "relay", how}, []string{"traffic", "relay", how}
	for _, l := range []net.Listener{e.site.raw, e.site.web, e.site.control} {
		inside = append(inside, fmt.Sprintf("tcp:127.0.0.1:%d=unix:/r/%d", port(l), port(l)))
		outside = append(outside, fmt.Sprintf("unix:%s/%d=tcp:127.0.0.1:%d", sockets, port(l), port(l)))
	}
	host, err := e.start(nil, e.peer, outside...)
	if err != nil {
		return nil, err
	}
	w := &way{name: "relay", raw: e.site.raw.Addr().String(), web: e.site.web.Addr().String(), helpers: []*program{host}}
	return e.begin(w, nil, "docker", "run", "--rm", "--runtime", isolation, "--network", "none",
		"--cpus", "2", "--memory", "4g", "--memory-swap", "4g", "--pids-limit", "256", "--ulimit", "nofile=8192",
		"--user", "65532:65532", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--read-only",
		"-v", filepath.Dir(e.peer)+":/bench:ro", "-v", sockets+":/r:ro", "-e", "SSL_CERT_FILE=/bench/roots.pem", image,
		"/bin/sh", "-c", fmt.Sprintf("%s & exec /bench/bench traffic client %s", strings.Join(inside, " "), e.site.control.Addr()))
}

// hostWay is a client on the host itself, which asks the proxy if there is one.
func (e *egressBench) hostWay(name, proxy string) (*way, error) {
	w := &way{name: name, raw: e.site.raw.Addr().String(), proxy: proxy}
	return e.begin(w, nil, e.peer, "traffic", "client", e.site.control.Addr().String())
}
