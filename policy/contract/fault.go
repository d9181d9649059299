package contract

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Fault is one broken rule. Path names the place as JSON keys lead to it
// ("network.allow[0].host"), "" for the document as a whole; Problem says what
// is wrong and what would be right. Text taken from the document is quoted and
// shortened, so that a Fault may be shown on a terminal.
type Fault struct {
	Path    string
	Problem string
}

func (f Fault) Error() string {
	if f.Path == "" {
		return f.Problem
	}
	return f.Path + ": " + f.Problem
}

// InvalidError lists the rules that a document breaks, at most a thousand.
// Document is its kind ("contract", "task", …).
type InvalidError struct {
	Document string
	Faults   []Fault
}

// shownFaults bounds the length of an error's text, not of the list.
const shownFaults = 8

func (e *InvalidError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "invalid %s", e.Document)
	for i, f := range e.Faults {
		sep := "; "
		if i == 0 {
			sep = ": "
		}
		if i == shownFaults {
			fmt.Fprintf(&b, "; and %d more", len(e.Faults)-i)
			break
		}
		b.WriteString(sep + f.Error())
	}
	return b.String()
}

// checker collects faults while a document is validated.
type checker struct {
	faults []Fault
	// Of a checker below another one: whose faults are collected, and where it
	// stands there: at a path, or at a key of the map or an index of the list
	// there.
	parent *checker
	at     string
	key    string
	nth    int
	kind   placeKind
}

type placeKind uint8

const (
	placePath placeKind = iota
	placeKey
	placeIndex
)

// below is a checker whose paths begin at a place of c's. The paths of what is
// right are never made.
func (c *checker) below(at string) *checker { return &checker{parent: c, at: at} }

// entry is a checker below one key of the map at a place of c's.
func (c *checker) entry(at, key string) *checker {
	return &checker{parent: c, at: at, key: key, kind: placeKey}
}

// element is a checker below one element of the list at a place of c's.
func (c *checker) element(at string, nth int) *checker {
	return &checker{parent: c, at: at, nth: nth, kind: placeIndex}
}

// path is a path of c's as its parent writes it.
func (c *checker) path(rest string) string {
	at := c.at
	switch c.kind {
	case placeKey:
		at = member(at, c.key)
	case placeIndex:
		at = index(at, c.nth)
	}
	if rest == "" {
		return at
	}
	return at + "." + rest
}

// maxFaults bounds what is collected from one document.
const maxFaults = 1000

func (c *checker) addf(path, format string, args ...any) {
	for ; c.parent != nil; c = c.parent {
		path = c.path(path)
	}
	if len(c.faults) < maxFaults {
		c.faults = append(c.faults, Fault{path, fmt.Sprintf(format, args...)})
	}
}

// is records err, if any, under path.
func (c *checker) is(path string, err error) {
	if err != nil {
		c.addf(path, "%s", err)
	}
}

// maxEntries bounds each list of authority. Judging some of them compares every
// pair, and a person has to read them.
const maxEntries = 1000

// few says whether a list may be judged entry by entry.
func (c *checker) few(path string, n int) bool {
	if n > maxEntries {
		c.addf(path, "has %d entries, the bound is %d", n, maxEntries)
	}
	return n <= maxEntries
}

// optional records err unless value is empty.
func (c *checker) optional(path, value string, rule func(string) error) {
	if value != "" {
		c.is(path, rule(value))
	}
}

// each applies rule to every element and refuses an element that stands there
// twice. It says whether the list is short enough to go on with.
func (c *checker) each(path string, values []string, rule func(string) error) bool {
	if !c.few(path, len(values)) {
		return false
	}
	twice := repeats(values)
	for i, v := range values {
		if err := rule(v); err != nil {
			c.is(index(path, i), err)
		}
		if twice(i) {
			c.addf(index(path, i), "%s stands here twice; remove one", quote(v))
		}
	}
	return true
}

// repeats says of each index, asked in order, whether its value stood there
// before. A short list needs no set.
func repeats(values []string) func(i int) bool {
	if len(values) <= 16 {
		return func(i int) bool { return slices.Contains(values[:i], values[i]) }
	}
	seen := make(map[string]bool, len(values))
	return func(i int) bool {
		was := seen[values[i]]
		seen[values[i]] = true
		return was
	}
}

// oneOf refuses a value that is not among words.
func (c *checker) oneOf(path, value string, words ...string) {
	for _, w := range words {
		if value == w {
			return
		}
	}
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = fmt.Sprintf("%q", w)
	}
	c.addf(path, "is %s, want one of %s", quote(value), strings.Join(quoted, ", "))
}

// within refuses an integer outside lo..hi.
func (c *checker) within(path string, v, lo, hi int64) {
	if v < lo || v > hi {
		c.addf(path, "is %d, want %d to %d", v, lo, hi)
	}
}

func (c *checker) err(document string) error {
	if len(c.faults) == 0 {
		return nil
	}
	return &InvalidError{Document: document, Faults: c.faults}
}

func index(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

// member is the path of key below path; a key that is not a plain word is
// quoted.
func member(path, key string) string {
	if !plainWord(key) {
		return path + "[" + quote(key) + "]"
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

func plainWord(s string) bool {
	if s == "" || len(s) > maxQuoted {
		return false
	}
	return only(s, func(r byte) bool { return isAlnum(r) || r == '_' || r == '-' })
}

// maxQuoted bounds how much of a hostile value an error repeats, in bytes.
const maxQuoted = 80

// quote makes untrusted text fit for an error: one line, ASCII, bounded.
func quote(s string) string {
	if len(s) > maxQuoted {
		return fmt.Sprintf("%+q… (%d bytes)", s[:maxQuoted], len(s))
	}
	return fmt.Sprintf("%+q", s)
}
