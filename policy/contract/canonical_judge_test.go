package contract

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/gowebpki/jcs"
	"pgregory.net/rapid"
)

// judged is what encoding/json and an independent implementation of RFC 8785
// make of v.
func judged(t interface{ Fatal(...any) }, v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	out, err := jcs.Transform(raw)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// foreign is a type that no document holds: its shape is made for the call.
type foreign struct {
	Raw     json.RawMessage   `json:"raw"`
	Number  json.Number       `json:"number"`
	Any     map[string]any    `json:"any,omitempty"`
	Bytes   []byte            `json:"bytes"`
	Array   [2]uint16         `json:"array"`
	Names   map[string]string `json:"names"`
	Maybe   *bool             `json:"maybe,omitempty"`
	Self    []foreign         `json:"self,omitempty"`
	NoTag   float64
	Skipped int `json:"-"`
}

// TestCanonicalOfDocuments fills every document with random values; each value
// of each field must be written as the judge writes it.
func TestCanonicalOfDocuments(t *testing.T) {
	for _, document := range []any{
		Contract{}, Task{}, Snapshot{}, Outcome{}, Plan{}, Promotion{}, Decision{}, Patch{},
		foreign{},
	} {
		typ := reflect.TypeOf(document)
		t.Run(typ.Name(), rapid.MakeCheck(func(t *rapid.T) {
			v := reflect.New(typ).Elem()
			fill(t, v)
			got, err := EncodeCanonical(v.Interface())
			if err != nil {
				t.Fatal(err)
			}
			if want := judged(t, v.Interface()); !bytes.Equal(got, want) {
				t.Fatalf("encoded\n%s, want\n%s", got, want)
			}
		}))
	}
}

// fill draws a value for every field that JSON sees.
func fill(t *rapid.T, v reflect.Value) { fillTo(t, v, 3) }

func fillTo(t *rapid.T, v reflect.Value, deep int) {
	switch {
	case v.Type() == rawType:
		v.SetBytes(rapid.SampledFrom([][]byte{nil, []byte(`{"b" : [1.50, "\u00e9"], "a":1e2}`)}).Draw(t, "raw"))
		return
	case v.Type() == numberType:
		v.SetString(rapid.SampledFrom([]string{"0", "-0", "12.50", "123456789012345678901"}).Draw(t, "number"))
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, "bool"))
	case reflect.Int, reflect.Int64:
		v.SetInt(rapid.Int64Range(-maxSafeInteger, maxSafeInteger).Draw(t, "int"))
	case reflect.Uint8, reflect.Uint16:
		v.SetUint(rapid.Uint64Max(255).Draw(t, "uint"))
	case reflect.Float64:
		v.SetFloat(drawFloat(t))
	case reflect.String:
		v.SetString(drawText(t))
	case reflect.Interface:
		v.Set(reflect.ValueOf(rapid.SampledFrom([]any{"x", 1.5, true, int64(7), []any{nil, "<&>"}}).Draw(t, "any")))
	case reflect.Pointer:
		if deep > 0 && rapid.Bool().Draw(t, "there") {
			v.Set(reflect.New(v.Type().Elem()))
			fillTo(t, v.Elem(), deep-1)
		}
	case reflect.Slice:
		if n := rapid.IntRange(-1, 2).Draw(t, "elements"); n >= 0 && deep > 0 {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
		}
		fallthrough
	case reflect.Array:
		for i := range v.Len() {
			fillTo(t, v.Index(i), deep-1)
		}
	case reflect.Map:
		if n := rapid.IntRange(-1, 3).Draw(t, "members"); n >= 0 {
			v.Set(reflect.MakeMap(v.Type()))
			for range n {
				elem := reflect.New(v.Type().Elem()).Elem()
				fillTo(t, elem, deep-1)
				v.SetMapIndex(reflect.ValueOf(drawText(t)), elem)
			}
		}
	case reflect.Struct:
		for _, f := range fieldsOf(v.Type()) {
			fillTo(t, v.Field(f.index), deep)
		}
		if r, ok := v.Addr().Interface().(*Root); ok { // has no tags
			*r = Root{Path: drawText(t)}
			if rapid.Bool().Draw(t, "grant") {
				r.Grant = &Grant{Promotion: drawText(t), Uses: 3}
			}
		}
	default:
		t.Fatalf("cannot fill a %s", v.Type())
	}
}

// drawFloat leans to where the form of a number changes.
func drawFloat(t *rapid.T) float64 {
	edges := []float64{0, math.Copysign(0, -1), 1e21, 1e-6, 1e-7, 5e-324, math.MaxFloat64, 1 << 53, 0.1, 100}
	f := rapid.SampledFrom(edges).Draw(t, "edge")
	if rapid.Bool().Draw(t, "any") {
		f = rapid.Float64().Draw(t, "float")
	}
	return math.Nextafter(f, rapid.SampledFrom([]float64{f, 0, 1}).Draw(t, "towards"))
}

// drawText leans to what is escaped, and to what UTF-16 and UTF-8 order apart.
func drawText(t *rapid.T) string {
	odd := []rune{0, '\b', '\t', '\n', '\f', '\r', 0x1f, '"', '\\', '/', '<', '&', 0x7f, 0x80, 0x2028, 0xd7ff, 0xe000, 0xfb33, 0xfffd, 0xffff, 0x10000, 0x1f600, 0x10ffff}
	return rapid.StringOf(rapid.OneOf(rapid.SampledFrom(odd), rapid.Rune())).Draw(t, "text")
}

// TestCompareKeys: the order of keys is that of their UTF-16 units.
func TestCompareKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keys := map[string]int{}
		for range 4 {
			keys[drawText(t)] = 0
		}
		got, err := EncodeCanonical(keys)
		if want := judged(t, keys); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("encoded %s (%v), want %s", got, err, want)
		}
	})
}

// What would not be written as encoding/json writes it is refused by name.
func TestEncodeRefusesTypes(t *testing.T) {
	type inner struct{ A int }
	for _, c := range []struct {
		name string
		in   any
		want string
	}{
		{"embedded", struct{ Person }{}, "whose field Person is embedded"},
		{"embedded and hidden", struct{ inner }{}, "whose field inner is embedded"},
		{"option", struct {
			N int `json:"n,string"`
		}{}, "option other than omitempty"},
		{"marshaler", map[string]marshals{"a": {}}, "a: is a contract.marshals, which writes itself"},
		{"pointer's marshaler", []pointerMarshals{{}}, "[0]: is a contract.pointerMarshals, which writes itself"},
		{"keys that are numbers", map[int]string{1: "a"}, "keys are plain strings"},
		{"channel", []any{make(chan int)}, "[0]: is a chan int, which JSON does not have"},
		{"single precision", float32(0.1), "which JSON does not have"},
		{"not JSON", map[string]any{"a": json.RawMessage("{")}, "a: is not JSON that can be canonicalized"},
		{"no number", json.Number("x"), "is not JSON that can be canonicalized"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := EncodeCanonical(c.in)
			wantError(t, err, c.want)
		})
	}
}

type marshals struct{}

func (marshals) MarshalText() ([]byte, error) { return nil, nil }

type pointerMarshals struct{}

func (*pointerMarshals) MarshalJSON() ([]byte, error) { return nil, nil }

// Every document's shape is made when the program starts, and none is refused.
func TestDocumentShapes(t *testing.T) {
	var bad []string
	for typ, s := range documentShapes {
		if s.refused != "" {
			bad = append(bad, typ.String()+" "+s.refused)
		}
	}
	if slices.Sort(bad); len(bad) > 0 {
		t.Error(bad)
	}
}
