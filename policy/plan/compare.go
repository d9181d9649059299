package plan

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/countersign-dev/countersign/policy/contract"
)

// Mismatch is one difference between a frozen plan and the present. Field is
// the plan's JSON name. Both values are shortened and escaped for a reader.
type Mismatch struct {
	Field  string
	Frozen string
	Now    string
}

func (m Mismatch) String() string {
	return fmt.Sprintf("%s was %s, is now %s", m.Field, m.Frozen, m.Now)
}

// Compare says what of a frozen plan no longer holds: present is the plan that
// [Freeze] makes of the same request and the present's facts. Every field
// counts but the nonce, which only the frozen one has, and what is derived from
// the others (commands). An empty result means that the approval fits.
func Compare(frozen, present contract.Plan) []Mismatch {
	present.Nonce = frozen.Nonce
	frozen.Commands, present.Commands = nil, nil
	var found []Mismatch
	a, b := reflect.ValueOf(frozen), reflect.ValueOf(present)
	for i := range a.NumField() {
		if same(a.Field(i), b.Field(i)) {
			continue
		}
		name, _, _ := strings.Cut(a.Type().Field(i).Tag.Get("json"), ",")
		found = append(found, Mismatch{name, shown(a.Field(i)), shown(b.Field(i))})
	}
	return found
}

// same compares two values of a plan; a nil list and an empty one are one.
func same(a, b reflect.Value) bool {
	switch a.Kind() {
	case reflect.Struct:
		for i := range a.NumField() {
			if !same(a.Field(i), b.Field(i)) {
				return false
			}
		}
		return true
	case reflect.Pointer:
		if a.IsNil() || b.IsNil() {
			return a.IsNil() == b.IsNil()
		}
		return same(a.Elem(), b.Elem())
	case reflect.Slice:
		if a.Len() != b.Len() {
			return false
		}
		for i := range a.Len() {
			if !same(a.Index(i), b.Index(i)) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(a.Interface(), b.Interface())
}

func shown(v reflect.Value) string {
	if b, ok := v.Interface().([]byte); ok {
		return excerpt(string(b))
	}
	b, err := contract.EncodeCanonical(v.Interface())
	if err != nil {
		return excerpt(fmt.Sprintf("%#v", v.Interface()))
	}
	return excerpt(string(b))
}
