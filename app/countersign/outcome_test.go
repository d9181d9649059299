package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/countersign-dev/countersign/policy/contract"
)

// smallPolicy bounds a run tightly; limits may be overridden.
func smallPolicy(limits string) string {
	if limits == "" {
		limits = "cpu: 2, memory: 512MiB, pids: 64, disk: 64MiB, home: 16MiB, tmp: 16MiB, shm: 16MiB, files: 4000, log: 1MiB, timeout: 60s, wait: 0s"
	}
	return fmt.Sprintf(`version: 1
rev: test
default: test
profiles:
  test:
    image: %s
    limits: {%s}
    env: {CI: "1"}
    writable: [/workspace, /tmp]
    outputs: {kind: patch}
`, sandboxImage, limits)
}

func limits(change string) string {
	base := map[string]string{
		"cpu": "2", "memory": "512MiB", "pids": "64", "disk": "64MiB", "home": "16MiB", "tmp": "16MiB", "shm": "16MiB",
		"files": "4000", "log": "1MiB", "timeout": "60s", "wait": "0s",
	}
	for _, kv := range strings.Fields(change) {
		k, v, _ := strings.Cut(kv, "=")
		base[k] = v
	}
	var out []string
	for _, k := range []string{"cpu", "memory", "pids", "disk", "home", "tmp", "shm", "files", "log", "timeout", "wait"} {
		out = append(out, k+": "+base[k])
	}
	return smallPolicy(strings.Join(out, ", "))
}

// Every row of DESIGN §7's table that can occur in a local run, each with its
// state, exit status and reason; and each leaves evidence that verifies and
// nothing on the machine.
func TestOutcomes(t *testing.T) {
	needDocker(t)
	c := newCheckout(t, map[string]string{"README.md": "hello\n"})
	for _, tt := range []struct {
		name     string
		policy   string
		script   string
		state    contract.State
		exit     int
		reason   string
		workload int // -1: null
	}{
		{"exit 0", "", "true", contract.StateCompleted, 0, "exit: ", 0},
		{"exit 3", "", "exit 3", contract.StateFailed, 3, "exit: ", 3},
		{"own 125", "", "exit 125", contract.StateFailed, 125, "exit: ", 125},
		{"signal", "", "kill -SEGV $$", contract.StateFailed, 139, "exit: ", 139},
		{"wall clock", limits("timeout=1s"), "trap '' TERM; while :; do :; done", contract.StateTimedOut, 124, "timeout: ", 137},
		{"memory", limits("memory=128MiB"), "python3 -c 'x = bytearray(1 << 30)'", contract.StateFailed, 137, "memory: the memory limit of 128 MiB", 137},
		{"pids", limits("pids=40"), `python3 -c '
import os, signal
while True:
    if os.fork() == 0: signal.pause()
'`, contract.StateFailed, 1, "pids: the limit of 40", 1},
		{"disk", limits("disk=8MiB"), "head -c 100000000 /dev/zero > big", contract.StateFailed, 1, "disk: ", 1},
		{"no such program", "", "exec nosuchprogram", contract.StateFailed, 127, "exit: ", 127},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := c.sh(tt.policy, tt.script)
			workload := -1
			if r.outcome.WorkloadExit != nil {
				workload = *r.outcome.WorkloadExit
			}
			if r.code != tt.exit || r.outcome.ExitCode != tt.exit || r.outcome.State != tt.state || workload != tt.workload || !strings.HasPrefix(r.outcome.Reason, tt.reason) {
				t.Errorf("exit %d, %s (%s), workload %d\n%s", r.code, r.outcome.State, r.outcome.Reason, workload, r.stderr)
			}
			if v := c.exec("verify", r.outcome.Evidence); v.code != 0 {
				t.Errorf("verify exits with %d\n%s%s", v.code, v.stdout, v.stderr)
			}
			if left := leftovers(t); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// A mistyped command line is told as every outcome is: with --json, wherever it
// stands, by one object.
func TestMistyped(t *testing.T) {
	c := newCheckout(t, nil)
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"run", "--json", "--nosuch", "--", "true"}, "unknown flag: --nosuch"},
		{[]string{"run", "--nosuch", "--json", "--", "true"}, "unknown flag: --nosuch"},
		{[]string{"run", "--timeout", "soon", "--json", "--", "true"}, "soon"},
		{[]string{"run", "--json", "--rev"}, "--rev"},
		{[]string{"run", "--json"}, "there is no command to run"},
	} {
		r := c.exec(tt.args...)
		if err := json.Unmarshal([]byte(r.stdout), &r.outcome); err != nil {
			t.Errorf("%v: standard output is not one JSON object: %v\n%s%s", tt.args, err, r.stdout, r.stderr)
		}
		if r.code != 125 || r.outcome.ExitCode != 125 || r.outcome.State != contract.StateFailClosed || r.outcome.WorkloadExit != nil ||
			!strings.HasPrefix(r.outcome.Reason, "unavailable: ") || !strings.Contains(r.outcome.Reason, tt.want) || !strings.Contains(r.stderr, tt.want) {
			t.Errorf("%v: exit %d (%s)\n%s", tt.args, r.code, r.outcome.Reason, r.stderr)
		}
	}
	for _, args := range [][]string{{"run", "--nosuch", "--", "prog", "--json"}, {"run", "--nosuch"}} {
		if r := c.exec(args...); r.code != 125 || r.stdout != "" || !strings.Contains(r.stderr, "unknown flag: --nosuch; see countersign run --help") {
			t.Errorf("%v: exit %d\n%s%s", args, r.code, r.stdout, r.stderr)
		}
	}
}

