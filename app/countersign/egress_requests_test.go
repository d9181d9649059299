package main

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/policy/contract"
)

// TestEgressInjects: a credential is added outside, in each of its forms; what
// the workload sends in its place does not arrive; an answer that repeats it is
// masked; nothing of the run shows it.
func TestEgressInjects(t *testing.T) {
	needEgressImage(t)
	const password = "hidden/pass+word=42"
	const value = "user:" + password
	o := newOutside(t)
	for _, tt := range []struct {
		as, header, want string
	}{
		{"as: header, name: X-Api-Key", "X-Api-Key", value},
		{"as: bearer", "Authorization", "Bearer " + value},
		{"as: basic", "Authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte(value))},
	} {
		for _, mode := range []string{"gateway", "inspect"} {
			t.Run(tt.as+"/"+mode, func(t *testing.T) {
				c := o.checkout(t, nil)
				c.env = append(c.env, "COUNTERSIGN_TEST_SECRET="+value)
				rule, url := o.gatewayRule("model.internal", "api.example.com", anyRequest+", inject: k"), "http://model.internal/echo"
				if mode == "inspect" {
					rule, url = o.inspectRule("api.example.com", anyRequest+", inject: k"), o.url("api.example.com", "/echo")
				}
				keys := "    secrets: {k: {ref: 'env://COUNTERSIGN_TEST_SECRET', deliver: inject, " + tt.as + "}}\n"
				before := len(o.requests())
				r := o.sealed(t, c, egressPolicy(keys, rule), "curl -sS --fail -H '"+tt.header+": mine' -H 'Cookie: mine' "+url+"; ls /run/secret 2>&1; env")
				got := o.requests()[before:]
				if len(got) != 1 || !slices.Equal(got[0].Header.Values(tt.header), []string{tt.want}) || got[0].Header.Get("Cookie") != "" {
					t.Fatalf("exit %d; %d requests arrived with %v\n%s", r.code, len(got), got, r.stderr)
				}
				if got[0].Host != fmt.Sprintf("api.example.com:%d", o.https) {
					t.Errorf("the request was for %s", got[0].Host)
				}
				if !strings.Contains(r.stderr, tt.header+": ") {
					t.Errorf("the echo did not come back:\n%s", r.stderr)
				}
				secrets := []string{value}
				if tt.as == "as: basic" {
					secrets = append(secrets, password)
				}
				for _, secret := range secrets {
					for _, s := range spellings(secret) {
						if strings.Contains(r.stdout+r.stderr, s) {
							t.Errorf("the output shows the secret as %q", s)
						}
					}
					c.holdsNone(t, r, secret)
				}
				c.verifies(t, r)
			})
		}
	}
}

// holdsNone looks through a run's evidence for a secret.
func (c *checkout) holdsNone(t *testing.T, r result, value string) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(r.outcome.Evidence), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text := r.file(t, name)
		for _, s := range spellings(value) {
			if strings.Contains(text, s) {
				t.Errorf("%s of the evidence holds a secret as %q", name, s)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestEgressRequests: where requests are read, each is decided by method and
// path, on one connection, and its body may not hold a secret of the run.
func TestEgressRequests(t *testing.T) {
	needEgressImage(t)
	o := newOutside(t)
	c := o.checkout(t, nil)
	c.env = append(c.env, "COUNTERSIGN_TEST_SECRET=secret-of-the-run")
	keys := "    secrets: {k: {ref: 'env://COUNTERSIGN_TEST_SECRET', deliver: file}}\n"
	rule := o.inspectRule("listed.example.com", ", methods: [GET, POST], paths: [/hello, /take/**], deny_body: [forbidden-words]")
	base := o.url("listed.example.com", "")
	r := o.sealed(t, c, egressPolicy(keys, rule), strings.ReplaceAll(`
say() { name=$1; shift; echo "$name: $(curl -sS -o /dev/null -w '%{http_code}' --path-as-is "$@")"; }
say listed BASE/hello
say method BASE/hello -X DELETE
say path BASE/echo
say dots BASE/take/../echo
say encoded BASE/take/%2e%2e/echo
say slash BASE/take/..%2fecho
say double BASE//echo
say body BASE/take/a -d "nothing of it"
say forbidden BASE/take/a -d "has forbidden-words in it"
say secret BASE/take/a -d "$(cat /run/secret/k)"
say secret64 BASE/take/a -d "$(base64 /run/secret/k)"
say query "BASE/take/a?q=$(cat /run/secret/k)"
curl -sS -o /dev/null -o /dev/null BASE/hello BASE/hello
`, "BASE", base))
	for _, want := range []string{"listed: 200", "method: 403", "path: 403", "body: 200", "forbidden: 403", "secret: 403", "secret64: 403", "query: 403"} {
		if !strings.Contains(r.stderr, want+"\n") {
			t.Errorf("want %q", want)
		}
	}
	for _, name := range []string{"dots", "encoded", "slash", "double"} {
		if !strings.Contains(r.stderr, name+": 40") {
			t.Errorf("want %s refused", name)
		}
	}
	for _, req := range o.requests() {
		if req.Path != "/hello" && !strings.HasPrefix(req.Path, "/take/") || strings.Contains(req.Path, "..") {
			t.Errorf("a request arrived: %s %s", req.Method, req.Path)
		}
	}
	for _, class := range []string{"method_not_listed", "path_not_listed", "body_refused"} {
		if !r.denied(t, class, "listed.example.com", o.https) {
			t.Errorf("the ledger has no %s: %s", class, deniedText(t, r))
		}
	}
	c.holdsNone(t, r, "secret-of-the-run")
	c.verifies(t, r)
	if t.Failed() {
		t.Log(r.stderr)
	}
}

// TestEgressTwoRuns: two runs at once share no rule, socket, authority or
// credential.
func TestEgressTwoRuns(t *testing.T) {
	needEgressImage(t)
	o := newOutside(t)
	start := func(host, secret string) (*checkout, *exec.Cmd, *bufio.Scanner) {
		c := o.checkout(t, nil)
		c.env = append(c.env, "COUNTERSIGN_TEST_SECRET="+secret)
		keys := "    secrets: {k: {ref: 'env://COUNTERSIGN_TEST_SECRET', deliver: inject, as: bearer}}\n"
		policy := egressPolicy(keys, o.inspectRule(host, anyRequest+", inject: k"))
		script := fmt.Sprintf(`curl -sS -o /dev/null %s && echo own: reached
curl -sS -o /dev/null %s && echo first: reached
curl -sS -o /dev/null %s && echo second: reached
echo authority: $(cat "$SSL_CERT_FILE" | sha256sum)
echo sockets: $(ls /run/countersign)
echo ready; exec sleep 1000`, o.url(host, "/hello"), o.url("first.example.com", "/hello"), o.url("second.example.com", "/hello"))
		args := append(append([]string{"run", "--json"}, policyFile(t, policy)...), "--resolver", o.names.addr, "--", "/bin/sh", "-c", script)
		cmd := c.command(args...)
		cmd.Env = c.env
		stderr, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return c, cmd, bufio.NewScanner(stderr)
	}
	finish := func(cmd *exec.Cmd, lines *bufio.Scanner) {
		cmd.Process.Signal(os.Interrupt)
		for lines.Scan() {
		}
		if cmd.Wait(); cmd.ProcessState.ExitCode() != contract.ExitCancelled {
			t.Errorf("a run ended with %d", cmd.ProcessState.ExitCode())
		}
	}
	until := func(lines *bufio.Scanner) []string {
		var said []string
		for lines.Scan() && lines.Text() != "ready" {
			said = append(said, lines.Text())
		}
		return said
	}
	_, one, linesOne := start("first.example.com", "secret-of-the-first")
	defer finish(one, linesOne)
	saidOne := until(linesOne)
	_, two, linesTwo := start("second.example.com", "secret-of-the-second")
	defer finish(two, linesTwo)
	saidTwo := until(linesTwo) // while the first is alive
	value := func(said []string, name string) string {
		for _, line := range said {
			if v, ok := strings.CutPrefix(line, name+": "); ok {
				return v
			}
		}
		return ""
	}
	if value(saidOne, "own") != "reached" || value(saidOne, "first") != "reached" || value(saidOne, "second") != "" ||
		value(saidTwo, "own") != "reached" || value(saidTwo, "second") != "reached" || value(saidTwo, "first") != "" {
		t.Errorf("the first said %q, the second %q", saidOne, saidTwo)
	}
	if a, b := value(saidOne, "authority"), value(saidTwo, "authority"); a == "" || a == b {
		t.Errorf("the authorities are %q and %q", a, b)
	}
	if value(saidTwo, "sockets") != "egress.sock" {
		t.Errorf("the second sees the sockets %q", value(saidTwo, "sockets"))
	}
	for _, req := range o.requests() {
		want := "Bearer secret-of-the-" + strings.TrimSuffix(strings.Split(req.Host, ":")[0], ".example.com")
		if req.Header.Get("Authorization") != want {
			t.Errorf("a request for %s had another credential than its run's", req.Host)
		}
	}
}
