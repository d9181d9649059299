package contract

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// A shape says how the values of one Go type are written and copied. Shapes of
// this package's documents are made once, when the program starts, and only
// read from then on; those of other types are made for the call that needs them.
type shape struct {
	kind shapeKind
	elem *shape // of a pointer, a list, a map
	// members are a struct's fields in the canonical order of their keys.
	members []structMember
	// shares: a copied value still shares memory with its original.
	shares bool
	// refused says why no value of the type can be written.
	refused string
}

type shapeKind uint8

const (
	shapeRefused shapeKind = iota
	shapeBool
	shapeInt
	shapeUint
	shapeFloat
	shapeString
	shapeBytes  // base64
	shapeNumber // json.Number
	shapeRaw    // json.RawMessage: JSON of somebody else
	shapeRoot   // a bare path without a grant, else an object
	shapePointer
	shapeInterface
	shapeList
	shapeMap
	shapeStruct
)

// structMember is one field of a struct as JSON sees it.
type structMember struct {
	name      string
	key       string // with quotes and colon, as it is written
	index     int
	omitEmpty bool
	shape     *shape
}

// shapes are known shapes by type.
type shapes map[reflect.Type]*shape

// documentShapes are those of every [Document]. Nothing changes them.
var documentShapes = shapesOf(
	reflect.TypeFor[Contract](), reflect.TypeFor[Task](), reflect.TypeFor[Snapshot](), reflect.TypeFor[Outcome](),
	reflect.TypeFor[Plan](), reflect.TypeFor[Promotion](), reflect.TypeFor[Decision](), reflect.TypeFor[Patch](),
)

func shapesOf(types ...reflect.Type) shapes {
	known := shapes{}
	for _, t := range types {
		known.of(t)
	}
	return known
}

// shapeOf is the shape of one type, from the documents' if it is there.
func shapeOf(t reflect.Type) *shape {
	if s, ok := documentShapes[t]; ok {
		return s
	}
	return shapes{}.of(t)
}

var (
	numberType        = reflect.TypeFor[json.Number]()
	rawType           = reflect.TypeFor[json.RawMessage]()
	marshalerType     = reflect.TypeFor[json.Marshaler]()
	textMarshalerType = reflect.TypeFor[encoding.TextMarshaler]()
)

// of returns the shape of t, which it adds to known. A struct that holds itself
// finds its own shape there, half made.
func (known shapes) of(t reflect.Type) *shape {
	if s, ok := known[t]; ok {
		return s
	}
	s := &shape{}
	known[t] = s
	switch {
	case t == rootType:
		s.kind, s.elem, s.shares = shapeRoot, known.of(reflect.TypeFor[rootObject]()), true
	case t == numberType:
		s.kind = shapeNumber
	case t == rawType:
		s.kind, s.shares = shapeRaw, true
	case t.Kind() != reflect.Interface && (reflect.PointerTo(t).Implements(marshalerType) || reflect.PointerTo(t).Implements(textMarshalerType)):
		s.refused = fmt.Sprintf("is a %s, which writes itself; documents hold plain data", t)
	default:
		known.plain(t, s)
	}
	return s
}

// plain fills in the shape of a type that does not write itself.
func (known shapes) plain(t reflect.Type, s *shape) {
	switch t.Kind() {
	case reflect.Bool:
		s.kind = shapeBool
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		s.kind = shapeInt
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		s.kind = shapeUint
	case reflect.Float64:
		s.kind = shapeFloat
	case reflect.String:
		s.kind = shapeString
	case reflect.Interface:
		s.kind, s.shares = shapeInterface, true
	case reflect.Pointer:
		s.kind, s.shares = shapePointer, true
		s.elem = known.of(t.Elem())
	case reflect.Slice:
		s.kind, s.shares = shapeList, true
		if s.elem = known.of(t.Elem()); isBytes(t) {
			s.kind = shapeBytes
		}
	case reflect.Array:
		s.kind, s.elem = shapeList, known.of(t.Elem())
		s.shares = s.elem.shares
	case reflect.Map:
		if t.Key().Kind() != reflect.String || t.Key().Implements(textMarshalerType) {
			s.refused = fmt.Sprintf("is a %s; keys are plain strings", t)
			return
		}
		s.kind, s.shares = shapeMap, true
		s.elem = known.of(t.Elem())
	case reflect.Struct:
		known.fields(t, s)
	default:
		s.refused = fmt.Sprintf("is a %s, which JSON does not have", t)
	}
}

func (known shapes) fields(t reflect.Type, s *shape) {
	for i := range t.NumField() {
		f := t.Field(i)
		_, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous || options != "" && options != "omitempty" {
			s.refused = fmt.Sprintf("is a %s, whose field %s is embedded or has an option other than omitempty", t, f.Name)
			return
		}
	}
	s.kind = shapeStruct
	for _, f := range fieldsOf(t) {
		of := t.Field(f.index)
		m := structMember{name: f.name, index: f.index, shape: known.of(of.Type)}
		m.omitEmpty = strings.HasSuffix(of.Tag.Get("json"), ",omitempty")
		m.key = string(appendString(nil, f.name)) + ":"
		s.members = append(s.members, m)
		s.shares = s.shares || m.shape.shares
	}
	slices.SortFunc(s.members, func(a, b structMember) int { return compareKeys(a.name, b.name) })
}
