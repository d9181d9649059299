package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/policy/contract"
)

// forkProfile is the profile for a fork's head that a person with a role typed
// the SHA of, when no rule says otherwise.
const forkProfile = "fork"

// choose finds the profile of the task and says why.
func (d *deriver) choose() {
	p, t := d.in.Policy.policy, &d.in.Task
	matched := d.matching()
	if d.refusal != nil {
		return
	}
	if t.Profile != "" {
		d.chooseNamed(matched)
		return
	}
	for _, i := range matched[min(1, len(matched)):] {
		if first := p.Rules[matched[0]]; p.Rules[i].Profile != first.Profile {
			d.refuse(CodeRulesDisagree, fmt.Sprintf("two rules match and choose different profiles: %s (%s) and %s (%s)",
				first.Profile, d.rulePlace(matched[0]), p.Rules[i].Profile, d.rulePlace(i)),
				"remove one label, or make the rules exclude each other")
			return
		}
	}
	switch {
	case len(matched) > 0:
		d.take(p.Rules[matched[0]].Profile, d.ruleReasons(matched)...)
		d.countLabels(matched)
	case t.Head.Fork:
		d.chooseForFork()
	case p.Default != "" && d.defaultApplies():
		d.take(p.Default, "default ("+d.in.Policy.place("default")+"), as no rule matches")
	default:
		d.refuseUnmatched()
	}
}

// chooseNamed serves a task that names its profile. A person at a terminal may
// name any; anybody else only what a matching rule, or the default, gives.
func (d *deriver) chooseNamed(matched []int) {
	p, t := d.in.Policy.policy, &d.in.Task
	if d.in.Policy.profiles[t.Profile] == nil {
		names := d.in.Policy.Profiles()
		hint := "the policy has " + strings.Join(names, ", ")
		if meant := nearest(t.Profile, names); meant != "" {
			hint = fmt.Sprintf("did you mean %q?", meant)
		}
		d.refuse(CodeNoProfile, fmt.Sprintf("there is no profile %q in %s", clip(t.Profile), d.in.Policy.name), hint)
		return
	}
	same := slices.DeleteFunc(slices.Clone(matched), func(i int) bool { return p.Rules[i].Profile != t.Profile })
	switch {
	case d.local:
		d.take(t.Profile, "asked by --profile")
	case len(same) > 0:
		d.take(t.Profile, d.ruleReasons(same)...)
	case t.Profile == p.Default && !t.Head.Fork && d.defaultApplies():
		d.take(t.Profile, "default ("+d.in.Policy.place("default")+")")
	default:
		d.refuse(CodeNoRule, fmt.Sprintf("no rule gives the profile %q to this %s", t.Profile, t.Event.Kind), "add a rule for this event and role to the policy")
		return
	}
	d.countLabels(same)
}

// take makes name the profile of the run.
func (d *deriver) take(name string, causes ...string) {
	d.profile = d.in.Policy.profiles[name]
	d.because("profile", name, causes...)
}

// matching are the rules whose every condition holds. A condition that cannot
// be evaluated refuses the task: it is neither true nor false.
func (d *deriver) matching() []int {
	var out []int
	t := &d.in.Task
	for i, r := range d.in.Policy.policy.Rules {
		if r.Fork != t.Head.Fork || !d.roleSuffices(r) ||
			len(r.Event) > 0 && !contains(r.Event, t.Event.Kind) ||
			len(r.Label) > 0 && !slices.ContainsFunc(r.Label, func(l string) bool { return contains(t.Labels, l) }) {
			continue
		}
		if c := d.in.Policy.conditions[i]; c != nil {
			yes, err := c.holds(t)
			if err != nil {
				d.refuse(CodeCondition, fmt.Sprintf("the condition at %s: %v", d.rulePlace(i), err), "write a condition that holds for every task, such as with size(labels) > 0 &&")
				return nil
			}
			if !yes {
				continue
			}
		}
		out = append(out, i)
	}
	return out
}

// roleSuffices compares the actor's role with the rule's. A rule that names
// none wants write, except one for schedule alone, which nobody sets off.
func (d *deriver) roleSuffices(r rule) bool {
	if d.local {
		return true
	}
	want := string(r.Role)
	if want == "" {
		want = "write"
		if len(r.Event) == 1 && r.Event[0] == "schedule" {
			want = "none"
		}
	}
	return d.roleAtLeast(want)
}

func (d *deriver) roleAtLeast(want string) bool {
	return d.local || rank(roles(), d.in.Task.Actor.Role) >= rank(roles(), want)
}

