package policy

import (
	"fmt"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"github.com/countersign-dev/countersign/policy/contract"
)

// validator judges what the decoder filled in: names that must exist, and
// values that the contract package must accept.
type validator struct {
	doc      *Document
	problems Problems
}

// at is the place of a path of the document, or of the nearest thing around it
// that is written there.
func (v *validator) at(keys []string) pos {
	for n := len(keys); n >= 0; n-- {
		if p, ok := v.doc.where[path(keys[:n]...)]; ok {
			return p
		}
	}
	return pos{1, 1}
}

func (v *validator) add(format string, args []any, keys ...string) {
	v.suggest("", format, args, keys...)
}

func (v *validator) suggest(meant, format string, args []any, keys ...string) {
	if len(v.problems) > 10*maxProblems {
		return // enough to say that the file is broken
	}
	p := v.at(keys)
	for _, before := range v.problems {
		if before.Line == p.line && before.Column == p.column {
			return // what could not be read need not be judged
		}
	}
	v.problems = append(v.problems, Problem{File: v.doc.name, Line: p.line, Column: p.column,
		Message: fmt.Sprintf(format, args...), Suggestion: meant})
}

// is reports err, whose text completes the last key that is a word.
func (v *validator) is(err error, keys ...string) {
	if err == nil {
		return
	}
	word := ""
	for i := len(keys) - 1; i >= 0 && word == ""; i-- {
		if strings.Trim(keys[i], "0123456789") != "" {
			word = clip(keys[i])
		}
	}
	v.add("%s %v", []any{word, err}, keys...)
}

func contractName(name string) error { return contract.CheckName(name) }

func (v *validator) policy() {
	p := v.doc.policy
	v.header(p.Version, p.Rev)
	if len(p.Profiles) == 0 {
		v.add("there is no profile: write profiles: {NAME: {image: …}}", nil, "profiles")
	}
	chains := chainsOf(v, p.Profiles, func(p profile) *string { return p.Extends })
	v.doc.chains = chains
	v.doc.profiles = merge(p.Profiles, chains)
	v.profileName(p.Default, "default")
	for _, name := range v.doc.Profiles() {
		v.profile(name, p.Profiles[name])
		v.merged(v.doc.profiles[name])
	}
	v.rules()
	v.promotion()
	v.images()
}

func (v *validator) header(version int, rev string) {
	if version != 1 {
		v.add("version is %d: this program reads version: 1", []any{version}, "version")
	}
	if rev != "" {
		v.is(contract.CheckName(rev), "rev")
	}
}

// profileName wants the name of a profile, or nothing.
func (v *validator) profileName(name string, keys ...string) {
	names := v.doc.Profiles()
	if name == "" || contains(names, name) {
		return
	}
	if v.doc.policy != nil {
		if _, broken := v.doc.policy.Profiles[name]; broken {
			return // its own problem is reported where it stands
		}
	}
	v.suggest(nearest(name, names), "there is no profile %q", []any{clip(name)}, keys...)
}

// profile judges what one profile writes itself.
func (v *validator) profile(name string, p profile) {
	key := func(keys ...string) []string { return append([]string{"profiles", name}, keys...) }
	if p.Image != nil {
		if namesEngineSocket(*p.Image) {
			v.add("image asks for the container engine's socket, which no run is ever given", nil, key("image")...)
		}
		v.is(contract.CheckImageRef(*p.Image), key("image")...)
	}
	if p.Workdir != nil {
		v.is(contract.CheckDir(*p.Workdir), key("workdir")...)
	}
	for env, value := range p.Env {
		v.is(contract.CheckEnvName(env), key("env", env)...)
		v.is(contract.CheckArg(env+"="+value), key("env", env)...)
		if namesEngineSocket(value) {
			v.add("%s asks for the container engine's socket, which no run is ever given", []any{clip(env)}, key("env", env)...)
		}
	}
	for i, dir := range p.Writable {
		at := key("writable", fmt.Sprint(i))
		if namesEngineSocket(dir) {
			v.add("writable asks for the container engine's socket, which no run is ever given", nil, at...)
			continue
		}
		v.is(contract.CheckWritableRoot(dir), at...)
	}
	for i, dir := range p.ReadDenied {
		v.is(contract.CheckDir(dir), key("read_denied", fmt.Sprint(i))...)
	}
	v.unique(p.Writable, key("writable")...)
	v.unique(p.ReadDenied, key("read_denied")...)
	v.unique(p.Tools, key("tools")...)
	v.unique(p.HostedTools, key("hosted_tools")...)
	for s, sec := range p.Secrets {
		v.secret(s, sec, key("secrets", s)...)
	}
	v.limits(p.Limits, key("limits")...)
	v.outputs(p.Outputs, key("outputs")...)
}

