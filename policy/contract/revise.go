package contract

import (
	"fmt"
	"slices"
	"time"
)

// Revise makes the next revision of parent: the entry of an approved promotion
// is added with its grant, and the revision, the parent's digest and the level
// follow. Nothing else changes, but for start: a run that goes on keeps parent's
// start, one that starts again names the patch that it continues from, over the
// same commit.
//
// The promotion must have been made for exactly this parent (run, digest,
// repository, head, base, policy and ceiling are compared), its kind must be
// promotable, it must not be past its time at approved, and the level it states
// must be the level that comes out. The grant ends the plan's TTL after
// approved. An entry that came by an earlier grant may be renewed; an entry of
// the policy is never replaced.
//
// host_exec is refused: it runs beside the contract and has no entry in it.
// Whether the people who approved were allowed to is not judged here.
func Revise(parent Sealed, p Promotion, start Start, approved time.Time) (Sealed, error) {
	if parent.IsZero() {
		return Sealed{}, fmt.Errorf("revising contract: there is no parent")
	}
	if err := Validate(p); err != nil {
		return Sealed{}, fmt.Errorf("revising contract: %w", err)
	}
	next := parent.Contract()
	if err := admits(parent, p, start, approved); err != nil {
		return Sealed{}, fmt.Errorf("revising contract %s: %w", parent.Digest(), err)
	}
	ends := approved.Add(time.Duration(p.Plan.TTLSec) * time.Second)
	grant := Grant{Promotion: p.Digest, NotAfter: FormatTime(ends), Uses: p.Plan.Uses}
	if err := apply(&next, p.Plan.Kind, clone(p.Plan.Change), grant); err != nil {
		return Sealed{}, fmt.Errorf("revising contract %s: %w", parent.Digest(), err)
	}
	next.Revision++
	next.Parent = parent.Digest()
	next.Start = start
	level, why := LevelOf(next)
	if p.Plan.Level != level {
		return Sealed{}, fmt.Errorf("revising contract %s: %w", parent.Digest(), Fault{"plan.level",
			fmt.Sprintf("is %s, but the revision would be %s: it %s; ask again", p.Plan.Level, level, why)})
	}
	next.Level = level
	return Seal(next)
}

// admits compares a promotion with the contract that it wants to widen.
func admits(parent Sealed, p Promotion, start Start, approved time.Time) error {
	c, plan := parent.contract, p.Plan
	for _, bound := range []struct{ path, have, want string }{
		{"plan.run_id", plan.RunID, c.RunID},
		{"plan.contract_digest", plan.ContractDigest, parent.digest},
		{"plan.repo", fmt.Sprint(plan.Repo.ID, " ", plan.Repo.FullName), fmt.Sprint(c.Repo.ID, " ", c.Repo.FullName)},
		{"plan.head_sha", plan.HeadSHA, c.Head.SHA},
		{"plan.base_ref", plan.BaseRef, c.Base.Ref},
		{"plan.policy_digest", plan.PolicyDigest, c.Policy.Digest},
		{"plan.ceiling_digest", plan.CeilingDigest, c.Policy.CeilingDigest},
		{"start.sha", start.SHA, c.Start.SHA},
	} {
		if bound.have != bound.want {
			return Fault{bound.path, fmt.Sprintf("is %s, but the contract has %s; ask again", quote(bound.have), quote(bound.want))}
		}
	}
	if !slices.Contains(c.Promotable, plan.Kind) {
		return Fault{"plan.kind", fmt.Sprintf("is %s, which this contract does not let anybody ask for (promotable)", plan.Kind)}
	}
	from, err := ParseTime(p.RequestedAt)
	if err != nil {
		return err
	}
	until, err := ParseTime(p.NotAfter)
	if err != nil {
		return err
	}
	if approved.Before(from) || approved.After(until) {
		return Fault{"not_after", fmt.Sprintf("the promotion could be decided from %s to %s, not at %s", p.RequestedAt, p.NotAfter, FormatTime(approved))}
	}
	return nil
}

