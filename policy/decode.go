package policy

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// A decoder fills the types of file.go from a YAML tree and nothing else: the
// same types give the JSON Schema, so that what an editor accepts and what we
// accept cannot drift apart. It remembers the place of every value by its path.
type decoder struct {
	file     string
	where    map[string]pos
	problems Problems
}

// textual is a scalar with a syntax of its own, such as a size. The error's text
// completes "KEY ".
type textual interface{ parseText(s string) error }

// worded is a string of a closed set.
type worded interface{ words() []string }

// anyList is a list that may instead be the word "any".
type anyList interface {
	setAny()
	list() any
}

// hinted is an error that knows what was meant.
type hinted struct{ msg, meant string }

func (h *hinted) Error() string { return h.msg }

// path joins the keys that lead to a value. Keys of maps are user text, so the
// separator is a byte that no accepted file contains.
func path(keys ...string) string { return strings.Join(keys, "\x00") }

func (d *decoder) add(n *yaml.Node, suggestion, format string, args ...any) {
	d.problems = append(d.problems, Problem{File: d.file, Line: n.Line, Column: n.Column,
		Message: fmt.Sprintf(format, args...), Suggestion: suggestion})
}

// value decodes n into v; at is n's path and its last key names it in messages.
func (d *decoder) value(n *yaml.Node, v reflect.Value, at string) {
	d.where[at] = pos{n.Line, n.Column}
	name := nameOf(at)
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
		d.add(n, "", "%s has no value: write one or remove the key", name)
		return
	}
	switch x := v.Addr().Interface().(type) {
	case textual:
		d.textual(n, x, name)
		return
	case anyList:
		if n.Kind == yaml.ScalarNode {
			if n.Value != "any" {
				d.add(n, "any", "%s is a list, or the word any; %q is neither", name, clip(n.Value))
				return
			}
			x.setAny()
			return
		}
		d.value(n, reflect.ValueOf(x.list()).Elem(), at)
		return
	case *privateCap: // true or false, or a list
		if n.Kind == yaml.ScalarNode {
			d.value(n, reflect.ValueOf(&x.Any).Elem(), at)
			return
		}
		d.value(n, reflect.ValueOf(&x.List).Elem(), at)
		return
	case *caseEvent: // a bare word is its kind
		if n.Kind == yaml.ScalarNode {
			d.value(n, reflect.ValueOf(&x.Kind).Elem(), at)
			return
		}
	case *fields:
		v, err := plain(n)
		if err != nil {
			d.add(n, "", "%s cannot be read: %v", name, err)
		}
		x.value = v
		return
	case *oneOrMore:
		if n.Kind == yaml.ScalarNode {
			var one string
			d.value(n, reflect.ValueOf(&one).Elem(), at)
			d.where[at+"\x000"] = pos{n.Line, n.Column}
			*x = oneOrMore{one}
			return
		}
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.value(n, v.Elem(), at)
	case reflect.Struct:
		d.object(n, v, at, name)
	case reflect.Map:
		d.dict(n, v, at, name)
	case reflect.Slice:
		d.list(n, v, at, name)
	default:
		d.scalar(n, v, name)
	}
}

// nameOf is what messages call the value at a path: its last key, with the list
// it stands in.
func nameOf(at string) string {
	keys := strings.Split(at, "\x00")
	last := keys[len(keys)-1]
	switch {
	case last == "":
		return "the file"
	case len(keys) > 1 && strings.Trim(last, "0123456789") == "":
		return keys[len(keys)-2] + "[" + last + "]"
	}
	return last
}

func (d *decoder) textual(n *yaml.Node, x textual, name string) {
	if n.Kind != yaml.ScalarNode {
		d.add(n, "", "%s is one value, not a %s", name, kindName(n))
		return
	}
	if err := x.parseText(n.Value); err != nil {
		meant := ""
		if h, ok := err.(*hinted); ok {
			meant = h.meant
		}
		d.add(n, meant, "%s %v", name, err)
	}
}

func (d *decoder) object(n *yaml.Node, v reflect.Value, at, name string) {
	if n.Kind != yaml.MappingNode {
		d.add(n, "", "%s is a map of keys, not a %s", name, kindName(n))
		return
	}
	fields := fieldsOf(v.Type())
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i]
		f, known := fields[k.Value]
		if !known {
			d.unknown(k, n.Content[i+1], name, fields)
			continue
		}
		d.value(n.Content[i+1], v.FieldByIndex(f), join(at, k.Value))
	}
}

