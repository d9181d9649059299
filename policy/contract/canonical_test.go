package contract

import (
	"math"
	"strings"
	"testing"
)

func TestEncodeCanonical(t *testing.T) {
	deep := any("x")
	for range maxDepth + 1 {
		deep = []any{deep}
	}
	for _, c := range []struct {
		name string
		in   any
		out  string
		err  string
	}{
		// The order of keys is by UTF-16 units (RFC 8785 §3.2.3), so an emoji
		// stands before U+FB33.
		{"order of keys", map[string]int{"\ufb33": 1, "\U0001f600": 2, "b": 3, "B": 4, "": 5}, "{\"\":5,\"B\":4,\"b\":3,\"\U0001f600\":2,\"\ufb33\":1}", ""},
		{"nothing escaped without need", []string{"<&>\u2028\x7f", "\x1f\n\"\\"}, "[\"<&>\u2028\x7f\",\"\\u001f\\n\\\"\\\\\"]", ""},
		{"numbers", []float64{0.1, 1e21, 1e-7, 100, math.Copysign(0, -1)}, "[0.1,1e+21,1e-7,100,0]", ""},
		{"largest integer", []int64{maxSafeInteger, -maxSafeInteger}, "[9007199254740991,-9007199254740991]", ""},
		{"integer too large", map[string]int64{"n": maxSafeInteger + 1}, "", "n: is 9007199254740992"},
		{"integer too small", map[string]int64{"n": -maxSafeInteger - 1}, "", "n: is -9007199254740992"},
		{"unsigned too large", []uint64{math.MaxUint64}, "", "[0]: is 18446744073709551615"},
		{"not a number", []float64{math.NaN()}, "", "[0]: is not a finite number"},
		{"not UTF-8", Person{Login: "a\xffb"}, "", "login: is not UTF-8"},
		{"not UTF-8 behind a pointer", &NetRule{Inject: &Inject{Name: "\xff"}}, "", "inject.name: is not UTF-8"},
		{"key not UTF-8", map[string]int{"\xff": 1}, "", "has a key that is not UTF-8"},
		{"too deep", deep, "", "nested deeper than 32"},
		{"too large", strings.Repeat("a", MaxDocument), "", "the bound is 1048576"},
		{"root", []Root{{Path: "/a"}, {"/b", &Grant{"p", "t", 1}}}, `["/a",{"grant":{"not_after":"t","promotion":"p","uses":1},"path":"/b"}]`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, err := EncodeCanonical(c.in)
			wantError(t, err, c.err)
			if string(out) != c.out {
				t.Errorf("encoded %q, want %q", out, c.out)
			}
		})
	}
}

func TestDecodeStrictDepth(t *testing.T) {
	nested := func(n int) []byte { return []byte(strings.Repeat("[", n) + strings.Repeat("]", n)) }
	var v any
	wantError(t, DecodeStrict(nested(maxDepth), &v), "")
	wantError(t, DecodeStrict(nested(maxDepth+1), &v), "nested deeper than 32")
	wantError(t, DecodeStrict(nested(100000), &v), "nested deeper than 32")
	wantError(t, DecodeStrict([]byte(`{"a":{"b":1,"b":2}}`), &v), "a.b: stands here twice")
	wantError(t, DecodeStrict([]byte(`{"a":1e999}`), &v), "a: is a number too large")
}
