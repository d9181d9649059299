package plan

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/countersign-dev/countersign/policy/contract"
)

// call writes down a simple command and whatever program text it is given.
func (l *lister) call(c *syntax.CallExpr) {
	if len(c.Args) == 0 {
		return
	}
	words := make([]word, len(c.Args))
	for i, arg := range c.Args {
		text, known := knownWord(arg)
		if !known {
			text = l.slice(int(arg.Pos().Offset()), int(arg.End().Offset()))
		}
		words[i] = word{text, known, arg}
	}
	start, end := int(c.Args[0].Pos().Offset()), int(c.Args[len(c.Args)-1].End().Offset())
	if !words[0].Known {
		note := "the command's name is decided at run time"
		if l.piped > 0 {
			note += ", and it reads what comes through the pipe"
		}
		l.write(contract.PartDynamic, start, end, note)
		return
	}
	l.write(contract.PartCommand, start, end, l.note(words))
	l.builtin(peel(words), start, end)
	for _, i := range programs(words) {
		l.interpreter(c, words, i, start, end)
	}
}

// note says in a few words what the command's own words do not show.
func (l *lister) note(words []word) string {
	name := words[0].Text
	if l.funcs[name] {
		return "a function of this text"
	}
	switch name {
	case ".", "source":
		return "runs a file whose contents are not part of this text"
	case "alias":
		return "changes what later names mean"
	}
	if !wraps(name) {
		return ""
	}
	for _, w := range words[1:] {
		if !w.Known {
			return "runs what its arguments name, some of them decided at run time"
		}
	}
	return ""
}

// builtin lists the text that eval and trap run.
func (l *lister) builtin(words []word, start, end int) {
	switch args := words[1:]; words[0].Text {
	case "eval":
		var text []string
		for _, w := range args {
			if !w.Known {
				l.write(contract.PartDynamic, start, end, "what eval runs is decided at run time")
				return
			}
			text = append(text, w.Text)
		}
		if len(args) > 0 {
			l.inside(start, "eval", word{strings.Join(text, " "), true, nil}, l.variant)
		}
	case "trap":
		if len(args) > 0 && args[0].Known && args[0].Text == "--" {
			args = args[1:]
		}
		if len(args) < 2 || args[0].Known && strings.HasPrefix(args[0].Text, "-") {
			return
		}
		l.inside(start, "trap", args[0], l.variant)
	}
}

// interpreter lists what the interpreter at words[i] is told to run.
func (l *lister) interpreter(c *syntax.CallExpr, words []word, i, start, end int) {
	name := words[i].Text
	if !interprets(name) {
		return
	}
	variant, shell := shellVariant(name)
	var p program
	if shell {
		p = shellProgram(words[i+1:])
	} else {
		p = otherProgram(words[i+1:])
	}
	base := contract.Escape(baseName(name))
	switch p.kind {
	case programText:
		l.inside(int(p.text.node.Pos().Offset()), base+" -c", p.text, variant)
	case programUnknown:
		l.write(contract.PartDynamic, start, end, "what "+base+" runs is decided at run time")
	case programFile:
		return
	}
	if p.kind == programInput && l.input[c] != nil {
		if !shell {
			l.write(contract.PartPipeToShell, start, end, "its here-document is run by "+base)
			return
		}
		l.heredoc(l.input[c], base+" <<", variant)
		return
	}
	l.pipe(p, base, start, end)
}

// heredoc lists a here-document that a shell runs.
func (l *lister) heredoc(r *syntax.Redirect, construct string, variant syntax.LangVariant) {
	body := r.Word
	if r.Op != syntax.WordHdoc {
		body = r.Hdoc
	}
	if body == nil {
		return // an empty one
	}
	text, _, known := heredocText(r)
	if !known {
		text = l.slice(int(body.Pos().Offset()), int(body.End().Offset()))
		if i := strings.LastIndexByte(text, '\n'); i >= 0 {
			text = text[:i+1] // the parser counts the delimiter in
		}
	}
	l.inside(int(body.Pos().Offset()), construct, word{text, known, nil}, variant)
}

// pipe says that an interpreter takes its program from a pipe.
func (l *lister) pipe(p program, base string, start, end int) {
	if l.piped == 0 {
		return
	}
	verb := "is"
	switch p.kind {
	case programInput:
	case programMaybe, programUnknown:
		verb = "may be"
	default:
		return
	}
	l.write(contract.PartPipeToShell, start, end, "what comes through the pipe "+verb+" run by "+base)
}

// inside lists a text inside the text; at is where the word stands that holds it.
func (l *lister) inside(at int, construct string, w word, variant syntax.LangVariant) {
	line, column := position(l.text, at)
	base := l.base
	if base == nil {
		base = &contract.ShellPart{Line: line, Column: column}
	}
	inner := &lister{base: base, in: l.in, piped: l.piped, parts: l.parts}
	inner.nested(w, variant, construct)
	if l.err == nil {
		l.err = inner.err
	}
}

// nested lists w as a text of its own.
func (l *lister) nested(w word, variant syntax.LangVariant, construct string) {
	leave := l.push(construct)
	defer leave()
	problem := ""
	switch {
	case !w.Known:
		problem = "the text is decided at run time"
	case variant < 0:
		problem = "the language of this shell cannot be listed"
	default:
		if err := readable([]byte(w.Text)); err != nil {
			problem = "cannot be listed: " + err.Error()
		}
	}
	if problem == "" && l.err == nil {
		err := l.run(w.Text, variant)
		if _, bad := err.(*SyntaxError); !bad {
			l.err = err
			return
		}
		problem = "cannot be listed: " + err.Error()
	}
	l.text = w.Text
	l.write(contract.PartDynamic, 0, len(w.Text), problem)
}