// unknown explains a key that the type does not have. Some keys are known from
// other tools, and what they ask for is refused by name.
func (d *decoder) unknown(k, v *yaml.Node, name string, fields map[string][]int) {
	if namesEngineSocket(flatten(v, 0)) || namesEngineSocket(k.Value) {
		d.add(k, "", "%s asks for the container engine's socket, which no run is ever given", clip(k.Value))
		return
	}
	if why := foreignKeys()[k.Value]; why != "" {
		d.add(k, "", "unknown key %q: %s", k.Value, why)
		return
	}
	where := ""
	if name != "the file" {
		where = " in " + clip(name)
	}
	d.add(k, nearest(k.Value, keysOf(fields)), "unknown key %q%s", clip(k.Value), where)
}

func (d *decoder) dict(n *yaml.Node, v reflect.Value, at, name string) {
	if n.Kind != yaml.MappingNode {
		d.add(n, "", "%s is a map of keys, not a %s", name, kindName(n))
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i]
		key := reflect.New(v.Type().Key()).Elem()
		d.scalar(k, key, name)
		elem := reflect.New(v.Type().Elem()).Elem()
		d.value(n.Content[i+1], elem, join(at, k.Value))
		d.where[join(at, k.Value)] = pos{k.Line, k.Column}
		v.SetMapIndex(key, elem)
	}
}

func (d *decoder) list(n *yaml.Node, v reflect.Value, at, name string) {
	if n.Kind != yaml.SequenceNode {
		d.add(n, "", "%s is a list, not a %s: write [...]", name, kindName(n))
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, c := range n.Content {
		d.value(c, v.Index(i), join(at, strconv.Itoa(i)))
	}
}

func (d *decoder) scalar(n *yaml.Node, v reflect.Value, name string) {
	if n.Kind != yaml.ScalarNode {
		d.add(n, "", "%s is one value, not a %s", name, kindName(n))
		return
	}
	tag := n.ShortTag()
	switch v.Kind() {
	case reflect.String:
		if tag != "!!str" {
			d.add(n, `"`+clip(n.Value)+`"`, "%s is text, and %s is not: put it in quotes", name, clip(n.Value))
			return
		}
		if w, ok := v.Addr().Interface().(worded); ok && !contains(w.words(), n.Value) {
			d.add(n, nearest(n.Value, w.words()), "%s cannot be %q: it is one of %s", name, clip(n.Value), strings.Join(w.words(), ", "))
			return
		}
		v.SetString(n.Value)
	case reflect.Bool:
		if tag != "!!bool" {
			d.add(n, "", "%s is true or false, not %q", name, clip(n.Value))
			return
		}
		v.SetBool(n.Value == "true" || n.Value == "True" || n.Value == "TRUE")
	case reflect.Int64, reflect.Int:
		i, err := strconv.ParseInt(n.Value, 10, 64)
		if tag != "!!int" || err != nil || i < 0 {
			d.add(n, "", "%s is a whole number without a unit, not %q", name, clip(n.Value))
			return
		}
		v.SetInt(i)
	case reflect.Float64:
		f, err := strconv.ParseFloat(n.Value, 64)
		if tag != "!!int" && tag != "!!float" || err != nil || f < 0 || f > 1e9 || math.IsNaN(f) {
			d.add(n, "", "%s is a decimal number without a unit, not %q", name, clip(n.Value))
			return
		}
		v.SetFloat(f)
	default:
		panic("unreachable: a policy type of kind " + v.Kind().String())
	}
}

// fieldsOf maps each YAML key of a struct to its field, embedded structs flat.
func fieldsOf(t reflect.Type) map[string][]int {
	out := map[string][]int{}
	for _, f := range reflect.VisibleFields(t) {
		if key := strings.Split(f.Tag.Get("yaml"), ",")[0]; key != "" {
			out[key] = f.Index
		}
	}
	return out
}

func keysOf(fields map[string][]int) []string {
	out := make([]string, 0, len(fields))
	for k := range fields {
		out = append(out, k)
	}
	return sorted(out)
}

func kindName(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "map"
	case yaml.SequenceNode:
		return "list"
	default:
		return "single value"
	}
}

func join(at, key string) string {
	if at == "" {
		return key
	}
	return at + "\x00" + key
}

// flatten gives the scalars below a node as one text, to a bounded depth.
func flatten(n *yaml.Node, depth int) string {
	if depth > maxDepth || n.Kind == yaml.ScalarNode {
		return n.Value
	}
	var b strings.Builder
	for _, c := range n.Content {
		b.WriteString(flatten(c, depth+1))
		b.WriteByte('\n')
	}
	return b.String()
}
