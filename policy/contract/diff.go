package contract

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
)

// Effect says what a change does to authority.
type Effect string

const (
	Widens  Effect = "widens"
	Narrows Effect = "narrows"
	// Neutral changes what the contract is about, or cannot be compared: another
	// command or image is neither more nor less.
	Neutral Effect = "neutral"
)

// Change is one difference between two contracts. Path names the place; the
// entries of a list are named by what identifies them (network.allow[a.example:443]),
// so that an insertion is one change. Old and New are JSON in which nothing
// is left that does not print, "" where the entry is not there.
type Change struct {
	Path   string `json:"path"`
	Old    string `json:"old"`
	New    string `json:"new"`
	Effect Effect `json:"effect"`
}

// String is the change on one line.
func (c Change) String() string {
	old, now := c.Old, c.New
	if old == "" {
		old = "(none)"
	}
	if now == "" {
		now = "(none)"
	}
	return fmt.Sprintf("%-7s  %s: %s -> %s", c.Effect, c.Path, old, now)
}

// FormatDiff writes changes for a person: one line each, what widens first,
// and nothing in it that could move a terminal's cursor.
func FormatDiff(changes []Change) string {
	if len(changes) == 0 {
		return "no difference\n"
	}
	var b strings.Builder
	for _, effect := range []Effect{Widens, Narrows, Neutral} {
		for _, c := range changes {
			if c.Effect == effect {
				b.WriteString(c.String() + "\n")
			}
		}
	}
	return b.String()
}

// Diff lists every difference from a to b, in the order of the contract's
// fields. Contracts that do not differ have an empty list; a nil list and an
// empty one do not differ. It judges neither contract.
func Diff(a, b Contract) []Change {
	a, b = clone(a), clone(b)
	d := differ{}
	d.origin(a, b)
	d.execution(a, b)
	d.files(a, b)
	diffList(&d, "network.allow", a.Network.Allow, b.Network.Allow, ruleKey, d.rule)
	diffList(&d, "secret_refs", a.SecretRefs, b.SecretRefs, func(s SecretRef) string { return s.Name }, d.secret)
	diffList(&d, "tools", a.Tools, b.Tools, func(t Tool) string { return t.Name }, func(at string, a, b Tool) { d.grant(at, a.Grant, b.Grant) })
	d.words("hosted_tools", a.HostedTools, b.HostedTools, Widens)
	for _, n := range limitNumbers(a.Limits, b.Limits) {
		d.number(member("limits", n.name), n.a, n.b, Widens)
	}
	d.grant("limits", a.Limits.Grant, b.Limits.Grant)
	d.outputs(a.Outputs, b.Outputs)
	d.words("promotable", a.Promotable, b.Promotable, Widens)
	d.put("not_after", a.NotAfter, b.NotAfter, byTime(a.NotAfter, b.NotAfter))
	return d.changes
}

type differ struct{ changes []Change }

// put records a change when a and b differ.
func (d *differ) put(path string, a, b any, e Effect) {
	if !reflect.DeepEqual(a, b) {
		d.changes = append(d.changes, Change{path, show(a), show(b), e})
	}
}

func (d *differ) origin(a, b Contract) {
	for _, f := range []struct {
		path string
		a, b any
	}{
		{"schema", a.Schema, b.Schema}, {"run_id", a.RunID, b.RunID}, {"revision", a.Revision, b.Revision}, {"parent", a.Parent, b.Parent},
		{"tenant", a.Tenant, b.Tenant}, {"repo", a.Repo, b.Repo}, {"base", a.Base, b.Base}, {"head", a.Head, b.Head},
		{"pull_request", a.PullRequest, b.PullRequest}, {"start", a.Start, b.Start}, {"requested_by", a.RequestedBy, b.RequestedBy},
		{"labels", a.Labels, b.Labels}, {"policy", a.Policy, b.Policy}, {"snapshot_digest", a.SnapshotDigest, b.SnapshotDigest},
	} {
		d.put(f.path, f.a, f.b, Neutral)
	}
}

func (d *differ) execution(a, b Contract) {
	classes := []string{string(ClassHardenedSandbox), string(ClassWorkspaceSandbox), string(ClassNode)}
	d.ranked("execution_class", string(a.ExecutionClass), string(b.ExecutionClass), classes)
	d.ranked("isolation", string(a.Isolation), string(b.Isolation), []string{string(IsolationRunsc), string(IsolationRunc)})
	d.ranked("level", string(a.Level), string(b.Level), []string{string(L0), string(L1), string(L2), string(L3), string(L4)})
	d.put("runtime", a.Runtime, b.Runtime, Neutral)
	d.put("argv", a.Argv, b.Argv, Neutral)
	for _, name := range sortedKeys(a.Env, b.Env) {
		av, aok := a.Env[name]
		bv, bok := b.Env[name]
		d.put(member("env", name), orAbsent(av, aok), orAbsent(bv, bok), Neutral)
	}
	d.put("prompt_digest", a.PromptDigest, b.PromptDigest, Neutral)
	d.put("image", a.Image, b.Image, Neutral)
	d.put("workdir", a.Workdir, b.Workdir, Neutral)
}

