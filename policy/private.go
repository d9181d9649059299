package policy

import (
	"fmt"
	"slices"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/invopop/jsonschema"
)

// privateCap says which rules may reach addresses that are not public: any, or
// those to a destination that one of the listed patterns covers.
type privateCap struct {
	Any  bool
	List []string
}

// covers says whether a rule to host, a pattern, may reach such addresses.
func (p privateCap) covers(host string) bool { return p.Any || p.names(host) }

// names says whether the ceiling names host itself.
func (p privateCap) names(host string) bool {
	return slices.ContainsFunc(p.List, func(top string) bool { return hostCovered(top, host) })
}

// JSONSchema describes the two forms to editors.
func (privateCap) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{OneOf: []*jsonschema.Schema{
		{Type: "boolean"},
		{Type: "array", Items: &jsonschema.Schema{Type: "string"}},
	}}
}

// privateHosts wants patterns in their one spelling.
func (v *validator) privateHosts(p privateCap) {
	for i, host := range p.List {
		parsed, err := contract.ParseHostPattern(host)
		if err == nil && parsed.String() != host {
			err = fmt.Errorf("is %q, write %s", clip(host), parsed)
		}
		v.is(err, "private", fmt.Sprint(i))
	}
}

// private judges a rule that may reach addresses that are not public.
func (d *deriver) private(r contract.NetRule, asked bool) {
	host, _ := destination(r)
	name := fmt.Sprintf("%s:%d", r.Host, r.Port)
	switch {
	case !d.in.Ceiling.ceiling.Private.covers(host):
		d.refuse(CodeNetwork, targetText(r)+" may be a private address (private: true), which the ceiling does not allow",
			"ask the owner to set private: true, or private: ["+host+"], in the ceiling")
	case !asked && d.unvouched() && !contains(d.in.Task.Asked.Allow, name):
		d.refuse(CodeNetwork, "the repository's policy lets "+targetText(r)+" be an address of this machine or its network (private: true)",
			"if you mean that, add --allow "+name+", or give a --ceiling that allows it")
	}
}

// unvouched says that a repository's own policy is used at a terminal under the
// built-in ceiling, which leaves the machine's owner in charge: so what is the
// machine's, its secrets and the addresses around it, needs the owner's word and
// not only that of who wrote the repository. A policy or a ceiling that was given
// by file is the owner's word.
func (d *deriver) unvouched() bool {
	s := d.in.Snapshot
	return d.local && s.Policy.Status == contract.SourceFound && s.Policy.Ref != refFile && s.Ceiling.Status != contract.SourceFound
}

// refFile is the snapshot's reference of a document that was given by path.
const refFile = "file"
