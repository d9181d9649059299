package plan

import (
	"bytes"
	"errors"
	"fmt"
	"sort"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/countersign-dev/countersign/policy/contract"
)

// Bounds of a shell text. One that goes past them is refused: what cannot be
// shown whole cannot be approved.
const (
	MaxText    = 64 << 10 // bytes
	MaxParts   = 2000     // things it does
	MaxNesting = 32       // constructs inside one another
	maxExcerpt = 2000     // bytes of one part's text
)

// SyntaxError says where a shell text stops being one that can be listed.
type SyntaxError struct {
	Line, Column int // from 1, in bytes
	Problem      string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("shell text %d:%d: %s", e.Line, e.Column, e.Problem)
}

var (
	errNesting = fmt.Errorf("the shell text nests more than %d constructs; split it", MaxNesting)
	errParts   = fmt.Errorf("the shell text does more than %d things; split it", MaxParts)
)

// List says what a shell text does, in the order in which it stands there: every
// simple command (also inside substitutions, subshells, functions,
// here-documents and the texts given to sh -c, eval and trap), substitution,
// redirection, assignment, and every pipe into something that interprets it.
// What only running it can tell is marked as such.
//
// shell is the name or path of the shell that will read the text; it chooses the
// grammar. The list informs a reader. It is not a verdict, and not a proof that
// the text does nothing else: a program may do anything, and so may an alias,
// a function from a file, or a variable.
func List(text []byte, shell string) ([]contract.ShellPart, error) {
	variant, ok := shellVariant(shell)
	if !ok || variant < 0 {
		return nil, fmt.Errorf("the language of %s cannot be listed; use sh, dash, bash or mksh", contract.Escape(shell))
	}
	if err := readable(text); err != nil {
		return nil, err
	}
	l := &lister{parts: new([]contract.ShellPart)}
	if err := l.run(string(text), variant); err != nil {
		return nil, err
	}
	parts := *l.parts
	sort.SliceStable(parts, func(i, j int) bool {
		a, b := parts[i], parts[j]
		return a.Line < b.Line || a.Line == b.Line && a.Column < b.Column
	})
	return parts, nil
}

// ListArgv lists the shell texts in an argv that a shell would read, such as
// the last word of sh -c TEXT. Line is the word's index, from 1.
func ListArgv(argv []string) ([]contract.ShellPart, error) {
	words := make([]word, len(argv))
	for i, a := range argv {
		words[i] = word{Text: a, Known: true}
	}
	l := &lister{parts: new([]contract.ShellPart)}
	for _, i := range programs(words) {
		variant, shell := shellVariant(words[i].Text)
		if !shell {
			continue
		}
		if p := shellProgram(words[i+1:]); p.kind == programText {
			l.base = &contract.ShellPart{Line: indexOf(argv, i+1, p.text.Text) + 1, Column: 1}
			l.nested(p.text, variant, baseName(words[i].Text)+" -c")
		}
	}
	return *l.parts, l.err
}

func indexOf(argv []string, from int, text string) int {
	for i := from; i < len(argv); i++ {
		if argv[i] == text {
			return i
		}
	}
	return from
}

// readable refuses bytes on which shells, this parser and a reader's eye differ.
func readable(text []byte) error {
	if len(text) > MaxText {
		return fmt.Errorf("the shell text has %d bytes, at most %d can be shown", len(text), MaxText)
	}
	for _, c := range []struct {
		b       byte
		problem string
	}{
		{0, "a NUL byte, which no shell text can hold"},
		{'\r', "a carriage return, which a shell takes as part of a word; save the text with plain newlines"},
	} {
		if i := bytes.IndexByte(text, c.b); i >= 0 {
			line, column := position(string(text), i)
			return &SyntaxError{line, column, c.problem}
		}
	}
	return nil
}

// position counts line and column from 1. The parser's own are not used: they
// overflow on long lines.
func position(text string, offset int) (line, column int) {
	before := text[:min(offset, len(text))]
	return strings.Count(before, "\n") + 1, len(before) - strings.LastIndexByte(before, '\n')
}

func parse(text string, variant syntax.LangVariant) (*syntax.File, error) {
	file, err := syntax.NewParser(syntax.Variant(variant)).Parse(strings.NewReader(text), "")
	if err == nil {
		return file, nil
	}
	var syntaxErr syntax.ParseError
	var langErr syntax.LangError
	pos, problem := syntax.Pos{}, err.Error()
	switch {
	case errors.As(err, &syntaxErr):
		pos, problem = syntaxErr.Pos, syntaxErr.Text
	case errors.As(err, &langErr):
		pos, problem = langErr.Pos, langErr.Feature+" in a shell that has none"
	}
	line, column := position(text, int(pos.Offset()))
	return nil, &SyntaxError{line, column, contract.Escape(problem)}
}
