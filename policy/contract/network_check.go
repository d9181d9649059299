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

// CanaryHost is the name that a run's proxy answers itself, so that a check from
// inside can tell that the way out works. No rule may name it.
const CanaryHost = "canary.internal"

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
		at := c.element("network.allow", i)
		checkRule(at, r)
		checkGrant(at, r.Grant)
		if r.Inject != nil && !injectable[r.Inject.Secret] {
			at.addf("inject.secret", "is %s, which secret_refs does not name with deliver inject", quote(r.Inject.Secret))
		}
		for _, earlier := range d.Network.Allow[:i] {
			checkPair(at, earlier, r)
		}
	}
}

// checkPair judges two rules for one host and port: the connection is set up
// before a request is known, so everything that setting up needs must agree,
// and of two tunnels one would do nothing.
func checkPair(c *checker, a, b NetRule) {
	if a.Host != b.Host || a.Port != b.Port {
		return
	}
	sameInject := a.Inject == nil && b.Inject == nil || a.Inject != nil && b.Inject != nil && *a.Inject == *b.Inject
	agree := a.Mode == b.Mode && a.Upstream == b.Upstream && a.API == b.API && a.Private == b.Private && sameInject
	switch {
	case a.Mode == RuleOpaque && b.Mode == RuleOpaque:
		c.addf("", "is a second rule for the tunnel to %s; remove one", ruleName(b))
	case !agree:
		c.addf("", "is a second rule for %s with another mode, upstream, api, private or inject", ruleName(b))
	case sameRequests(a, b):
		c.addf("", "is a second rule for %s with the same methods and paths; remove one", ruleName(b))
	}
}

func sameRequests(a, b NetRule) bool {
	return slices.Equal(a.Methods, b.Methods) && slices.Equal(a.Paths, b.Paths)
}

func ruleName(r NetRule) string { return r.Host + ":" + strconv.Itoa(r.Port) }

func checkRule(c *checker, r NetRule) {
	c.is("host", checkHostPattern(r.Host))
	if r.Host == CanaryHost {
		c.addf("host", "is %s, which the proxy answers itself; choose another name", quote(r.Host))
	}
	c.within("port", int64(r.Port), 1, 65535)
	c.oneOf("mode", r.Mode, RuleOpaque, RuleGateway, RuleInspect)
	c.within("upload_bytes", r.UploadBytes, 1, maxUpload)
	c.within("hold_sec", int64(r.HoldSec), 0, 3600)
	c.each("methods", r.Methods, CheckMethod)
	c.each("paths", r.Paths, checkPathPattern)
	c.each("deny_body", r.DenyBody, func(s string) error { return filled(s, 1024) })
	c.optional("api", r.API, CheckName)
	checkInject(c, r.Inject)
	switch r.Mode {
	case RuleOpaque:
		checkTunnel(c, r)
	case RuleGateway:
		checkGateway(c, r)
		checkRequests(c, r)
	case RuleInspect:
		if r.Upstream != "" {
			c.addf("upstream", "is %s; only a gateway has an upstream", quote(r.Upstream))
		}
		checkRequests(c, r)
	}
}

// checkTunnel refuses rules about requests where none is seen: written down
// they would look enforced.
func checkTunnel(c *checker, r NetRule) {
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"upstream", r.Upstream != ""}, {"api", r.API != ""}, {"methods", len(r.Methods) > 0}, {"paths", len(r.Paths) > 0},
		{"inject", r.Inject != nil}, {"websocket", r.WebSocket}, {"deny_body", len(r.DenyBody) > 0},
	} {
		if f.set {
			c.addf(f.name, "cannot be enforced in an opaque tunnel; use mode gateway or inspect")
		}
	}
	c.oneOf("coverage", r.Coverage, CoverageTunnel)
}

// checkGateway wants a name that is never delegated in the public name system:
// .internal is reserved for private use (ICANN Board resolution of 29 July 2024).
func checkGateway(c *checker, r NetRule) {
	c.is("upstream", checkUpstream(r.Upstream))
	if !strings.HasSuffix(r.Host, ".internal") || strings.HasPrefix(r.Host, "*") {
		c.addf("host", "is %s; a gateway has one name under .internal", quote(r.Host))
	}
}

func checkRequests(c *checker, r NetRule) {
	if len(r.Methods) == 0 {
		c.addf("methods", "is empty, which allows no request; name the methods")
	}
	if len(r.Paths) == 0 {
		c.addf("paths", "is empty, which allows no request; name the paths, /** for all")
	}
	c.oneOf("coverage", r.Coverage, CoverageEnforced)
}
