package main

import (
	"bufio"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/policy/contract"
)

// Two secrets of the tests, one of each source. Each holds what encodings change.
const (
	fileValue = "file value/of+a&test=7"
	envValue  = "env value/of+a&test=9"
)

// withTestSecrets are the flags that deliver them as files, and this test's
// environment with what they refer to.
func withTestSecrets(t *testing.T, c *checkout) []string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, []byte(fileValue+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.env = append(c.env, "COUNTERSIGN_TEST_SECRET="+envValue)
	return []string{"--secret", "one=file://" + path, "--secret", "two=env://COUNTERSIGN_TEST_SECRET"}
}

// spellings are those in which no output may hold a secret.
func spellings(value string) []string {
	return []string{
		value, base64.StdEncoding.EncodeToString([]byte(value)), hex.EncodeToString([]byte(value)),
		url.QueryEscape(value), url.PathEscape(value),
	}
}

// reveals says where a text holds a secret.
func reveals(text string) string {
	for _, value := range []string{fileValue, envValue} {
		for _, s := range spellings(value) {
			if strings.Contains(text, s) {
				return fmt.Sprintf("one of the secrets, as %q", s)
			}
		}
	}
	return ""
}

// TestSecretsAsFiles: they are in memory, of their own user, readable and nothing
// else; what the workload prints of them, in whatever spelling and in whatever
// pieces, is masked; the evidence has their names and no more.
func TestSecretsAsFiles(t *testing.T) {
	needDocker(t)
	c := newCheckout(t, map[string]string{"a": "a\n"})
	flags := withTestSecrets(t, c)
	r := c.run(append(flags, "--", "python3", "-c", `
import base64, os, sys, urllib.parse
out = sys.stdout.buffer
for name, tail in (("one", b"7"), ("two", b"9")):
    path = "/run/secret/" + name
    st = os.stat(path)
    print(name, oct(st.st_mode), st.st_uid == os.getuid(), st.st_size, flush=True)
    value = open(path, "rb").read()
    assert value.endswith(tail), "another value"
    for i in range(len(value)):  # byte by byte
        out.write(value[i:i+1]); out.flush()
    for text in (value, base64.b64encode(value), value.hex().encode(), urllib.parse.quote(value, safe="").encode(), urllib.parse.quote_plus(value).encode()):
        out.write(b"\n" + text); out.flush()
        sys.stderr.buffer.write(text + b"\n"); sys.stderr.flush()
    assert value.decode() not in " ".join(os.environ.values()), "in the environment"
    try:
        open(path, "wb")
    except PermissionError:
        print("\nread only")
print(any(line.split()[1:3] == ["/run/secret", "tmpfs"] for line in open("/proc/self/mounts")))
`)...)
	if r.code != 0 {
		t.Fatalf("exit %d (%s)\n%s", r.code, r.outcome.Reason, r.stderr)
	}
	for _, want := range []string{"one 0o100400 True 22", "two 0o100400 True 21", "True\n"} {
		if !strings.Contains(r.stderr, want) {
			t.Errorf("the workload did not say %q:\n%s", want, r.stderr)
		}
	}
	if found := reveals(r.stdout + r.stderr); found != "" {
		t.Errorf("the output shows %s", found)
	}
	err := fs.WalkDir(os.DirFS(r.outcome.Evidence), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if found := reveals(r.file(t, name)); found != "" {
			t.Errorf("%s of the evidence shows %s", name, found)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if v := c.exec("verify", r.outcome.Evidence); v.code != 0 {
		t.Errorf("verify: %s%s", v.stdout, v.stderr)
	}
	if text := r.file(t, "contracts/1.json"); !strings.Contains(text, `"name":"two","ref":"env://COUNTERSIGN_TEST_SECRET"`) {
		t.Errorf("the contract does not name the secret: %s", text)
	}
}

// TestSecretsElsewhere: while a run that has secrets goes on, neither the engine
// nor what can be read of our processes shows them, but for the environment of
// the one that a person started with it.
func TestSecretsElsewhere(t *testing.T) {
	needDocker(t)
	c := newCheckout(t, map[string]string{"a": "a\n"})
	cmd := c.command(append(append([]string{"run", "--json"}, withTestSecrets(t, c)...), "--", "sh", "-c", "echo here; read wait < /run/secret/one; exec sleep 1000")...)
	cmd.Env = c.env
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stderr)
	id := ""
	for lines.Scan() && lines.Text() != "here" {
		if words := strings.Fields(lines.Text()); len(words) > 2 && strings.HasPrefix(words[2], "run_") {
			id = words[2]
		}
	}
	t.Cleanup(func() {
		cmd.Process.Signal(os.Interrupt)
		for lines.Scan() {
		}
		if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != contract.ExitCancelled {
			t.Errorf("the run ended with %v", err)
		}
	})
	inspected, err := dockerOutput("inspect", "countersign-"+strings.ReplaceAll(id, "_", "-"))
	if err != nil {
		t.Fatal(err)
	}
	if found := reveals(inspected); found != "" {
		t.Errorf("the engine shows %s", found)
	}
	own := fmt.Sprint(cmd.Process.Pid)
	supervisors := childrenOf(t, own)
	if len(supervisors) == 0 {
		t.Fatal("the run has no process of its own")
	}
	for _, pid := range supervisors {
		environ, err := os.ReadFile("/proc/" + pid + "/environ")
		if err != nil {
			t.Fatal(err)
		}
		if found := reveals(string(environ)); found != "" || strings.Contains(string(environ), "COUNTERSIGN_TEST_SECRET") {
			t.Errorf("the supervisor's environment shows %s", found)
		}
	}
	for _, pid := range append(supervisors, own) {
		cmdline, err := os.ReadFile("/proc/" + pid + "/cmdline")
		if err != nil {
			t.Fatal(err)
		}
		if found := reveals(string(cmdline)); found != "" {
			t.Errorf("the command line of process %s shows %s", pid, found)
		}
	}
}

// childrenOf are the processes that any thread of a process started.
func childrenOf(t *testing.T, pid string) []string {
	t.Helper()
	lists, err := filepath.Glob("/proc/" + pid + "/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	var pids []string
	for _, list := range lists {
		if text, err := os.ReadFile(list); err == nil { // a thread may have gone
			pids = append(pids, strings.Fields(string(text))...)
		}
	}
	return pids
}

// TestSecretsThatCannotBeHad end a run with 125 before there is a sandbox, and
// say what to do.
func TestSecretsThatCannotBeHad(t *testing.T) {
	needDocker(t)
	c := newCheckout(t, map[string]string{"a": "a\n"})
	c.env = append(c.env, "COUNTERSIGN_TEST_SHORT=12345")
	for ref, want := range map[string]string{
		"env://COUNTERSIGN_TEST_NONE":  "the environment has no COUNTERSIGN_TEST_NONE: set it",
		"env://COUNTERSIGN_TEST_SHORT": "cannot be masked in output; use a longer one",
		"file:///nowhere/key":          "no such file",
		"vault://ci/key":               "there is no source for vault:// here",
	} {
		r := c.run("--secret", "k="+ref, "--", "true")
		if r.code != contract.ExitFailClosed || !strings.Contains(r.outcome.Reason, want) || strings.Contains(r.stderr, "12345") {
			t.Errorf("%s: exit %d (%s), want 125 (…%s…)", ref, r.code, r.outcome.Reason, want)
		}
	}
	if left := leftovers(t); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestRepositoryAsksForTheMachine: a policy that came with the repository gets no
// secret of the machine and no private address unless a flag says so, and the
// refusal names the flag.
func TestRepositoryAsksForTheMachine(t *testing.T) {
	needDocker(t)
	policy := func(keys string) string {
		return "version: 1\ndefault: a\nprofiles: {a: {image: countersign/sandbox:latest, " + keys + "}}\n"
	}
	t.Run("secret", func(t *testing.T) {
		key := filepath.Join(t.TempDir(), "id")
		if err := os.WriteFile(key, []byte(fileValue), 0o600); err != nil {
			t.Fatal(err)
		}
		c := newCheckout(t, map[string]string{policyPath: policy("secrets: {k: {ref: 'file://" + key + "', deliver: file}}")})
		r := c.run("--", "cat", "/run/secret/k")
		flag := "--secret k=file://" + key
		if r.code != contract.ExitRefused || !strings.Contains(r.outcome.Reason, "add "+flag+",") {
			t.Fatalf("exit %d (%s), want 126 and a hint to add %s", r.code, r.outcome.Reason, flag)
		}
		if r = c.run(append(strings.Fields(flag), "--", "grep", "-c", "file value", "/run/secret/k")...); r.code != 0 || !strings.Contains(r.stderr, "\n1\n") {
			t.Errorf("with the flag: exit %d (%s)\n%s", r.code, r.outcome.Reason, r.stderr)
		}
	})
	t.Run("private address", func(t *testing.T) {
		c := newCheckout(t, map[string]string{policyPath: policy("network: {allow: [{host: lan.example.com, port: 80, private: true}]}")})
		r := c.exec("contract", "--", "true")
		if r.code != contract.ExitRefused || !strings.Contains(r.stderr, "add --allow lan.example.com:80,") {
			t.Fatalf("exit %d: %s", r.code, r.stderr)
		}
		if r = c.exec("contract", "--allow", "lan.example.com:80", "--", "true"); r.code != 0 || strings.Count(r.stdout, `"private": true`) != 1 {
			t.Errorf("with the flag: exit %d: %s", r.code, r.stdout+r.stderr)
		}
	})
}

// TestSecretsDoNotLeaveByThePatch: a workload that writes a secret into the
// workspace, or names a file by it, has its patch thrown away and the name
// masked; nothing of the evidence holds it.
func TestSecretsDoNotLeaveByThePatch(t *testing.T) {
	needDocker(t)
	c := newCheckout(t, map[string]string{"a": "a\n"})
	flags := withTestSecrets(t, c)
	for _, script := range []string{
		"cp /run/secret/one kept", "base64 /run/secret/two > kept", `echo x > "$(od -An -tx1 /run/secret/one | tr -d ' \n')"`,
	} {
		r := c.run(append(flags, "--", "/bin/sh", "-c", script)...)
		if r.code != contract.ExitFailClosed || !strings.Contains(r.outcome.Reason, "holds a secret of this run") || r.outcome.Patch.Files != 0 {
			t.Errorf("%s: %d, %+v", script, r.code, r.outcome)
		}
		if patch := r.file(t, "changes.patch"); patch != "" {
			t.Errorf("%s: the patch is %q", script, patch)
		}
		if v := c.exec("verify", r.outcome.Evidence); v.code != 0 {
			t.Errorf("%s: verify: %s", script, v.stdout)
		}
	}
	named := c.run(append(flags, "--", "/bin/sh", "-c", `mkfifo "$(tr -d / < /run/secret/one)" "$(od -An -tx1 /run/secret/two | tr -d ' \n')"`)...)
	if named.code != 0 {
		t.Fatalf("%d, %s", named.code, named.stderr)
	}
	if where := reveals(named.file(t, "ledger.jsonl") + named.stderr); where != "" {
		t.Errorf("the ledger holds %s", where)
	}
}