// A repository's path may hold what moves a cursor. One with a line break, which
// git cannot be told, and one that is no text, which evidence could not name, are
// refused with the reason.
func TestOddRepositoryPaths(t *testing.T) {
	needDocker(t)
	c := newCheckout(t, map[string]string{"a": "a\n"})
	for _, tt := range []struct {
		name string
		exit int
		want string
	}{
		{"repo\x1b[2J", 0, "exit: "},
		{"repo\nx", 125, "has a line break, which git's list of object directories cannot hold"},
		{"repo\xff\x1b[2J", 125, `repo\xff\x1b[2J" is not UTF-8 text, in which evidence names it: move it`},
	} {
		here := *c
		here.dir = filepath.Join(c.dir, tt.name)
		c.git("clone", "-q", c.dir, here.dir)
		r := here.sh("", "echo changed > a")
		if r.code != tt.exit || r.outcome.ExitCode != tt.exit || !strings.Contains(r.outcome.Reason, tt.want) || strings.Contains(r.stderr, "\x1b") || !utf8.ValidString(r.stderr) {
			t.Errorf("exit %d (%s)\n%q", r.code, r.outcome.Reason, r.stderr)
		}
		if tt.exit != 0 {
			continue
		}
		if want := filepath.Join(here.dir, ".countersign"); !strings.HasPrefix(r.outcome.Evidence, want) || r.outcome.Patch.Files != 1 {
			t.Errorf("%d files, evidence in %q", r.outcome.Patch.Files, r.outcome.Evidence)
		}
		if v := here.exec("verify", r.outcome.Evidence); v.code != 0 {
			t.Errorf("verify: %s", v.stdout)
		}
	}
}

