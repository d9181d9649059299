package policy

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/countersign-dev/countersign/policy/contract"
	"go.yaml.in/yaml/v3"
)

// A file of cases says what a policy must decide. Its shape:
//
//	cases:
//	  - name: a writer's label starts the agent
//	    event: pull_request            # or {kind: pull_request, action: labeled}
//	    actor: {login: octocat, id: 1, role: write}
//	    labels: ["agent:claude"]
//	    pr: {number: 17, base: main, fork: false, draft: false}
//	    repo: {id: 1, name: acme/api, private: true}
//	    paths: [docs/a.md]
//	    profile: claude                # asked for by name
//	    expect:
//	      profile: claude
//	      contract:                    # these fields, as JSON of the contract
//	        level: L2
//	        limits: {memory_mb: 4096}
//	  - name: a stranger's does not
//	    …
//	    expect: {refusal: no_rule}     # a code of Refusal
//
// In contract a map names the fields to look at; a list must be equal in whole,
// except that maps inside it again name fields only.
type caseFile struct {
	Cases []testCase `yaml:"cases"`
}

type testCase struct {
	Name    string     `yaml:"name"`
	Event   caseEvent  `yaml:"event"`
	Actor   caseActor  `yaml:"actor"`
	Labels  []string   `yaml:"labels"`
	PR      casePR     `yaml:"pr"`
	Repo    caseRepo   `yaml:"repo"`
	Paths   []string   `yaml:"paths"`
	Profile string     `yaml:"profile"`
	Expect  caseExpect `yaml:"expect"`
}

type caseEvent struct {
	Kind   eventKind `yaml:"kind"`
	Action string    `yaml:"action"`
}

type caseActor struct {
	ID    int64    `yaml:"id"`
	Login string   `yaml:"login"`
	Role  roleName `yaml:"role"`
}

type casePR struct {
	Number int    `yaml:"number"`
	Base   string `yaml:"base"`
	Fork   bool   `yaml:"fork"`
	Draft  bool   `yaml:"draft"`
}

type caseRepo struct {
	ID      int64  `yaml:"id"`
	Name    string `yaml:"name"`
	Private bool   `yaml:"private"`
}

type caseExpect struct {
	Profile  string      `yaml:"profile"`
	Refusal  refusalCode `yaml:"refusal"`
	Contract fields      `yaml:"contract"`
}

// fields are expected fields of a contract, as plain data.
type fields struct{ value any }

// refusalCode is a code of [Refusal].
type refusalCode string

func (refusalCode) words() []string {
	return []string{
		CodeInputs, CodeNoPolicy, CodeTask, CodeNoProfile, CodeNoRule, CodeRulesDisagree, CodeCondition, CodeFork,
		CodeRuntime, CodeImageMissing, CodeImageUnpinned, CodeImageMismatch, CodeSocket, CodeIsolation, CodeNetwork,
		CodeSecret, CodeTool, CodeCeiling, CodeAskedRole, CodeAskedTooMuch, CodeAskedInvalid, CodeContract,
	}
}

// CaseResult is how one case went: Failures is empty when the policy decided as
// expected. File and Line say where the case is written.
type CaseResult struct {
	File     string
	Line     int
	Name     string
	Failures []string
}

// RunCases derives each case of one file under the policy. A nil ceiling stands
// for the built-in one that goes with each case's event. Facts that a case does
// not say are made up, always the same: images exist, commits are aaaa…, the time
// is fixed. The error is [Problems].
func RunCases(policy, ceiling *Document, name string, data []byte) ([]CaseResult, error) {
	root, problems := parseTree(name, data)
	if len(problems) > 0 {
		return nil, problems.asError()
	}
	var file caseFile
	dec := decoder{file: name, where: map[string]pos{}}
	dec.value(root, reflect.ValueOf(&file).Elem(), "")
	v := validator{doc: &Document{name: name, where: dec.where}, problems: dec.problems}
	if len(file.Cases) == 0 {
		v.add("there is no case: write cases: [{name: …, event: …, expect: …}]", nil, "cases")
	}
	results, inputs := make([]CaseResult, len(file.Cases)), make([]Input, len(file.Cases))
	for i, c := range file.Cases {
		at := []string{"cases", fmt.Sprint(i)}
		v.expect(c.Expect, at...)
		in, err := c.input(policy, ceiling)
		if err != nil {
			v.add("%v", []any{err}, at...)
		}
		inputs[i] = in
		results[i] = CaseResult{File: name, Line: dec.where[path(at...)].line, Name: c.Name}
	}
	if err := v.problems.asError(); err != nil {
		return nil, err
	}
	for i, c := range file.Cases {
		results[i].Failures = c.judge(Derive(inputs[i]))
	}
	return results, nil
}

