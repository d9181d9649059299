package shim

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/runner/shim/protocol"
)

// canaryBound is the longest answer that is read, in bytes.
const canaryBound = 16 << 10

// askHTTP sends GET / to address and wants the canary's answer. It knows no more
// of HTTP/1.1 (RFC 9112) than the canary uses: the body ends with the connection.
func askHTTP(address, host string) error {
	conn, err := net.DialTimeout("tcp", address, attemptBound)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(attemptBound)); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", host); err != nil {
		return err
	}
	answer, err := io.ReadAll(io.LimitReader(conn, canaryBound))
	if err != nil {
		return err
	}
	return judgeCanary(answer)
}

func judgeCanary(answer []byte) error {
	head, body, whole := bytes.Cut(answer, []byte("\r\n\r\n"))
	line, _, _ := strings.Cut(string(head), "\r\n")
	version, rest, _ := strings.Cut(line, " ")
	status, _, _ := strings.Cut(rest, " ")
	switch {
	case len(answer) == 0:
		return errors.New("closed")
	case !whole || version != "HTTP/1.1" || len(status) != 3:
		return errors.New("not HTTP")
	case status != "200":
		return errors.New("status " + status)
	case string(body) != protocol.CanaryBody:
		return errors.New("another body")
	}
	return nil
}