// defaultApplies says whether a task may run without a rule: a person at a
// terminal, a schedule of the default branch, and what GitHub lets only people
// with write access set off.
func (d *deriver) defaultApplies() bool {
	switch d.in.Task.Event.Kind {
	case contract.EventLocal:
		return d.local
	case "schedule":
		return true
	case "push", "dispatch":
		return d.roleAtLeast("write")
	}
	return false
}

// chooseForFork serves a fork's head for which no rule is. Only a comment names
// a SHA that a person typed; it gets the profile named fork, or else the bare
// bones of the default profile.
func (d *deriver) chooseForFork() {
	if d.in.Task.Event.Kind != "comment" || !d.roleAtLeast("write") {
		d.refuse(CodeFork, "the head comes from a fork, and no rule with fork: true matches",
			"somebody with write access may comment: /countersign run "+d.in.Task.Head.SHA)
		return
	}
	why := "a person with the role " + d.in.Task.Actor.Role + " typed the fork's SHA"
	if d.in.Policy.profiles[forkProfile] != nil {
		d.take(forkProfile, why)
		return
	}
	base := d.in.Policy.profiles[d.in.Policy.policy.Default]
	if base == nil {
		d.refuse(CodeFork, "the head comes from a fork, and the policy has neither a profile fork nor a default", "write a profile named fork")
		return
	}
	d.profile = bare(base)
	d.because("profile", forkProfile, why, "built in: image, limits and isolation of the default profile "+base.name+", and nothing else")
}

// bare keeps of a profile only what a run cannot do without.
func bare(m *merged[profile]) *merged[profile] {
	patch := outputKind(contract.OutputPatch)
	never := pushKind(contract.PushNever)
	return &merged[profile]{name: m.name, chain: m.chain, from: m.from, keys: profile{
		Image: m.keys.Image, Limits: m.keys.Limits, Isolation: m.keys.Isolation, Workdir: m.keys.Workdir,
		ReadDenied: m.keys.ReadDenied, Outputs: &outputs{Kind: &patch, Push: &never},
	}}
}

func (d *deriver) refuseUnmatched() {
	t, p := &d.in.Task, d.in.Policy.policy
	msg := fmt.Sprintf("no rule matches this %s by %s (%s)", t.Event.Kind, clip(t.Actor.Login), t.Actor.Role)
	hint := fmt.Sprintf("add a rule such as {event: %s, role: write, profile: NAME}", t.Event.Kind)
	if d.local {
		msg, hint = "no rule matches and the policy has no default", "add default: NAME to the policy, or say --profile NAME"
	}
	words := []string{}
	for _, r := range p.Rules {
		words = append(words, r.Label...)
	}
	for _, l := range t.Labels {
		if meant := nearest(l, words); meant != "" && meant != l {
			hint = fmt.Sprintf("no rule names the label %q; did you mean %q?", clip(l), meant)
		}
	}
	d.refuse(CodeNoRule, msg, hint)
}

func (d *deriver) rulePlace(i int) string {
	return d.in.Policy.place("rules", fmt.Sprint(i))
}

func (d *deriver) ruleReasons(matched []int) []string {
	var out []string
	for _, i := range matched {
		r := d.in.Policy.policy.Rules[i]
		var conds []string
		if len(r.Label) > 0 {
			conds = append(conds, "label "+strings.Join(r.Label, " or "))
		}
		if len(r.Event) > 0 {
			conds = append(conds, "event "+strings.Join(r.Event, " or "))
		}
		if r.Role != "" {
			conds = append(conds, "role "+string(r.Role)+" or more")
		}
		if r.Fork {
			conds = append(conds, "fork")
		}
		if r.When != "" {
			conds = append(conds, "when "+clip(strings.Join(strings.Fields(r.When), " ")))
		}
		out = append(out, "rule "+d.rulePlace(i)+": "+strings.Join(conds, ", "))
	}
	return out
}

// countLabels records which labels the verdict rests on: those that the
// matching rules name, and all of them once a condition looked at them.
func (d *deriver) countLabels(matched []int) {
	var counted []string
	for _, l := range d.in.Task.Labels {
		for _, i := range matched {
			c := d.in.Policy.conditions[i]
			if contains(d.in.Policy.policy.Rules[i].Label, l) || c != nil && c.usesLabels {
				counted = append(counted, l)
				break
			}
		}
	}
	d.c.Labels = slices.Compact(sorted(counted))
}
