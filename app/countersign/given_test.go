package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/policy/contract"
)

func TestGiven(t *testing.T) {
	rule := contract.NetRule{Host: "a.example.com", Port: 443, Mode: contract.RuleOpaque}
	private := contract.NetRule{Host: "lan.example.com", Port: 80, Mode: contract.RuleInspect, Private: true}
	gateway := contract.NetRule{Host: "model.internal", Port: 80, Mode: contract.RuleGateway, Upstream: "https://api.example.com:443"}
	secret := contract.SecretRef{Name: "k", Deliver: contract.DeliverInject}
	network := func(rules ...contract.NetRule) contract.Network { return contract.Network{Allow: rules} }
	for name, c := range map[string]struct {
		in   contract.Contract
		want []string
	}{
		"nothing":    {contract.Contract{}, nil},
		"one host":   {contract.Contract{Network: network(rule)}, []string{"may reach a.example.com:443 (opaque)"}},
		"each kind":  {contract.Contract{Network: network(private, gateway)}, []string{"may reach lan.example.com:80 (inspect, private), model.internal:80 → https://api.example.com:443 (gateway)"}},
		"a secret":   {contract.Contract{SecretRefs: []contract.SecretRef{secret}}, []string{"holds the secrets k (inject)"}},
		"both":       {contract.Contract{Network: network(rule), SecretRefs: []contract.SecretRef{secret}}, []string{"may reach a.example.com:443 (opaque)", "holds the secrets k (inject)"}},
		"very many":  {contract.Contract{Network: network(slices.Repeat([]contract.NetRule{rule}, 10)...)}, []string{"may reach " + strings.Repeat("a.example.com:443 (opaque), ", 8) + "2 more"}},
		"just eight": {contract.Contract{Network: network(slices.Repeat([]contract.NetRule{rule}, 8)...)}, []string{"may reach " + strings.Repeat("a.example.com:443 (opaque), ", 7) + "a.example.com:443 (opaque)"}},
	} {
		if got := given(c.in); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
