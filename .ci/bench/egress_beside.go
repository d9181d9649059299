package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// smokescreen is built by the bench alone; our module does not know of it.
const smokescreen = "github.com/stripe/smokescreen@v0.1.0"

// beside measures forward proxies that people use for the same purpose. Their
// client is on the host, so their way has one hop where ours has two.
func (e *egressBench) beside(ours *way) error {
	return errors.Join(e.besideSquid(ours), e.besideSmokescreen(ours))
}

func (e *egressBench) besideSquid(ours *way) error {
	squid, err := exec.LookPath("squid")
	if err != nil {
		if squid, err = exec.LookPath("/usr/sbin/squid"); err != nil {
			fmt.Println("squid: not measured: apt-get install squid")
			return nil
		}
	}
	addr, err := freeAddr()
	if err != nil {
		return err
	}
	config := filepath.Join(e.dir, "squid.conf")
	text := fmt.Sprintf("http_port %s\nhttp_access allow localhost\nhttp_access deny all\ncache deny all\naccess_log none\ncache_log /dev/null\npid_filename none\nshutdown_lifetime 0\n", addr)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		return err
	}
	return e.besideProxy(ours, "squid", addr, squid, "-N", "-f", config)
}

func (e *egressBench) besideSmokescreen(ours *way) error {
	p, err := e.start([]string{"GOBIN=" + e.dir, "GOFLAGS=-mod=mod"}, "go", "install", smokescreen)
	if err != nil {
		return err
	}
	if err := p.wait(); err != nil {
		fmt.Printf("smokescreen: not measured: %v\n", err)
		return nil
	}
	addr, err := freeAddr()
	if err != nil {
		return err
	}
	_, at, _ := net.SplitHostPort(addr)
	return e.besideProxy(ours, "smokescreen", addr, filepath.Join(e.dir, "smokescreen"),
		"--listen-ip", "127.0.0.1", "--listen-port", at, "--unsafe-allow-private-ranges", "--allow-range", "127.0.0.0/8")
}

func (e *egressBench) besideProxy(ours *way, name, addr string, program string, args ...string) error {
	proxy, err := e.start(nil, program, args...)
	if err != nil {
		return err
	}
	defer proxy.stop()
	if c, err := dialUntil(addr, 20*time.Second); err != nil {
		return fmt.Errorf("%s does not listen: %v: %s", name, err, proxy.text.Bytes())
	} else {
		c.Close()
	}
	theirs, err := e.hostWay(name, addr)
	if err != nil {
		return err
	}
	defer theirs.close()
	if err := e.throughput("opaque", ours, theirs, e.bytes, few, 0); err != nil {
		return err
	}
	for _, o := range echoes(2000) {
		p50 := func(w *way) func() (float64, error) {
			return func() (float64, error) {
				r, err := w.ask(o)
				return r.P50, err
			}
		}
		our, their, ratio, err := inTurn(few, p50(ours), p50(theirs))
		if err != nil {
			return err
		}
		e.line(fmt.Sprintf("p50 of a request, %d conn. / %s", o.Connections, name), ratio, "", false, 0, fmt.Sprintf("%s µs / %s µs", figure(our), figure(their)))
	}
	return nil
}

// freeAddr is an address on loopback that nobody listens on now.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}