func (d *differ) files(a, b Contract) {
	diffList(d, "writable_roots", a.WritableRoots, b.WritableRoots, func(r Root) string { return r.Path },
		func(at string, a, b Root) { d.grant(at, a.Grant, b.Grant) })
	d.words("read_denied", a.ReadDenied, b.ReadDenied, Narrows)
	d.ranked("network.mode", a.Network.Mode, b.Network.Mode, []string{NetworkNone, NetworkAllowlist})
}

// ruleKey tells two rules of one host and port apart by what they allow.
func ruleKey(r NetRule) string {
	if r.Mode == RuleOpaque {
		return ruleName(r)
	}
	return ruleName(r) + " " + strings.Join(r.Methods, ",") + " " + strings.Join(r.Paths, ",")
}

func (d *differ) rule(at string, a, b NetRule) {
	d.put(at+".upstream", a.Upstream, b.Upstream, Widens) // another place is reached
	d.ranked(at+".mode", a.Mode, b.Mode, []string{RuleInspect, RuleGateway, RuleOpaque})
	d.put(at+".api", a.API, b.API, given(a.API == "", b.API == "", Narrows))
	d.words(at+".methods", a.Methods, b.Methods, Widens)
	d.words(at+".paths", a.Paths, b.Paths, Widens)
	d.number(at+".upload_bytes", float64(a.UploadBytes), float64(b.UploadBytes), Widens)
	d.put(at+".inject", a.Inject, b.Inject, given(a.Inject == nil, b.Inject == nil, Widens))
	d.flag(at+".private", a.Private, b.Private)
	d.flag(at+".websocket", a.WebSocket, b.WebSocket)
	d.put(at+".hold_sec", a.HoldSec, b.HoldSec, Neutral)
	d.words(at+".deny_body", a.DenyBody, b.DenyBody, Narrows)
	d.put(at+".coverage", a.Coverage, b.Coverage, Neutral)
	d.grant(at, a.Grant, b.Grant)
}

func (d *differ) secret(at string, a, b SecretRef) {
	d.put(at+".ref", a.Ref, b.Ref, Widens) // another secret is held
	d.ranked(at+".deliver", a.Deliver, b.Deliver, []string{DeliverInject, DeliverFile})
	d.grant(at, a.Grant, b.Grant)
}

func outputRanks() []string {
	return []string{OutputNone, OutputPatch, OutputComment, OutputPullRequest}
}
func pushRanks() []string { return []string{PushNever, PushApproved, PushTrusted} }

func (d *differ) outputs(a, b Outputs) {
	d.ranked("outputs.kind", a.Kind, b.Kind, outputRanks())
	d.ranked("outputs.push", a.Push, b.Push, pushRanks())
	d.number("outputs.max_files", float64(a.MaxFiles), float64(b.MaxFiles), Widens)
	d.number("outputs.max_bytes", float64(a.MaxBytes), float64(b.MaxBytes), Widens)
	d.words("outputs.protected_paths", a.ProtectedPaths, b.ProtectedPaths, Narrows)
	// Unlike elsewhere a grant is what opens: without it an approved push waits.
	d.put("outputs.grant", a.Grant, b.Grant, given(a.Grant == nil, b.Grant == nil, Widens))
}

// grant compares the bounds of an entry. An entry that loses its grant loses
// its end, and so widens.
func (d *differ) grant(at string, a, b *Grant) {
	effect := given(a == nil, b == nil, Narrows)
	if a != nil && b != nil {
		effect = byTime(a.NotAfter, b.NotAfter)
		if more := byNumber(usesBound(a.Uses), usesBound(b.Uses), Widens); effect == Neutral || more == Widens {
			effect = more
		}
	}
	d.put(at+".grant", a, b, effect)
}

// usesBound makes 0, which is no bound, the largest.
func usesBound(n int) float64 {
	if n == 0 {
		return maxUses + 1
	}
	return float64(n)
}

func (d *differ) flag(path string, a, b bool) {
	d.put(path, a, b, given(!a, !b, Widens))
}

func (d *differ) number(path string, a, b float64, more Effect) {
	d.put(path, a, b, byNumber(a, b, more))
}

func (d *differ) ranked(path, a, b string, order []string) {
	d.put(path, a, b, byNumber(float64(rank(a, order)), float64(rank(b, order)), Widens))
}

