package contract

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"golang.org/x/net/publicsuffix"
)

// Bounds of RFC 1035 §2.3.4, in bytes of the dotted form.
const (
	maxHost  = 253
	maxLabel = 63
)

// ParseHost is the one way a host name is read, in contracts and on the wire:
// it returns the name in lower case, or refuses it. A name is labels of letters,
// digits, hyphen and underscore; everything else is refused before anything is
// matched, and so are empty labels (also a trailing dot), a hyphen at a label's
// edge, and every name whose last label reads as a number: Go's ParseIP says nil
// to 0x7f.1, 127.1 and 2130706433, and a C library dials them. IPv6 literals,
// zones and user information fall to the alphabet.
func ParseHost(s string) (string, error) {
	if s == "" {
		return "", fmt.Errorf("is empty, want a host name")
	}
	if len(s) > maxHost {
		return "", fmt.Errorf("is a host name of %d bytes, the bound is %d", len(s), maxHost)
	}
	// Judged before it is lowered: the Kelvin sign lowers to a plain k.
	for l := range strings.SplitSeq(s, ".") {
		if err := checkLabel(l, s); err != nil {
			return "", err
		}
	}
	labels := strings.Split(strings.ToLower(s), ".")
	if readsAsNumber(labels[len(labels)-1]) {
		return "", fmt.Errorf("is %s, an address in some spelling; name the host instead", quote(s))
	}
	return strings.Join(labels, "."), nil
}

func checkLabel(l, host string) error {
	switch {
	case l == "":
		return fmt.Errorf("is %s, which has an empty label", quote(host))
	case len(l) > maxLabel:
		return fmt.Errorf("is %s, which has a label of %d bytes, the bound is %d", quote(host), len(l), maxLabel)
	case !only(l, func(b byte) bool { return isAlnum(b) || b == '-' || b == '_' }):
		return fmt.Errorf("is %s; a host name has only letters, digits, hyphen, underscore and dot (write other scripts as xn--)", quote(host))
	case l[0] == '-' || l[len(l)-1] == '-':
		return fmt.Errorf("is %s, which has a label with a hyphen at its edge", quote(host))
	}
	return nil
}

// readsAsNumber follows the URL standard's "ends in a number": digits alone,
// or 0x with hexadecimal digits or nothing after it.
func readsAsNumber(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return only(hex, isLowerHex)
	}
	return only(label, isDigit)
}

// HostPattern matches host names: one name, or, written *.example.com, the
// names that are exactly one label longer.
type HostPattern struct {
	name     string
	wildcard bool
}

// ParseHostPattern reads a pattern in any case. The star stands for one whole
// label, only in front, and never for the owners of a public suffix: *.com,
// *.co.uk and *.github.io would allow hosts of people unknown, and so would a
// pattern below which every name is a public suffix itself.
func ParseHostPattern(s string) (HostPattern, error) {
	base, wildcard := strings.CutPrefix(s, "*.")
	name, err := ParseHost(base)
	if err != nil {
		if strings.Contains(base, "*") {
			return HostPattern{}, fmt.Errorf("is %s; a star stands for the whole first label and nowhere else", quote(s))
		}
		return HostPattern{}, err
	}
	if wildcard && coversOwners(name) {
		return HostPattern{}, fmt.Errorf("is %s, which covers a public suffix; name a domain of one owner", quote(s))
	}
	return HostPattern{name, wildcard}, nil
}

func coversOwners(base string) bool {
	suffix, _ := publicsuffix.PublicSuffix(base)
	below := "any-label." + base
	suffixBelow, _ := publicsuffix.PublicSuffix(below)
	return suffix == base || suffixBelow == below
}

// Match says whether the pattern allows host, a name that [ParseHost] returned.
// The zero pattern matches nothing.
func (p HostPattern) Match(host string) bool {
	if !p.wildcard {
		return p.name != "" && host == p.name
	}
	label, rest, ok := strings.Cut(host, ".")
	return ok && label != "" && rest == p.name
}

// String is the pattern's one spelling.
func (p HostPattern) String() string {
	if p.wildcard {
		return "*." + p.name
	}
	return p.name
}

// Wildcard says whether the pattern starts with a star.
func (p HostPattern) Wildcard() bool { return p.wildcard }

// ParseHostPort reads HOST:PORT with HOST a pattern. The port has no default,
// no sign and no leading zero.
func ParseHostPort(s string) (HostPattern, int, error) {
	host, portText, ok := strings.Cut(s, ":")
	if !ok {
		return HostPattern{}, 0, fmt.Errorf("is %s, want HOST:PORT", quote(s))
	}
	p, err := ParseHostPattern(host)
	if err != nil {
		return HostPattern{}, 0, err
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil || port == 0 || strconv.FormatUint(port, 10) != portText {
		return HostPattern{}, 0, fmt.Errorf("has the port %s, want 1 to 65535", quote(portText))
	}
	return p, int(port), nil
}

func checkHostPort(s string) error {
	p, port, err := ParseHostPort(s)
	if err != nil {
		return err
	}
	if want := net.JoinHostPort(p.String(), strconv.Itoa(port)); s != want {
		return fmt.Errorf("is %s, write %s", quote(s), want)
	}
	return nil
}

func checkHostPattern(s string) error {
	p, err := ParseHostPattern(s)
	if err != nil {
		return err
	}
	if p.String() != s {
		return fmt.Errorf("is %s, write %s", quote(s), p)
	}
	return nil
}

// checkUpstream wants https://host:port and nothing behind it.
func checkUpstream(s string) error {
	rest, ok := strings.CutPrefix(s, "https://")
	if !ok {
		return fmt.Errorf("is %s, want https://HOST:PORT", quote(s))
	}
	if strings.Contains(rest, "*") {
		return fmt.Errorf("is %s; an upstream is one host", quote(s))
	}
	return checkHostPort(rest)
}
