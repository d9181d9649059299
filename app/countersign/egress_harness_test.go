package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// egressImage is the sandbox image with Java, which .ci/egress-image makes.
const egressImage = "countersign/egress-test:latest"

// needEgressImage is needDocker for it.
func needEgressImage(t *testing.T) {
	t.Helper()
	needDocker(t)
	if out, err := dockerOutput("image", "inspect", "--format", "{{.Id}}", egressImage); err != nil {
		if os.Getenv("COUNTERSIGN_TEST_REQUIRE_DOCKER") == "1" {
			t.Fatalf("%s is missing, make it with .ci/egress-image: %s", egressImage, out)
		}
		t.Skipf("no %s here: .ci/egress-image makes it", egressImage)
	}
}

// egressPolicy is a policy with the given rules, one line each without "- ".
// Keys are more lines of the profile.
func egressPolicy(keys string, rules ...string) string {
	text := "version: 1\ndefault: a\nprofiles:\n  a:\n    image: " + egressImage + "\n" + keys + "    network:\n      allow:\n"
	for _, r := range rules {
		text += "        - " + r + "\n"
	}
	return text
}

// opaqueRule, inspectRule and gatewayRule are to a host of the test's, which is
// this machine.
func (o *outside) opaqueRule(host string, keys string) string {
	return fmt.Sprintf("{host: %s, port: %d, private: true%s}", host, o.https, keys)
}

func (o *outside) inspectRule(host string, keys string) string {
	return fmt.Sprintf("{host: %s, port: %d, private: true, mode: inspect%s}", host, o.https, keys)
}

func (o *outside) gatewayRule(name, host string, keys string) string {
	return fmt.Sprintf("{host: %s, upstream: 'https://%s:%d', private: true, mode: gateway%s}", name, host, o.https, keys)
}

// anyRequest lets a rule that reads requests pass them all.
const anyRequest = ", methods: [GET, HEAD, POST, PUT], paths: [/**]"

// url is what a workload says to reach a path of a host.
func (o *outside) url(host, path string) string {
	return fmt.Sprintf("https://%s:%d%s", host, o.https, path)
}

// checkout makes a repository whose runs trust the test's authority outside and
// ask the test's name server. Inside, ca.pem is that authority.
func (o *outside) checkout(t *testing.T, files map[string]string) *checkout {
	t.Helper()
	ca, err := os.ReadFile(o.ca)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{"ca.pem": string(ca)}
	for name, text := range files {
		all[name] = text
	}
	c := newCheckout(t, all)
	c.env = append(c.env, "SSL_CERT_FILE="+o.ca)
	return c
}

// sealed runs a shell text sealed under a policy.
func (o *outside) sealed(t *testing.T, c *checkout, policy, script string, flags ...string) result {
	t.Helper()
	here := *c
	here.t = t
	args := append(policyFile(t, policy), "--resolver", o.names.addr)
	return here.run(append(append(args, flags...), "--", "/bin/sh", "-c", script)...)
}

// record is one line of a ledger.
type record struct {
	Type string         `json:"type"`
	Data map[string]any `json:"data"`
}

// records are those of a type in a run's ledger.
func (r result) records(t *testing.T, typ string) []record {
	t.Helper()
	var out []record
	for line := range strings.Lines(r.file(t, "ledger.jsonl")) {
		var rec record
		if err := json.Unmarshal([]byte(line), &rec); err != nil {
			t.Fatal(err)
		}
		if rec.Type == typ {
			out = append(out, rec)
		}
	}
	return out
}

// denied says whether the ledger has a refusal of that class for a target.
func (r result) denied(t *testing.T, class, host string, port int) bool {
	t.Helper()
	return slices.ContainsFunc(r.records(t, "egress.denied"), func(rec record) bool {
		return rec.Data["class"] == class && rec.Data["host"] == host && rec.Data["port"] == float64(port)
	})
}

// verifies holds a run's evidence to itself.
func (c *checkout) verifies(t *testing.T, r result) {
	t.Helper()
	if v := c.exec("verify", r.outcome.Evidence); v.code != 0 {
		t.Errorf("the evidence does not verify:")
		for line := range strings.Lines(v.stdout + v.stderr) {
			if !strings.HasPrefix(line, "ok ") {
				t.Error(line)
			}
		}
	}
}

// fetchProgram is testdata/egress/fetch, built static once.
var fetchProgram = sync.OnceValues(func() (string, error) {
	path := filepath.Join(built.dir, "fetch")
	cmd := exec.Command("go", "build", "-o", path, "./testdata/egress/fetch")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building fetch: %v\n%s", err, out)
	}
	data, err := os.ReadFile(path)
	return string(data), errors.Join(err, os.Remove(path))
})

func readTestdata(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "egress", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
