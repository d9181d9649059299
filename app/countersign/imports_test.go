package main

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/countersign-dev/countersign"

// room says what one package may import. Paths of the module are without its
// name; outside are module paths and everything below them.
type room struct {
	inside  []string
	outside []string
	// pure rooms decide: they reach no file, network, process, clock source of
	// their own, or randomness.
	pure bool
}

// The table of DESIGN §3, with the outside libraries beside it. A package that
// is not here may not exist: a new room says first what it may know.
var rooms = map[string]room{
	"policy/contract": {pure: true, outside: []string{"github.com/gowebpki/jcs", "golang.org/x/net/publicsuffix"}},
	"policy/plan":     {pure: true, inside: []string{"policy/contract"}, outside: []string{"mvdan.cc/sh/v3/syntax"}},
	"policy/ledger":   {inside: []string{"policy/contract"}, outside: []string{"github.com/secure-systems-lab/go-securesystemslib", "github.com/in-toto/attestation"}},
	"policy": {
		pure:    true,
		inside:  []string{"policy/contract", "policy/plan"},
		outside: []string{"cel.dev/cel-go", "github.com/invopop/jsonschema", "go.yaml.in/yaml"},
	},
	"policy/evidence": {inside: []string{"policy", "policy/contract", "policy/plan", "policy/ledger"}},

	"runner/redact":    {},
	"runner/egress":    {inside: []string{"policy/contract", "runner/redact"}, outside: []string{"golang.org/x/net", "golang.org/x/sys/unix"}},
	"runner/workspace": {inside: []string{"policy/contract"}, outside: []string{"golang.org/x/sys/unix"}},
	// The one test suite that both ways into a workspace pass.
	"runner/workspace/workspacetest": {inside: []string{"runner/workspace"}},
	"runner/shim/protocol":           {inside: []string{"policy/contract"}},
	"runner/shim": {
		inside:  []string{"policy/contract", "runner/workspace", "runner/shim/protocol"},
		outside: []string{"golang.org/x/sys/unix", "golang.org/x/net/dns/dnsmessage", "software.sslmate.com/src/go-pkcs12"},
	},
	"runner": {inside: []string{"policy/contract", "policy/plan", "policy/ledger", "runner/egress", "runner/redact", "runner/workspace", "runner/shim/protocol"}, outside: []string{"golang.org/x/sys/unix"}},
	"runner/docker": {
		inside: []string{"runner", "policy/contract", "policy/plan", "runner/redact", "runner/shim/protocol"},
		outside: []string{
			"github.com/docker/docker", "github.com/docker/go-units", "github.com/containerd/errdefs",
			"github.com/moby/profiles/seccomp", "github.com/opencontainers/runtime-spec", "golang.org/x/sys/unix",
		},
	},

	// It reads the ledger's records of the way out by the names that egress has for them.
	"runner/drill":                 {inside: []string{"runner", "policy/contract", "policy/plan", "runner/egress", "runner/redact", "runner/shim/protocol"}, outside: []string{"golang.org/x/net/dns/dnsmessage"}},
	"runner/shim/countersign-shim": {inside: []string{"policy/contract", "runner/workspace", "runner/shim", "runner/shim/protocol"}},
	"app/countersign": {
		inside: []string{
			"policy", "policy/contract", "policy/plan", "policy/ledger", "policy/evidence",
			"runner", "runner/docker", "runner/drill", "runner/egress", "runner/workspace", "runner/redact", "runner/shim/protocol",
		},
		outside: []string{"github.com/spf13/cobra", "golang.org/x/term", "golang.org/x/sys/unix"},
	},
}

