package contract

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gowebpki/jcs"
)

// DecodeStrict reads one JSON value into v, a pointer. Beside what
// encoding/json refuses it refuses an unknown key, a key in another case, a key
// that stands there twice, null where there is no pointer, text that is not
// well-formed Unicode, an integer written as a fraction or beyond ±(2^53-1),
// anything after the value, nesting deeper than 32 and more than [MaxDocument]
// bytes. The error is a [Fault] that names the place.
//
// A key that is absent leaves the zero value; layout is free. [Open] and the
// digest of a document hold to the canonical bytes.
func DecodeStrict(data []byte, v any) error {
	if len(data) > MaxDocument {
		return Fault{"", fmt.Sprintf("is %d bytes, the bound is %d", len(data), MaxDocument)}
	}
	if !utf8.Valid(data) {
		return Fault{"", fmt.Sprintf("is not UTF-8 at byte %d", firstInvalid(data))}
	}
	w := walker{
		data: data, dec: json.NewDecoder(bytes.NewReader(data)),
		structs: make(map[reflect.Type]map[string]reflect.Type),
	}
	w.dec.UseNumber()
	if err := w.value(reflect.TypeOf(v).Elem(), "", 0); err != nil {
		return err
	}
	if _, err := w.dec.Token(); !errors.Is(err, io.EOF) {
		return Fault{"", fmt.Sprintf("has more after the value, from byte %d", w.dec.InputOffset())}
	}
	if err := json.Unmarshal(data, v); err != nil {
		return Fault{"", err.Error()}
	}
	return nil
}

func firstInvalid(b []byte) int {
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return len(b)
}

// walker reads a document's tokens beside the Go type they are meant for. It
// judges; json.Unmarshal, which is laxer, then only fills in.
type walker struct {
	data []byte
	dec  *json.Decoder
	// structs keeps the keys of each struct type that was met.
	structs map[reflect.Type]map[string]reflect.Type
}

// keys are the keys that a struct type knows, and their types.
func (w *walker) keys(t reflect.Type) map[string]reflect.Type {
	known, ok := w.structs[t]
	if !ok {
		known = make(map[string]reflect.Type)
		for _, f := range fieldsOf(t) {
			known[f.name] = t.Field(f.index).Type
		}
		w.structs[t] = known
	}
	return known
}

// anyType stands for values that have no schema.
var (
	anyType     = reflect.TypeFor[any]()
	rootType    = reflect.TypeFor[Root]()
	decoderType = reflect.TypeFor[json.Unmarshaler]()
)

func (w *walker) value(t reflect.Type, path string, depth int) error {
	start := w.dec.InputOffset()
	tok, err := w.dec.Token()
	if err != nil {
		return syntaxFault(path, err)
	}
	for t.Kind() == reflect.Pointer {
		if tok == nil {
			return nil
		}
		t = t.Elem()
	}
	if t == rootType {
		if t = reflect.TypeFor[string](); tok == json.Delim('{') {
			t = reflect.TypeFor[rootObject]()
		}
	} else if reflect.PointerTo(t).Implements(decoderType) || t.Kind() == reflect.Interface {
		t = anyType
	}
	if d, ok := tok.(json.Delim); ok {
		if depth >= maxDepth {
			return Fault{path, fmt.Sprintf("is nested deeper than %d levels", maxDepth)}
		}
		if d == '{' {
			return w.object(t, path, depth+1)
		}
		return w.array(t, path, depth+1)
	}
	return w.scalar(t, tok, start, path)
}

func (w *walker) object(t reflect.Type, path string, depth int) error {
	var known map[string]reflect.Type
	switch {
	case t.Kind() == reflect.Struct:
		known = w.keys(t)
	case t.Kind() != reflect.Map && t != anyType:
		return Fault{path, "is an object, want " + kindName(t)}
	}
	seen := make(map[string]bool)
	for w.dec.More() {
		start := w.dec.InputOffset()
		tok, err := w.dec.Token()
		if err != nil {
			return syntaxFault(path, err)
		}
		key := tok.(string) // the decoder gives nothing else in a key's place
		at := member(path, key)
		if err := w.unicode(key, start, at); err != nil {
			return err
		}
		if seen[key] {
			return Fault{at, "stands here twice; remove one"}
		}
		seen[key] = true
		elem, err := memberType(t, known, key, at)
		if err != nil {
			return err
		}
		if err := w.value(elem, at, depth); err != nil {
			return err
		}
	}
	return w.close(path)
}

