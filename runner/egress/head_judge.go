package egress

import (
	"strconv"
	"strings"

	"github.com/countersign-dev/countersign/policy/contract"
)

type bodyKind int

const (
	bodyNone bodyKind = iota
	bodyLength
	bodyChunked
)

// maxLength bounds a Content-Length, in bytes, to what no reader overflows at.
const maxLength = 1 << 50

// framing says how the body is delimited (RFC 9112 §6); the length is of
// bodyLength only. It is one Content-Length in plain digits, or one
// Transfer-Encoding that is "chunked" in HTTP/1.1, or neither.
func (h *head) framing() (bodyKind, int64, error) {
	lengths, codings := h.values("content-length"), h.values("transfer-encoding")
	switch {
	case len(codings) > 0 && len(lengths) > 0:
		return 0, 0, malformed("the request has both a Content-Length and a Transfer-Encoding")
	case len(codings) > 1 || len(codings) == 1 && codings[0] != "chunked":
		return 0, 0, malformed("the request has a Transfer-Encoding other than chunked")
	case len(codings) == 1 && h.proto != "HTTP/1.1":
		return 0, 0, malformed("an HTTP/1.0 request has a Transfer-Encoding")
	case len(codings) == 1:
		return bodyChunked, 0, nil
	case len(lengths) > 1:
		return 0, 0, malformed("the request has several Content-Length fields")
	case len(lengths) == 0:
		return bodyNone, 0, nil
	}
	n, ok := plainNumber(lengths[0], maxLength)
	if !ok {
		return 0, 0, malformed("the request's Content-Length is no plain number")
	}
	return bodyLength, n, nil
}

// plainNumber reads decimal digits without sign, space or leading zero.
func plainNumber(s string, limit int64) (int64, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > limit || strconv.FormatInt(n, 10) != s {
		return 0, false
	}
	return n, true
}

// host is the one Host field; the port is 0 when it names none.
func (h *head) host() (string, int, error) {
	hosts := h.values("host")
	if len(hosts) != 1 {
		return "", 0, malformed("the request has %d Host fields, want one", len(hosts))
	}
	return splitHost(hosts[0])
}

// splitHost reads NAME or NAME:PORT; the port is 0 when there is none. With an
// error the name is as it came, for the record.
func splitHost(s string) (string, int, error) {
	raw, portText, hasPort := s, "", false
	if i := strings.LastIndexByte(s, ':'); i >= 0 {
		raw, portText, hasPort = s[:i], s[i+1:], true
	}
	port, ok := plainNumber(portText, 65535)
	name, err := contract.ParseHost(raw)
	switch {
	case err != nil:
		return raw, int(port), &Refused{ClassName, "the name " + err.Error()}
	case hasPort && (!ok || port == 0):
		return name, 0, malformed("the port is not 1 to 65535 in plain digits")
	}
	return name, int(port), nil
}

// authority is the target of a CONNECT, NAME:PORT, which has no body. A Host
// field may be missing (HTTP/1.0 clients leave it out) and is else the same. With
// an error the target is what could be read of it, for the record.
func (h *head) authority() (Target, error) {
	name, port, err := splitHost(h.target)
	t := Target{name, port}
	if err != nil {
		return t, err
	}
	if port == 0 {
		return t, malformed("a CONNECT names no port")
	}
	if kind, length, err := h.framing(); err != nil {
		return t, err
	} else if kind == bodyChunked || length > 0 {
		return t, malformed("a CONNECT has a body")
	}
	if len(h.values("host")) == 0 {
		return t, nil
	}
	return t, h.sameHost(t, t.Port)
}

// sameHost wants the Host field to name t; a field without a port means
// defaultPort.
func (h *head) sameHost(t Target, defaultPort int) error {
	name, port, err := h.host()
	if err != nil {
		return err
	}
	if port == 0 {
		port = defaultPort
	}
	if (Target{name, port}) != t {
		return &Refused{ClassMismatch, "the request's Host is another name or port than what it is sent to"}
	}
	return nil
}

// absolute splits a target in absolute form, http://NAME[:PORT][/PATH][?QUERY]
// (RFC 9112 §3.2.2); origin begins with a slash. The Host field must be the
// same. With an error the target is what could be read of it.
func (h *head) absolute() (t Target, origin string, err error) {
	rest, ok := strings.CutPrefix(h.target, "http://")
	if !ok {
		return t, "", &Refused{ClassProtocol, "a request to the proxy names something other than http://NAME; TLS goes through CONNECT"}
	}
	end := strings.IndexAny(rest, "/?")
	if end < 0 {
		end = len(rest)
	}
	name, port, err := splitHost(rest[:end])
	if port == 0 {
		port = 80
	}
	t = Target{name, port}
	if err != nil {
		return t, "", err
	}
	origin = rest[end:]
	if !strings.HasPrefix(origin, "/") {
		origin = "/" + origin
	}
	return t, origin, h.sameHost(t, 80)
}
