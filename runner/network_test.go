package runner

import (
	"slices"
	"testing"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/runner/egress"
	"github.com/countersign-dev/countersign/runner/shim/protocol"
)

func TestRulePorts(t *testing.T) {
	n := contract.Network{Allow: []contract.NetRule{{Port: 443}, {Port: 80}, {Port: 443}}}
	if got := rulePorts(n); !slices.Equal(got, []int{80, 443}) {
		t.Errorf("%v", got)
	}
	if got := rulePorts(contract.Network{}); got == nil || len(got) != 0 {
		t.Errorf("%v, want none", got)
	}
}

// What the contract says of a variable stands; only what it does not say is
// added.
func TestWithDefaults(t *testing.T) {
	got := withDefaults([]string{"A=1", "CURL_CA_BUNDLE="}, map[string]string{"SSL_CERT_FILE": "/x", "CURL_CA_BUNDLE": "/y", "A_B": "2"})
	if want := []string{"A=1", "CURL_CA_BUNDLE=", "A_B=2", "SSL_CERT_FILE=/x"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// The canaries of a sandbox with a way out: the proxy's own name must be
// answered and one that no contract has must be refused by the proxy, which is
// how it is seen to be in force.
func TestNamesOfCanaries(t *testing.T) {
	with := sample()
	with.Network.Mode = contract.NetworkAllowlist
	for _, c := range []struct {
		name             string
		c                contract.Contract
		canary, unlisted string // what GET gives, "" when names are only looked up
		resolve          string
		wrong            []string
	}{
		{"none, names fail", sample(), "", "", "EAI_AGAIN", nil},
		{"none, names are answered", sample(), "", "", "ok", []string{"resolve canary.internal", "resolve unlisted.invalid"}},
		{"a way out", with, "ok", "status 403", "ok", nil},
		{"a proxy that lets everything through", with, "ok", "ok", "ok", []string{"http unlisted.invalid"}},
		{"a proxy that is another", with, "another body", "status 403", "ok", []string{"http canary.internal"}},
		{"no proxy", with, "ECONNREFUSED", "ECONNREFUSED", "ok", []string{"http canary.internal", "http unlisted.invalid"}},
		{"nothing tried", with, "", "", "ok", []string{"http canary.internal", "http unlisted.invalid"}},
	} {
		j := &judge{asked: Probe(StageBefore, c.c, Spec{})}
		j.got.Attempts = []protocol.Attempt{
			{Kind: "resolve", Target: egress.CanaryHost, Result: c.resolve}, {Kind: "resolve", Target: egress.UnlistedHost, Result: c.resolve},
		}
		if c.canary != "" {
			j.got.Attempts = append(j.got.Attempts,
				protocol.Attempt{Kind: "http", Target: egress.CanaryHost, Result: c.canary}, protocol.Attempt{Kind: "http", Target: egress.UnlistedHost, Result: c.unlisted})
		}
		for _, n := range j.asked.Names {
			j.name(n)
		}
		var wrong []string
		for _, w := range Wrong(j.canaries) {
			wrong = append(wrong, w.Name)
		}
		if !slices.Equal(wrong, c.wrong) {
			t.Errorf("%s: wrong are %q, want %q", c.name, wrong, c.wrong)
		}
	}
}
