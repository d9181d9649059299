package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/policy/plan"
)

func newPlanCommand() *cobra.Command {
	var cwd, shell string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "plan [flags] -- ARGV...  |  plan [flags] --shell TEXT",
		Short: "Freeze a command: show exactly what would be run, and run nothing",
		Long: `Plan writes down everything that decides what a command will be: its words, the
program's resolved path and the digest of its file, the interpreter that a
script names, the files that its words name, the directory, the names of the
environment's variables, and for a shell text every command, substitution,
redirection and pipe into an interpreter that its grammar shows.

It runs nothing and judges nothing. The plan's digest is what an approval would
be bound to, once the host has added its nonce: change anything, and it is
another digest. With --json the plan is one line of canonical JSON, and the
digest is that line's SHA-256.

A shell text is read with the grammar of the sh on PATH.`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch hasShell := cmd.Flags().Changed("shell"); {
			case hasShell && len(args) > 0:
				return errors.New("give a command or --shell TEXT, not both")
			case !hasShell && len(args) == 0:
				return errors.New("there is no command to freeze: countersign plan [flags] -- ARGV")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			request := plan.Request{Argv: args, Shell: []byte(shell)}
			p, left, err := freezeHere(request, cwd)
			if err != nil {
				return err
			}
			if len(left) > 0 {
				fmt.Fprintf(cmd.ErrOrStderr(), "countersign: not in the plan, because a command under a plan never gets them: the variables %s\n",
					contract.Escape(strings.Join(left, " ")))
			}
			return printPlan(cmd.OutOrStdout(), p, asJSON)
		},
	}
	fl := cmd.Flags()
	fl.SetInterspersed(false)
	fl.StringVar(&cwd, "cwd", ".", "the `DIR` in which the command would run")
	fl.StringVar(&shell, "shell", "", "freeze this shell `TEXT` instead of a command")
	fl.BoolVar(&asJSON, "json", false, "print the plan as one line of canonical JSON")
	return cmd
}

// freezeHere gathers the facts of this machine and freezes. left are variables
// whose names are none that a command could be given.
func freezeHere(request plan.Request, cwd string) (p contract.Plan, left []string, err error) {
	facts := plan.Facts{}
	if facts.Cwd, err = resolveDir(cwd); err != nil {
		return p, nil, err
	}
	look := lookup{cwd: facts.Cwd, path: os.Getenv("PATH")}
	words := request.Argv
	if len(request.Shell) > 0 {
		words = []string{"sh"}
	}
	if len(words) > 0 && words[0] != "" {
		if facts.Interpreter, err = look.program(words[0]); err != nil {
			return p, nil, err
		}
		if facts.Resolved, err = look.words(words); err != nil {
			return p, nil, err
		}
	}
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		if contract.CheckEnvName(name) != nil {
			left = append(left, name)
			continue
		}
		facts.EnvNames = append(facts.EnvNames, name)
	}
	slices.Sort(left)
	p, err = plan.Freeze(request, facts)
	return p, left, err
}

func printPlan(w io.Writer, p contract.Plan, asJSON bool) error {
	encoded, err := contract.EncodeCanonical(p)
	if err != nil {
		return err
	}
	if asJSON {
		_, err := fmt.Fprintf(w, "%s\n", encoded)
		return err
	}
	_, err = io.WriteString(w, renderPlan(p, contract.DigestBytes(encoded)))
	return err
}

// renderPlan shows a plan to a person. Every value is escaped: a word of a
// command may hold anything.
func renderPlan(p contract.Plan, digest string) string {
	var b strings.Builder
	row := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-9s %s\n", name, contract.Escape(fmt.Sprintf(format, args...)))
	}
	row("plan", "%s (before the host's nonce)", digest)
	row("level", "%s: %s", p.Level, p.LevelReason)
	for i, a := range p.Argv {
		row(fmt.Sprintf("argv[%d]", i), "%s", a)
	}
	if len(p.Shell) > 0 {
		for i, line := range strings.Split(strings.TrimSuffix(string(p.Shell), "\n"), "\n") {
			row(fmt.Sprintf("text %d", i+1), "%s", line)
		}
	}
	row("program", "%s %s", p.Interpreter.Path, p.Interpreter.Digest)
	row("cwd", "%s", p.Cwd)
	for _, r := range p.ResolvedPaths {
		row("file", "%s = %s %s", r.Word, r.Path, r.Digest)
	}
	row("env", "%s", strings.Join(p.EnvNames, " "))
	parts := p.Commands
	if len(p.Argv) > 0 {
		if listed, err := plan.ListArgv(p.Argv); err != nil {
			row("does", "cannot be listed: %v", err)
		} else {
			parts = listed
		}
	}
	for _, part := range parts {
		at := fmt.Sprintf("%d:%d", part.Line, part.Column)
		if len(p.Argv) > 0 {
			at = fmt.Sprintf("argv[%d]", part.Line-1)
		}
		renderPart(&b, at, part)
	}
	return b.String()
}

// renderPart shows one thing that a shell text does. Its texts are escaped
// already.
func renderPart(b *strings.Builder, at string, part contract.ShellPart) {
	fmt.Fprintf(b, "%-9s %-12s %s", at, part.Kind, part.Text)
	if part.In != "" {
		fmt.Fprintf(b, "  [in %s]", part.In)
	}
	if part.Note != "" {
		fmt.Fprintf(b, "  (%s)", part.Note)
	}
	b.WriteByte('\n')
}
