package policy

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

const (
	// maxBytes bounds a policy, a ceiling and a file of cases.
	maxBytes = 256 << 10
	// maxDepth bounds the nesting of a document; ours needs eight.
	maxDepth = 32
)

// pos is a place in a file, counted from 1.
type pos struct{ line, column int }

// parseTree reads exactly one YAML document of plain maps, lists and scalars.
// Anchors, aliases, merge keys, explicit tags, keys that are not text and
// duplicate keys are problems: none has a use in a policy, and each is a way for
// a reader and a parser to see two different documents.
func parseTree(file string, data []byte) (*yaml.Node, Problems) {
	if p := checkBytes(file, data); p != nil {
		return nil, Problems{*p}
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, rest yaml.Node
	if err := dec.Decode(&doc); err == io.EOF {
		return nil, Problems{{File: file, Line: 1, Column: 1, Message: "the file is empty"}}
	} else if err != nil {
		return nil, Problems{syntaxProblem(file, data, err)}
	}
	if err := dec.Decode(&rest); err == nil {
		return nil, Problems{{File: file, Line: max(rest.Line, 1), Column: max(rest.Column, 1), Message: "a second document begins here: a file holds one"}}
	} else if err != io.EOF {
		return nil, Problems{syntaxProblem(file, data, err)}
	}
	c := treeChecker{file: file}
	if len(doc.Content) != 1 {
		return nil, Problems{{File: file, Line: 1, Column: 1, Message: "the file is empty"}}
	}
	c.node(doc.Content[0], 1)
	return doc.Content[0], c.problems
}

// checkBytes refuses what need not reach the YAML parser at all.
func checkBytes(file string, data []byte) *Problem {
	if len(data) > maxBytes {
		return &Problem{File: file, Line: 1, Column: 1, Message: fmt.Sprintf("the file has %d bytes; the most is %d", len(data), maxBytes)}
	}
	if i := firstBad(data); i >= 0 {
		at := placeOf(data, i)
		return &Problem{File: file, Line: at.line, Column: at.column, Message: fmt.Sprintf("byte 0x%02x is not UTF-8 text", data[i])}
	}
	return nil
}

// firstBad is the offset of the first byte that is not part of UTF-8 text or
// that is a control character; -1 if there is none. A byte order mark counts as
// bad: behind one, two readers can see two texts.
func firstBad(data []byte) int {
	for i := 0; i < len(data); {
		r, n := utf8.DecodeRune(data[i:])
		control := r < 0x20 && r != '\t' && r != '\n' && r != '\r' || r == 0x7f
		if r == utf8.RuneError && n == 1 || control || r == 0xfeff {
			return i
		}
		i += n
	}
	return -1
}

func placeOf(data []byte, offset int) pos {
	before := data[:offset]
	line := bytes.Count(before, []byte("\n")) + 1
	return pos{line, utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]) + 1}
}

var yamlLine = regexp.MustCompile(`^line (\d+): `)
var yamlAnchor = regexp.MustCompile(`^unknown anchor '(.*)' referenced$`)

// syntaxProblem places an error of the YAML library, which knows the line at
// most. Its parser (unlike its scanner) counts lines from 0.
func syntaxProblem(file string, data []byte, err error) Problem {
	msg := strings.TrimPrefix(err.Error(), "yaml: ")
	p := Problem{File: file, Line: 1, Column: 1}
	lines := strings.Split(string(data), "\n")
	if m := yamlAnchor.FindStringSubmatch(msg); m != nil {
		for i, l := range lines {
			if c := strings.Index(l, "*"+m[1]); c >= 0 {
				p.Line, p.Column = i+1, c+1
				break
			}
		}
		p.Message = "anchors and aliases are not allowed here: write the value out"
		return p
	}
	if m := yamlLine.FindStringSubmatch(msg); m != nil {
		p.Line, _ = strconv.Atoi(m[1])
		msg = strings.TrimPrefix(msg, m[0])
		if strings.HasPrefix(msg, "did not find expected") {
			p.Line++
		}
	}
	p.Line = min(max(p.Line, 1), len(lines))
	text := lines[p.Line-1]
	p.Column = len(text) - len(strings.TrimLeft(text, " \t")) + 1
	p.Message = "not YAML: " + msg
	return p
}

// treeChecker refuses the parts of YAML that a policy has no use for.
type treeChecker struct {
	file     string
	problems Problems
}

func (c *treeChecker) add(n *yaml.Node, format string, args ...any) {
	if len(c.problems) < maxProblems {
		c.problems = append(c.problems, Problem{File: c.file, Line: n.Line, Column: n.Column, Message: fmt.Sprintf(format, args...)})
	}
}

func (c *treeChecker) node(n *yaml.Node, depth int) {
	switch {
	case depth > maxDepth:
		c.add(n, "nested deeper than %d levels", maxDepth)
		return
	case n.Anchor != "" || n.Kind == yaml.AliasNode:
		c.add(n, "anchors and aliases are not allowed here: write the value out")
		return
	case n.Style&yaml.TaggedStyle != 0:
		c.add(n, "tags are not allowed here: remove %q", clip(n.Tag))
	}
	if n.Kind == yaml.MappingNode {
		c.keys(n)
	}
	for _, child := range n.Content {
		c.node(child, depth+1)
	}
}

func (c *treeChecker) keys(n *yaml.Node) {
	seen := make(map[string]int, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i]
		switch {
		case k.Kind != yaml.ScalarNode:
			if k.Kind != yaml.AliasNode {
				c.add(k, "a key is one word of text")
			}
		case k.ShortTag() == "!!merge":
			c.add(k, "merge keys are not allowed here: write the keys out, or use extends")
		case k.ShortTag() != "!!str":
			c.add(k, "key %s is not text: put it in quotes", clip(k.Value))
		case seen[k.Value] != 0:
			c.add(k, "key %q stands here twice; the first is on line %d", clip(k.Value), seen[k.Value])
		default:
			seen[k.Value] = k.Line
		}
	}
}

// clip shortens a value of unknown size for a message.
func clip(s string) string {
	if len(s) <= 60 {
		return s
	}
	cut := 57
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}