// memberType is the type of a key's value; known is nil for a map.
func memberType(t reflect.Type, known map[string]reflect.Type, key, path string) (reflect.Type, error) {
	if known == nil {
		if t.Kind() == reflect.Map {
			return t.Elem(), nil
		}
		return anyType, nil
	}
	if elem, ok := known[key]; ok {
		return elem, nil
	}
	for name := range known {
		if strings.EqualFold(name, key) {
			return nil, Fault{path, fmt.Sprintf("unknown key; it is spelt %q", name)}
		}
	}
	return nil, Fault{path, "unknown key"}
}

func (w *walker) array(t reflect.Type, path string, depth int) error {
	elem := anyType
	switch {
	case isBytes(t):
		return Fault{path, "is a list, want a base64 string"}
	case t.Kind() == reflect.Slice || t.Kind() == reflect.Array:
		elem = t.Elem()
	case t != anyType:
		return Fault{path, "is a list, want " + kindName(t)}
	}
	for i := 0; w.dec.More(); i++ {
		if err := w.value(elem, index(path, i), depth); err != nil {
			return err
		}
	}
	return w.close(path)
}

func (w *walker) close(path string) error {
	if _, err := w.dec.Token(); err != nil {
		return syntaxFault(path, err)
	}
	return nil
}

func (w *walker) scalar(t reflect.Type, tok json.Token, start int64, path string) error {
	got, fits := "null", t == anyType
	switch tok := tok.(type) {
	case string:
		if err := w.unicode(tok, start, path); err != nil {
			return err
		}
		got, fits = "a string", fits || t.Kind() == reflect.String || isBytes(t)
		if isBytes(t) && !isBase64(tok) {
			return Fault{path, "is not standard base64 in its one spelling (padded, no line breaks)"}
		}
	case bool:
		got, fits = "a boolean", fits || t.Kind() == reflect.Bool
	case json.Number:
		if fits || isNumber(t) {
			return numberFits(t, string(tok), path)
		}
		got = "a number"
	}
	if !fits {
		return Fault{path, fmt.Sprintf("is %s, want %s", got, kindName(t))}
	}
	return nil
}

// unicode refuses an escape that is half a surrogate pair: encoding/json would
// read it as U+FFFD, and two documents would have one meaning.
func (w *walker) unicode(s string, start int64, path string) error {
	if !strings.ContainsRune(s, utf8.RuneError) {
		return nil
	}
	raw := bytes.TrimLeft(w.data[start:w.dec.InputOffset()], " \t\r\n,:")
	if _, err := jcs.Transform(raw); err != nil {
		return Fault{path, "holds an escape that is no Unicode character"}
	}
	return nil
}

func numberFits(t reflect.Type, text, path string) error {
	if t == anyType || t.Kind() == reflect.Float64 || t.Kind() == reflect.Float32 {
		if f, err := strconv.ParseFloat(text, 64); err != nil || math.IsInf(f, 0) {
			return Fault{path, "is a number too large"}
		}
		return nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n > maxSafeInteger || n < -maxSafeInteger {
		return Fault{path, fmt.Sprintf("is %s, want a whole number within ±(2^53-1)", quote(text))}
	}
	if reflect.Zero(t).CanUint() && n < 0 {
		return Fault{path, fmt.Sprintf("is %d, want no negative number", n)}
	}
	return nil
}

func isNumber(t reflect.Type) bool {
	z := reflect.Zero(t)
	return z.CanInt() || z.CanUint() || z.CanFloat()
}

func isBytes(t reflect.Type) bool {
	return t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8
}

// isBase64 refuses what encoding/base64 forgives: line breaks, and stray bits
// behind the last byte.
func isBase64(s string) bool {
	b, err := base64.StdEncoding.DecodeString(s)
	return err == nil && base64.StdEncoding.EncodeToString(b) == s
}

func kindName(t reflect.Type) string {
	switch {
	case isBytes(t):
		return "a base64 string"
	case isNumber(t):
		return "a number"
	case t.Kind() == reflect.Struct || t.Kind() == reflect.Map:
		return "an object"
	case t.Kind() == reflect.Slice || t.Kind() == reflect.Array:
		return "a list ([] for none)"
	case t.Kind() == reflect.Bool:
		return "true or false"
	}
	return "a string"
}

func syntaxFault(path string, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return Fault{path, "ends before the value is complete"}
	}
	return Fault{path, "is not JSON: " + err.Error()}
}
