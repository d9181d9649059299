package egress

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"unicode/utf8"
)

const maxPath = 8192 // bytes

// encodedSlash stays encoded in a normal path: package registries and forges
// put names with a slash into one segment. See allowsPath.
const encodedSlash = "%2F"

// NormalTarget splits an origin-form request target (RFC 9112 §3.2.1) into its
// path in normal form and the rest: "" or "?" with the query, visible ASCII
// without '#', as it was sent. What is decided is path; what is forwarded is
// path+rest.
func NormalTarget(raw string) (path, rest string, err error) {
	before, query, hasQuery := strings.Cut(raw, "?")
	if path, err = NormalPath(before); err != nil || !hasQuery {
		return path, "", err
	}
	for i := range len(query) {
		if b := query[i]; b <= ' ' || b >= 0x7f || b == '#' {
			return "", "", fmt.Errorf("the query holds the byte %#02x; send it percent-encoded", b)
		}
	}
	return path, "?" + query, nil
}

// NormalPath returns the one normal form of a path (RFC 3986 §6.2.2), or says
// why it has none: encoded unreserved characters are decoded, other encodings
// are in upper case, an empty path is "/". Nothing is removed. What servers read
// in more than one way is refused: empty and dot segments, also between encoded
// slashes or before parameters, encodings of an encoding, backslashes, control
// characters, and bytes that are not UTF-8.
func NormalPath(raw string) (string, error) {
	switch {
	case raw == "":
		return "/", nil
	case len(raw) > maxPath:
		return "", fmt.Errorf("the path has %d bytes, the bound is %d", len(raw), maxPath)
	case raw[0] != '/':
		return "", errors.New("the path does not start with a slash")
	}
	path, err := normalEscapes(raw)
	if err != nil {
		return "", err
	}
	if decoded, err := url.PathUnescape(path); err != nil || !utf8.ValidString(decoded) {
		return "", errors.New("the path is not UTF-8 when decoded")
	}
	if err := checkSegments(path); err != nil {
		return "", err
	}
	return path, nil
}

func normalEscapes(raw string) (string, error) {
	var b strings.Builder
	b.Grow(len(raw))
	for i := 0; i < len(raw); i++ {
		c := raw[i]
		switch {
		case c == '/' || isPchar(c):
			b.WriteByte(c)
		case c == '%':
			if len(raw)-i < 3 || !isHex(raw[i+1]) || !isHex(raw[i+2]) {
				return "", errors.New("the path holds a percent sign without two hexadecimal digits")
			}
			if err := writeEscape(&b, unhex(raw[i+1])<<4|unhex(raw[i+2])); err != nil {
				return "", err
			}
			i += 2
		default:
			return "", fmt.Errorf("the path holds the byte %#02x; send it percent-encoded", c)
		}
	}
	return b.String(), nil
}

// writeEscape writes what %XX of the byte c becomes.
func writeEscape(b *strings.Builder, c byte) error {
	switch {
	case c < ' ' || c == 0x7f || c == '\\':
		return fmt.Errorf("the path holds the encoded byte %#02x, which servers read differently", c)
	case isUnreserved(c):
		b.WriteByte(c)
	default:
		fmt.Fprintf(b, "%%%02X", c)
	}
	return nil
}

// checkSegments wants a path whose escapes are normal.
func checkSegments(path string) error {
	for _, after := range strings.Split(path, "%25")[1:] {
		if len(after) >= 2 && isHex(after[0]) && isHex(after[1]) {
			return errors.New("the path is percent-encoded twice")
		}
	}
	segments := strings.Split(strings.ReplaceAll(path, encodedSlash, "/"), "/")[1:]
	for i, s := range segments {
		name, _, _ := strings.Cut(strings.ReplaceAll(s, "%3B", ";"), ";")
		switch {
		case s == "" && i == len(segments)-1: // a slash at the end
		case name == "":
			return errors.New("the path has an empty segment")
		case name == "." || name == "..":
			return errors.New("the path has a dot segment; send the path that is meant")
		}
	}
	return nil
}

// isUnreserved and isPchar are RFC 3986 §2.3 and §3.3.
func isUnreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~", c) >= 0
}

func isPchar(c byte) bool { return isUnreserved(c) || strings.IndexByte("!$&'()*+,;=:@", c) >= 0 }

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

// unhex wants a hexadecimal digit.
func unhex(c byte) byte {
	switch {
	case c <= '9':
		return c - '0'
	case c <= 'F':
		return c - 'A' + 10
	}
	return c - 'a' + 10
}
