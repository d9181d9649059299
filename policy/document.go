package policy

import (
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/countersign-dev/countersign/policy/contract"
)

// Document is a policy or a ceiling that was read and found whole: every name
// it uses exists, every host, path and reference in it is well formed, every
// condition compiles. It never changes and may be used by many goroutines.
type Document struct {
	name   string
	data   []byte
	digest string
	where  map[string]pos

	policy  *policyFile  // nil in a ceiling
	ceiling *ceilingFile // nil in a policy
	// chains maps each profile to itself and what it extends, nearest first.
	chains map[string][]string
	// profiles are a policy's, maxima a ceiling's, with what they extend.
	profiles map[string]*merged[profile]
	maxima   map[string]*merged[ceilingProfile]
	// conditions are the compiled `when` of each rule, nil where it has none.
	conditions []*condition
}

// Parse reads a policy. The name is used in messages only. The error is
// [Problems].
func Parse(name string, data []byte) (*Document, error) {
	d := &Document{policy: &policyFile{}}
	return d.parse(name, data, d.policy)
}

// ParseCeiling reads a ceiling: a file of a policy's shape whose profiles are
// maxima, with the keys that only an owner has. The error is [Problems].
func ParseCeiling(name string, data []byte) (*Document, error) {
	d := &Document{ceiling: &ceilingFile{}}
	return d.parse(name, data, d.ceiling)
}

func (d *Document) parse(name string, data []byte, into any) (*Document, error) {
	d.name, d.where = name, map[string]pos{}
	root, problems := parseTree(name, data)
	if len(problems) > 0 {
		return nil, problems.asError()
	}
	dec := decoder{file: name, where: d.where}
	dec.value(root, reflect.ValueOf(into).Elem(), "")
	v := validator{doc: d, problems: dec.problems}
	if d.policy != nil {
		v.policy()
	} else {
		v.ceiling()
	}
	if err := v.problems.asError(); err != nil {
		return nil, err
	}
	d.data, d.digest = slices.Clone(data), contract.DigestBytes(data)
	return d, nil
}

// Name is what [Parse] was told the document is called.
func (d *Document) Name() string { return d.name }

// Digest names the document's bytes.
func (d *Document) Digest() string { return d.digest }

// Bytes are a copy of what was parsed.
func (d *Document) Bytes() []byte { return slices.Clone(d.data) }

// IsCeiling tells a ceiling from a policy.
func (d *Document) IsCeiling() bool { return d.ceiling != nil }

// Rev is the document's own name for its revision, "" if it gives none.
func (d *Document) Rev() string {
	if d.ceiling != nil {
		return d.ceiling.Rev
	}
	return d.policy.Rev
}

// Profiles are the names of the document's profiles, sorted.
func (d *Document) Profiles() []string {
	out := make([]string, 0, len(d.chains))
	for name := range d.chains {
		out = append(out, name)
	}
	return sorted(out)
}

// ProtectedRefs are the branches, besides the default one, whose policy a
// ceiling believes. A policy has none.
func (d *Document) ProtectedRefs() []string {
	if d.ceiling == nil {
		return nil
	}
	return slices.Clone(d.ceiling.ProtectedRefs)
}

// placeOf is place for a profile's key as [merged] names it ("limits.memory"),
// or for what stands further down in it.
func (d *Document) placeOf(profile, key string, more []string) string {
	group, key, grouped := strings.Cut(key, ".")
	if grouped {
		return d.place(append([]string{"profiles", profile, group, key}, more...)...)
	}
	return d.place(append([]string{"profiles", profile, group}, more...)...)
}

// place says where a path of the document stands, for reasons: "file:line".
func (d *Document) place(keys ...string) string {
	if at, ok := d.where[path(keys...)]; ok {
		return d.name + ":" + strconv.Itoa(at.line)
	}
	return d.name
}
