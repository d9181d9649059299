package egress

import (
	"bufio"
	"net"
	"strings"

	"github.com/countersign-dev/countersign/policy/contract"
)

// serveHTTP reads HTTP/1 requests of a flow until the connection ends; scheme
// is what is spoken to the upstream.
func (f *flow) serveHTTP(r *bufio.Reader, w net.Conn, scheme string) error {
	o := f.newOrigin(scheme, false)
	defer o.close()
	s := newSession(f.proxy, f.ctx, w, r)
	s.target = f.target
	s.route = func(h *head) (*origin, string, error) {
		target, err := f.requestTarget(h)
		return o, target, err
	}
	s.serve(nil)
	return nil
}

// upstream is what is dialled for the flow's target.
func (f *flow) upstream() Target {
	if f.entry.Mode != contract.RuleGateway {
		return f.target
	}
	t, err := parseUpstream(f.entry.Upstream)
	if err != nil {
		// A sealed contract has none such; the zero target resolves to nothing.
		return Target{}
	}
	return t
}

// requestTarget is the target of a request in origin form. Every request names
// the host that the connection was made to.
func (f *flow) requestTarget(h *head) (string, error) {
	if strings.HasPrefix(h.target, "/") {
		hosts := h.values("host")
		if len(hosts) != 1 {
			return "", malformed("the request has %d Host fields, want one", len(hosts))
		}
		return h.target, f.sameName(hosts[0])
	}
	t, origin, err := h.absolute()
	if err == nil && t != f.target {
		err = mismatch(t.String())
	}
	return origin, err
}

// sameName wants a Host field, or :authority, to name the target. The port may
// be missing: no connection is made by it.
func (f *flow) sameName(authority string) error {
	name, port, err := splitHost(authority)
	if err == nil && (name != f.target.Host || port != 0 && port != f.target.Port) {
		err = mismatch(authority)
	}
	return err
}

func mismatch(said string) *Refused {
	return &Refused{ClassMismatch, "a request on its connection is for " + said}
}

// splitTarget reads a target in origin form. What begins with two slashes is
// another host to some parsers (RFC 3986 §4.2), so it is refused in every mode.
func (f *flow) splitTarget(target string) (path, query string, err error) {
	if !strings.HasPrefix(target, "/") || strings.HasPrefix(target, "//") {
		return "", "", malformed("the path does not begin with one slash")
	}
	if f.entry.Mode == contract.RuleOpaque {
		path, query, has := strings.Cut(target, "?")
		if has {
			query = "?" + query
		}
		return path, query, nil
	}
	path, query, err = NormalTarget(target)
	if err != nil {
		return "", "", malformed("%v", err)
	}
	return path, query, nil
}
