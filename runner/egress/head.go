package egress

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/countersign-dev/countersign/policy/contract"
)

// bounds of one head.
type bounds struct {
	bytes  int // of request line and fields, with their line ends
	fields int
}

var headBounds = bounds{bytes: 64 << 10, fields: 256}

// field is one header field: the name in lower case, the value without the
// space around it. A value may hold bytes above 0x7f and no control but a tab.
type field struct{ name, value string }

// head is the head of one HTTP/1 request: sound in syntax, not yet judged.
// Fields are in the order in which they came.
type head struct {
	method string // upper case
	target string // as it came: visible ASCII without '#'
	proto  string // HTTP/1.0 or HTTP/1.1
	fields []field
}

// readHead reads one head of RFC 9112 §2 to §5, in the one spelling that every
// parser reads alike: nothing that the RFC lets a recipient repair is repaired.
// A connection that ends before the first byte is io.EOF; what is refused is a
// *Refused (ClassMalformed, ClassProtocol, ClassBounds); other errors are the
// connection's.
func readHead(r *bufio.Reader, b bounds) (*head, error) {
	left := b.bytes
	line, err := readLine(r, &left)
	if err != nil {
		return nil, err
	}
	h, err := parseRequestLine(line)
	if err != nil {
		return nil, err
	}
	for {
		line, err := readLine(r, &left)
		switch {
		case errors.Is(err, io.EOF):
			return nil, io.ErrUnexpectedEOF
		case err != nil:
			return nil, err
		case line == "":
			return h, nil
		case len(h.fields) == b.fields:
			return nil, &Refused{ClassBounds, fmt.Sprintf("the request has more than %d header fields", b.fields)}
		}
		f, err := parseField(line)
		if err != nil {
			return nil, err
		}
		h.fields = append(h.fields, f)
	}
}

// readLine reads a line that ends in CR LF and takes its bytes from left. It is
// io.EOF only when there was no byte.
func readLine(r *bufio.Reader, left *int) (string, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if *left -= len(part); *left < 0 {
			return "", &Refused{ClassBounds, "the request's head is too large"}
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return checkLine(string(line))
		case errors.Is(err, io.EOF) && len(line) > 0:
			return "", io.ErrUnexpectedEOF
		case !errors.Is(err, bufio.ErrBufferFull):
			return "", err
		}
	}
}

func checkLine(s string) (string, error) {
	s, ok := strings.CutSuffix(s, "\r\n")
	if !ok {
		return "", malformed("a line of the head ends without a carriage return")
	}
	for i := range len(s) {
		if s[i] < ' ' && s[i] != '\t' || s[i] == 0x7f {
			return "", malformed("the head holds the control character 0x%02x", s[i])
		}
	}
	return s, nil
}

// parseRequestLine wants METHOD SP TARGET SP VERSION.
func parseRequestLine(s string) (*head, error) {
	parts := strings.Split(s, " ")
	if len(parts) != 3 {
		return nil, malformed("the request line is not a method, a target and a version")
	}
	h := &head{method: parts[0], target: parts[1], proto: parts[2]}
	if h.method == "PRI" && h.proto == "HTTP/2.0" {
		return nil, &Refused{ClassProtocol, "HTTP/2 is spoken without TLS, which nothing here does"}
	}
	if h.proto != "HTTP/1.1" && h.proto != "HTTP/1.0" {
		return nil, malformed("the version is neither HTTP/1.1 nor HTTP/1.0")
	}
	if h.method != "CONNECT" && h.method != "TRACE" {
		if err := contract.CheckMethod(h.method); err != nil {
			return nil, malformed("the method %v", err)
		}
	}
	if h.target == "" {
		return nil, malformed("the request's target is empty")
	}
	for i := range len(h.target) {
		if b := h.target[i]; b <= ' ' || b > '~' || b == '#' {
			return nil, malformed("the request's target holds the byte 0x%02x", b)
		}
	}
	return h, nil
}

// parseField wants a token, a colon behind it, and a value. A line that begins
// with space would go on with the field before it (obs-fold); a token does not
// begin with space.
func parseField(s string) (field, error) {
	name, value, ok := strings.Cut(s, ":")
	if !ok || !isToken(name) {
		return field{}, malformed("a header field does not begin with a name and a colon")
	}
	return field{strings.ToLower(name), strings.Trim(value, " \t")}, nil
}

// isToken is RFC 9110 §5.6.2.
func isToken(s string) bool {
	for i := range len(s) {
		b := s[i]
		if (b < '0' || b > '9') && (b|0x20 < 'a' || b|0x20 > 'z') && strings.IndexByte("!#$%&'*+-.^_`|~", b) < 0 {
			return false
		}
	}
	return s != ""
}

func malformed(format string, args ...any) *Refused {
	return &Refused{ClassMalformed, fmt.Sprintf(format, args...)}
}

// values are the values of the fields of that name, which is in lower case.
func (h *head) values(name string) []string {
	var out []string
	for _, f := range h.fields {
		if f.name == name {
			out = append(out, f.value)
		}
	}
	return out
}

// tokens are the members of the comma-separated lists in the fields of that
// name, in lower case and without the empty ones (RFC 9110 §5.6.1).
func (h *head) tokens(name string) []string {
	var out []string
	for _, v := range h.values(name) {
		for member := range strings.SplitSeq(v, ",") {
			if member = strings.ToLower(strings.Trim(member, " \t")); member != "" {
				out = append(out, member)
			}
		}
	}
	return out
}
