package shim_test

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/runner"
	"github.com/countersign-dev/countersign/runner/shim/protocol"
)

//go:embed testdata/network.py
var networkScript string

const sandboxImage = "countersign/sandbox:latest"

// roomy is a sandbox for real programs, with a fake proxy beside it.
func roomy(t *testing.T, isolation contract.Isolation) (*sandbox, *fakeProxy) {
	t.Helper()
	var proxy *fakeProxy
	s := enterAs(t, setting{
		isolation: isolation,
		image:     sandboxImage,
		spec: func(s *runner.Spec) {
			s.DropEnv = nil
			s.MemoryBytes, s.Pids, s.NanoCPUs = 2<<30, 512, 2e9
			s.Ulimits[slices.IndexFunc(s.Ulimits, func(u runner.Ulimit) bool { return u.Name == "nofile" })].Value = 8192
			s.Ulimits[slices.IndexFunc(s.Ulimits, func(u runner.Ulimit) bool { return u.Name == "fsize" })].Value = 64 << 20
			s.Mounts[3].Bytes, s.Mounts[3].Inodes = 64<<20, 4096
			s.Mounts = append(s.Mounts,
				runner.Mount{Kind: runner.MountTmpfs, Target: "/home/agent", Bytes: 8 << 20, Inodes: 64, Mode: "0700", Owned: true},
				runner.Mount{Kind: runner.MountTmpfs, Target: protocol.SecretDir, Bytes: 1 << 20, Inodes: 64, Mode: "0700", Owned: true})
		},
		beside: func(sockets string) {
			proxy = newFakeProxy(t, filepath.Join(sockets, filepath.Base(protocol.EgressSocket)))
		},
	})
	return s, proxy
}

// open opens the network and returns the environment of a job in it.
func (s *sandbox) open(n protocol.Network) []string {
	s.t.Helper()
	s.send(protocol.KindLoad, protocol.Load{Dir: "/workspace"})
	s.expect(protocol.KindLoaded, &protocol.Loaded{})
	s.send(protocol.KindNetwork, n)
	var got protocol.Networked
	s.expect(protocol.KindNetworked, &got)
	env := []string{"PATH=/usr/local/go/bin:/usr/local/bin:/usr/bin:/bin", "HOME=/home/agent", "LANG=C.UTF-8"}
	for _, name := range slices.Sorted(maps.Keys(got.Trust)) {
		env = append(env, name+"="+got.Trust[name])
	}
	return env
}

func (s *sandbox) script(env []string, text string) *result {
	s.t.Helper()
	j := job("python3", "-c", text)
	j.Secrets = []protocol.SecretFile{{Name: "key", Data: []byte("hunter2")}}
	j.Cwd, j.Env = "/workspace", env
	j.Stop.TimeoutSec = 300
	return s.run(j, nil)
}

// What programs do in a sandbox that has a way out, with no word to them of a
// proxy: each arrives at the run's proxy with the name that it asked for.
func TestNetworkInASandbox(t *testing.T) {
	for _, isolation := range []contract.Isolation{contract.IsolationRunc, contract.IsolationRunsc} {
		t.Run(string(isolation), func(t *testing.T) {
			s, proxy := roomy(t, isolation)
			s.conn.SetDeadline(time.Now().Add(5 * patience))
			env := s.open(protocol.Network{Ports: []int{443, 5432}, CA: proxy.pem()})

			s.send(protocol.KindProbe, protocol.Probe{Stage: "before", Names: []string{"canary.internal"}, HTTP: []string{"canary.internal", "unlisted.invalid"}})
			var probed protocol.Probed
			s.expect(protocol.KindProbed, &probed)
			wantAttempts(t, probed, map[string]string{
				"resolve canary.internal": "ok", "dial canary.internal:443": "ok", "http canary.internal": "ok", "http unlisted.invalid": "status 403",
			})

			r := s.script(env, networkScript)
			var got map[string]any
			if err := json.Unmarshal([]byte(r.stdout()), &got); err != nil {
				t.Fatalf("exited %+v, stdout %q, stderr %q", r.Exited, r.stdout(), r.stderr())
			}
			judgeNetwork(t, isolation, got)
			for _, target := range []string{"secure.example:443", "py.example:443", "node.example:443", "ssh.example:22", "rule.example:5432"} {
				head := "CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\nCountersign-Client: transparent\r\n\r\n"
				if !proxy.heard(head) {
					t.Errorf("the proxy was not asked for %s", target)
				}
			}
			s.alone()

			s.send(protocol.KindProbe, protocol.Probe{Stage: "after", HTTP: []string{"canary.internal"}})
			s.expect(protocol.KindProbed, &probed)
			wantAttempts(t, probed, map[string]string{"http canary.internal": "ok"})
		})
	}
}

func wantAttempts(t *testing.T, got protocol.Probed, want map[string]string) {
	t.Helper()
	for attempt, result := range want {
		if !slices.Contains(got.Attempts, protocol.Attempt{Kind: strings.Fields(attempt)[0], Target: strings.Fields(attempt)[1], Result: result}) {
			t.Errorf("the probe's %s is not %q", attempt, result)
		}
	}
}

