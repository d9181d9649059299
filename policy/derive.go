package policy

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/policy/contract"
)

// Input is everything that one derivation looks at.
type Input struct {
	Task     contract.Task
	Snapshot contract.Snapshot
	// Policy and Ceiling are the documents whose digests the snapshot records.
	Policy, Ceiling *Document
}

// Derivation is the result of [Derive]: a contract, or a refusal.
type Derivation struct {
	// Contract is what was derived, and Sealed the same, fixed; both are empty
	// when there is a Refusal.
	Contract contract.Contract
	Sealed   contract.Sealed
	// Reasons say why each field has its value, in the order they were decided.
	// With a Refusal they end where it was met.
	Reasons []Reason
	Refusal *Refusal
}

// Reason says why one field has its value. Because lists the causes, the first
// one first: where a value comes from, then what changed it.
type Reason struct {
	Field   string
	Value   string
	Because []string
}

// Refusal says why a task gets no contract. It is a value, not an error: the
// policy was read, the facts were there, and the answer is no. Code is one of
// the constants of this package; Message says what is wrong, Hint what to do.
type Refusal struct {
	Code    string
	Message string
	Hint    string
}

// Error makes a refusal usable as an error by those who must end a program with
// it.
func (r *Refusal) Error() string {
	if r.Hint == "" {
		return r.Message
	}
	return r.Message + ": " + r.Hint
}

// Codes of a [Refusal]. They are fixed: test cases and scripts name them.
const (
	CodeInputs        = "inputs_disagree"  // task, snapshot and documents do not belong together
	CodeNoPolicy      = "no_policy"        // nothing was read that could let this task run
	CodeTask          = "task_invalid"     // the task breaks a rule of package contract
	CodeNoProfile     = "no_profile"       // the profile that was asked for does not exist
	CodeNoRule        = "no_rule"          // nothing in the policy lets this task run
	CodeRulesDisagree = "rules_disagree"   // matching rules choose different profiles
	CodeCondition     = "condition_failed" // a condition could not be evaluated
	CodeFork          = "fork"             // a fork's head, and nobody let it in
	CodeRuntime       = "runtime_mismatch" // the task names another runtime than the profile
	CodeImageMissing  = "image_missing"    // the engine does not have the image
	CodeImageUnpinned = "image_unpinned"   // a tag, where a digest is needed
	CodeImageMismatch = "image_mismatch"   // the engine's image is not the pinned one
	CodeSocket        = "engine_socket"    // the image asks for the container engine's socket
	CodeIsolation     = "isolation"        // weaker than the ceiling's minimum
	CodeNetwork       = "ceiling_network"  // a destination past the ceiling
	CodeSecret        = "ceiling_secret"   // a secret past the ceiling
	CodeTool          = "ceiling_tool"     // a tool past the ceiling
	CodeCeiling       = "ceiling_profile"  // the ceiling has no maximum for the profile
	CodeAskedRole     = "asked_not_local"  // flags that only a person at a terminal has
	CodeAskedTooMuch  = "asked_too_much"   // flags past the ceiling
	CodeAskedInvalid  = "asked_invalid"    // flags that cannot be read
	CodeContract      = "contract_invalid" // the result breaks a rule of package contract
)

// Derive decides what one task may do. It is pure: equal inputs give equal
// results. A derivation without a refusal is sealed.
func Derive(in Input) Derivation {
	d := deriver{in: in, reasons: make([]Reason, 0, 40)}
	steps := []func(){
		d.inputs, d.choose, d.chooseCap, d.identity, d.command, d.image, d.isolation, d.roots,
		d.limits, d.network, d.secrets, d.tools, d.outputs, d.promotable, d.end,
	}
	for _, step := range steps {
		if step(); d.refusal != nil {
			return Derivation{Reasons: d.reasons, Refusal: d.refusal}
		}
	}
	return Derivation{Contract: d.c, Sealed: d.sealed, Reasons: d.reasons}
}

// deriver holds one derivation while it is made.
type deriver struct {
	in      Input
	local   bool // a person at a terminal; the role local goes with it
	profile *merged[profile]
	cap     *merged[ceilingProfile]
	c       contract.Contract
	sealed  contract.Sealed
	reasons []Reason
	refusal *Refusal
}

func (d *deriver) because(field, value string, causes ...string) {
	d.reasons = append(d.reasons, Reason{field, value, causes})
}

// note adds to the reason of a field that was decided before.
func (d *deriver) note(field, text string) {
	for i := range d.reasons {
		if d.reasons[i].Field == field {
			d.reasons[i].Because = append(d.reasons[i].Because, text)
		}
	}
}

// refuse ends the derivation. The first refusal stands.
func (d *deriver) refuse(code, message, hint string) {
	if d.refusal == nil {
		d.refusal = &Refusal{code, message, hint}
	}
}

