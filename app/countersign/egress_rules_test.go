package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestEgressAllow: --allow is a tunnel in the contract. It reaches public
// addresses only, and others where the ceiling names the host.
func TestEgressAllow(t *testing.T) {
	needEgressImage(t)
	o := newOutside(t)
	c := o.checkout(t, nil)
	plain := strings.Replace(egressPolicy(""), "    network:\n      allow:\n", "", 1)
	script := "curl -sS --cacert ca.pem " + o.url("listed.example.com", "/hello")
	allow := fmt.Sprintf("listed.example.com:%d", o.https)
	ceiling := filepath.Join(t.TempDir(), "ceiling.yml")
	text := "version: 1\ndefault: m\nprofiles: {m: {network: {allow: any}}}\nprivate: [listed.example.com]\n"
	if err := os.WriteFile(ceiling, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name  string
		flags []string
		reach bool
		said  string // on standard error
	}{
		{"without", nil, false, "Could not resolve host"},
		{"public only", []string{"--allow", allow}, false, allow + " is refused"},
		{"named by the ceiling", []string{"--allow", allow, "--ceiling", ceiling}, true, "hello from " + allow},
		{"in another spelling", []string{"--allow", "LISTED.example.com" + strings.TrimPrefix(allow, "listed.example.com"), "--ceiling", ceiling}, true, "hello from " + allow},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := o.sealed(t, c, plain, script, tt.flags...)
			if (r.code == 0) != tt.reach || !strings.Contains(r.stderr, tt.said) {
				t.Errorf("exit %d (%s), want %q said\n%s", r.code, r.outcome.Reason, tt.said, r.stderr)
			}
			c.verifies(t, r)
		})
	}
}

// TestEgressRedirect: what a listed host redirects to is decided by itself.
func TestEgressRedirect(t *testing.T) {
	needEgressImage(t)
	o := newOutside(t)
	c := o.checkout(t, nil)
	script := fmt.Sprintf("curl -sS -L --cacert ca.pem %s", o.url("listed.example.com", fmt.Sprintf("/to/other.example.com:%d", o.https)))
	r := o.sealed(t, c, egressPolicy("", o.opaqueRule("listed.example.com", "")), script)
	if r.code == 0 || strings.Contains(r.stderr, "hello from") || !r.denied(t, "host_not_listed", "other.example.com", o.https) {
		t.Errorf("exit %d\n%s", r.code, r.stderr)
	}
	c.verifies(t, r)
}

// TestEgressAliases: the chain of aliases and the address that was dialled are in
// the ledger, and a name's address is asked for once a connection.
func TestEgressAliases(t *testing.T) {
	needEgressImage(t)
	o := newOutside(t)
	o.names.say("listed.example.com", answer{aliases: []string{"edge.example.net", "pop.example.org"}, addresses: []string{"127.0.0.1"}})
	c := o.checkout(t, nil)
	r := o.sealed(t, c, egressPolicy("", o.opaqueRule("listed.example.com", "")), "curl -sS --fail --cacert ca.pem "+o.url("listed.example.com", "/hello"))
	if r.code != 0 {
		t.Fatalf("exit %d\n%s", r.code, r.stderr)
	}
	connected := r.records(t, "egress.connected")
	if len(connected) != 1 || fmt.Sprint(connected[0].Data["aliases"]) != "[edge.example.net pop.example.org]" || connected[0].Data["address"] != fmt.Sprintf("127.0.0.1:%d", o.https) {
		t.Errorf("connections: %v", connected)
	}
	if asked := o.names.questions(); !slices.Equal(asked, []string{"listed.example.com"}) {
		t.Errorf("asked outside: %v", asked)
	}
}