// judgeNetwork compares what testdata/network.py found. A string that begins
// with "…" is to be contained.
func judgeNetwork(t *testing.T, isolation contract.Isolation, got map[string]any) {
	t.Helper()
	noRoute := "ENETUNREACH"
	if isolation == contract.IsolationRunsc {
		noRoute = "EHOSTUNREACH"
	}
	want := map[string]any{
		"resolv.conf": []any{"nameserver 127.0.0.1", "options timeout:5"},

		"curl":              "plain plain.example:80/a",
		"curl TLS":          "TLS secure.example:443/b",
		"curl refused":      "countersign: refused.example:80/c is not in this run's contract",
		"curl explicit":     "explicit http://explicit.example/d",
		"curl explicit TLS": "TLS secure.example:443/e",
		"python":            "TLS py.example:443/f",
		"node":              "TLS node.example:443/g",
		"node address":      noRoute,
		"git":               "…repository 'https://missing.example/x.git/' not found",
		"go":                "…reading https://missing.goproxy.example/x.example/m/@v/v1.0.0.info: 404 Not Found",
		"getent":            "…STREAM localhost.example",
		"getent bad":        "",

		"secret file": []any{"0o400", "hunter2"},

		"again, in capitals": true,
		"EDNS":               []any{0.0, 1.0, 1.0},
		"AAAA":               []any{0.0, 0.0, 0.0},
		"a foreign byte":     []any{3.0, 0.0, 0.0},
		"reverse":            "one.example",
		"own name":           "127.0.0.1",

		"server first":              "SSH-2.0-test",
		"a rule's port":             "connected",
		"another port":              "ECONNREFUSED",
		"an address never given":    "ECONNREFUSED",
		"address":                   noRoute,
		"metadata":                  noRoute,
		"private":                   noRoute,
		"ports of its own":          "connected",
		"a server at every address": "connected",
		"200 at once":               200.0,
		"flood":                     true,
		"over the bound":            "curl: (6) Could not resolve host: late.example",
		"known before":              "plain plain.example:80/i",
	}
	for label, w := range want {
		if part, ok := w.(string); ok && strings.HasPrefix(part, "…") {
			if text, _ := got[label].(string); !strings.Contains(text, strings.TrimPrefix(part, "…")) {
				t.Errorf("%s: %v, want it to contain %q", label, got[label], part)
			}
		} else if diff := cmp.Diff(w, got[label]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", label, diff)
		}
	}
	// Addresses: one a name, none twice, all of the sandbox's own.
	answers := []any{got["UDP"]}
	two, _ := got["TCP"].([]any)
	answers = append(answers, two...)
	var given []string
	for _, a := range answers {
		fields, ok := a.([]any)
		if !ok || len(fields) != 4 || fields[0] != 0.0 || fields[1] != 1.0 || !strings.HasPrefix(fmt.Sprint(fields[3]), "127.64.") {
			t.Errorf("a name is answered with %v", a)
			continue
		}
		given = append(given, fmt.Sprint(fields[3]))
	}
	if len(given) == 3 && (given[0] != given[1] || given[1] == given[2]) {
		t.Errorf("one.example, one.example and two.example are %v", given)
	}
	if got["IPv6 address"] == "connected" {
		t.Error("an IPv6 address was reached")
	}
}

//go:embed testdata/storm.py
var stormScript string

// isolated starts the shim in a network name space of its own whose loopback
// is up, with a fake proxy outside, and opens the network.
func isolated(t *testing.T, before ...string) (*host, *fakeProxy) {
	t.Helper()
	dir, err := os.MkdirTemp("", "cs-shim") // not t.TempDir: a socket's path has 108 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "e.sock")
	proxy := newFakeProxy(t, socket)
	unshare, err := exec.LookPath("unshare")
	need(t, err == nil, "unshare, from util-linux")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	h := startWith(t, slices.Concat(before, []string{unshare, "--net", self, loopbackUp}), "init", "--egress", socket)
	h.send(protocol.KindNetwork, protocol.Network{})
	h.expect(protocol.KindNetworked, &protocol.Networked{})
	return h, proxy
}

// Names and connections by the hundred, on processors that are never idle and
// with not one task left to be had, need no new thread.
func TestNetworkNeedsNoNewThreads(t *testing.T) {
	group, err := pidsGroup(t, 100)
	need(t, err == nil, fmt.Sprintf("a pids cgroup (%v)", err))
	h, _ := isolated(t, "/bin/sh", "-c", `echo $$ > "$0/cgroup.procs" && exec "$@"`, group)
	bound := func(n string) {
		if err := os.WriteFile(filepath.Join(group, "pids.max"), []byte(n), 0); err != nil {
			t.Fatal(err)
		}
	}
	j := job("/usr/bin/python3", "-c", stormScript)
	j.Stop.TimeoutSec = 120
	h.conn.SetDeadline(time.Now().Add(3 * patience))
	r := h.run(j, map[string]func(){"ready": func() { bound("1") }})
	if r.Code != 0 || !strings.Contains(r.stdout(), "all answered") {
		t.Errorf("exited %+v, stdout %q, stderr %q", r.Exited, r.stdout(), r.stderr())
	}
	if n := h.threads(); n > protocol.ShimPids {
		t.Errorf("the shim had %d threads in the end, want at most %d", n, protocol.ShimPids)
	} else {
		t.Logf("the shim had %d threads in the end", n)
	}
	bound("100")
	h.alone()
	h.bye(0)
}

func TestNetworkOnce(t *testing.T) {
	h, _ := isolated(t)
	h.send(protocol.KindNetwork, protocol.Network{})
	if err := h.conn.Expect(protocol.KindNetworked, nil); err == nil || !strings.Contains(err.Error(), "opened once") {
		t.Errorf("a second network: %v", err)
	}
	h.bye(0)

	h = start(t, "init")
	h.run(sh("exit 0"), nil)
	h.send(protocol.KindNetwork, protocol.Network{})
	if err := h.conn.Expect(protocol.KindNetworked, nil); err == nil || !strings.Contains(err.Error(), "before the job") {
		t.Errorf("a network after the job: %v", err)
	}
	h.bye(0)
}
