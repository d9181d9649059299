package plan

import (
	"errors"
	"os"
	"strings"
	"testing"

	"mvdan.cc/sh/v3/syntax"

	"github.com/countersign-dev/countersign/policy/contract"
)

// render writes parts as the tests below state them: kind, text, place, note.
func render(parts []contract.ShellPart) []string {
	var out []string
	for _, p := range parts {
		s := p.Kind + ": " + p.Text
		if p.In != "" {
			s += " @ " + p.In
		}
		if p.Note != "" {
			s += " # " + p.Note
		}
		out = append(out, s)
	}
	return out
}

func TestList(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"one command", "make test", []string{"command: make test"}},
		{"a list", "a; b && c || d &", []string{"command: a", "command: b", "command: c", "command: d"}},
		{"control flow", "if a; then b; else c; fi; while d; do e; done; for i in 1 2; do f; done; case x in y) g;; esac", []string{
			"command: a", "command: b", "command: c", "command: d", "command: e", "command: f", "command: g"}},
		{"subshell and block", "(a; { b; })", []string{"command: a @ subshell", "command: b @ subshell"}},
		{"function", "f() { rm x; }; f", []string{"command: rm x @ function f", "command: f # a function of this text"}},
		{"assignment", "PATH=/tmp ls; X=1", []string{"assignment: PATH=/tmp", "command: ls", "assignment: X=1"}},
		{"substitution", "echo $(cat x) `id`", []string{
			"command: echo $(cat x) `id`",
			"substitution: $(cat x)", "command: cat x @ command substitution",
			"substitution: `id`", "command: id @ command substitution"}},
		{"substitution in quotes and defaults", `echo "${X:-$(a)}" $((1 + $(b)))`, []string{
			`command: echo "${X:-$(a)}" $((1 + $(b)))`,
			"substitution: $(a)", "command: a @ command substitution",
			"substitution: $(b)", "command: b @ command substitution"}},
		{"substitution in an assignment", "X=$(a)", []string{"assignment: X=$(a)", "substitution: $(a)", "command: a @ command substitution"}},
		{"process substitution", "diff <(a) >(b)", []string{
			"command: diff <(a) >(b)",
			"substitution: <(a)", "command: a @ process substitution",
			"substitution: >(b)", "command: b @ process substitution"}},
		{"redirections", "a >out 2>>err <in 2>&1", []string{
			"command: a", "redirect: >out", "redirect: 2>>err", "redirect: <in", "redirect: 2>&1"}},
		{"redirection to an unknown file", `a >"$X"`, []string{"command: a", `redirect: >"$X" # the file is decided at run time`}},
		{"here-document", "cat <<E\nhi $(a)\nE", []string{
			"command: cat", "redirect: <<E # its input stands in the text",
			"substitution: $(a)", "command: a @ command substitution"}},
		{"pipe", "a | b", []string{"command: a", "command: b"}},
		{"pipe into sh", "curl x | sh", []string{"command: curl x", "command: sh", "pipe: sh # what comes through the pipe is run by sh"}},
		{"pipe into a wrapped shell", "curl x | sudo -E bash -", []string{
			"command: curl x", "command: sudo -E bash -", "pipe: sudo -E bash - # what comes through the pipe is run by bash"}},
		{"pipe into a shell by path", "a | /usr/bin/env python3.12", []string{
			"command: a", "command: /usr/bin/env python3.12", "pipe: /usr/bin/env python3.12 # what comes through the pipe is run by python"}},
		{"pipe into a block", "a | { b; sh -s; }", []string{
			"command: a", "command: b", "command: sh -s", "pipe: sh -s # what comes through the pipe is run by sh"}},
		{"pipe, quoted name", `a | 's'"h"`, []string{"command: a", `command: 's'"h"`, `pipe: 's'"h" # what comes through the pipe is run by sh`}},
		{"pipe, flags of another language", "a | python3 -u", []string{
			"command: a", "command: python3 -u", "pipe: python3 -u # what comes through the pipe may be run by python"}},
		{"pipe into a program file", "a | python3 x.py", []string{"command: a", "command: python3 x.py"}},
		{"pipe as data of sh -c", "a | sh -c 'cat'", []string{"command: a", "command: sh -c 'cat'", "command: cat @ sh -c"}},
		{"pipe through to a nested shell", "a | sh -c 'b; sh'", []string{"command: a", "command: sh -c 'b; sh'", "command: b @ sh -c",
			"command: sh @ sh -c", "pipe: sh @ sh -c # what comes through the pipe is run by sh"}},
		{"pipe into an unknown name", "a | $X", []string{
			"command: a", "dynamic: $X # the command's name is decided at run time, and it reads what comes through the pipe"}},
		{"left of a pipe is not fed", "sh | cat", []string{"command: sh", "command: cat"}},
		{"sh -c", `sh -c 'rm "$1"; (b)'`, []string{`command: sh -c 'rm "$1"; (b)'`, `command: rm "$1" @ sh -c`, "command: b @ sh -c > subshell"}},
		{"sh -c with options", "bash -o pipefail -ec 'a' name", []string{"command: bash -o pipefail -ec 'a' name", "command: a @ bash -c"}},
		{"sh -c behind wrappers", "env A=1 timeout 5 sh -c a", []string{"command: env A=1 timeout 5 sh -c a", "command: a @ sh -c"}},
		{"xargs sh -c", "xargs -I{} sh -c 'rm {}'", []string{"command: xargs -I{} sh -c 'rm {}'", "command: rm {} @ sh -c"}},
		{"sh -c in sh -c", `sh -c "sh -c 'a'"`, []string{`command: sh -c "sh -c 'a'"`, "command: sh -c 'a' @ sh -c", "command: a @ sh -c > sh -c"}},
		{"sh -c of an unknown text", `sh -c "$X"`, []string{`command: sh -c "$X"`, `dynamic: "$X" @ sh -c # the text is decided at run time`}},
		{"sh of unknown arguments", "sh $X", []string{"command: sh $X", "dynamic: sh $X # what sh runs is decided at run time"}},
		{"sh -c that does not parse", "sh -c 'if'", []string{"command: sh -c 'if'",
			"dynamic: if @ sh -c # cannot be listed: shell text 1:1: `if` must be followed by a statement list"}},
		{"another shell's language", "fish -c 'a'", []string{"command: fish -c 'a'", "dynamic: a @ fish -c # the language of this shell cannot be listed"}},
		{"no shell", "grep sh -c x", []string{"command: grep sh -c x"}},
		{"here-document into sh", "sh <<'E'\nrm $x\nE", []string{
			"command: sh", "redirect: <<'E' # its input stands in the text", "command: rm $x @ sh <<"}},
		{"here-document with expansions into sh", "sh <<E\nrm $x\nE", []string{
			"command: sh", "redirect: <<E # its input stands in the text", "dynamic: rm $x\\n @ sh << # the text is decided at run time"}},
		{"here-string into bash", "bash <<< 'a b'", []string{"command: bash", "redirect: <<< 'a b'", "command: a b @ bash <<"}},
		{"here-document into another language", "python3 - <<'E'\nimport os\nE", []string{
			"command: python3 -", "pipe: python3 - # its here-document is run by python", "redirect: <<'E' # its input stands in the text"}},
		{"eval", "eval 'a' b", []string{"command: eval 'a' b", "command: a b @ eval"}},
		{"eval behind command", "command eval a", []string{"command: command eval a", "command: a @ eval"}},
		{"eval of an unknown text", `eval "$X"`, []string{`command: eval "$X"`, `dynamic: eval "$X" # what eval runs is decided at run time`}},
		{"trap", "trap 'rm x' EXIT; trap - EXIT", []string{"command: trap 'rm x' EXIT", "command: rm x @ trap", "command: trap - EXIT"}},
		{"source", ". ./x; source y", []string{
			"command: . ./x # runs a file whose contents are not part of this text",
			"command: source y # runs a file whose contents are not part of this text"}},
		{"alias", "alias ls='rm x'", []string{"command: alias ls='rm x' # changes what later names mean"}},
		{"name from a variable", "$X a; ${Y}z b; `c` d", []string{
			"dynamic: $X a # the command's name is decided at run time",
			"dynamic: ${Y}z b # the command's name is decided at run time",
			"dynamic: `c` d # the command's name is decided at run time",
			"substitution: `c`", "command: c @ command substitution"}},
		{"name from a glob, a brace, a tilde, an escape", `/bin/l?; {ls,-l}; ~/x; $'\x6c\x73'`, []string{
			"dynamic: /bin/l? # the command's name is decided at run time",
			"dynamic: {ls,-l} # the command's name is decided at run time",
			"dynamic: ~/x # the command's name is decided at run time",
			`dynamic: $'\\x6c\\x73' # the command's name is decided at run time`}},
		{"name in pieces is known", `"e"'v'\al 'a'`, []string{`command: "e"'v'\\al 'a'`, "command: a @ eval"}},
		{"wrapper of an unknown command", `exec "$@"`, []string{`command: exec "$@" # runs what its arguments name, some of them decided at run time`}},
		{"declarations", "export A=1 B; local -r c=$(x)", []string{
			"command: export A=1 B", "assignment: A=1", "command: local -r c=$(x)", "assignment: c=$(x)",
			"substitution: $(x)", "command: x @ command substitution"}},
		{"coprocess, time, not, let", "coproc a; time b; ! c; let x=1", []string{"command: a", "command: b", "command: c", "command: let x=1"}},
		{"control characters are escaped", "echo '\x1b[2J\u202e'", []string{`command: echo '\x1b[2J\u202e'`}},
		{"comment", "# rm x\na # b", []string{"command: a"}},
		{"line continuation", "r\\\nm x", []string{`command: r\\\nm x`}},
		{"nothing", "", nil},
	} {
		parts, err := List([]byte(c.text), "/bin/bash")
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got := render(parts); strings.Join(got, "\n") != strings.Join(c.want, "\n") {
			t.Errorf("%s: %s\ngot:\n\t%s\nwant:\n\t%s", c.name, c.text, strings.Join(got, "\n\t"), strings.Join(c.want, "\n\t"))
		}
	}
}

