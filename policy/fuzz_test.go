package policy

import (
	"testing"

	"github.com/countersign-dev/countersign/policy/contract"
)

// FuzzParse holds two promises: no bytes make the parser panic, and whatever it
// accepts derives a contract that seals, or a refusal, for any event.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		builtinPolicy, builtinCeiling, builtinLocalCeiling, starter, designExample, testPolicy,
		"", "a: &a [*a]", "? [x]\n: y", "<<: {}", "version: 1\nprofiles: {a: {image: ci, limits: {cpu: 1e300}}}\n",
		"version: 1\nprofiles: {a: {image: ci, writable: [], outputs: {kind: none}}}\n",
		"version: 1\nprofiles: {a: {image: ci, read_denied: [/workspace]}}\n",
		"version: 1\nprofiles: {a: {extends: b}, b: {extends: a}}\n",
		"version: 1\nprofiles: {a: {image: ci, limits: {timeout: 9999h}}}\nrules: [{when: 'paths[9] == labels[0]', profile: a}]\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if c, err := ParseCeiling("c", data); err == nil {
			derives(t, mustParse(t, designExample), c)
		}
		p, err := Parse("p", data)
		if err != nil {
			if ps := err.(Problems); len(ps) == 0 || len(ps) > maxProblems {
				t.Fatalf("%d problems", len(ps))
			}
			return
		}
		derives(t, p, nil)
		if _, err := Check(p, nil); err != nil {
			t.Fatal(err)
		}
	})
}

func derives(t *testing.T, p, ceiling *Document) {
	tasks := []testCase{
		{},
		{Event: caseEvent{Kind: "pull_request"}, Actor: caseActor{Role: "write"}, Labels: []string{"agent:claude"}, PR: casePR{Number: 1}},
		{Event: caseEvent{Kind: "comment"}, Actor: caseActor{Role: "admin"}, PR: casePR{Number: 1, Fork: true}},
		{Event: caseEvent{Kind: "push"}, Actor: caseActor{Role: "write"}},
	}
	for _, name := range p.Profiles() {
		tasks = append(tasks, testCase{Profile: name})
	}
	for _, c := range tasks {
		in, err := c.input(p, ceiling)
		if err != nil {
			t.Fatal(err)
		}
		d := Derive(in)
		if d.Refusal != nil {
			continue
		}
		if _, err := contract.Seal(d.Contract); err != nil {
			t.Fatalf("what was derived does not seal: %v", err)
		}
	}
}
