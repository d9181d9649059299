package plan

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-dev/countersign/policy/contract"
)

var (
	digestA = contract.DigestBytes([]byte("a"))
	digestB = contract.DigestBytes([]byte("b"))
)

func facts() Facts {
	return Facts{
		Interpreter: contract.Interpreter{Path: "/usr/bin/dash", Digest: digestA},
		Cwd:         "/work",
		Resolved:    []contract.ResolvedPath{{Word: "make", Path: "/usr/bin/make", Digest: digestA}},
		EnvNames:    []string{"PATH", "HOME", "PATH"},
	}
}

func TestFreezeArgv(t *testing.T) {
	got, err := Freeze(Request{Argv: []string{"make", "a b", "\x1b"}, Reason: "why"}, facts())
	if err != nil {
		t.Fatal(err)
	}
	want := contract.Plan{
		Schema: contract.SchemaPlan, Argv: []string{"make", "a b", "\x1b"}, Shell: []byte{}, Commands: []contract.ShellPart{},
		Interpreter:   contract.Interpreter{Path: "/usr/bin/dash", Digest: digestA},
		Cwd:           "/work",
		ResolvedPaths: []contract.ResolvedPath{{Word: "make", Path: "/usr/bin/make", Digest: digestA}},
		EnvNames:      []string{"HOME", "PATH"},
		Roots:         contract.Roots{Read: []string{}, Write: []string{}}, Destinations: []string{},
		Reason: "why", TTLSec: 1800, Uses: 1,
		Level: contract.L3, LevelReason: "no contract bounds it, so it is graded as a command on a host",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestFreezeKeepsShellBytes(t *testing.T) {
	text := []byte("a  |\tsh # é\n\n")
	got, err := Freeze(Request{Shell: text}, facts())
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Shell, text) || len(got.Argv) != 0 {
		t.Errorf("shell is %q", got.Shell)
	}
	if want := []string{"command: a", "command: sh", "pipe: sh # what comes through the pipe is run by sh"}; !slices.Equal(render(got.Commands), want) {
		t.Errorf("commands %q", render(got.Commands))
	}
}

func TestFreezeRefuses(t *testing.T) {
	with := func(change func(*Facts)) Facts {
		f := facts()
		change(&f)
		return f
	}
	ls := Request{Argv: []string{"ls"}}
	for _, c := range []struct {
		name string
		r    Request
		f    Facts
		want string
	}{
		{"no command", Request{}, facts(), "no command"},
		{"no command for a host", Request{Kind: contract.KindHostExec}, facts(), "no command"},
		{"two commands", Request{Argv: []string{"a"}, Shell: []byte("b")}, facts(), "one command"},
		{"shell on a host", Request{Kind: contract.KindHostExec, Shell: []byte("b")}, facts(), "no shell"},
		{"empty program", Request{Argv: []string{""}}, facts(), "argv[0] is empty"},
		{"NUL", Request{Argv: []string{"a", "b\x00"}}, facts(), "argv[1] holds a NUL"},
		{"not UTF-8", Request{Argv: []string{"a", "\xff"}}, facts(), "argv[1] is not UTF-8"},
		{"too long", Request{Argv: []string{"a", strings.Repeat("b", MaxArgv)}}, facts(), "more than 131072"},
		{"text that does not parse", Request{Shell: []byte("a\n(")}, facts(), "shell text 2:1"},
		{"unknown shell", Request{Shell: []byte("a")}, with(func(f *Facts) { f.Interpreter.Path = "/usr/bin/fish" }), "cannot be listed"},
		{"relative directory", ls, with(func(f *Facts) { f.Cwd = "work" }), "not absolute"},
		{"directory with dots", ls, with(func(f *Facts) { f.Cwd = "/a/../b" }), "not absolute and clean"},
		{"program by name", ls, with(func(f *Facts) { f.Interpreter.Path = "ls" }), "not absolute"},
		{"program without digest", ls, with(func(f *Facts) { f.Interpreter.Digest = "" }), "digest"},
		{"a change without a contract", Request{Kind: contract.KindPath, Change: contract.Widening{Path: &contract.Root{Path: "/opt"}}}, facts(), "there is none"},
	} {
		if p, err := Freeze(c.r, c.f); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want …%s…; plan %+v", c.name, err, c.want, p)
		}
	}
}

func TestFreezeSharesNothing(t *testing.T) {
	r, f := Request{Argv: []string{"a", "b"}}, facts()
	p, err := Freeze(r, f)
	if err != nil {
		t.Fatal(err)
	}
	r.Argv[1], f.Resolved[0].Path = "changed", "/changed"
	if p.Argv[1] != "b" || p.ResolvedPaths[0].Path != "/usr/bin/make" {
		t.Errorf("the plan changed with its request: %+v", p)
	}
}

func TestCompare(t *testing.T) {
	request := Request{Argv: []string{"make"}, Reason: "r", Agent: "a", Session: "s"}
	frozen, err := Freeze(request, facts())
	if err != nil {
		t.Fatal(err)
	}
	frozen.Nonce = strings.Repeat("0", 32)
	for _, c := range []struct {
		field  string
		change func(*Request, *Facts)
	}{
		{"", func(*Request, *Facts) {}},
		{"", func(r *Request, f *Facts) { r.Destinations, f.EnvNames = []string{}, []string{"HOME", "PATH"} }},
		{"argv", func(r *Request, _ *Facts) { r.Argv = []string{"make", "-k"} }},
		{"cwd", func(_ *Request, f *Facts) { f.Cwd = "/other" }},
		{"interpreter", func(_ *Request, f *Facts) { f.Interpreter.Digest = digestB }},
		{"resolved_paths", func(_ *Request, f *Facts) { f.Resolved[0].Digest = digestB }},
		{"env_names", func(_ *Request, f *Facts) { f.EnvNames = append(f.EnvNames, "LD_PRELOAD") }},
		{"roots", func(r *Request, _ *Facts) { r.Roots.Write = []string{"/"} }},
		{"destinations", func(r *Request, _ *Facts) { r.Destinations = []string{"a.example.com:443"} }},
		{"reason", func(r *Request, _ *Facts) { r.Reason = "other" }},
		{"agent", func(r *Request, _ *Facts) { r.Agent = "b" }},
		{"session", func(r *Request, _ *Facts) { r.Session = "t" }},
		{"ttl_sec", func(r *Request, _ *Facts) { r.TTLSec = 60 }},
		{"uses", func(r *Request, _ *Facts) { r.Uses = 2 }},
		{"input_tree_digest", func(_ *Request, f *Facts) { f.InputTreeDigest = digestB }},
		{"kind", func(r *Request, _ *Facts) { r.Kind = contract.KindHostExec }},
	} {
		r, f := request, facts()
		c.change(&r, &f)
		present, err := Freeze(r, f)
		if err != nil {
			t.Fatalf("%s: %v", c.field, err)
		}
		var fields []string
		for _, m := range Compare(frozen, present) {
			fields = append(fields, m.Field)
		}
		if got := strings.Join(fields, " "); got != c.field {
			t.Errorf("changing %q is found as %q", c.field, got)
		}
	}
}

func TestMismatchIsReadable(t *testing.T) {
	a := contract.Plan{Reason: "before"}
	b := contract.Plan{Reason: "\x1b[2J" + strings.Repeat("x", 10_000)}
	found := Compare(a, b)
	if len(found) != 1 || !contract.Printable(found[0].String()) || len(found[0].String()) > 2*maxExcerpt+100 {
		t.Errorf("Compare = %q", found)
	}
}
