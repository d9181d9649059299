package shim_test

import (
	"bytes"
	"debug/elf"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The binary must start in any image: no loader, no library, and small.
func TestBinaryIsStaticAndSmall(t *testing.T) {
	path := binary(t)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > 16<<20 {
		t.Errorf("it has %d bytes, more than 16 MiB", info.Size())
	}
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("it has a %v segment: it is not static", p.Type)
		}
	}
	if libs, err := f.ImportedLibraries(); err != nil || len(libs) > 0 {
		t.Errorf("it needs %q, %v", libs, err)
	}
	if f.Section(".debug_info") != nil || f.Section(".symtab") != nil {
		t.Error("it is not stripped")
	}
}

// DESIGN's table of imports, for this room.
func TestImports(t *testing.T) {
	const module = "github.com/countersign-dev/countersign/"
	for pkg, allowed := range map[string][]string{
		"./countersign-shim": {"runner/shim/countersign-shim", "runner/shim", "runner/shim/protocol", "runner/workspace", "policy/contract"},
		"./protocol":         {"runner/shim/protocol", "policy/contract"},
	} {
		out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", pkg).Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, dep := range strings.Fields(string(out)) {
			inside, ours := strings.CutPrefix(dep, module)
			ok := !ours && (strings.HasPrefix(dep, "golang.org/x/sys/") || ofContract(dep) || pkg == "./countersign-shim" && ofNetwork(dep))
			for _, a := range allowed {
				ok = ok || inside == a
			}
			if !ok {
				t.Errorf("%s imports %s", pkg, dep)
			}
		}
	}
}

// ofContract says what policy/contract brings along: canonical JSON, and names
// of hosts. The linker leaves it out of the shim.
func ofContract(dep string) bool {
	for _, lib := range []string{"github.com/gowebpki/jcs", "golang.org/x/net/publicsuffix", "golang.org/x/net/idna", "golang.org/x/text/"} {
		if strings.HasPrefix(dep, lib) {
			return true
		}
	}
	return false
}

// ofNetwork says what name messages and Java's trust store bring along.
func ofNetwork(dep string) bool {
	for _, lib := range []string{"golang.org/x/net/dns/dnsmessage", "software.sslmate.com/src/go-pkcs12", "golang.org/x/crypto/"} {
		if strings.HasPrefix(dep, lib) {
			return true
		}
	}
	return false
}

// Verbs on the real binary, under both names.
func TestVerbs(t *testing.T) {
	shim := binary(t)
	inside := filepath.Join(t.TempDir(), "countersign")
	if err := os.Symlink(shim, inside); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "c.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for name, c := range map[string]struct {
		argv           []string
		stdin          string
		code           int
		stdout, stderr string
	}{
		"version":           {[]string{shim, "version"}, "", 0, "shim ", ""},
		"help":              {[]string{shim, "help"}, "", 0, "be PID 1", ""},
		"no verb":           {[]string{shim}, "", 125, "", "be PID 1"},
		"unknown verb":      {[]string{shim, "serve"}, "", 125, "", `unknown verb "serve"`},
		"init elsewhere":    {[]string{shim, "init", "--control", socket}, "", 125, "", "only as PID 1"},
		"unknown flag":      {[]string{shim, "init", "--nope"}, "", 125, "", "not defined"},
		"argument":          {[]string{shim, "hold", "extra"}, "", 125, "", "takes no arguments"},
		"hold without host": {[]string{shim, "hold", "--control", socket + ".no"}, "", 125, "", "reaching the supervisor"},
		"probe of nothing":  {[]string{shim, "probe"}, "", 125, "", "decoding"},
		"probe of unknown":  {[]string{shim, "probe"}, `{"stage":"before","extra":1}`, 125, "", "unknown field"},
		"inside: version":   {[]string{inside, "version"}, "", 0, "countersign ", ""},
		"inside: help":      {[]string{inside, "help"}, "", 0, "not built yet", ""},
		"inside: request":   {[]string{inside, "request", "network"}, "", 125, "", "not built yet"},
		"inside: mcp":       {[]string{inside, "mcp"}, "", 125, "", "not built yet"},
		"inside: init":      {[]string{inside, "init", "--control", socket}, "", 125, "", `unknown verb "init"`},
		"inside: probe":     {[]string{inside, "probe"}, "{}", 125, "", `unknown verb "probe"`},
	} {
		cmd := exec.Command(c.argv[0], c.argv[1:]...)
		var stdout, stderr bytes.Buffer
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(c.stdin), &stdout, &stderr
		cmd.Run()
		if cmd.ProcessState.ExitCode() != c.code || !strings.Contains(stdout.String(), c.stdout) || !strings.Contains(stderr.String(), c.stderr) {
			t.Errorf("%s: exit %d, stdout %q, stderr %q", name, cmd.ProcessState.ExitCode(), stdout.String(), stderr.String())
		}
	}
}
