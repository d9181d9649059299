package policy

import (
	"fmt"
	"regexp"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"github.com/countersign-dev/countersign/policy/contract"
)

const (
	maxWhenBytes = 4 << 10
	// maxWhenCost bounds one evaluation, in CEL's cost units (about one for
	// each operation); a scan of 3,000 paths with a prefix costs some 20,000.
	maxWhenCost = 500_000
)

// condition is a compiled `when`. It is safe for use by many goroutines.
type condition struct {
	program cel.Program
	// usesLabels says that the verdict may depend on labels no rule names.
	usesLabels bool
}

// whenVariables are everything a condition can see. Each is declared under its
// whole dotted name, so that a misspelt field is an error when the policy is
// read, not when a rule is needed.
func whenVariables() map[string]*cel.Type {
	return map[string]*cel.Type{
		"event.kind": cel.StringType, "event.action": cel.StringType,
		"actor.id": cel.IntType, "actor.login": cel.StringType, "actor.role": cel.StringType,
		"repo.id": cel.IntType, "repo.name": cel.StringType, "repo.private": cel.BoolType,
		"pr.number": cel.IntType, "pr.base": cel.StringType, "pr.fork": cel.BoolType, "pr.draft": cel.BoolType,
		"labels": cel.ListType(cel.StringType), "paths": cel.ListType(cel.StringType),
	}
}

// newWhenEnv makes the CEL environment: the standard library, which reads no
// clock, and our variables. It is made once for each policy that has a `when`.
func newWhenEnv() (*cel.Env, error) {
	opts := []cel.EnvOption{
		cel.ParserRecursionLimit(64),
		cel.ParserExpressionSizeLimit(maxWhenBytes),
		cel.ExpressionNodeLimit(4096),
		cel.RegexProgramSizeLimit(1000),
	}
	for name, typ := range whenVariables() {
		opts = append(opts, cel.Variable(name, typ))
	}
	return cel.NewEnv(opts...)
}

// whenError is what is wrong with a condition, at a place within its text that
// counts from line 1 and column 1.
type whenError struct {
	at             pos
	msg, suggested string
}

// compileWhen compiles and type-checks one condition.
func compileWhen(env *cel.Env, text string) (*condition, []whenError) {
	if len(text) > maxWhenBytes {
		return nil, []whenError{{pos{1, 1}, fmt.Sprintf("the condition has %d bytes; the most is %d", len(text), maxWhenBytes), ""}}
	}
	ast, issues := env.Compile(text)
	if issues.Err() != nil {
		var errs []whenError
		for _, e := range issues.Errors() {
			at := pos{max(e.Location.Line(), 1), max(e.Location.Column(), 0) + 1}
			at = startOfName(text, at)
			msg, meant := explainCEL(text, at, e.Message)
			errs = append(errs, whenError{at, msg, meant})
		}
		return nil, errs
	}
	if ast.OutputType() != cel.BoolType {
		return nil, []whenError{{pos{1, 1}, fmt.Sprintf("a condition is true or false; this one is a %s", ast.OutputType()), ""}}
	}
	program, err := env.Program(ast, cel.CostLimit(maxWhenCost), cel.EvalOptions(cel.OptOptimize))
	if err != nil {
		return nil, []whenError{{pos{1, 1}, "in the condition: " + clip(err.Error()), ""}}
	}
	c := &condition{program: program}
	for _, ref := range ast.NativeRep().ReferenceMap() {
		c.usesLabels = c.usesLabels || ref.Name == "labels"
	}
	return c, nil
}

var (
	dottedName    = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?`)
	undeclaredRef = regexp.MustCompile(`^undeclared reference to '([^']*)'`)
)

// startOfName moves a place within a dotted name to the name's start: CEL places
// a name it does not know at its last dot.
func startOfName(text string, at pos) pos {
	lines := strings.Split(text, "\n")
	if at.line > len(lines) {
		return at
	}
	for r := []rune(lines[at.line-1]); at.column > 1 && at.column <= len(r) && isNameRune(r[at.column-2]); {
		at.column--
	}
	return at
}

func isNameRune(r rune) bool {
	return r == '_' || r == '.' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
}

// explainCEL says in our words what CEL says of a name that does not exist.
func explainCEL(text string, at pos, msg string) (string, string) {
	m := undeclaredRef.FindStringSubmatch(msg)
	if m == nil {
		line, _, _ := strings.Cut(msg, "\n")
		return "in the condition: " + clip(line), ""
	}
	names := make([]string, 0, 16)
	for name := range whenVariables() {
		names = append(names, name)
	}
	sorted(names)
	got := m[1]
	if lines := strings.Split(text, "\n"); at.line <= len(lines) {
		if r := []rune(lines[at.line-1]); at.column <= len(r) {
			if full := dottedName.FindString(string(r[at.column-1:])); full != "" {
				got = full
			}
		}
	}
	return fmt.Sprintf("in the condition: there is no %q", clip(got)), nearest(got, names)
}

// activation resolves a condition's variables from one task, by need.
type activation struct{ task *contract.Task }

// ResolveName implements cel.Activation.
func (a activation) ResolveName(name string) (any, bool) {
	t := a.task
	switch name {
	case "event.kind":
		return t.Event.Kind, true
	case "event.action":
		return t.Event.Action, true
	case "actor.id":
		return t.Actor.ID, true
	case "actor.login":
		return t.Actor.Login, true
	case "actor.role":
		return t.Actor.Role, true
	case "repo.id":
		return t.Repo.ID, true
	case "repo.name":
		return t.Repo.FullName, true
	case "repo.private":
		return t.RepoPrivate, true
	case "pr.number":
		return int64(t.PullRequest), true
	case "pr.base":
		return t.Base.Ref, true
	case "pr.fork":
		return t.Head.Fork, true
	case "pr.draft":
		return t.Draft, true
	case "labels":
		return t.Labels, true
	case "paths":
		return t.Paths, true
	}
	return nil, false
}

// Parent implements cel.Activation.
func (a activation) Parent() cel.Activation { return nil }

// holds evaluates the condition. An error (an index out of range, a cost past
// the bound) is neither true nor false: the caller must refuse.
func (c *condition) holds(task *contract.Task) (bool, error) {
	out, _, err := c.program.Eval(activation{task})
	if err != nil {
		return false, fmt.Errorf("evaluating condition: %v", err)
	}
	return out == types.True, nil
}
