package contract

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestSealThenOpen(t *testing.T) {
	for name, c := range map[string]Contract{"plain": plain(), "full": full()} {
		s := mustSeal(t, c)
		if s.Digest() != DigestBytes(s.Bytes()) {
			t.Errorf("%s: digest %s is not of the bytes", name, s.Digest())
		}
		o, err := Open(s.Bytes())
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(s.Contract(), o.Contract()); diff != "" || o.Digest() != s.Digest() {
			t.Errorf("%s: opened another contract: %s", name, diff)
		}
	}
}

func TestSealNormalisesAbsent(t *testing.T) {
	a, b := plain(), plain()
	b.Labels, b.SecretRefs, b.Tools, b.HostedTools, b.Promotable, b.Network.Allow = []string{}, []SecretRef{}, []Tool{}, []string{}, []string{}, []NetRule{}
	if mustSeal(t, a).Digest() != mustSeal(t, b).Digest() {
		t.Error("nil and empty lists seal to different digests")
	}
	if bytes.Contains(mustSeal(t, a).Bytes(), []byte(":null")) {
		t.Error("a sealed contract holds null")
	}
}

func TestRootForms(t *testing.T) {
	text := string(mustSeal(t, full()).Bytes())
	for _, want := range []string{`"writable_roots":["/workspace","/tmp"`, `{"grant":{"not_after":"2026-11-29T12:30:00Z","promotion":"` + digest("9") + `","uses":1},"path":"/data"}`} {
		if !strings.Contains(text, want) {
			t.Errorf("sealed bytes lack %s", want)
		}
	}
}

func TestSealedSharesNothing(t *testing.T) {
	c := full()
	s := mustSeal(t, c)
	c.Argv[0], c.Env["CI"], c.Network.Allow[0].Inject.Name = "rm", "0", "x-other"
	out := s.Contract()
	out.Argv[0], out.Network.Allow[0].Grant.Uses, out.WritableRoots[0].Path = "rm", 99, "/etc"
	s.Bytes()[0] = 'x'
	if again := mustSeal(t, s.Contract()); again.Digest() != s.Digest() || s.Bytes()[0] != '{' {
		t.Error("a sealed contract was changed from outside")
	}
}

func TestZeroSealed(t *testing.T) {
	if s := (Sealed{}); !s.IsZero() || s.Digest() != "" || len(s.Bytes()) != 0 {
		t.Error("the zero Sealed claims a contract")
	}
	if mustSeal(t, plain()).IsZero() {
		t.Error("a sealed contract is zero")
	}
}

func TestOpenWantsCanonicalBytes(t *testing.T) {
	good := string(mustSeal(t, full()).Bytes())
	swap := func(old, new string) string {
		if !strings.Contains(good, old) {
			t.Fatalf("sample lacks %s", old)
		}
		return strings.Replace(good, old, new, 1)
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, []byte(good), "", " "); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, data, want string }{
		{"as sealed", good, ""},
		{"empty", "", "ends before"},
		{"cut short", good[:len(good)-1], "ends before"},
		{"indented", indented.String(), "canonical bytes"},
		{"newline at the end", good + "\n", "canonical bytes"},
		{"escaped letter", swap(`"make"`, `"m\u0061ke"`), "canonical bytes"},
		{"number in another spelling", swap(`"cpu":2`, `"cpu":2.0`), "canonical bytes"},
		{"absent key", swap(`,"hosted_tools":[]`, ``), "canonical bytes"},
		{"null grant", swap(`"coverage":"name-port-bytes"`, `"coverage":"name-port-bytes","grant":null`), "canonical bytes"},
		{"two values", good + good, "more after the value"},
		{"unknown key", swap(`"schema":`, `"extra":1,"schema":`), "extra: unknown key"},
		{"unknown key inside", swap(`"host":"model.internal"`, `"host":"model.internal","hosts":[]`), "network.allow[0].hosts: unknown key"},
		{"key in another case", swap(`"schema":`, `"Schema":`), `Schema: unknown key; it is spelt "schema"`},
		{"key twice", swap(`"level":"L2"`, `"level":"L2","level":"L2"`), "level: stands here twice"},
		{"key twice by escape", swap(`"level":"L2"`, `"level":"L2","l\u0065vel":"L1"`), "level: stands here twice"},
		{"key twice in a map", swap(`"CI":"1"`, `"CI":"1","CI":"2"`), "env.CI: stands here twice"},
		{"null list", swap(`"hosted_tools":[]`, `"hosted_tools":null`), "hosted_tools: is null, want a list"},
		{"wrong type", swap(`"revision":2`, `"revision":"2"`), "revision: is a string, want a number"},
		{"fraction", swap(`"revision":2`, `"revision":2.5`), "revision: is"},
		{"exponent", swap(`"revision":2`, `"revision":2e0`), "revision: is"},
		{"integer too large", swap(`"tenant":42`, `"tenant":9007199254740993`), "tenant: is"},
		{"root object without a grant", swap(`["/workspace"`, `[{"path":"/workspace"}`), "without a grant"},
		{"root with an unknown key", swap(`["/workspace"`, `[{"path":"/workspace","mode":"rw"}`), "writable_roots[0].mode: unknown key"},
		{"invalid UTF-8", swap(`"make"`, "\"m\xffke\""), "not UTF-8 at byte"},
		{"half a surrogate pair", swap(`"make"`, `"m\ud800ke"`), "argv[0]: holds an escape"},
		{"half a surrogate pair in a key", swap(`"CI":`, `"C\udc00I":`), "holds an escape"},
		{"byte order mark", "\ufeff" + good, "is not JSON"},
		{"list", "[]", "is a list, want an object"},
		{"deep", swap(`"schema":`, `"schema":`+strings.Repeat("[", 40)+strings.Repeat("]", 40)+`,"x":`), "schema: is a list"},
		{"level below the authority", swap(`"level":"L2"`, `"level":"L1"`), "the contract's authority is L2"},
		{"level above the authority", swap(`"level":"L2"`, `"level":"L4"`), "the contract's authority is L2"},
		{"other schema", swap("contract/v1", "contract/v2"), "schema: is"},
		{"too large", `{"argv":["` + strings.Repeat("a", MaxDocument) + `"]}`, "the bound is 1048576"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := Open([]byte(c.data))
			wantError(t, err, c.want)
			if err != nil && !s.IsZero() {
				t.Error("an error came with a contract")
			}
		})
	}
}