// source names the profile that set a key ("limits.memory"), with its place.
// more leads further down to where it stands.
func (d *deriver) source(key string, more ...string) string {
	owner, ok := d.profile.from[key]
	if !ok {
		return "standard"
	}
	s := "profile " + owner + " (" + d.in.Policy.placeOf(owner, key, more) + ")"
	if owner != d.profile.name {
		s += ", which " + d.profile.name + " extends"
	}
	return s
}

// capSource is source for the ceiling.
func (d *deriver) capSource(key string, more ...string) string {
	owner, ok := d.cap.from[key]
	if !ok {
		return "the built-in ceiling"
	}
	return "the ceiling's profile " + owner + " (" + d.in.Ceiling.placeOf(owner, key, more) + ")"
}

// inputs wants facts that belong together and a task that is sound.
func (d *deriver) inputs() {
	p, c, t, s := d.in.Policy, d.in.Ceiling, &d.in.Task, &d.in.Snapshot
	if p == nil || p.IsCeiling() || c == nil || !c.IsCeiling() {
		d.refuse(CodeInputs, "a policy and a ceiling are needed", "")
		return
	}
	task, err := contract.Encode(*t)
	if err != nil {
		d.refuse(CodeTask, err.Error(), "")
		return
	}
	snapshot, err := contract.Encode(*s)
	if err != nil {
		d.refuse(CodeInputs, err.Error(), "")
		return
	}
	if s.TaskDigest != contract.DigestBytes(task) {
		d.refuse(CodeInputs, "the snapshot was read for another task", "read the facts again")
	}
	d.c.SnapshotDigest = contract.DigestBytes(snapshot)
	d.local = t.Event.Kind == contract.EventLocal
	if !d.local && rank(roles(), t.Actor.Role) < 0 {
		d.refuse(CodeTask, fmt.Sprintf("there is no role %q", clip(t.Actor.Role)), "roles are "+strings.Join(roles(), ", "))
	}
	a := t.Asked
	if !d.local && (a.Image != "" || a.Isolation != "" || a.TimeoutSec != 0 || len(a.Allow) > 0 || len(a.Secrets) > 0) {
		d.refuse(CodeAskedRole, "only a person at a terminal may add to a contract", "put it into the policy")
	}
	d.documents()
}

// documents holds the two documents to what the snapshot says was read. Where
// nothing was found, only a built-in one may stand in: for an absent policy at a
// terminal, and for a ceiling always. A policy that cannot be read is never
// replaced.
func (d *deriver) documents() {
	p, c, s := d.in.Policy, d.in.Ceiling, &d.in.Snapshot
	if s.Policy.Status == contract.SourceUnreadable || !d.local && s.Policy.Status != contract.SourceFound {
		d.refuse(CodeNoPolicy, "the repository's policy is "+s.Policy.Status, "write one with: countersign init")
		return
	}
	standIn := builtinCeilingDigest
	if d.local && s.Ceiling.Status != contract.SourceUnreadable {
		standIn = builtinLocalCeilingDigest
	}
	if !d.local && c.digest == builtinLocalCeilingDigest {
		d.refuse(CodeInputs, "the ceiling of a person at a terminal serves no other event", "")
	}
	d.belongs(p, s.Policy, builtinPolicyDigest)
	d.belongs(c, s.Ceiling, standIn)
}

func (d *deriver) belongs(doc *Document, s contract.Source, builtin string) {
	want := s.Digest
	if s.Status != contract.SourceFound {
		want = builtin
	}
	if doc.digest != want || s.Digest != "" && s.Digest != want {
		d.refuse(CodeInputs, doc.name+" is not the document that the snapshot records", "read the facts again")
	}
}

// identity copies what the task says of itself.
func (d *deriver) identity() {
	t, s := &d.in.Task, &d.in.Snapshot
	d.c.Schema, d.c.RunID, d.c.Revision = contract.SchemaContract, t.RunID, 1
	d.c.Tenant, d.c.Repo, d.c.Base, d.c.Head = t.Tenant, t.Repo, t.Base, t.Head
	d.c.PullRequest, d.c.Start, d.c.RequestedBy = t.PullRequest, t.Start, t.Actor
	d.c.Labels = list(d.c.Labels)
	d.c.Policy = contract.PolicyRef{
		Rev: d.in.Policy.Rev(), Ref: sourceRef(s.Policy), SHA: s.Policy.SHA,
		Digest: d.in.Policy.digest, CeilingDigest: d.in.Ceiling.digest,
	}
	d.because("policy", d.c.Policy.Digest, "read from "+d.c.Policy.Ref)
	d.because("ceiling", d.c.Policy.CeilingDigest, "read from "+sourceRef(s.Ceiling))
}

// sourceRef is where a document was read: a branch, "builtin" or "file".
func sourceRef(s contract.Source) string {
	switch {
	case s.Status != contract.SourceFound:
		return contract.SourceBuiltin
	case s.Ref != "":
		return s.Ref
	}
	return "file"
}

