package egress

import (
	"fmt"
	"strings"

	"github.com/countersign-dev/countersign/policy/contract"
)

// Rules are a contract's network rules, parsed once. They never change; a new
// revision of the contract has new ones. The zero Rules allow nothing.
type Rules struct {
	allow  []contract.NetRule
	parsed []parsedRule
	// Places of the rules that may match a host, in the contract's order: exact
	// by the host, below by what follows a wildcard's first label.
	exact, below map[string][]int
}

type parsedRule struct {
	host     contract.HostPattern
	paths    []contract.PathPattern
	upstream Target // of a gateway
}

// Compile parses the rules of a sealed contract's network. An error means that
// the contract was not sealed.
func Compile(n contract.Network) (*Rules, error) {
	r := &Rules{exact: map[string][]int{}, below: map[string][]int{}}
	if n.Mode != contract.NetworkAllowlist {
		if len(n.Allow) > 0 {
			return nil, fmt.Errorf("compiling network rules: network.allow has rules in mode %q; seal the contract", n.Mode)
		}
		return r, nil
	}
	for i, rule := range n.Allow {
		p, err := parseRule(rule)
		if err != nil {
			return nil, fmt.Errorf("compiling network rules: network.allow[%d]: %v", i, err)
		}
		r.allow, r.parsed = append(r.allow, rule), append(r.parsed, p)
		if base, wildcard := strings.CutPrefix(p.host.String(), "*."); wildcard {
			r.below[base] = append(r.below[base], i)
		} else {
			r.exact[base] = append(r.exact[base], i)
		}
	}
	return r, nil
}

func parseRule(rule contract.NetRule) (parsedRule, error) {
	host, err := contract.ParseHostPattern(rule.Host)
	if err != nil {
		return parsedRule{}, fmt.Errorf("host %v", err)
	}
	p := parsedRule{host: host}
	for _, s := range rule.Paths {
		path, err := contract.ParsePathPattern(s)
		if err != nil {
			return parsedRule{}, fmt.Errorf("path %v", err)
		}
		p.paths = append(p.paths, path)
	}
	switch rule.Mode {
	case contract.RuleOpaque, contract.RuleInspect:
		return p, nil
	case contract.RuleGateway:
		p.upstream, err = parseUpstream(rule.Upstream)
		return p, err
	}
	return parsedRule{}, fmt.Errorf("mode is %q", rule.Mode)
}

func parseUpstream(s string) (Target, error) {
	hostPort, ok := strings.CutPrefix(s, "https://")
	if !ok {
		return Target{}, fmt.Errorf("upstream is %q, want https://HOST:PORT", s)
	}
	host, port, err := contract.ParseHostPort(hostPort)
	if err != nil {
		return Target{}, fmt.Errorf("upstream %v", err)
	}
	if host.Wildcard() {
		return Target{}, fmt.Errorf("upstream is %q, want one host", s)
	}
	return Target{Host: host.String(), Port: port}, nil
}

// Len is the number of rules.
func (r *Rules) Len() int { return len(r.allow) }

// Rule is the contract's own entry at place i.
func (r *Rules) Rule(i int) contract.NetRule { return r.allow[i] }

// Dial is what is dialled for t under rule i: a gateway's upstream, else t.
func (r *Rules) Dial(i int, t Target) Target {
	if r.allow[i].Mode == contract.RuleGateway {
		return r.parsed[i].upstream
	}
	return t
}

// naming returns the places of the rules whose host pattern matches host, a
// name that contract.ParseHost returned: those that name it, then wildcards.
func (r *Rules) naming(host string) [2][]int {
	_, base, _ := strings.Cut(host, ".")
	return [2][]int{r.exact[host], r.below[base]}
}
