package egress

import "bufio"

// bounds of one head.
type bounds struct {
	bytes  int // of request line and fields, with their line ends
	fields int
}

var headBounds = bounds{bytes: 64 << 10, fields: 256}

// field is one header field: the name in lower case, the value without the
// space around it.
type field struct{ name, value string }

// head is the head of one HTTP/1 request, syntactically sound and not yet
// judged. Fields are in the order in which they came.
type head struct {
	method string // upper case
	target string // as it came: visible ASCII without '#'
	proto  string // HTTP/1.0 or HTTP/1.1
	fields []field
}

type bodyKind int

const (
	bodyNone bodyKind = iota
	bodyLength
	bodyChunked
)

// readHead reads one head. A connection that ends before the first byte is
// io.EOF; what parsers could read in two ways is a *Refused (ClassMalformed,
// ClassProtocol, ClassBounds).
func readHead(r *bufio.Reader, b bounds) (*head, error) {
	return nil, &Refused{ClassMalformed, "is not built yet"}
}

// values are the values of the fields of that name, which is in lower case.
func (h *head) values(name string) []string { return nil }

// framing says how the body is delimited; the length is of bodyLength only.
func (h *head) framing() (bodyKind, int64, error) { return bodyNone, 0, nil }

// host is the one Host field; the port is 0 when it names none.
func (h *head) host() (string, int, error) { return "", 0, nil }

// authority is the target of a CONNECT; a Host field must be the same.
func (h *head) authority() (Target, error) { return Target{}, nil }

// absolute splits a target in absolute form (http://host[:port]/path?query);
// origin begins with a slash. A Host field must be the same.
func (h *head) absolute() (t Target, origin string, err error) { return Target{}, "", nil }
