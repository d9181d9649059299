package contract

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/gowebpki/jcs"
)

// MaxDocument bounds an encoded document, in bytes. What does not fit is
// refused, never cut.
const MaxDocument = 1 << 20

// maxSafeInteger is the largest integer that JSON numbers, being doubles under
// RFC 8785 §3.2.2.3, carry without loss.
const maxSafeInteger = 1<<53 - 1

// maxDepth bounds nesting; our own documents need six levels.
const maxDepth = 32

// EncodeCanonical writes v as RFC 8785 writes it. It refuses what would not
// come back the same: text that is not UTF-8, an integer beyond ±(2^53-1), a
// number that is not finite, nesting deeper than 32, more than [MaxDocument]
// bytes. It validates nothing else; see [Encode] for documents.
func EncodeCanonical(v any) ([]byte, error) {
	if err := representable(reflect.ValueOf(v), "", 0); err != nil {
		return nil, err
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encoding: %v", err)
	}
	out, err := jcs.Transform(raw)
	if err != nil {
		return nil, fmt.Errorf("canonicalizing: %v", err)
	}
	if len(out) > MaxDocument {
		return nil, Fault{"", fmt.Sprintf("is %d bytes encoded, the bound is %d", len(out), MaxDocument)}
	}
	return out, nil
}

// representable says whether JSON carries v without changing it.
func representable(v reflect.Value, path string, depth int) error {
	if depth > maxDepth {
		return Fault{path, fmt.Sprintf("is nested deeper than %d levels", maxDepth)}
	}
	switch v.Kind() {
	case reflect.String:
		if !utf8.ValidString(v.String()) {
			return Fault{path, "is not UTF-8 text: " + quote(v.String())}
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		if n := v.Int(); n > maxSafeInteger || n < -maxSafeInteger {
			return Fault{path, fmt.Sprintf("is %d, beyond ±(2^53-1) JSON loses digits", n)}
		}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		if n := v.Uint(); n > maxSafeInteger {
			return Fault{path, fmt.Sprintf("is %d, beyond 2^53-1 JSON loses digits", n)}
		}
	case reflect.Float32, reflect.Float64:
		if f := v.Float(); math.IsNaN(f) || math.IsInf(f, 0) {
			return Fault{path, "is not a finite number"}
		}
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			return representable(v.Elem(), path, depth)
		}
	case reflect.Slice, reflect.Array:
		return representableElements(v, path, depth)
	case reflect.Map:
		return representableMembers(v, path, depth)
	case reflect.Struct:
		for _, f := range fieldsOf(v.Type()) {
			if err := representable(v.Field(f.index), member(path, f.name), depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

func representableElements(v reflect.Value, path string, depth int) error {
	if v.Type().Elem().Kind() == reflect.Uint8 {
		return nil // bytes travel as base64, or are raw JSON that Marshal checks
	}
	for i := range v.Len() {
		if err := representable(v.Index(i), index(path, i), depth+1); err != nil {
			return err
		}
	}
	return nil
}

func representableMembers(v reflect.Value, path string, depth int) error {
	for it := v.MapRange(); it.Next(); {
		key := fmt.Sprint(it.Key().Interface())
		if !utf8.ValidString(key) {
			return Fault{path, "has a key that is not UTF-8 text: " + quote(key)}
		}
		if err := representable(it.Value(), member(path, key), depth+1); err != nil {
			return err
		}
	}
	return nil
}

// field is one member of a struct as JSON sees it.
type field struct {
	name  string
	index int
}

func fieldsOf(t reflect.Type) []field {
	var fields []field
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" || !f.IsExported() {
			continue
		}
		if name == "" {
			name = f.Name
		}
		fields = append(fields, field{name, i})
	}
	return fields
}

const digestPrefix = "sha256:"

// DigestBytes names b: "sha256:" and 64 lower-case hexadecimal digits.
func DigestBytes(b []byte) string {
	sum := sha256.Sum256(b)
	return digestPrefix + hex.EncodeToString(sum[:])
}

// DigestOf is the digest of v's canonical encoding (see [EncodeCanonical]).
func DigestOf(v any) (string, error) {
	b, err := EncodeCanonical(v)
	if err != nil {
		return "", err
	}
	return DigestBytes(b), nil
}

// CheckDigest refuses what [DigestBytes] cannot have made.
func CheckDigest(s string) error {
	rest, ok := strings.CutPrefix(s, digestPrefix)
	if !ok || len(rest) != 2*sha256.Size || !only(rest, isLowerHex) {
		return fmt.Errorf("is %s, want sha256: and 64 lower-case hexadecimal digits", quote(s))
	}
	return nil
}

// MarshalJSON writes a root without a grant as its bare path.
func (r Root) MarshalJSON() ([]byte, error) {
	if r.Grant == nil {
		return json.Marshal(r.Path)
	}
	return json.Marshal(rootObject(r))
}

// UnmarshalJSON reads both forms of a root. An object without a grant is
// refused, so that each root has one spelling.
func (r *Root) UnmarshalJSON(b []byte) error {
	if b = bytes.TrimSpace(b); len(b) > 0 && b[0] == '"' {
		r.Grant = nil
		return json.Unmarshal(b, &r.Path)
	}
	var o rootObject
	if err := DecodeStrict(b, &o); err != nil {
		return err
	}
	if o.Grant == nil {
		return fmt.Errorf("decoding root %s: an object without a grant; write the bare path", quote(o.Path))
	}
	*r = Root(o)
	return nil
}

// rootObject is a root that has a grant.
type rootObject struct {
	Path  string `json:"path"`
	Grant *Grant `json:"grant"`
}