// never holds along every chain of imports, not only the direct ones.
var never = map[string][]string{
	"runner":                       {module + "/policy", module + "/policy/evidence", "github.com/docker/docker"},
	"runner/docker":                {module + "/policy", module + "/policy/evidence"},
	"runner/egress":                {module + "/policy", module + "/policy/ledger", module + "/runner", "github.com/docker/docker", "os/exec"},
	"runner/drill":                 {module + "/policy", module + "/policy/evidence", "github.com/docker/docker"},
	"runner/shim/countersign-shim": {module + "/policy", module + "/runner", "github.com/docker/docker", "cel.dev/cel-go"},
	"policy/evidence":              {module + "/runner", "github.com/docker/docker", "os/exec"},
	"policy":                       {"github.com/docker/docker", "os/exec"},
}

// effects are what a pure room may not import.
var effects = []string{"os", "os/exec", "net/http", "crypto/rand", "math/rand", "math/rand/v2", "context", "log", "log/slog", "sync", "syscall", "unsafe"}

type listed struct {
	ImportPath string
	Standard   bool
	Imports    []string
	Deps       []string
}

func listPackages(t *testing.T) map[string]listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Standard,Imports,Deps", module+"/...")
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("listing packages: %v\n%s", err, exit.Stderr)
		}
		t.Fatalf("listing packages: %v", err)
	}
	packages := map[string]listed{}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatalf("reading the list of packages: %v", err)
		}
		packages[p.ImportPath] = p
	}
}

func TestImports(t *testing.T) {
	packages := listPackages(t)
	seen := 0
	for path, p := range packages {
		name, ours := strings.CutPrefix(path, module+"/")
		if !ours {
			continue
		}
		seen++
		r, known := rooms[name]
		if !known {
			t.Errorf("%s is not in the table of rooms: say there what it may import", name)
			continue
		}
		for _, fault := range faults(r, p, func(path string) bool { return packages[path].Standard }) {
			t.Errorf("%s %s", name, fault)
		}
		for _, banned := range never[name] {
			if slices.ContainsFunc(p.Deps, func(dep string) bool { return dep == banned || isModule(banned) && below(dep, banned) }) {
				t.Errorf("%s reaches %s", name, banned)
			}
		}
	}
	if seen == 0 {
		t.Error("no package of the module was listed")
	}
}

// faults says what of p's direct imports the room does not allow.
func faults(r room, p listed, standard func(string) bool) []string {
	var out []string
	for _, path := range p.Imports {
		name, ours := strings.CutPrefix(path, module+"/")
		switch {
		case ours && !slices.Contains(r.inside, name):
			out = append(out, "may not import "+name)
		case ours:
		case standard(path) && r.pure && slices.Contains(effects, path):
			out = append(out, "is pure and may not import "+path)
		case standard(path) || path == "C":
		case !slices.ContainsFunc(r.outside, func(allowed string) bool { return below(path, allowed) }):
			out = append(out, "may not import the library "+path)
		}
	}
	return out
}

// isModule tells a library, whose packages below count too, from one package.
func isModule(path string) bool {
	return strings.Contains(strings.SplitN(path, "/", 2)[0], ".") && !strings.HasPrefix(path, module)
}

func below(path, top string) bool { return path == top || strings.HasPrefix(path, top+"/") }

func TestFaultsOfARoom(t *testing.T) {
	standard := func(path string) bool { return !strings.Contains(path, ".") }
	r := room{pure: true, inside: []string{"policy/contract"}, outside: []string{"example.com/lib"}}
	for _, c := range []struct{ path, want string }{
		{module + "/policy/contract", ""},
		{module + "/policy/contract/deeper", "may not import policy/contract/deeper"},
		{module + "/runner", "may not import runner"},
		{"example.com/lib", ""},
		{"example.com/lib/part", ""},
		{"example.com/library", "may not import the library example.com/library"},
		{"strings", ""},
		{"os", "is pure and may not import os"},
		{"crypto/rand", "is pure and may not import crypto/rand"},
	} {
		if got := strings.Join(faults(r, listed{Imports: []string{c.path}}, standard), "; "); got != c.want {
			t.Errorf("%s: %q, want %q", c.path, got, c.want)
		}
	}
}
