package policy

import (
	"slices"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/invopop/jsonschema"
)

// The closed sets of words in a policy. Each type lists its words once, for the
// decoder, for its messages and for the JSON Schema.
type (
	roleName      string
	eventKind     string
	isolationName string
	runtimeName   string
	ruleMode      string
	outputKind    string
	pushKind      string
	deliverKind   string
	injectKind    string
	promotionKind string
	ciTrust       string
)

// runtimeCommand is a policy's word for no agent: the argv is run as it is. In
// a contract that is an empty runtime.
const runtimeCommand = "command"

// roles are in rising order: each may do what those before it may.
func roles() []string {
	return []string{"none", "read", "triage", "write", "maintain", "admin"}
}

func (roleName) words() []string { return roles() }
func (eventKind) words() []string {
	return []string{"pull_request", "issue", "comment", "dispatch", "push", "schedule", "api", contract.EventLocal}
}
func (isolationName) words() []string {
	return []string{string(contract.IsolationRunc), string(contract.IsolationRunsc)}
}
func (runtimeName) words() []string {
	return []string{runtimeCommand, "claude-code", "codex", "openclaw", "hermes"}
}
func (ruleMode) words() []string {
	return []string{contract.RuleOpaque, contract.RuleGateway, contract.RuleInspect}
}
func (outputKind) words() []string {
	return []string{contract.OutputNone, contract.OutputPatch, contract.OutputComment, contract.OutputPullRequest}
}
func (pushKind) words() []string {
	return []string{contract.PushNever, contract.PushApproved, contract.PushTrusted}
}
func (deliverKind) words() []string { return []string{contract.DeliverInject, contract.DeliverFile} }
func (injectKind) words() []string {
	return []string{contract.InjectHeader, contract.InjectBearer, contract.InjectBasic}
}
func (promotionKind) words() []string {
	return []string{"host_exec", "limits", "network", "output", "path", "secret", "tool"}
}
func (ciTrust) words() []string { return []string{"trusted", "untrusted"} }

func wordSchema(w worded) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "string"}
	for _, word := range w.words() {
		s.Enum = append(s.Enum, word)
	}
	return s
}

// JSONSchema lists the words to editors.
func (r roleName) JSONSchema() *jsonschema.Schema { return wordSchema(r) }

// JSONSchema lists the words to editors.
func (i isolationName) JSONSchema() *jsonschema.Schema { return wordSchema(i) }

// JSONSchema lists the words to editors.
func (r runtimeName) JSONSchema() *jsonschema.Schema { return wordSchema(r) }

// JSONSchema lists the words to editors.
func (r ruleMode) JSONSchema() *jsonschema.Schema { return wordSchema(r) }

// JSONSchema lists the words to editors.
func (o outputKind) JSONSchema() *jsonschema.Schema { return wordSchema(o) }

// JSONSchema lists the words to editors.
func (p pushKind) JSONSchema() *jsonschema.Schema { return wordSchema(p) }

// JSONSchema lists the words to editors.
func (d deliverKind) JSONSchema() *jsonschema.Schema { return wordSchema(d) }

// JSONSchema lists the words to editors.
func (i injectKind) JSONSchema() *jsonschema.Schema { return wordSchema(i) }

// JSONSchema lists the words to editors.
func (p promotionKind) JSONSchema() *jsonschema.Schema { return wordSchema(p) }

// JSONSchema lists the words to editors.
func (c ciTrust) JSONSchema() *jsonschema.Schema { return wordSchema(c) }

// rank places a word in a rising list; -1 for a word that is not there.
func rank(words []string, word string) int { return slices.Index(words, word) }

func contains(words []string, word string) bool { return slices.Contains(words, word) }

func sorted(words []string) []string {
	slices.Sort(words)
	return words
}

const onlyCeiling = "only a ceiling has it at its top; a policy cannot set its own maximum"

// foreignKeys are keys that people know from other tools or from the other kind
// of document, and why they are not here.
func foreignKeys() map[string]string {
	return map[string]string{
		"mounts":       "a run sees no directory of the host; the workspace is the commit's tree",
		"mount":        "a run sees no directory of the host; the workspace is the commit's tree",
		"volumes":      "a run sees no directory of the host; the workspace is the commit's tree",
		"privileged":   "no run is privileged",
		"cap_add":      "every capability is dropped",
		"capabilities": "every capability is dropped",
		"devices":      "a run has no devices",
		"network_mode": "a run has no interface; write network: {allow: [...]}",
		"user":         "every run has a user id of its own, chosen by the runner",
		"entrypoint":   "the image's entrypoint takes no part; the command comes with the task",
		"rules":        "a ceiling chooses nothing; rules stand in the policy",
		"promotion":    "who approves stands in the policy; a ceiling lists kinds in promotable",

		"protected_refs": onlyCeiling, "promotable": onlyCeiling, "private": onlyCeiling, "allow_secrets": onlyCeiling,
		"allow_workflows": onlyCeiling, "isolation_min": onlyCeiling, "ci": onlyCeiling,
		"<<": "write the keys out, or use extends",
	}
}

// sortedKeys gives maps an order, so that equal inputs give equal results.
func sortedKeys[K ~string, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
