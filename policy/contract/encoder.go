package contract

import (
	"encoding/base64"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gowebpki/jcs"
)

// encoder is one canonical encoding while it is written.
type encoder struct {
	buf    []byte
	filled bool
}

// value appends v. Its errors are Faults whose path begins at v; whoever knows
// where v stands puts that before it.
func (e *encoder) value(v reflect.Value, s *shape, depth int) error {
	if depth > maxDepth {
		return Fault{"", fmt.Sprintf("is nested deeper than %d levels", maxDepth)}
	}
	switch s.kind {
	case shapeBool:
		e.buf = strconv.AppendBool(e.buf, v.Bool())
	case shapeInt:
		return e.integer(v.Int())
	case shapeUint:
		return e.unsigned(v.Uint())
	case shapeFloat:
		return e.number(v.Float())
	case shapeString:
		return e.text(v.String())
	case shapeBytes:
		return e.bytes(v)
	case shapeNumber:
		return e.foreign([]byte(v.String()))
	case shapeRaw:
		return e.foreign(v.Bytes())
	case shapeRoot:
		return e.root(v, s, depth)
	case shapePointer, shapeInterface:
		return e.pointed(v, s, depth)
	case shapeList:
		return e.list(v, s, depth)
	case shapeMap:
		return e.dictionary(v, s, depth)
	case shapeStruct:
		return e.object(v, s, depth)
	default:
		return Fault{"", s.refused}
	}
	return nil
}

func (e *encoder) null() { e.buf = append(e.buf, "null"...) }

func (e *encoder) integer(n int64) error {
	if n > maxSafeInteger || n < -maxSafeInteger {
		return Fault{"", fmt.Sprintf("is %d, beyond ±(2^53-1) JSON loses digits", n)}
	}
	e.buf = strconv.AppendInt(e.buf, n, 10)
	return nil
}

func (e *encoder) unsigned(n uint64) error {
	if n > maxSafeInteger {
		return Fault{"", fmt.Sprintf("is %d, beyond 2^53-1 JSON loses digits", n)}
	}
	e.buf = strconv.AppendUint(e.buf, n, 10)
	return nil
}

func (e *encoder) number(f float64) error {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return Fault{"", "is not a finite number"}
	}
	e.buf = appendNumber(e.buf, f)
	return nil
}

func (e *encoder) text(s string) error {
	if !utf8.ValidString(s) {
		return Fault{"", "is not UTF-8 text: " + quote(s)}
	}
	e.buf = appendString(e.buf, s)
	return nil
}

func (e *encoder) bytes(v reflect.Value) error {
	if v.IsNil() && !e.filled {
		e.null()
		return nil
	}
	e.buf = append(e.buf, '"')
	e.buf = base64.StdEncoding.AppendEncode(e.buf, v.Bytes())
	e.buf = append(e.buf, '"')
	return nil
}

// foreign appends JSON that this package did not write.
func (e *encoder) foreign(raw []byte) error {
	if raw == nil {
		e.null()
		return nil
	}
	out, err := jcs.Transform(raw)
	if err != nil {
		return Fault{"", fmt.Sprintf("is not JSON that can be canonicalized: %v", err)}
	}
	e.buf = append(e.buf, out...)
	return nil
}

func (e *encoder) root(v reflect.Value, s *shape, depth int) error {
	r := v.Interface().(Root)
	if r.Grant != nil {
		return e.value(reflect.ValueOf(rootObject(r)), s.elem, depth)
	}
	return under("path", e.text(r.Path))
}

func (e *encoder) pointed(v reflect.Value, s *shape, depth int) error {
	if v.IsNil() {
		e.null()
		return nil
	}
	to, of := v.Elem(), s.elem
	if s.kind == shapeInterface {
		of = shapeOf(to.Type())
	}
	return e.value(to, of, depth)
}

func (e *encoder) list(v reflect.Value, s *shape, depth int) error {
	if v.Kind() == reflect.Slice && v.IsNil() && !e.filled {
		e.null()
		return nil
	}
	e.buf = append(e.buf, '[')
	for i := range v.Len() {
		if i > 0 {
			e.buf = append(e.buf, ',')
		}
		if err := e.value(v.Index(i), s.elem, depth+1); err != nil {
			return under(index("", i), err)
		}
	}
	e.buf = append(e.buf, ']')
	return nil
}

