package shim

import (
	"io"
	"net"
	"testing"

	"github.com/countersign-dev/countersign/runner/shim/protocol"
)

func TestAskHTTP(t *testing.T) {
	for answer, want := range map[string]string{
		"HTTP/1.1 200 OK\r\nContent-Length: 19\r\n\r\n" + protocol.CanaryBody:              "ok",
		"HTTP/1.1 200 OK\r\n\r\n" + protocol.CanaryBody + "more":                           "another body",
		"HTTP/1.1 200 OK\r\n\r\n":                                                          "another body",
		"HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\n\r\n" + protocol.CanaryBody: "status 403",
		"HTTP/1.0 200 OK\r\n\r\n" + protocol.CanaryBody:                                    "not HTTP",
		"HTTP/1.1 2000 OK\r\n\r\n" + protocol.CanaryBody:                                   "not HTTP",
		"HTTP/1.1 200 OK\r\n":                                                              "not HTTP",
		"SSH-2.0-x\r\n":                                                                    "not HTTP",
		"":                                                                                 "closed",
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		asked := make(chan string, 1)
		go func() {
			c, err := l.Accept()
			if err != nil {
				asked <- err.Error()
				return
			}
			defer c.Close()
			buf := make([]byte, 512)
			n, _ := c.Read(buf)
			asked <- string(buf[:n])
			io.WriteString(c, answer)
		}()
		if got := result(askHTTP(l.Addr().String(), "canary.internal")); got != want {
			t.Errorf("%q: %q, want %q", answer, got, want)
		}
		if got := <-asked; got != "GET / HTTP/1.1\r\nHost: canary.internal\r\nConnection: close\r\n\r\n" {
			t.Errorf("it was asked %q", got)
		}
		l.Close()
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if got := result(askHTTP(l.Addr().String(), "canary.internal")); got != "ECONNREFUSED" {
		t.Errorf("nobody there: %q", got)
	}
}