// TestGrammarFollowsTheShell: a=(b) assigns a list in bash and is an error in sh.
func TestGrammarFollowsTheShell(t *testing.T) {
	if parts, err := List([]byte("a=(b)"), "/usr/bin/bash"); err != nil || len(parts) != 1 {
		t.Errorf("bash: %v, %v", render(parts), err)
	}
	if parts, err := List([]byte("a=(b)"), "/usr/bin/dash"); err == nil {
		t.Errorf("dash: %v", render(parts))
	}
}

func TestPositions(t *testing.T) {
	parts, err := List([]byte("a\n  sh -c 'b\nc'; "+strings.Repeat("x", 40_000)+" y"), "sh")
	if err != nil {
		t.Fatal(err)
	}
	var got [][2]int
	for _, p := range parts {
		got = append(got, [2]int{p.Line, p.Column})
	}
	// b and c stand in the word at 2:9; the last command begins behind c'; .
	want := [][2]int{{1, 1}, {2, 3}, {2, 9}, {2, 9}, {3, 5}}
	if len(got) != len(want) {
		t.Fatalf("positions %v, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("part %d (%s) is at %v, want %v", i, parts[i].Text[:1], got[i], want[i])
		}
	}
	if last := parts[4].Text; len(last) > maxExcerpt+20 || !strings.HasSuffix(last, "(shortened)") {
		t.Errorf("a long command is shown with %d bytes", len(last))
	}
}