func (v *validator) expect(e caseExpect, at ...string) {
	granted := e.Profile != "" || e.Contract.value != nil
	switch {
	case e.Refusal == "" && !granted:
		v.add("expect is missing: write expect: {profile: …}, {contract: …} or {refusal: …}", nil, append(at, "expect")...)
	case e.Refusal != "" && granted:
		v.add("a refusal comes without a profile and a contract", nil, append(at, "expect")...)
	}
}

// input makes up what the case does not say.
func (c testCase) input(policy, ceiling *Document) (Input, error) {
	commit := strings.Repeat("a", 40)
	t := contract.Task{
		Schema: contract.SchemaTask, RunID: "run_00000000000000000000000000",
		Event: contract.Event{Kind: string(c.Event.Kind), Action: c.Event.Action},
		Repo:  contract.Repo{ID: c.Repo.ID, FullName: c.Repo.Name}, RepoPrivate: c.Repo.Private,
		Head: contract.Head{SHA: commit, Fork: c.PR.Fork}, Start: contract.Start{SHA: commit},
		PullRequest: c.PR.Number, Draft: c.PR.Draft,
		Base:   contract.Ref{Ref: c.PR.Base},
		Actor:  contract.Person{ID: c.Actor.ID, Login: c.Actor.Login, Role: string(c.Actor.Role)},
		Labels: sorted(list(c.Labels)), Paths: list(c.Paths), Profile: c.Profile, Argv: []string{"true"},
	}
	fill(&t.Repo.FullName, "acme/api")
	fill(&t.Actor.Login, "octocat")
	if c.PR.Number > 0 {
		fill(&t.Base.Ref, "main")
		t.Base.SHA = strings.Repeat("b", 40)
	}
	fill(&t.Event.Kind, contract.EventLocal)
	if t.Event.Kind == contract.EventLocal {
		fill(&t.Actor.Role, contract.RoleLocal)
	}
	fill(&t.Actor.Role, "none")
	return sample(t, policy, ceiling)
}

func fill(s *string, otherwise string) {
	if *s == "" {
		*s = otherwise
	}
}

// sample completes a task to an input with made-up facts, in which every image
// of the policy exists.
func sample(t contract.Task, policy, ceiling *Document) (Input, error) {
	standIn := ceiling == nil
	if standIn {
		name, data := "built-in ceiling", BuiltinCeiling()
		if t.Event.Kind == contract.EventLocal {
			name, data = "built-in local ceiling", BuiltinLocalCeiling()
		}
		c, err := ParseCeiling(name, data)
		if err != nil {
			return Input{}, err
		}
		ceiling = c
	}
	task, err := contract.Encode(t)
	if err != nil {
		return Input{}, fmt.Errorf("making up a task: %v", err)
	}
	in := Input{Task: t, Policy: policy, Ceiling: ceiling}
	in.Snapshot = contract.Snapshot{
		Schema: contract.SchemaSnapshot, Time: "2026-01-01T00:00:00Z", TaskDigest: contract.DigestBytes(task),
		Policy:  contract.Source{Status: contract.SourceFound, Ref: "main", Path: policy.name, Digest: policy.digest},
		Ceiling: contract.Source{Status: contract.SourceFound, Path: ceiling.name, Digest: ceiling.digest},
		Images:  map[string]contract.ImageFact{},
	}
	if standIn {
		in.Snapshot.Ceiling.Status = contract.SourceBuiltin
	}
	for _, ref := range ImageRefs(in) {
		fact := contract.ImageFact{ID: contract.DigestBytes([]byte(ref)), Platform: "linux/amd64"}
		switch pinned := contract.RefDigest(ref); pinned {
		case "":
		case ref:
			fact.ID = ref
		default:
			fact.RepoDigests = []string{ref}
			if name, _, _ := strings.Cut(ref, "@"); contract.CheckImageRef(name+"@"+pinned) == nil {
				fact.RepoDigests = []string{name + "@" + pinned}
			}
		}
		in.Snapshot.Images[ref] = fact
	}
	return in, nil
}

