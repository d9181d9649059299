package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// client is one program that gets something over HTTPS. No one of them is told of
// a proxy.
type client struct {
	name string
	// get prints hello of a host, or what it cloned or installed from there, and
	// fails when it cannot. HOST and PORT stand for where.
	get  string
	want string
	// trust are variables by which it trusts /workspace/ca.pem.
	trust string
}

func clients() []client {
	return []client{
		{"git", `git clone -q https://HOST:PORT/repo.git got && cat got/README && rm -rf got`, "cloned", "GIT_SSL_CAINFO"},
		{"curl", `curl -sS --fail https://HOST:PORT/hello`, "hello from HOST:PORT", "CURL_CA_BUNDLE"},
		{"python", `python3 -c 'import urllib.request as u; print(u.urlopen("https://HOST:PORT/hello").read().decode())'`, "hello from HOST:PORT", "SSL_CERT_FILE"},
		{"node", `node -e 'fetch("https://HOST:PORT/hello").then(async r => console.log(await r.text())).catch(e => { console.error(e.cause || e); process.exit(1) })'`, "hello from HOST:PORT", "NODE_EXTRA_CA_CERTS"},
		{"npm", `mkdir p && cd p && npm install --silent --no-audit --no-fund --fetch-retries 0 --registry https://HOST:PORT/npm/ tiny && node -p 'require("tiny")'; s=$?; cd .. && rm -rf p; exit $s`, "tiny is here", "NPM_CONFIG_CAFILE"},
		{"go", `./fetch https://HOST:PORT/hello`, "hello from HOST:PORT", "SSL_CERT_FILE"},
		{"java", `java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC Fetch.java https://HOST:PORT/hello $JAVA_CA`, "hello from HOST:PORT", ""},
	}
}

func (c client) at(text, host string, port int) string {
	return strings.NewReplacer("HOST", host, "PORT", fmt.Sprint(port)).Replace(text)
}

// clientCheckout is a repository with what the clients need.
func clientCheckout(t *testing.T, o *outside) *checkout {
	t.Helper()
	fetch, err := fetchProgram()
	if err != nil {
		t.Fatal(err)
	}
	return o.checkout(t, map[string]string{"fetch*": fetch, "Fetch.java": readTestdata(t, "Fetch.java")})
}

// TestEgressClients: each client reaches a listed host without a proxy setting,
// through a tunnel and through the run's own authority, and is refused readably
// at one that is not listed.
func TestEgressClients(t *testing.T) {
	needEgressImage(t)
	o := newOutside(t)
	c := clientCheckout(t, o)
	for _, cl := range clients() {
		for _, mode := range []string{"opaque", "inspect"} {
			t.Run(cl.name+"/"+mode, func(t *testing.T) { clientIn(t, o, c, "runc", mode, cl) })
		}
		if slices.Contains(isolations(t), "runsc") { // through both ways once more would only be slower
			t.Run(cl.name+"/runsc", func(t *testing.T) { clientIn(t, o, c, "runsc", "inspect", cl) })
		}
	}
}

func clientIn(t *testing.T, o *outside, c *checkout, isolation, mode string, cl client) {
	env, rule := "", o.inspectRule("listed.example.com", anyRequest)
	if mode == "opaque" {
		rule = o.opaqueRule("listed.example.com", "")
		if env = "    env: {JAVA_CA: ca.pem}\n"; cl.trust != "" {
			env = "    env: {" + cl.trust + ": /workspace/ca.pem}\n"
		}
	}
	script := "(" + cl.at(cl.get, "listed.example.com", o.https) + ") || echo listed: FAILED\n" +
		"(" + cl.at(cl.get, "other.example.com", o.https) + ") && echo other: REACHED\ntrue"
	r := o.sealed(t, c, egressPolicy(env, rule), script, "--isolation", isolation)
	if r.code != 0 || !strings.Contains(r.stderr, cl.at(cl.want, "listed.example.com", o.https)) || strings.Contains(r.stderr, "listed: FAILED") {
		t.Errorf("the listed host was not reached: exit %d (%s)\n%s", r.code, r.outcome.Reason, r.stderr)
	}
	refusal := fmt.Sprintf("countersign: other.example.com:%d is not in this run's contract", o.https)
	if strings.Contains(r.stderr, "other: REACHED") || strings.Contains(r.stderr, "from other.example.com") || !strings.Contains(r.stderr, refusal) {
		t.Errorf("the host that is not listed was not refused with %q:\n%s", refusal, r.stderr)
	}
	if !r.denied(t, "host_not_listed", "other.example.com", o.https) {
		t.Errorf("the ledger has no refusal: %v", r.records(t, "egress.denied"))
	}
	connected := r.records(t, "egress.connected")
	if len(connected) == 0 || connected[0].Data["mode"] != mode || connected[0].Data["address"] != fmt.Sprintf("127.0.0.1:%d", o.https) {
		t.Errorf("the ledger's connections are %v", connected)
	}
	if e := r.outcome.Egress; e.Allowed == 0 || e.Denied == 0 || e.BytesOut == 0 {
		t.Errorf("the outcome counts %+v", e)
	}
	c.verifies(t, r)
}