// command sets what runs.
func (d *deriver) command() {
	t, p := &d.in.Task, d.profile.keys
	if p.Runtime != nil && *p.Runtime != runtimeCommand {
		d.c.Runtime = string(*p.Runtime)
	}
	if t.Runtime != "" && t.Runtime != d.c.Runtime {
		d.refuse(CodeRuntime, fmt.Sprintf("the task is for the runtime %q and the profile %s for %q", clip(t.Runtime), d.profile.name, d.c.Runtime), "choose another profile")
		return
	}
	if d.c.Runtime != "" {
		d.because("runtime", d.c.Runtime, d.source("runtime"))
	}
	d.c.Argv, d.c.PromptDigest = list(t.Argv), t.PromptDigest
	d.because("argv", clip(strings.Join(t.Argv, " ")), "asked by the task")
	d.c.Env = map[string]string{}
	maps.Copy(d.c.Env, p.Env)
	if len(p.Env) > 0 {
		d.because("env", strings.Join(sortedKeys(p.Env), " "), d.source("env"))
	}
	d.c.Workdir = "/workspace"
	if p.Workdir != nil {
		d.c.Workdir = *p.Workdir
	}
	d.because("workdir", d.c.Workdir, d.source("workdir"))
}

// isolation takes the profile's, or what was asked for, and raises it to the
// ceiling's minimum.
func (d *deriver) isolation() {
	words := isolationName("").words()
	iso, causes := string(contract.IsolationRunc), []string{d.source("isolation")}
	if p := d.profile.keys.Isolation; p != nil {
		iso = string(*p)
	}
	least := string(d.in.Ceiling.ceiling.IsolationMin)
	if asked := d.in.Task.Asked.Isolation; asked != "" {
		switch {
		case rank(words, asked) < 0:
			d.refuse(CodeAskedInvalid, fmt.Sprintf("there is no isolation %q", clip(asked)), "write --isolation runc or --isolation runsc")
			return
		case rank(words, asked) < rank(words, least):
			d.refuse(CodeIsolation, "--isolation "+asked+" is weaker than the ceiling's minimum "+least, "ask for "+least)
			return
		}
		iso, causes = asked, []string{"asked by --isolation"}
	}
	if rank(words, iso) < rank(words, least) {
		causes = append(causes, iso+", raised to the ceiling's isolation_min")
		iso = least
	}
	d.c.Isolation, d.c.ExecutionClass = contract.Isolation(iso), contract.ClassWorkspaceSandbox
	if d.c.Isolation == contract.IsolationRunsc {
		d.c.ExecutionClass = contract.ClassHardenedSandbox
	}
	d.because("isolation", iso, causes...)
	d.because("execution_class", string(d.c.ExecutionClass), "isolation "+iso)
}

// roots sets what is writable and what is never delivered.
func (d *deriver) roots() {
	dirs, why := []string{"/workspace", "/tmp"}, d.source("writable")
	if w := d.profile.keys.Writable; w != nil {
		dirs = slices.Clone(w)
	}
	dirs = slices.Compact(sorted(append(dirs, "/home/agent", "/dev/shm")))
	d.c.WritableRoots = make([]contract.Root, len(dirs))
	for i, dir := range dirs {
		d.c.WritableRoots[i].Path = dir
	}
	d.because("writable_roots", strings.Join(dirs, " "), why, "/home/agent and /dev/shm always, sized, in memory")
	denied := append([]string{"/home/agent/.ssh", "/var/run/secrets"}, d.profile.keys.ReadDenied...)
	d.c.ReadDenied = slices.Compact(sorted(denied))
	d.because("read_denied", strings.Join(d.c.ReadDenied, " "), d.source("read_denied"), "/home/agent/.ssh and /var/run/secrets always")
}

// startAllowance is what a contract may wait for its machine: images, a queue, the
// reading of a large tree. Without it a wall clock of a second was over, in whole
// seconds, before a run could begin.
const startAllowance = 10 * time.Minute

// end sets what follows from the rest and judges the whole.
func (d *deriver) end() {
	now, err := contract.ParseTime(d.in.Snapshot.Time)
	if err != nil {
		d.refuse(CodeInputs, "the snapshot's time "+err.Error(), "")
		return
	}
	life := time.Duration(d.c.Limits.TimeoutSec+d.c.Limits.WaitSec) * time.Second
	d.c.NotAfter = contract.FormatTime(now.Add(life + startAllowance))
	d.because("not_after", d.c.NotAfter, "time of the snapshot, timeout and wait, and ten minutes to be started in")
	level, why := contract.LevelOf(d.c)
	d.c.Level = level
	d.because("level", string(level), why)
	d.sealed, err = contract.Seal(d.c)
	if broken, ok := errors.AsType[*contract.InvalidError](err); ok {
		err = broken // without the words of sealing
	}
	if err != nil {
		d.refuse(CodeContract, err.Error(), "change the policy or the task so that the contract is sound")
	}
}