// judge compares a derivation with what the case expects.
func (c testCase) judge(d Derivation) []string {
	switch {
	case d.Refusal != nil && c.Expect.Refusal == "":
		return []string{fmt.Sprintf("refused (%s): %v", d.Refusal.Code, d.Refusal)}
	case d.Refusal != nil && string(c.Expect.Refusal) != d.Refusal.Code:
		return []string{fmt.Sprintf("refused (%s), want the refusal %s: %v", d.Refusal.Code, c.Expect.Refusal, d.Refusal)}
	case d.Refusal != nil:
		return nil
	case c.Expect.Refusal != "":
		return []string{fmt.Sprintf("derived a contract with the profile %s, want the refusal %s", chosen(d), c.Expect.Refusal)}
	}
	var out []string
	if got := chosen(d); c.Expect.Profile != "" && got != c.Expect.Profile {
		out = append(out, fmt.Sprintf("profile is %s, want %s", got, c.Expect.Profile))
	}
	if c.Expect.Contract.value == nil {
		return out
	}
	encoded, err := json.Marshal(d.Contract)
	var got any
	if err == nil {
		err = json.Unmarshal(encoded, &got)
	}
	if err != nil {
		return append(out, "encoding the contract: "+err.Error())
	}
	return append(out, differences("", c.Expect.Contract.value, got)...)
}

// chosen is the profile that a derivation took.
func chosen(d Derivation) string {
	for _, r := range d.Reasons {
		if r.Field == "profile" {
			return r.Value
		}
	}
	return ""
}

// differences lists where got is not what want names.
func differences(at string, want, got any) []string {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return []string{fmt.Sprintf("%s is %s, want a map", at, show(got))}
		}
		var out []string
		for _, k := range sortedKeys(w) {
			sub := strings.TrimPrefix(at+"."+k, ".")
			if _, ok := g[k]; !ok {
				out = append(out, "there is no field "+sub+meant(k, g))
				continue
			}
			out = append(out, differences(sub, w[k], g[k])...)
		}
		return out
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			return []string{fmt.Sprintf("%s is %s, want %s", at, show(got), show(want))}
		}
		var out []string
		for i := range w {
			out = append(out, differences(fmt.Sprintf("%s[%d]", at, i), w[i], g[i])...)
		}
		return out
	}
	if !reflect.DeepEqual(want, got) {
		return []string{fmt.Sprintf("%s is %s, want %s", at, show(got), show(want))}
	}
	return nil
}

func meant(key string, g map[string]any) string {
	if m := nearest(key, sortedKeys(g)); m != "" {
		return fmt.Sprintf(" (did you mean %q?)", m)
	}
	return ""
}

func show(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return clip(string(b))
}

// plain turns a checked YAML tree into the data that JSON would give.
func plain(n *yaml.Node) (any, error) {
	switch n.Kind {
	case yaml.MappingNode:
		m := make(map[string]any, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			v, err := plain(n.Content[i+1])
			if err != nil {
				return nil, err
			}
			m[n.Content[i].Value] = v
		}
		return m, nil
	case yaml.SequenceNode:
		l := make([]any, len(n.Content))
		for i, c := range n.Content {
			v, err := plain(c)
			if err != nil {
				return nil, err
			}
			l[i] = v
		}
		return l, nil
	}
	switch n.ShortTag() {
	case "!!null":
		return nil, nil
	case "!!bool":
		var b bool
		err := n.Decode(&b)
		return b, err
	case "!!int", "!!float":
		var f float64
		err := n.Decode(&f)
		return f, err
	}
	return n.Value, nil
}
