// Package plan freezes a command: it writes down, before anybody approves it,
// everything that decides what the command will be, and later says what of it
// has changed.
//
// It decides the plan's words and its level. Nothing is judged by a list of bad
// strings: a shell text is taken apart by its grammar so that a reader sees
// what it does, and no command is called safe or dangerous. The level comes from
// the authority of the contract, not from the command.
//
// What always holds: argv and shell text are kept byte for byte; a text that
// does not parse, or is too large to be shown whole, is refused with its place;
// text for the reader is escaped; a frozen plan holds names of environment
// variables and never their values.
//
// The package performs no I/O: the paths and digests of files come in as
// [Facts]. It neither runs a command nor approves one.
package plan

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/countersign-dev/countersign/policy/contract"
)

// MaxArgv bounds an argv, in bytes with a NUL behind each word.
const MaxArgv = 128 << 10

// Request is what somebody asks to have frozen.
type Request struct {
	// Kind is a kind of promotion, or "" for a command that asks for nothing.
	Kind string
	// Argv or Shell is the command; a kind without a command has neither.
	Argv  []string
	Shell []byte
	// Change is the entry that the contract would gain, for kinds that have one.
	Change       contract.Widening
	Target       string
	Destinations []string
	Roots        contract.Roots
	Reason       string
	// TTLSec and Uses default to half an hour and one use.
	TTLSec  int64
	Uses    int
	Agent   string
	Session string
}

// Defaults of a Request.
const (
	DefaultTTLSec = 1800
	DefaultUses   = 1
)

// Facts is what was read of the machine and of the run, once.
type Facts struct {
	// Interpreter is the file that would be executed.
	Interpreter contract.Interpreter
	Cwd         string // absolute, links resolved
	Resolved    []contract.ResolvedPath
	EnvNames    []string // in any order
	// InputTreeDigest and PatchDigest are "" where the kind has none.
	InputTreeDigest string
	PatchDigest     string
	// Contract is what the run is under; the zero value outside a run.
	Contract contract.Sealed
}

// Freeze writes a plan down. It leaves Nonce empty, so what it returns is not
// yet a document: the host that asks for the promotion adds one.
func Freeze(r Request, f Facts) (contract.Plan, error) {
	p, err := freeze(r, f)
	if err != nil {
		return contract.Plan{}, fmt.Errorf("freezing plan: %w", err)
	}
	return p, nil
}

func freeze(r Request, f Facts) (contract.Plan, error) {
	if err := checkCommand(r, f); err != nil {
		return contract.Plan{}, err
	}
	p := contract.Plan{
		Schema: contract.SchemaPlan, Kind: r.Kind,
		Argv: some(r.Argv), Shell: some(r.Shell), Commands: []contract.ShellPart{},
		Interpreter: f.Interpreter, Cwd: f.Cwd, ResolvedPaths: some(f.Resolved),
		InputTreeDigest: f.InputTreeDigest, PatchDigest: f.PatchDigest,
		EnvNames: sortedNames(f.EnvNames),
		Roots:    contract.Roots{Read: some(r.Roots.Read), Write: some(r.Roots.Write)},
		Target:   r.Target, Destinations: some(r.Destinations), Change: r.Change, Reason: r.Reason,
		TTLSec: r.TTLSec, Uses: r.Uses, Agent: r.Agent, Session: r.Session,
	}
	if p.TTLSec == 0 {
		p.TTLSec = DefaultTTLSec
	}
	if p.Uses == 0 {
		p.Uses = DefaultUses
	}
	if len(r.Shell) > 0 {
		parts, err := List(r.Shell, f.Interpreter.Path)
		if err != nil {
			return contract.Plan{}, err
		}
		p.Commands = some(parts)
	}
	bind(&p, f.Contract)
	return p, grade(&p, f.Contract)
}

// bind ties the plan to the run's contract.
func bind(p *contract.Plan, sealed contract.Sealed) {
	if sealed.IsZero() {
		return
	}
	c := sealed.Contract()
	p.RunID, p.ContractDigest = c.RunID, sealed.Digest()
	p.Repo, p.HeadSHA, p.BaseRef = c.Repo, c.Head.SHA, c.Base.Ref
	p.PolicyDigest, p.CeilingDigest = c.Policy.Digest, c.Policy.CeilingDigest
}

// grade sets the level. Without a contract nothing bounds the command, so it is
// graded as one on a host.
func grade(p *contract.Plan, sealed contract.Sealed) (err error) {
	switch {
	case sealed.IsZero() && p.Kind != "" && p.Kind != contract.KindHostExec:
		return fmt.Errorf("kind %q changes a contract, and there is none", p.Kind)
	case sealed.IsZero():
		p.Level, p.LevelReason = contract.L3, "no contract bounds it, so it is graded as a command on a host"
	case p.Kind == "":
		p.Level, p.LevelReason = contract.LevelOf(sealed.Contract())
	default:
		p.Level, p.LevelReason, err = contract.LevelWith(sealed.Contract(), p.Kind, p.Change)
	}
	return err
}

func checkCommand(r Request, f Facts) error {
	switch {
	case len(r.Argv) > 0 && len(r.Shell) > 0:
		return errors.New("a plan has one command, argv or shell text")
	case r.Kind == contract.KindHostExec && len(r.Shell) > 0:
		return errors.New("host_exec runs an exact argv and no shell; give the argv")
	case len(r.Argv) == 0 && len(r.Shell) == 0:
		if r.Kind == "" || r.Kind == contract.KindHostExec {
			return errors.New("there is no command")
		}
		return nil
	}
	if err := checkArgv(r.Argv); err != nil {
		return err
	}
	switch {
	case !path.IsAbs(f.Cwd) || path.Clean(f.Cwd) != f.Cwd:
		return fmt.Errorf("the directory %q is not absolute and clean", f.Cwd)
	case !path.IsAbs(f.Interpreter.Path):
		return fmt.Errorf("the program's path %q is not absolute", f.Interpreter.Path)
	}
	if err := contract.CheckDigest(f.Interpreter.Digest); err != nil {
		return fmt.Errorf("the program's digest %v", err)
	}
	return nil
}

func checkArgv(argv []string) error {
	size := 0
	for i, a := range argv {
		size += len(a) + 1
		switch {
		case i == 0 && a == "":
			return errors.New("argv[0] is empty")
		case strings.IndexByte(a, 0) >= 0:
			return fmt.Errorf("argv[%d] holds a NUL byte, which no argument can", i)
		case !utf8.ValidString(a):
			return fmt.Errorf("argv[%d] is not UTF-8, so it cannot be shown as it is", i)
		case size > MaxArgv:
			return fmt.Errorf("argv has more than %d bytes", MaxArgv)
		}
	}
	return nil
}

func sortedNames(names []string) []string {
	out := slices.Clone(names)
	slices.Sort(out)
	return some(slices.Compact(out))
}

// some writes an empty list as one and not as nil: they have one spelling.
func some[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return slices.Clone(list)
}