// What never gets a sandbox: refused at admission is 126, what the machine
// lacks is 125; both say what to do.
func TestNoSandbox(t *testing.T) {
	needDocker(t)
	c := newCheckout(t, map[string]string{"README.md": "hello\n"})
	model := strings.Replace(smallPolicy(""), "    env:", "    network: {allow: [{host: model.internal, upstream: 'https://api.example.com', mode: gateway, api: anthropic-messages, methods: [POST], paths: [/**]}]}\n    env:", 1)
	secret := strings.Replace(smallPolicy(""), "    env:", "    secrets: {k: {ref: \"env://K\", deliver: file}}\n    env:", 1)
	for _, tt := range []struct {
		name   string
		policy string
		env    string
		args   []string
		exit   int
		want   string
	}{
		{"a model's API", model, "", nil, 126, "requests of a model's API are not read yet"},
		{"the engine's port", smallPolicy(""), "", []string{"--allow", "engine.example.com:2375"}, 126, "the container engine's, which no run is ever given"},
		{"an address in place of a host", smallPolicy(""), "", []string{"--allow", "127.1:443"}, 125, "name the host instead"},
		{"a name server by name", smallPolicy(""), "", []string{"--resolver", "dns.example.com"}, 125, "want the name server's IP"},
		{"secret", secret, "", nil, 125, "the environment has no K"},
		{"policy does not parse", "version: 1\nprofils: {}\n", "", nil, 126, "profiles"},
		{"unknown profile", smallPolicy(""), "", []string{"--profile", "nope"}, 126, "nope"},
		{"image is not there", strings.Replace(smallPolicy(""), sandboxImage, "example/nowhere:1", 1), "", nil, 125, "example/nowhere:1"},
		{"no engine", smallPolicy(""), "DOCKER_HOST=unix:///nonexistent.sock", nil, 125, "nonexistent.sock"},
		{"remote engine", smallPolicy(""), "DOCKER_HOST=tcp://192.0.2.1:2376", nil, 125, "remote"},
		{"no shim", smallPolicy(""), "COUNTERSIGN_SHIM=/nonexistent", nil, 125, "/nonexistent"},
		{"shim is not static", smallPolicy(""), "COUNTERSIGN_SHIM=/bin/true", nil, 125, "static"},
		{"isolation is not installed", smallPolicy(""), "", []string{"--isolation", "runsc"}, 125, "runsc"},
		{"no such commit", smallPolicy(""), "", []string{"--rev", "nosuchrev"}, 125, "nosuchrev"},
		{"evidence exists", smallPolicy(""), "", []string{"--evidence", "/"}, 125, "/"},
		{"promotions", smallPolicy(""), "", []string{"--approve", "prompt"}, 125, "not built yet"},
		{"part of a second", smallPolicy(""), "", []string{"--timeout", "1500ms"}, 125, "whole seconds"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "policy.yml")
			if err := os.WriteFile(path, []byte(tt.policy), 0o644); err != nil {
				t.Fatal(err)
			}
			here := *c
			here.t = t
			if tt.env != "" {
				here.env = append(append([]string{}, c.env...), tt.env)
			}
			if tt.name == "isolation is not installed" && hasRuntime(t, "runsc") {
				return // then it is no error; other tests run it
			}
			r := here.run(append(append([]string{"--policy", path}, tt.args...), "--", "true")...)
			if r.code != tt.exit || r.outcome.ExitCode != tt.exit || !strings.Contains(r.outcome.Reason, tt.want) {
				t.Errorf("exit %d (%s), want %d and %q\n%s", r.code, r.outcome.Reason, tt.exit, tt.want, r.stderr)
			}
			if r.outcome.WorkloadExit != nil {
				t.Error("something ran")
			}
			if r.outcome.Evidence != "" {
				if v := here.exec("verify", r.outcome.Evidence); v.code != 0 {
					t.Errorf("its evidence does not verify:\n%s", v.stdout)
				}
			} else if tt.exit == 126 {
				t.Error("a refusal left no evidence")
			}
			if left := leftovers(t); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

func hasRuntime(t *testing.T, name string) bool {
	t.Helper()
	out, err := dockerOutput("info", "--format", "{{range $k, $v := .Runtimes}}{{$k}} {{end}}")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(" "+out, " "+name+" ")
}
