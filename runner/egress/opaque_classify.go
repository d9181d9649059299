package egress

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"time"
)

// protocol is what a client speaks, by its first bytes.
type protocol int

const (
	protocolOther  protocol = iota
	protocolSilent          // it ended its side without a byte
	protocolTLS
	protocolHTTP // or what an HTTP server could take for it
)

// maxFirstLine bounds the first line of what may be HTTP, in bytes: it is
// judged anew with every segment.
const maxFirstLine = 8 << 10

// classify looks at the client's first bytes for as long as they could still
// become HTTP. From the first byte on, the client has 30 seconds; how long it may
// be silent before is the deadline's that the caller set.
func classify(client *peeked) (protocol, error) {
	b, err := client.Peek(1)
	if err != nil {
		if errors.Is(err, io.EOF) {
			return protocolSilent, nil
		}
		return protocolOther, err
	}
	client.SetReadDeadline(time.Now().Add(firstBytes))
	if b[0] == recordHandshake {
		return protocolTLS, nil
	}
	for {
		kind, known := firstLine(client.ahead)
		switch {
		case known || errors.Is(err, io.EOF):
			return kind, nil
		case err != nil:
			return protocolOther, err
		case len(client.ahead) > maxFirstLine:
			return protocolOther, &Refused{ClassBounds, "its first line is longer than 8 KiB"}
		}
		_, err = client.Peek(len(client.ahead) + 1)
	}
}

// firstLine judges the first bytes of a connection; known says that more bytes
// would not change the answer. Lines such as "EHLO name" begin as a request line
// does, so an unknown method is told by the version at the line's end. What
// servers skip in front of a request line (RFC 9112 §2.2) is skipped.
func firstLine(b []byte) (kind protocol, known bool) {
	if old, known := oldHello(b); old || !known {
		return protocolTLS, known
	}
	b = bytes.TrimLeft(b, "\n"+requestSpace)
	line, _, whole := bytes.Cut(b, []byte("\n"))
	method, rest, spaced := string(line), "", false
	if i := strings.IndexAny(method, requestSpace); i >= 0 {
		method, rest, spaced = method[:i], method[i+1:], true
	}
	switch {
	case method != "" && !isToken(method):
		return protocolOther, true
	case !spaced:
		return protocolOther, whole && len(line) > 0
	case isCommonMethod(method), strings.Contains(strings.ToUpper(rest), "HTTP/"):
		return protocolHTTP, true
	}
	return protocolOther, whole
}

// requestSpace is what a lenient server takes for the space behind a method (RFC
// 9112 §3): what it would read as a request is read as one here, and refused.
const requestSpace = " \t\v\f\r"

// isCommonMethod knows the methods of RFC 9110, RFC 5789 and RFC 9113 §3.4 by
// name; they need no version behind them.
func isCommonMethod(s string) bool {
	switch s {
	case "GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "CONNECT", "TRACE", "PRI":
		return true
	}
	return false
}

// oldHello finds a ClientHello in the form of SSL 2 (RFC 5246 appendix E.2),
// which names no server and which some servers still take for TLS.
func oldHello(b []byte) (is, known bool) {
	if len(b) == 0 || b[0] < 0x80 || b[0] >= 0xc0 {
		return false, true
	}
	if len(b) >= 3 && b[2] != handshakeHello {
		return false, true
	}
	return len(b) >= 4 && (b[3] == 3 || b[3] == 0), len(b) >= 4
}
