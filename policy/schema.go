package policy

import (
	"encoding/json"

	"github.com/invopop/jsonschema"
)

// JSONSchema is the JSON Schema (draft 2020-12) of a policy, for editors. It is
// made from the same types that [Parse] decodes into. It accepts some files that
// Parse refuses (a profile that does not exist, say), never the other way round.
func JSONSchema() []byte { return schemaOf(&policyFile{}, "Countersign policy") }

// CeilingJSONSchema is [JSONSchema] for a ceiling.
func CeilingJSONSchema() []byte { return schemaOf(&ceilingFile{}, "Countersign ceiling") }

func schemaOf(v any, title string) []byte {
	s := newReflector().Reflect(v)
	s.Title = title
	out, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		panic("unreachable: a schema of plain types does not encode: " + err.Error())
	}
	return append(out, '\n')
}

func newReflector() *jsonschema.Reflector {
	return &jsonschema.Reflector{FieldNameTag: "yaml", RequiredFromJSONSchemaTags: true, ExpandedStruct: true, Anonymous: true}
}

// JSONSchema describes the two forms to editors.
func (nameCap) JSONSchema() *jsonschema.Schema {
	return anyOrList(&jsonschema.Schema{Type: "string"})
}

// JSONSchema describes the two forms to editors.
func (ruleCap) JSONSchema() *jsonschema.Schema {
	r := newReflector()
	r.DoNotReference = true
	rule := r.Reflect(&netRule{})
	rule.Version = ""
	return anyOrList(rule)
}

func anyOrList(item *jsonschema.Schema) *jsonschema.Schema {
	return &jsonschema.Schema{OneOf: []*jsonschema.Schema{
		{Const: "any"},
		{Type: "array", Items: item},
	}}
}