func (e *encoder) dictionary(v reflect.Value, s *shape, depth int) error {
	if v.IsNil() && !e.filled {
		e.null()
		return nil
	}
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return compareKeys(a.String(), b.String()) })
	e.buf = append(e.buf, '{')
	for i, k := range keys {
		key := k.String()
		if !utf8.ValidString(key) {
			return Fault{"", "has a key that is not UTF-8 text: " + quote(key)}
		}
		if i > 0 {
			e.buf = append(e.buf, ',')
		}
		e.buf = append(appendString(e.buf, key), ':')
		if err := e.value(v.MapIndex(k), s.elem, depth+1); err != nil {
			return under(member("", key), err)
		}
	}
	e.buf = append(e.buf, '}')
	return nil
}

func (e *encoder) object(v reflect.Value, s *shape, depth int) error {
	e.buf = append(e.buf, '{')
	first := true
	for i := range s.members {
		m := &s.members[i]
		f := v.Field(m.index)
		if m.omitEmpty && isEmpty(f) {
			continue
		}
		if !first {
			e.buf = append(e.buf, ',')
		}
		first = false
		e.buf = append(e.buf, m.key...)
		if err := e.value(f, m.shape, depth+1); err != nil {
			return under(member("", m.name), err)
		}
	}
	e.buf = append(e.buf, '}')
	return nil
}

// isEmpty is what encoding/json means by omitempty.
func isEmpty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Array, reflect.Map, reflect.Slice, reflect.String:
		return v.Len() == 0
	case reflect.Struct:
		return false
	}
	return v.IsZero()
}

// under puts a place before the path of a Fault.
func under(place string, err error) error {
	f, ok := err.(Fault)
	if !ok {
		return err
	}
	switch {
	case f.Path == "" || f.Path[0] == '[':
		f.Path = place + f.Path
	default:
		f.Path = place + "." + f.Path
	}
	return f
}

// appendNumber writes a finite double as ECMAScript does (RFC 8785 §3.2.2.3).
func appendNumber(buf []byte, f float64) []byte {
	if f == 0 { // also of -0
		return append(buf, '0')
	}
	if abs := math.Abs(f); abs >= 1e-6 && abs < 1e21 {
		return strconv.AppendFloat(buf, f, 'f', -1, 64)
	}
	buf = strconv.AppendFloat(buf, f, 'e', -1, 64)
	// Go writes at least two digits of exponent: 1e-07.
	if n := len(buf); buf[n-2] == '0' && (buf[n-3] == '-' || buf[n-3] == '+') {
		buf = append(buf[:n-2], buf[n-1])
	}
	return buf
}

// appendString writes UTF-8 text as a JSON string that escapes only what must
// be (RFC 8785 §3.2.2.2).
func appendString(buf []byte, s string) []byte {
	const hexDigits = "0123456789abcdef"
	buf = append(buf, '"')
	from := 0
	for i := range len(s) {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		buf = append(buf, s[from:i]...)
		from = i + 1
		switch c {
		case '"', '\\':
			buf = append(buf, '\\', c)
		case '\b':
			buf = append(buf, '\\', 'b')
		case '\t':
			buf = append(buf, '\\', 't')
		case '\n':
			buf = append(buf, '\\', 'n')
		case '\f':
			buf = append(buf, '\\', 'f')
		case '\r':
			buf = append(buf, '\\', 'r')
		default:
			buf = append(buf, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return append(append(buf, s[from:]...), '"')
}

// compareKeys orders keys by their UTF-16 units (RFC 8785 §3.2.3). That is the
// order of bytes but where one text goes on with a character beyond U+FFFF,
// whose first unit is a surrogate, and the other with one from U+E000 on.
func compareKeys(a, b string) int {
	at := 0
	for at < len(a) && at < len(b) && a[at] == b[at] {
		at++
	}
	if at < len(a) && at < len(b) {
		const beyondBMP, fromE000 = 0xf0, 0xee // first bytes in UTF-8
		if x, y := a[at], b[at]; x >= beyondBMP && y >= fromE000 && y < beyondBMP {
			return -1
		} else if y >= beyondBMP && x >= fromE000 && x < beyondBMP {
			return 1
		}
	}
	return strings.Compare(a, b)
}