// words compares lists in which only membership has a meaning; an element that
// came has the effect more. A list that only changed its order is one neutral
// change.
func (d *differ) words(path string, a, b []string, more Effect) {
	found := len(d.changes)
	for _, w := range a {
		if !slices.Contains(b, w) {
			d.changes = append(d.changes, Change{path + "[" + show(w) + "]", show(w), "", opposite(more)})
		}
	}
	for _, w := range b {
		if !slices.Contains(a, w) {
			d.changes = append(d.changes, Change{path + "[" + show(w) + "]", "", show(w), more})
		}
	}
	if len(d.changes) == found {
		d.put(path, a, b, Neutral)
	}
}

// diffList compares lists whose entries are known by a key: entries that went
// narrow, entries that came widen, entries that stayed are compared by same.
func diffList[T any](d *differ, path string, a, b []T, key func(T) string, same func(at string, a, b T)) {
	found := len(d.changes)
	at := func(v T) string { return path + "[" + visible(key(v)) + "]" }
	find := func(list []T, k string) int {
		return slices.IndexFunc(list, func(v T) bool { return key(v) == k })
	}
	for _, v := range a {
		if i := find(b, key(v)); i >= 0 {
			same(at(v), v, b[i])
		} else {
			d.changes = append(d.changes, Change{at(v), show(v), "", Narrows})
		}
	}
	for _, v := range b {
		if find(a, key(v)) < 0 {
			d.changes = append(d.changes, Change{at(v), "", show(v), Widens})
		}
	}
	if len(d.changes) == found {
		d.put(path, a, b, Neutral)
	}
}

func opposite(e Effect) Effect {
	switch e {
	case Widens:
		return Narrows
	case Narrows:
		return Widens
	}
	return e
}

// given is the effect of something that was absent or is: came is what its
// coming means. Exchanged for another it widens, since it was not allowed before.
func given(aAbsent, bAbsent bool, came Effect) Effect {
	switch {
	case aAbsent && !bAbsent:
		return came
	case !aAbsent && bAbsent:
		return opposite(came)
	}
	return Widens
}

func byNumber(a, b float64, more Effect) Effect {
	switch {
	case b > a:
		return more
	case b < a:
		return opposite(more)
	}
	return Neutral
}

// byTime: a later end widens. What does not read as a time cannot be compared.
func byTime(a, b string) Effect {
	at, errA := ParseTime(a)
	bt, errB := ParseTime(b)
	if errA != nil || errB != nil {
		return Neutral
	}
	return byNumber(float64(at.Unix()), float64(bt.Unix()), Widens)
}

// rank is a word's place in order; an unknown word ranks above all.
func rank(word string, order []string) int {
	if i := slices.Index(order, word); i >= 0 {
		return i
	}
	return len(order)
}

type limitNumber struct {
	name string
	a, b float64
}

func limitNumbers(a, b Limits) []limitNumber {
	return []limitNumber{
		{"cpu", a.CPU, b.CPU},
		{"memory_mb", float64(a.MemoryMB), float64(b.MemoryMB)},
		{"pids", float64(a.Pids), float64(b.Pids)},
		{"disk_mb", float64(a.DiskMB), float64(b.DiskMB)},
		{"home_mb", float64(a.HomeMB), float64(b.HomeMB)},
		{"tmp_mb", float64(a.TmpMB), float64(b.TmpMB)},
		{"shm_mb", float64(a.ShmMB), float64(b.ShmMB)},
		{"files", float64(a.Files), float64(b.Files)},
		{"log_mb", float64(a.LogMB), float64(b.LogMB)},
		{"timeout_sec", float64(a.TimeoutSec), float64(b.TimeoutSec)},
		{"wait_sec", float64(a.WaitSec), float64(b.WaitSec)},
		{"cost_usd", a.CostUSD, b.CostUSD},
	}
}

// absent stands for a map's missing entry; it shows as nothing.
type absent struct{}

func orAbsent(v string, present bool) any {
	if present {
		return v
	}
	return absent{}
}

// show writes a value for a person: JSON, with everything that does not print
// escaped, so that no value can draw on the terminal.
func show(v any) string {
	if v == (absent{}) {
		return ""
	}
	if rv := reflect.ValueOf(v); rv.Kind() == reflect.Pointer && rv.IsNil() {
		return ""
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return visible(fmt.Sprintf("%+v", v))
	}
	return visible(strings.TrimSuffix(b.String(), "\n"))
}

// visible leaves what prints as it is and writes the rest as JSON escapes do.
// [Escape] would double the backslashes that the JSON has already.
func visible(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case strconv.IsPrint(r):
			b.WriteRune(r)
		case r > 0xffff:
			hi, lo := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, hi, lo)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// sortedKeys are the keys of all maps, each once.
func sortedKeys[V any](m ...map[string]V) []string {
	var keys []string
	for _, one := range m {
		for k := range one {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}