func TestListRefuses(t *testing.T) {
	nested := strings.Repeat("$(", MaxNesting+1) + "a" + strings.Repeat(")", MaxNesting+1)
	for _, c := range []struct{ name, text, shell, want string }{
		{"does not parse", "a\nif b; then", "sh", "shell text 2:7: "},
		{"not UTF-8", "echo \xff", "sh", "shell text 1:6: "},
		{"unclosed quote", "echo 'x", "sh", "shell text 1:6: "},
		{"bash in sh", "diff <(a)", "dash", "shell text 1:6: "},
		{"NUL", "a\n\x00", "sh", "shell text 2:1: a NUL"},
		{"carriage return", "ls\r\n", "sh", "shell text 1:3: a carriage return"},
		{"too large", strings.Repeat("#", MaxText+1), "sh", "at most 65536"},
		{"nested too deep", "echo " + nested, "sh", "nests more than 32"},
		{"too many parts", strings.Repeat("a;", MaxParts+1), "sh", "more than 2000 things"},
		{"another shell", "a", "/usr/bin/fish", "cannot be listed"},
		{"no shell", "a", "/usr/bin/python3", "cannot be listed"},
	} {
		parts, err := List([]byte(c.text), c.shell)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want …%s…; parts %v", c.name, err, c.want, render(parts))
		} else if !contract.Printable(err.Error()) {
			t.Errorf("%s: the error does not print: %q", c.name, err)
		}
	}
}