func (v *validator) unique(values []string, keys ...string) {
	for i, s := range values {
		at := append(slices.Clone(keys), fmt.Sprint(i))
		if s == "" {
			v.add("%s holds an empty text", []any{keys[len(keys)-1]}, at...)
		}
		if slices.Index(values, s) < i {
			v.add("%q stands here twice", []any{clip(s)}, at...)
		}
	}
}

func (v *validator) secret(name string, s secret, keys ...string) {
	sub := func(k string) []string { return append(slices.Clone(keys), k) }
	v.is(contract.CheckName(name), keys...)
	v.is(contract.CheckSecretRef(s.Ref), sub("ref")...)
	if namesEngineSocket(s.Ref) {
		v.add("ref asks for the container engine's socket, which no run is ever given", nil, sub("ref")...)
	}
	switch s.Deliver {
	case contract.DeliverInject:
		v.injected(s, keys...)
	case contract.DeliverFile:
		if s.As != "" || s.Name != "" {
			v.add("as and name belong to deliver: inject; a file is called by the secret's name", nil, keys...)
		}
	default:
		v.add("deliver is missing: write inject or file", nil, keys...)
	}
}

// injected judges how the proxy adds a secret.
func (v *validator) injected(s secret, keys ...string) {
	name := append(slices.Clone(keys), "name")
	switch {
	case s.As == "":
		v.suggest(contract.InjectHeader, "as is missing: it says how the proxy adds the secret, header, bearer or basic", nil, append(slices.Clone(keys), "as")...)
	case s.As == contract.InjectHeader && s.Name == "":
		v.add("name is missing: write the name of the header", nil, name...)
	case s.As != contract.InjectHeader && s.Name != "":
		v.add("name belongs to as: header; %s sets the header Authorization", []any{s.As}, name...)
	}
}

func (v *validator) limits(l *limits, keys ...string) {
	if l == nil {
		return
	}
	for _, f := range limitFields {
		if said, ok := f.get(l); ok && said == 0 && !f.mayBeZero() {
			v.add("%s is zero, with which nothing can run", []any{f.key}, append(slices.Clone(keys), f.key)...)
		}
	}
}

func (v *validator) outputs(o *outputs, keys ...string) {
	if o == nil {
		return
	}
	for i, p := range o.ProtectedPaths {
		v.is(contract.CheckProtected(p), append(slices.Clone(keys), "protected_paths", fmt.Sprint(i))...)
	}
}

// merged judges what only shows when a profile is laid over what it extends.
func (v *validator) merged(m *merged[profile]) {
	if m.keys.Network == nil {
		return
	}
	owner := m.from["network"]
	var before []contract.NetRule
	for i, r := range m.keys.Network.Allow {
		at := []string{"profiles", owner, "network", "allow", fmt.Sprint(i)}
		built, faults := r.build(m.keys.Secrets)
		for _, f := range faults {
			if owner != m.name && f.key != "inject" {
				continue // reported for the owner
			}
			msg := f.msg
			if owner != m.name {
				msg += " (in profile " + m.name + ", which extends this one)"
			}
			v.add("%s", []any{msg}, append(at, f.key)...)
		}
		if owner == m.name && slices.ContainsFunc(before, func(o contract.NetRule) bool { return sameTarget(o, built) }) {
			v.add("%s:%d has a rule already: join the two", []any{built.Host, built.Port}, at...)
		}
		before = append(before, built)
	}
}

// sameTarget says whether two rules for one host and port cannot stand beside
// each other: a tunnel has one rule, and requests need another method or path.
func sameTarget(a, b contract.NetRule) bool {
	if a.Host != b.Host || a.Port != b.Port {
		return false
	}
	return a.Mode == contract.RuleOpaque || a.Mode != b.Mode || slices.Equal(a.Methods, b.Methods) && slices.Equal(a.Paths, b.Paths)
}

func (v *validator) rules() {
	p := v.doc.policy
	v.doc.conditions = make([]*condition, len(p.Rules))
	var env *cel.Env
	for i, r := range p.Rules {
		at := func(keys ...string) []string { return append([]string{"rules", fmt.Sprint(i)}, keys...) }
		if r.Profile == "" {
			v.add("the rule chooses no profile: write profile: NAME", nil, at()...)
		}
		v.profileName(r.Profile, at("profile")...)
		if len(r.Label) == 0 && len(r.Event) == 0 && r.When == "" && !r.Fork {
			v.add("the rule holds for everything: write label, event or when (default: is for the rest)", nil, at()...)
		}
		v.unique(r.Label, at("label")...)
		v.unique(r.Event, at("event")...)
		for j, kind := range r.Event {
			if words := eventKind("").words(); kind != "" && !contains(words, kind) {
				v.suggest(nearest(kind, words), "event cannot be %q: it is one of %s", []any{clip(kind), strings.Join(words, ", ")}, at("event", fmt.Sprint(j))...)
			}
		}
		if _, written := v.doc.where[path(at("when")...)]; !written {
			continue
		}
		if env == nil {
			var err error
			if env, err = newWhenEnv(); err != nil {
				v.add("preparing conditions: %v", []any{err}, at("when")...)
				return
			}
		}
		cond, errs := compileWhen(env, r.When)
		v.doc.conditions[i] = cond
		for _, e := range errs {
			v.when(e, at("when")...)
		}
	}
}

