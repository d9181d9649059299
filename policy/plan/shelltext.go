package plan

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// program is what a shell (or another interpreter) is told to run.
type program struct {
	kind programKind
	text word // the text of sh -c, or the file
}

type programKind int

const (
	programUnknown  programKind = iota // its arguments are decided at run time
	programInput                       // what it reads on standard input
	programMaybe                       // perhaps its input: its flags are not known here
	programText                        // an argument holds it
	programFile                        // a file holds it
	programArgument                    // an argument of another language
)

// shellProgram reads a shell's arguments as POSIX's sh takes them: options, then
// with -c the text, else a file, else standard input.
func shellProgram(args []word) program {
	text := false
	for i := 0; i < len(args); i++ {
		w := args[i]
		if !w.Known {
			if text {
				return program{programText, w}
			}
			return program{kind: programUnknown}
		}
		switch {
		case w.Text == "-" || w.Text == "--":
			return operand(args[i+1:], text)
		case strings.HasPrefix(w.Text, "--"):
			if w.Text == "--rcfile" || w.Text == "--init-file" {
				i++
			}
		case len(w.Text) > 1 && (w.Text[0] == '-' || w.Text[0] == '+'):
			text = text || w.Text[0] == '-' && strings.Contains(w.Text, "c")
			if w.Text[0] == '-' && strings.Contains(w.Text, "s") {
				return program{kind: programInput}
			}
			if last := w.Text[len(w.Text)-1]; last == 'o' || last == 'O' {
				i++
			}
		default:
			return operand(args[i:], text)
		}
	}
	return program{kind: programInput}
}

func operand(args []word, text bool) program {
	switch {
	case len(args) == 0:
		return program{kind: programInput}
	case text:
		return program{programText, args[0]}
	case !args[0].Known:
		return program{kind: programUnknown}
	case isStdin(args[0].Text):
		return program{kind: programInput}
	}
	return program{programFile, args[0]}
}

// otherProgram guesses for an interpreter of another language; where a flag may
// take a value it says so.
func otherProgram(args []word) program {
	if len(args) == 0 {
		return program{kind: programInput}
	}
	first := args[0]
	switch {
	case !first.Known:
		return program{kind: programUnknown}
	case first.Text == "-" || isStdin(first.Text):
		return program{kind: programInput}
	case !strings.HasPrefix(first.Text, "-"):
		return program{programFile, first}
	case first.Text == "-c" || first.Text == "-e" || first.Text == "-m" || first.Text == "-r":
		return program{kind: programArgument}
	}
	return program{kind: programMaybe}
}

func isStdin(name string) bool {
	return name == "/dev/stdin" || name == "/dev/fd/0" || name == "/proc/self/fd/0"
}

// heredocText returns the body that a redirection feeds to standard input, when
// it is one and known.
func heredocText(r *syntax.Redirect) (text string, isInput, known bool) {
	if r.N != nil && r.N.Value != "0" {
		return "", false, false
	}
	switch r.Op {
	case syntax.WordHdoc:
		text, known = knownWord(r.Word)
		return text, true, known
	case syntax.Hdoc, syntax.DashHdoc:
		if r.Hdoc == nil {
			return "", true, true
		}
		text, known = heredocBody(r)
		return text, true, known
	}
	return "", false, false
}

// heredocBody is the body of a here-document. With any part of its delimiter
// quoted it is literal, else it is read like double-quoted text.
func heredocBody(r *syntax.Redirect) (string, bool) {
	quoted := false
	for _, part := range r.Word.Parts {
		lit, plain := part.(*syntax.Lit)
		quoted = quoted || !plain || strings.Contains(lit.Value, `\`)
	}
	var b strings.Builder
	for _, part := range r.Hdoc.Parts {
		lit, ok := part.(*syntax.Lit)
		if !ok {
			return "", false
		}
		if quoted {
			b.WriteString(lit.Value)
		} else {
			b.WriteString(unescapeDouble(lit.Value))
		}
	}
	return b.String(), true
}
