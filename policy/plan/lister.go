package plan

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/countersign-dev/countersign/policy/contract"
)

// lister walks one syntax tree and writes down what a reader should see.
type lister struct {
	text string
	// variant is the grammar that text is read with.
	variant syntax.LangVariant
	base    *contract.ShellPart // where the word stands that holds text, nil at the top
	in      []string            // constructs around, outermost first
	piped   int                 // how many pipes feed what is being walked
	parts   *[]contract.ShellPart
	funcs   map[string]bool
	// pipeEnds are the right sides of pipes; input the here-documents of calls.
	pipeEnds map[*syntax.Stmt]bool
	input    map[*syntax.CallExpr]*syntax.Redirect
	err      error
}

func (l *lister) run(text string, variant syntax.LangVariant) error {
	file, err := parse(text, variant)
	if err != nil {
		return err
	}
	l.text, l.variant = text, variant
	l.funcs = map[string]bool{}
	l.pipeEnds = map[*syntax.Stmt]bool{}
	l.input = map[*syntax.CallExpr]*syntax.Redirect{}
	for node := range syntax.Preorder(file) {
		if f, ok := node.(*syntax.FuncDecl); ok && f.Name != nil {
			l.funcs[f.Name.Value] = true
		}
	}
	var leave []func()
	syntax.Walk(file, func(node syntax.Node) bool {
		if node == nil {
			leave[len(leave)-1]()
			leave = leave[:len(leave)-1]
			return true
		}
		if l.err != nil {
			return false
		}
		leave = append(leave, l.enter(node))
		return true
	})
	return l.err
}

// enter writes down one node; what it returns undoes what it changed.
func (l *lister) enter(node syntax.Node) func() {
	switch node := node.(type) {
	case *syntax.Stmt:
		return l.statement(node)
	case *syntax.BinaryCmd:
		if node.Op == syntax.Pipe || node.Op == syntax.PipeAll {
			l.pipeEnds[node.Y] = true
		}
	case *syntax.CallExpr:
		l.call(node)
	case *syntax.DeclClause:
		l.declare(node)
	case *syntax.LetClause:
		l.add(contract.PartCommand, node, "")
	case *syntax.Assign:
		if !node.Naked {
			l.add(contract.PartAssignment, node, "")
		}
	case *syntax.Redirect:
		l.redirect(node)
	case *syntax.CmdSubst:
		l.add(contract.PartSubstitution, node, "")
		return l.push("command substitution")
	case *syntax.ProcSubst:
		l.add(contract.PartSubstitution, node, "")
		return l.push("process substitution")
	case *syntax.Subshell:
		return l.push("subshell")
	case *syntax.FuncDecl:
		if node.Name != nil {
			return l.push("function " + contract.Escape(node.Name.Value))
		}
		return l.push("function")
	}
	return func() {}
}

func (l *lister) statement(s *syntax.Stmt) func() {
	if call, ok := s.Cmd.(*syntax.CallExpr); ok {
		for _, r := range s.Redirs {
			if _, isInput, _ := heredocText(r); isInput {
				l.input[call] = r
			}
		}
	}
	if !l.pipeEnds[s] {
		return func() {}
	}
	l.piped++
	return func() { l.piped-- }
}

func (l *lister) push(construct string) func() {
	if l.in = append(l.in, construct); len(l.in) > MaxNesting {
		l.err = errNesting
	}
	return func() { l.in = l.in[:len(l.in)-1] }
}

func (l *lister) declare(d *syntax.DeclClause) {
	note := ""
	for _, a := range d.Args {
		if a.Naked && a.Name == nil {
			if _, known := knownWord(a.Value); !known {
				note = "what it declares is decided at run time"
			}
		}
	}
	l.add(contract.PartCommand, d, note)
}

func (l *lister) redirect(r *syntax.Redirect) {
	start, end := int(r.Pos().Offset()), int(r.Word.End().Offset())
	note := ""
	switch r.Op {
	case syntax.Hdoc, syntax.DashHdoc:
		note = "its input stands in the text"
	case syntax.WordHdoc:
	default:
		if _, known := knownWord(r.Word); !known {
			note = "the file is decided at run time"
		}
	}
	l.write(contract.PartRedirect, start, end, note)
}

func (l *lister) add(kind string, node syntax.Node, note string) {
	l.write(kind, int(node.Pos().Offset()), int(node.End().Offset()), note)
}

func (l *lister) write(kind string, start, end int, note string) {
	text := l.slice(start, end)
	part := contract.ShellPart{Kind: kind, In: strings.Join(l.in, " > "), Note: note}
	part.Text = excerpt(text)
	part.Line, part.Column = position(l.text, start)
	if l.base != nil {
		part.Line, part.Column = l.base.Line, l.base.Column
	}
	if len(*l.parts) >= MaxParts {
		l.err = errParts
		return
	}
	*l.parts = append(*l.parts, part)
}

func (l *lister) slice(start, end int) string {
	start = max(0, min(start, len(l.text)))
	return l.text[start:max(start, min(end, len(l.text)))]
}

// excerpt is s for a reader. A longer one is cut, and says so; the whole text
// is in the plan.
func excerpt(s string) string {
	cut := contract.Escape(s)
	if len(cut) <= maxExcerpt {
		return cut
	}
	if len(s) > maxExcerpt {
		s = s[:maxExcerpt]
	}
	for len(cut) > maxExcerpt-40 {
		s = s[:len(s)*3/4]
		cut = contract.Escape(s)
	}
	return cut + "… (shortened)"
}
