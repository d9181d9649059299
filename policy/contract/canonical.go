package contract

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
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
// bytes; and a type that is not plain data. A json.RawMessage or json.Number is
// JSON of somebody else, whose numbers are read as doubles. It validates nothing
// else; see [Encode] for documents.
func EncodeCanonical(v any) ([]byte, error) {
	if v == nil {
		return []byte("null"), nil
	}
	return encodeValue(reflect.ValueOf(v), false)
}

// encodeValue encodes v; with filled, a nil list or map is an empty one.
func encodeValue(v reflect.Value, filled bool) ([]byte, error) {
	e := encoder{buf: make([]byte, 0, 2<<10), filled: filled}
	if err := e.value(v, shapeOf(v.Type()), 0); err != nil {
		return nil, err
	}
	if len(e.buf) > MaxDocument {
		return nil, Fault{"", fmt.Sprintf("is %d bytes encoded, the bound is %d", len(e.buf), MaxDocument)}
	}
	return e.buf, nil
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
	var name [len(digestPrefix) + 2*sha256.Size]byte
	hex.Encode(name[copy(name[:], digestPrefix):], sum[:])
	return string(name[:])
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
	if !isDigest(s) {
		return fmt.Errorf("is %s, want sha256: and 64 lower-case hexadecimal digits", quote(s))
	}
	return nil
}

func isDigest(s string) bool {
	rest, ok := strings.CutPrefix(s, digestPrefix)
	return ok && len(rest) == 2*sha256.Size && only(rest, isLowerHex)
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