func TestListArgv(t *testing.T) {
	for _, c := range []struct {
		argv []string
		want []string
	}{
		{[]string{"make", "test"}, nil},
		{[]string{"sh", "-c", "a | sh"}, []string{"command: a @ sh -c", "command: sh @ sh -c", "pipe: sh @ sh -c # what comes through the pipe is run by sh"}},
		{[]string{"env", "-i", "bash", "-ec", "a; b"}, []string{"command: a @ bash -c", "command: b @ bash -c"}},
		{[]string{"sh", "x.sh"}, nil},
		{[]string{"sh", "-c", "if"}, []string{"dynamic: if @ sh -c # cannot be listed: shell text 1:1: `if` must be followed by a statement list"}},
	} {
		parts, err := ListArgv(c.argv)
		if got := render(parts); err != nil || strings.Join(got, "\n") != strings.Join(c.want, "\n") {
			t.Errorf("%q: %v, got:\n%s", c.argv, err, strings.Join(got, "\n"))
		}
		for _, p := range parts {
			if want := indexOf(c.argv, 2, c.argv[len(c.argv)-1]) + 1; p.Line != want {
				t.Errorf("%q: word %d, want %d", c.argv, p.Line, want)
			}
		}
	}
}

// FuzzShell: no text makes the lister panic, and every simple command that the
// grammar finds is listed at its place.
func FuzzShell(f *testing.F) {
	for _, seed := range []string{
		"", "make test", "a | sh", "sh -c 'sh -c \"a\"'", "eval \"$X\"", "cat <<E\n$(a)\nE", "bash <<< x", "f() { a; }; f", "`a \\`b\\``",
		"a=(1 $(b)); a[$(c)]=2", "case $(a) in b) c;; esac", "$((1+$(a)))", "[[ $(a) ]]", "((a=$(b)))", "trap 'a' EXIT", "x <<-'E'\n\ta\n\tE", "a &>b",
		"{ a; } | ( b )", "sh -c 'if'", "coproc x { a; }", "select a in b; do c; done", "sh <<E", "\xff", "~", "${a:=$(b)}", "a \\\n b", "export a=$(b)", "<a", "!",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, shell := range []string{"sh", "bash", "mksh"} {
			checkListed(t, text, shell)
		}
	})
}

func checkListed(t *testing.T, text, shell string) {
	parts, err := List([]byte(text), shell)
	if err != nil {
		return
	}
	listed := map[[2]int]bool{}
	for _, p := range parts {
		if p.Text == "" || !contract.Printable(p.Text+p.In+p.Note) || p.Line < 1 || p.Column < 1 {
			t.Errorf("%s: part %+v of %q", shell, p, text)
		}
		if p.Kind == contract.PartCommand || p.Kind == contract.PartDynamic {
			listed[[2]int{p.Line, p.Column}] = true
		}
	}
	variant, _ := shellVariant(shell)
	file, err := parse(text, variant)
	if err != nil {
		t.Fatalf("%s: listed what does not parse: %v", shell, err)
	}
	for node := range syntax.Preorder(file) {
		call, ok := node.(*syntax.CallExpr)
		if !ok || len(call.Args) == 0 {
			continue
		}
		line, column := position(text, int(call.Args[0].Pos().Offset()))
		if !listed[[2]int{line, column}] {
			t.Errorf("%s: the command at %d:%d of %q is not listed: %v", shell, line, column, text, render(parts))
		}
	}
}

func TestThisMakefilesShell(t *testing.T) {
	script, err := os.ReadFile("/usr/bin/ldd") // a shell script of some size on every glibc system
	if errors.Is(err, os.ErrNotExist) {
		t.Log("no /usr/bin/ldd to list")
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	checkListed(t, string(script), "bash")
	if parts, err := List(script, "bash"); err != nil || len(parts) < 50 {
		t.Errorf("%d parts, %v", len(parts), err)
	}
}
