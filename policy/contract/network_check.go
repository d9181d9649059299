package contract

import (
	"slices"
	"strconv"
	"strings"
)

// What is enforced of a network rule.
const (
	CoverageEnforced = "enforced"        // requests are read
	CoverageTunnel   = "name-port-bytes" // a tunnel's inside is not seen
)

const maxUpload = 1 << 40 // bytes

func (d Contract) checkNetwork(c *checker) {
	c.oneOf("network.mode", d.Network.Mode, NetworkNone, NetworkAllowlist)
	if d.Network.Mode == NetworkNone && len(d.Network.Allow) > 0 {
		c.addf("network.allow", "has %d rules in mode none; use mode allowlist", len(d.Network.Allow))
	}
	if !c.few("network.allow", len(d.Network.Allow)) {
		return
	}
	injectable := make(map[string]bool)
	for _, s := range d.SecretRefs {
		injectable[s.Name] = s.Deliver == DeliverInject
	}
	for i, r := range d.Network.Allow {
		at := index("network.allow", i)
		checkRule(c, at, r)
		checkGrant(c, at+".grant", r.Grant)
		if r.Inject != nil && !injectable[r.Inject.Secret] {
			c.addf(at+".inject.secret", "is %s, which secret_refs does not name with deliver inject", quote(r.Inject.Secret))
		}
		for _, earlier := range d.Network.Allow[:i] {
			checkPair(c, at, earlier, r)
		}
	}
}

// checkPair judges two rules for one host and port: the connection is set up
// before a request is known, so everything that setting up needs must agree,
// and of two tunnels one would do nothing.
func checkPair(c *checker, at string, a, b NetRule) {
	if a.Host != b.Host || a.Port != b.Port {
		return
	}
	sameInject := a.Inject == nil && b.Inject == nil || a.Inject != nil && b.Inject != nil && *a.Inject == *b.Inject
	agree := a.Mode == b.Mode && a.Upstream == b.Upstream && a.API == b.API && a.Private == b.Private && sameInject
	switch {
	case a.Mode == RuleOpaque && b.Mode == RuleOpaque:
		c.addf(at, "is a second rule for the tunnel to %s; remove one", ruleName(b))
	case !agree:
		c.addf(at, "is a second rule for %s with another mode, upstream, api, private or inject", ruleName(b))
	case sameRequests(a, b):
		c.addf(at, "is a second rule for %s with the same methods and paths; remove one", ruleName(b))
	}
}

func sameRequests(a, b NetRule) bool {
	return slices.Equal(a.Methods, b.Methods) && slices.Equal(a.Paths, b.Paths)
}

func ruleName(r NetRule) string { return r.Host + ":" + strconv.Itoa(r.Port) }

func checkRule(c *checker, at string, r NetRule) {
	c.is(at+".host", checkHostPattern(r.Host))
	c.within(at+".port", int64(r.Port), 1, 65535)
	c.oneOf(at+".mode", r.Mode, RuleOpaque, RuleGateway, RuleInspect)
	c.within(at+".upload_bytes", r.UploadBytes, 1, maxUpload)
	c.within(at+".hold_sec", int64(r.HoldSec), 0, 3600)
	c.each(at+".methods", r.Methods, CheckMethod)
	c.each(at+".paths", r.Paths, checkPathPattern)
	c.each(at+".deny_body", r.DenyBody, func(s string) error { return filled(s, 1024) })
	c.optional(at+".api", r.API, CheckName)
	checkInject(c, at+".inject", r.Inject)
	switch r.Mode {
	case RuleOpaque:
		checkTunnel(c, at, r)
	case RuleGateway:
		checkGateway(c, at, r)
		checkRequests(c, at, r)
	case RuleInspect:
		if r.Upstream != "" {
			c.addf(at+".upstream", "is %s; only a gateway has an upstream", quote(r.Upstream))
		}
		checkRequests(c, at, r)
	}
}

// checkTunnel refuses rules about requests where none is seen: written down
// they would look enforced.
func checkTunnel(c *checker, at string, r NetRule) {
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"upstream", r.Upstream != ""}, {"api", r.API != ""}, {"methods", len(r.Methods) > 0}, {"paths", len(r.Paths) > 0},
		{"inject", r.Inject != nil}, {"websocket", r.WebSocket}, {"deny_body", len(r.DenyBody) > 0},
	} {
		if f.set {
			c.addf(member(at, f.name), "cannot be enforced in an opaque tunnel; use mode gateway or inspect")
		}
	}
	c.oneOf(at+".coverage", r.Coverage, CoverageTunnel)
}

// checkGateway wants a name that is never delegated in the public name system:
// .internal is reserved for private use (ICANN Board resolution of 29 July 2024).
func checkGateway(c *checker, at string, r NetRule) {
	c.is(at+".upstream", checkUpstream(r.Upstream))
	if !strings.HasSuffix(r.Host, ".internal") || strings.HasPrefix(r.Host, "*") {
		c.addf(at+".host", "is %s; a gateway has one name under .internal", quote(r.Host))
	}
}

func checkRequests(c *checker, at string, r NetRule) {
	if len(r.Methods) == 0 {
		c.addf(at+".methods", "is empty, which allows no request; name the methods")
	}
	if len(r.Paths) == 0 {
		c.addf(at+".paths", "is empty, which allows no request; name the paths, /** for all")
	}
	c.oneOf(at+".coverage", r.Coverage, CoverageEnforced)
}

// InjectHeader is the one place where a credential can be injected.
const InjectHeader = "header"

func checkInject(c *checker, at string, i *Inject) {
	if i == nil {
		return
	}
	c.is(at+".secret", CheckName(i.Secret))
	c.oneOf(at+".as", i.As, InjectHeader)
	c.is(at+".name", checkHeaderName(i.Name))
}
