package contract

import (
	"fmt"
	"reflect"
)

// Document is one of this package's documents.
type Document interface {
	Contract | Task | Snapshot | Outcome | Plan | Promotion | Decision | Patch
	// kind is the document's name in errors.
	kind() string
	// check judges every field.
	check(c *checker)
}

// Encode validates d and writes it in its canonical encoding. A nil list or map
// is written as an empty one. Rules that d breaks come as an [*InvalidError].
func Encode[D Document](d D) ([]byte, error) {
	d = clone(d)
	if err := Validate(d); err != nil {
		return nil, err
	}
	b, err := EncodeCanonical(d)
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", d.kind(), err)
	}
	return b, nil
}

// Decode reads a document strictly (see [DecodeStrict]) and validates it.
// Layout and order of keys are free; the digest of what Decode returns is that
// of its canonical encoding, not of data.
func Decode[D Document](data []byte) (D, error) {
	var d, none D
	if err := DecodeStrict(data, &d); err != nil {
		return none, fmt.Errorf("decoding %s: %w", d.kind(), err)
	}
	d = clone(d)
	if err := Validate(d); err != nil {
		return none, err
	}
	return d, nil
}

// Validate judges every field of d and reports all faults at once as an
// [*InvalidError].
func Validate[D Document](d D) error {
	var c checker
	d.check(&c)
	return c.err(d.kind())
}

// clone copies v whole, so that nothing is shared, and makes every nil list and
// map an empty one: absent and empty are one thing and have one spelling.
func clone[T any](v T) T {
	out := reflect.New(reflect.TypeOf(&v).Elem()).Elem()
	copyInto(out, reflect.ValueOf(&v).Elem())
	return out.Interface().(T)
}

func copyInto(dst, src reflect.Value) {
	switch src.Kind() {
	case reflect.Struct:
		for i := range src.NumField() {
			copyInto(dst.Field(i), src.Field(i))
		}
	case reflect.Pointer:
		if !src.IsNil() {
			dst.Set(reflect.New(src.Type().Elem()))
			copyInto(dst.Elem(), src.Elem())
		}
	case reflect.Slice:
		dst.Set(reflect.MakeSlice(src.Type(), src.Len(), src.Len()))
		for i := range src.Len() {
			copyInto(dst.Index(i), src.Index(i))
		}
	case reflect.Map:
		dst.Set(reflect.MakeMapWithSize(src.Type(), src.Len()))
		for it := src.MapRange(); it.Next(); {
			elem := reflect.New(src.Type().Elem()).Elem()
			copyInto(elem, it.Value())
			dst.SetMapIndex(it.Key(), elem)
		}
	default:
		dst.Set(src)
	}
}