// when places a condition's error inside the file. Only a text on one line has
// its columns where CEL counts them; the others are placed at their start.
func (v *validator) when(e whenError, keys ...string) {
	p := v.at(keys)
	if e.at.line == 1 {
		p.column += e.at.column // the opening quote is one column
	} else {
		p.line += e.at.line
	}
	v.problems = append(v.problems, Problem{File: v.doc.name, Line: p.line, Column: p.column, Message: e.msg, Suggestion: e.suggested})
}

// maxUses bounds the uses and the approvals of one promotion.
const maxUses = 1000

func (v *validator) promotion() {
	for kind, a := range v.doc.policy.Promotion {
		at := func(keys ...string) []string { return append([]string{"promotion", string(kind)}, keys...) }
		who := a.Approvers
		if len(who.Users) == 0 && len(who.Teams) == 0 && who.Role == "" && !who.CodeOwners {
			v.add("nobody may approve %s: write approvers: {users, teams, role or code_owners}", []any{kind}, at("approvers")...)
		}
		if rank(roles(), string(who.Role)) >= 0 && rank(roles(), string(who.Role)) < rank(roles(), "write") {
			v.suggest("write", "approvers by role start at write", nil, at("approvers", "role")...)
		}
		for key, n := range map[string]*int{"count": a.Count, "uses": a.Uses} {
			if n != nil && (*n < 1 || *n > maxUses) {
				v.add("%s is %d, want 1 to %d", []any{key, *n, maxUses}, at(key)...)
			}
		}
		if a.TTL == nil || *a.TTL == 0 {
			v.add("ttl is missing: an approval of %s ends some time, such as ttl: 30m", []any{kind}, at()...)
		}
	}
}

// images wants an image for every profile that can be chosen: those that a
// rule or default names, and those that nothing extends.
func (v *validator) images() {
	base := map[string]bool{}
	for _, chain := range v.doc.chains {
		for _, name := range chain[1:] {
			base[name] = true
		}
	}
	delete(base, v.doc.policy.Default)
	for _, r := range v.doc.policy.Rules {
		delete(base, r.Profile)
	}
	for _, name := range v.doc.Profiles() {
		if !base[name] && v.doc.profiles[name].keys.Image == nil {
			v.add("profile %s has no image", []any{name}, "profiles", name)
		}
	}
}

func (v *validator) ceiling() {
	c := v.doc.ceiling
	v.header(c.Version, c.Rev)
	chains := chainsOf(v, c.Profiles, func(p ceilingProfile) *string { return p.Extends })
	v.doc.chains = chains
	v.doc.maxima = merge(c.Profiles, chains)
	v.profileName(c.Default, "default")
	for _, name := range v.doc.Profiles() {
		p := c.Profiles[name]
		v.limits(p.Limits, "profiles", name, "limits")
		v.outputs(p.Outputs, "profiles", name, "outputs")
		if p.Network == nil {
			continue
		}
		for i, r := range p.Network.Allow.List {
			at := []string{"profiles", name, "network", "allow", fmt.Sprint(i)}
			if r.Inject != "" {
				v.add("inject has no meaning in a ceiling: allow_secrets lists references", nil, append(at, "inject")...)
				r.Inject = ""
			}
			built, faults := r.build(nil)
			if host, _ := destination(built); r.Private && !c.Private.covers(host) {
				v.add("private is true here, and the ceiling's own private does not allow it", nil, append(at, "private")...)
			}
			for _, f := range faults {
				v.add("%s", []any{f.msg}, append(at, f.key)...)
			}
		}
	}
	v.privateHosts(c.Private)
	for i, ref := range c.ProtectedRefs {
		v.is(contract.CheckRef(ref), "protected_refs", fmt.Sprint(i))
	}
	for i, ref := range c.AllowSecrets.List {
		v.is(contract.CheckSecretRef(ref), "allow_secrets", fmt.Sprint(i))
	}
	for i, w := range c.AllowWorkflows {
		v.is(contract.CheckObjectID(w.SHA), "allow_workflows", fmt.Sprint(i), "sha")
		if w.JobWorkflowRef == "" {
			v.add("job_workflow_ref is missing", nil, "allow_workflows", fmt.Sprint(i))
		}
	}
}