// TestEveryLeafCounts flips each leaf of a full contract, found by reflection,
// and wants both the digest and Diff to see it: no field is outside the name.
func TestEveryLeafCounts(t *testing.T) {
	base := clone(full())
	before, err := DigestOf(base)
	if err != nil {
		t.Fatal(err)
	}
	leaves := 0
	eachLeaf(reflect.ValueOf(&base).Elem(), "", func(path string, v reflect.Value) {
		leaves++
		old := reflect.New(v.Type()).Elem()
		old.Set(v)
		flip(t, v)
		after, err := DigestOf(base)
		if err != nil || after == before {
			t.Errorf("%s: flipped to %v, the digest stayed (%v)", path, v, err)
		}
		if changes := Diff(full(), base); len(changes) == 0 {
			t.Errorf("%s: flipped to %v, Diff saw nothing", path, v)
		}
		v.Set(old)
	})
	if again, err := DigestOf(base); err != nil || again != before {
		t.Error("the test did not restore the contract")
	}
	if leaves < 100 {
		t.Errorf("only %d leaves were flipped", leaves)
	}
}

func eachLeaf(v reflect.Value, path string, visit func(string, reflect.Value)) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			eachLeaf(v.Field(i), path+"."+v.Type().Field(i).Name, visit)
		}
	case reflect.Pointer:
		if !v.IsNil() {
			eachLeaf(v.Elem(), path, visit)
		}
		visit(path+" (pointer)", v)
	case reflect.Slice:
		for i := range v.Len() {
			eachLeaf(v.Index(i), index(path, i), visit)
		}
		visit(path+" (list)", v)
	case reflect.Map:
		visit(path, v)
	default:
		visit(path, v)
	}
}

// flip gives v another value.
func flip(t *testing.T, v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(v.String() + "x")
	case reflect.Int, reflect.Int64:
		v.SetInt(v.Int() + 1)
	case reflect.Float64:
		v.SetFloat(v.Float() + 0.25)
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		} else {
			v.SetZero()
		}
	case reflect.Slice:
		v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
	case reflect.Map:
		m := reflect.MakeMap(v.Type())
		m.SetMapIndex(reflect.ValueOf("CI"), reflect.ValueOf("2"))
		v.Set(m)
	default:
		t.Fatalf("no way to flip a %s", v.Kind())
	}
}

func TestSealOpenIdentity(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		c := anyContract(r)
		s, err := Seal(c)
		if err != nil {
			r.Fatal(err)
		}
		o, err := Open(s.Bytes())
		if err != nil {
			r.Fatal(err)
		}
		if o.Digest() != s.Digest() || !reflect.DeepEqual(o.Contract(), s.Contract()) || len(Diff(o.Contract(), c)) != 0 {
			r.Fatalf("opening gave another contract: %s", FormatDiff(Diff(c, o.Contract())))
		}
	})
}

// anyContract varies what a contract says, within the rules.
func anyContract(r *rapid.T) Contract {
	c := plain()
	if rapid.Bool().Draw(r, "full") {
		c = full()
	}
	text := rapid.StringMatching(`[^\x00]{0,12}`)
	c.Argv = append([]string{"cmd"}, rapid.SliceOfN(text, 0, 4).Draw(r, "argv")...)
	for _, k := range rapid.SliceOfN(rapid.StringMatching(`[A-Za-z_][A-Za-z0-9_]{0,8}`), 0, 4).Draw(r, "env names") {
		c.Env[k] = text.Draw(r, "env value")
	}
	c.Limits.CPU = rapid.Float64Range(0.01, 1024).Draw(r, "cpu")
	c.Limits.Files = rapid.Int64Range(1, 1<<32).Draw(r, "files")
	c.Tenant = rapid.Int64Range(0, maxSafeInteger).Draw(r, "tenant")
	c.Outputs.MaxBytes = rapid.Int64Range(1, 1<<30).Draw(r, "bytes")
	c.Promotable = rapid.SliceOfNDistinct(rapid.SampledFrom(promotionKinds()), 0, 7, rapid.ID).Draw(r, "promotable")
	return relevel(c)
}

func FuzzOpen(f *testing.F) {
	f.Add([]byte(`{}`))
	f.Add([]byte(`[{"schema":null}]`))
	f.Add(mustSeal(f, plain()).Bytes())
	f.Add(mustSeal(f, full()).Bytes())
	f.Add(append(mustSeal(f, plain()).Bytes(), ' '))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Open(data)
		if err != nil {
			if !s.IsZero() {
				t.Fatal("an error came with a contract")
			}
			return
		}
		again, err := Seal(s.Contract())
		if err != nil {
			t.Fatalf("what opened does not seal: %v", err)
		}
		if !bytes.Equal(again.Bytes(), data) || again.Digest() != s.Digest() || s.Digest() != DigestBytes(data) {
			t.Fatalf("what opened re-encodes to other bytes:\n%q\n%q", data, again.Bytes())
		}
	})
}
