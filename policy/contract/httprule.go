package contract

import (
	"fmt"
	"strings"
)

// CheckMethod refuses what is not an HTTP method in upper case. CONNECT and
// TRACE are refused by name: one opens a tunnel inside the request that was
// checked, the other sends injected credentials back.
func CheckMethod(s string) error {
	if s == "CONNECT" || s == "TRACE" {
		return fmt.Errorf("is %s, which no rule can allow", s)
	}
	if s == "" || len(s) > 32 || !isUpper(s[0]) || !only(s, func(b byte) bool { return isUpper(b) || b == '-' }) {
		return fmt.Errorf("is %s, want an HTTP method in upper case", quote(s))
	}
	return nil
}

// PathPattern matches the path of a URL segment by segment: * is one whole
// segment, ** as the last is one or more of them. So /v1/** allows what is below
// /v1/ and not /v1 itself.
type PathPattern struct{ segments []string }

// ParsePathPattern reads a pattern that is in normal form, and refuses every
// other spelling rather than normalising it: no empty, "." or ".." segment, no
// percent-encoding, no byte outside RFC 3986's pchar.
func ParsePathPattern(s string) (PathPattern, error) {
	if len(s) > 1024 {
		return PathPattern{}, fmt.Errorf("is a path of %d bytes, the bound is 1024", len(s))
	}
	rest, ok := strings.CutPrefix(s, "/")
	if !ok {
		return PathPattern{}, fmt.Errorf("is %s, want an absolute path", quote(s))
	}
	segments := strings.Split(rest, "/")
	for i, seg := range segments {
		last := i == len(segments)-1
		if problem := segmentProblem(seg, last); problem != "" {
			return PathPattern{}, fmt.Errorf("is %s; %s", quote(s), problem)
		}
	}
	return PathPattern{segments}, nil
}

func segmentProblem(seg string, last bool) string {
	switch {
	case seg == "" && !last:
		return "a path has no empty segment"
	case seg == "." || seg == "..":
		return "a path has no dot segment"
	case strings.Contains(seg, "%"):
		return "write the path without percent-encoding"
	case seg == "**" && !last:
		return "** can only be last"
	case strings.Contains(seg, "*") && seg != "*" && seg != "**":
		return "a star stands for a whole segment"
	case !only(seg, isPathByte):
		return "a path has only the characters of RFC 3986 pchar"
	}
	return ""
}

func isPathByte(b byte) bool {
	return isAlnum(b) || strings.IndexByte("-._~!$&'()*+,;=:@", b) >= 0
}

// Match says whether the pattern allows p, a path in normal form. The zero
// pattern matches nothing.
func (p PathPattern) Match(s string) bool {
	rest, ok := strings.CutPrefix(s, "/")
	if !ok || p.segments == nil {
		return false
	}
	got := strings.Split(rest, "/")
	for i, want := range p.segments {
		if i >= len(got) {
			return false
		}
		if want == "**" {
			return true
		}
		if got[i] != want && (want != "*" || got[i] == "") {
			return false
		}
	}
	return len(got) == len(p.segments)
}

func checkPathPattern(s string) error {
	_, err := ParsePathPattern(s)
	return err
}

// checkHeaderName refuses what is not a header that the proxy may set: an RFC
// 9110 token, and none that frames the message or names its host.
func checkHeaderName(s string) error {
	token := func(b byte) bool { return isAlnum(b) || strings.IndexByte("!#$%&'*+-.^_`|~", b) >= 0 }
	if s == "" || len(s) > maxName || !only(s, token) {
		return fmt.Errorf("is %s, want a header's name", quote(s))
	}
	switch strings.ToLower(s) {
	case "host", "content-length", "transfer-encoding", "connection", "te", "trailer", "upgrade", "keep-alive", "proxy-connection":
		return fmt.Errorf("is %s, which is the proxy's own to set", quote(s))
	}
	return nil
}