// apply puts one entry into c, under g.
func apply(c *Contract, kind string, w Widening, g Grant) error {
	var set checker
	if w.check(&set, kind); len(set.faults) > 0 {
		return set.err("change")
	}
	switch kind {
	case KindNetwork:
		return addRule(c, *w.Network, g)
	case KindPath:
		return add(&c.WritableRoots, Root{w.Path.Path, &g}, "writable_roots", func(a, b Root) bool { return a.Path == b.Path }, func(r Root) *Grant { return r.Grant })
	case KindSecret:
		entry := *w.Secret
		entry.Grant = &g
		return add(&c.SecretRefs, entry, "secret_refs", func(a, b SecretRef) bool { return a.Name == b.Name }, func(s SecretRef) *Grant { return s.Grant })
	case KindTool:
		return add(&c.Tools, Tool{w.Tool.Name, &g}, "tools", func(a, b Tool) bool { return a.Name == b.Name }, func(t Tool) *Grant { return t.Grant })
	case KindLimits:
		return raiseLimits(c, *w.Limits, g)
	case KindOutput:
		return widenOutputs(c, *w.Output, g)
	case KindHostExec:
		return Fault{"plan.kind", "is host_exec, which runs beside the contract and has no entry in it"}
	}
	return Fault{"plan.kind", "is " + quote(kind) + ", which is no kind of promotion"}
}

// add appends entry, or renews the one that an earlier grant put there.
func add[T any](list *[]T, entry T, path string, same func(a, b T) bool, grant func(T) *Grant) error {
	for i, have := range *list {
		if !same(have, entry) {
			continue
		}
		if grant(have) == nil {
			return Fault{index(path, i), "is in the contract already; there is nothing to ask for"}
		}
		(*list)[i] = entry
		return nil
	}
	*list = append(*list, entry)
	return nil
}

// addRule lets a rule carry a credential only to where the policy sends it
// already: who may approve a host need not be who may hand out a secret.
func addRule(c *Contract, r NetRule, g Grant) error {
	carried := func(have NetRule) bool {
		return have.Host == r.Host && have.Port == r.Port && have.Upstream == r.Upstream && have.Inject != nil && *have.Inject == *r.Inject
	}
	if r.Inject != nil && !slices.ContainsFunc(c.Network.Allow, carried) {
		return Fault{"change.network.inject", "sends a credential to " + ruleName(r) + ", where no rule sends it yet; that is the policy's to say"}
	}
	r.Grant = &g
	c.Network.Mode = NetworkAllowlist
	return add(&c.Network.Allow, r, "network.allow", func(a, b NetRule) bool {
		return a.Host == b.Host && a.Port == b.Port && sameRequests(a, b)
	}, func(r NetRule) *Grant { return r.Grant })
}

func raiseLimits(c *Contract, l Limits, g Grant) error {
	before := c.Limits
	before.Grant = nil
	if l == before && c.Limits.Grant == nil {
		return Fault{"change.limits", "is what the contract has; there is nothing to ask for"}
	}
	for _, n := range limitNumbers(before, l) {
		if n.b < n.a {
			return Fault{member("change.limits", n.name), fmt.Sprintf("is %v, less than the contract's %v; a promotion only raises", n.b, n.a)}
		}
	}
	l.Grant = &g
	c.Limits = l
	return nil
}

// widenOutputs lets the shown patch out. The wish may also raise bounds, never
// lift protection or do without people.
func widenOutputs(c *Contract, o Outputs, g Grant) error {
	have := c.Outputs
	switch {
	case o.Push == PushTrusted && have.Push != PushTrusted:
		return Fault{"change.output.push", "is trusted, which only a policy can give"}
	case !slices.Equal(o.ProtectedPaths, have.ProtectedPaths):
		return Fault{"change.output.protected_paths", "differs from the contract's; protection is the policy's"}
	case rank(o.Kind, outputRanks()) < rank(have.Kind, outputRanks()), rank(o.Push, pushRanks()) < rank(have.Push, pushRanks()),
		o.MaxFiles < have.MaxFiles, o.MaxBytes < have.MaxBytes:
		return Fault{"change.output", "narrows the contract's outputs; a promotion only widens"}
	}
	o.Grant = &g
	c.Outputs = o
	return nil
}
