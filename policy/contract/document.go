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
	if err := Validate(d); err != nil {
		return nil, err
	}
	b, err := encodeValue(reflect.ValueOf(&d).Elem(), true)
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
	at := reflect.ValueOf(&v).Elem()
	detach(at, shapeOf(at.Type()))
	return v
}

// detach gives v, which is a plain copy, its own of all that it still shares
// with its original.
func detach(v reflect.Value, s *shape) {
	if !s.shares {
		return
	}
	switch s.kind {
	case shapeStruct:
		for i := range s.members {
			if m := &s.members[i]; m.shape.shares {
				detach(v.Field(m.index), m.shape)
			}
		}
	case shapeRoot:
		r := v.Addr().Interface().(*Root)
		if r.Grant != nil {
			grant := *r.Grant
			r.Grant = &grant
		}
	case shapePointer:
		if !v.IsNil() {
			own := reflect.New(v.Type().Elem())
			own.Elem().Set(v.Elem())
			detach(own.Elem(), s.elem)
			v.Set(own)
		}
	case shapeList, shapeBytes, shapeRaw:
		detachList(v, s)
	case shapeMap:
		own := reflect.MakeMapWithSize(v.Type(), v.Len())
		for it := v.MapRange(); it.Next(); {
			elem := reflect.New(v.Type().Elem()).Elem()
			elem.Set(it.Value())
			detach(elem, s.elem)
			own.SetMapIndex(it.Key(), elem)
		}
		v.Set(own)
	}
}

func detachList(v reflect.Value, s *shape) {
	if v.Kind() == reflect.Slice {
		own := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		reflect.Copy(own, v)
		v.Set(own)
	}
	if s.elem == nil || !s.elem.shares {
		return
	}
	for i := range v.Len() {
		detach(v.Index(i), s.elem)
	}
}
