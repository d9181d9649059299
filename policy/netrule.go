package policy

import (
	"fmt"
	"strings"

	"github.com/countersign-dev/countersign/policy/contract"
)

// Bytes that a rule lets out when it does not say: a tunnel cannot be read, so
// it gets little; a model's gateway needs room for whole conversations.
const (
	defaultUpload        = 1 << 20
	defaultGatewayUpload = 256 << 20
)

// maxUpload is the most that a contract can say, bytes.
const maxUpload = 1 << 40

// maxHold bounds how long a denied connection may wait for a person, seconds.
const maxHold = 600

// fault is what is wrong with one key of a rule.
type fault struct{ key, msg string }

// build makes the contract's rule from the policy's. secrets are those of the
// profile that the rule is used in.
func (r netRule) build(secrets map[string]secret) (contract.NetRule, []fault) {
	b := ruleBuilder{r: r, out: contract.NetRule{
		Mode: string(r.Mode), API: r.API, Methods: list(r.Methods), Paths: list(r.Paths),
		Private: r.Private, WebSocket: r.WebSocket, DenyBody: list(r.DenyBody), Coverage: contract.CoverageEnforced,
	}}
	if r.Mode == "" {
		b.out.Mode = contract.RuleOpaque
	}
	b.host()
	b.port()
	b.requests()
	b.amounts()
	b.inject(secrets)
	return b.out, b.faults
}

type ruleBuilder struct {
	r      netRule
	out    contract.NetRule
	faults []fault
}

func (b *ruleBuilder) add(key, format string, args ...any) {
	b.faults = append(b.faults, fault{key, key + " " + fmt.Sprintf(format, args...)})
}

func (b *ruleBuilder) host() {
	h, err := contract.ParseHostPattern(b.r.Host)
	if err != nil {
		b.add("host", "%v", err)
	}
	b.out.Host = h.String()
	gateway := b.out.Mode == contract.RuleGateway
	switch {
	case b.out.Host == contract.CanaryHost:
		b.add("host", "%s is the proxy's own, by which a run checks its way out: choose another name", b.out.Host)
	case !gateway && b.r.Upstream != "":
		b.add("upstream", "belongs to mode: gateway")
	case gateway && !strings.HasSuffix(b.out.Host, ".internal"):
		b.add("host", "of a gateway ends in .internal: it is a name inside the sandbox; the real host is the upstream")
	case gateway && h.Wildcard():
		b.add("host", "of a gateway is one name, without a star")
	}
	if gateway {
		up, err := parseUpstream(b.r.Upstream)
		if err != nil {
			b.add("upstream", "%v", err)
		}
		b.out.Upstream = up
	}
}

// parseUpstream adds the port that https has by itself.
func parseUpstream(s string) (string, error) {
	rest, ok := strings.CutPrefix(s, "https://")
	if !ok || s == "" {
		return "", fmt.Errorf("is %q, want https://HOST or https://HOST:PORT", clip(s))
	}
	rest = strings.TrimSuffix(rest, "/")
	if !strings.Contains(rest, ":") {
		rest += ":443"
	}
	h, port, err := contract.ParseHostPort(rest)
	if err != nil {
		return "", err
	}
	if h.Wildcard() {
		return "", fmt.Errorf("is one host, without a star")
	}
	return fmt.Sprintf("https://%s:%d", h, port), nil
}

func (b *ruleBuilder) port() {
	switch {
	case b.r.Port != nil:
		b.out.Port = *b.r.Port
	case b.out.Mode == contract.RuleGateway:
		b.out.Port = 80
	default:
		b.add("port", "is missing: every rule has one, such as port: 443")
		return
	}
	switch p := b.out.Port; {
	case p < 1 || p > 65535:
		b.add("port", "is %d, want 1 to 65535", p)
	case p == 2375 || p == 2376:
		b.add("port", "%d is the container engine's, which no run is ever given", p)
	}
}

func (b *ruleBuilder) requests() {
	if b.out.Mode == contract.RuleOpaque {
		b.out.Coverage = contract.CoverageTunnel
		for key, there := range map[string]bool{"methods": len(b.r.Methods) > 0, "paths": len(b.r.Paths) > 0,
			"websocket": b.r.WebSocket, "deny_body": len(b.r.DenyBody) > 0, "api": b.r.API != ""} {
			if there {
				b.add(key, "cannot be enforced on a tunnel: write mode: gateway or mode: inspect")
			}
		}
		return
	}
	if len(b.r.Methods) == 0 {
		b.add("methods", "are missing, and none means that no request is allowed: write methods: [GET]")
	}
	for _, m := range b.r.Methods {
		if err := contract.CheckMethod(m); err != nil {
			b.add("methods", "%v", err)
		}
	}
	if len(b.r.Paths) == 0 {
		b.add("paths", "are missing, and none means that no request is allowed: write paths: [/**] for all")
	}
	for _, p := range b.r.Paths {
		if _, err := contract.ParsePathPattern(p); err != nil {
			b.add("paths", "%v", err)
		}
	}
	if b.r.API != "" {
		if b.out.Mode != contract.RuleGateway {
			b.add("api", "belongs to mode: gateway")
		} else if err := contract.CheckName(b.r.API); err != nil {
			b.add("api", "%v", err)
		}
	}
	for _, text := range b.r.DenyBody {
		if text == "" {
			b.add("deny_body", "holds an empty text, which every body contains")
		}
	}
}

func (b *ruleBuilder) amounts() {
	b.out.UploadBytes = defaultUpload
	if b.out.Mode == contract.RuleGateway {
		b.out.UploadBytes = defaultGatewayUpload
	}
	if b.r.Upload != nil {
		b.out.UploadBytes = int64(*b.r.Upload)
		if *b.r.Upload < 1 || *b.r.Upload > maxUpload {
			b.add("upload", "is outside 1KiB to 1024GiB; a rule that lets nothing out is better removed")
		}
	}
	if b.r.Hold != nil {
		b.out.HoldSec = int(min(*b.r.Hold, maxHold+1))
		if *b.r.Hold > maxHold {
			b.add("hold", "is longer than %ds, after which clients have given up", maxHold)
		}
	}
}

func (b *ruleBuilder) inject(secrets map[string]secret) {
	name := b.r.Inject
	if name == "" {
		return
	}
	s, ok := secrets[name]
	switch {
	case b.out.Mode == contract.RuleOpaque:
		b.add("inject", "needs mode: gateway or mode: inspect: nothing can be added to a tunnel")
	case !ok:
		b.add("inject", "names the secret %q, which the profile does not have", clip(name))
	case s.Deliver != contract.DeliverInject:
		b.add("inject", "names the secret %q, which is delivered as a file", clip(name))
	default:
		b.out.Inject = &contract.Inject{Secret: name, As: string(s.As), Name: s.Name}
	}
}

// list is never nil: in a contract an empty list is written as [].
func list(in []string) []string { return append([]string{}, in...) }
