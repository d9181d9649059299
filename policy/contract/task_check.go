package contract

import "strings"

func (Task) kind() string     { return "task" }
func (Snapshot) kind() string { return "snapshot" }
func (Outcome) kind() string  { return "outcome" }

// maxPaths bounds the changed paths that a task carries for conditions.
const maxPaths = 10000

func (t Task) check(c *checker) {
	c.oneOf("schema", t.Schema, SchemaTask)
	c.is("run_id", CheckRunID(t.RunID))
	c.oneOf("event.kind", t.Event.Kind, EventLocal, "pull_request", "issue", "comment", "dispatch", "push", "schedule", "api")
	c.is("event.action", checkText(t.Event.Action, maxName))
	checkSubject(c, subject{t.Tenant, t.Repo, t.Base, t.Head, t.PullRequest, t.Start, t.Labels})
	checkPerson(c.below("actor"), t.Actor)
	if (t.Event.Kind == EventLocal) != (t.Actor.Role == RoleLocal) {
		c.addf("actor.role", "is %s for the event %s; the role local goes with the event local and with no other", quote(t.Actor.Role), quote(t.Event.Kind))
	}
	if len(t.Paths) > maxPaths {
		c.addf("paths", "has %d entries, the bound is %d", len(t.Paths), maxPaths)
	}
	for i, p := range t.Paths {
		if p == "" || len(p) > maxPath || strings.IndexByte(p, 0) >= 0 {
			c.addf(index("paths", i), "is %s, want a path in the repository", quote(p))
		}
	}
	c.optional("profile", t.Profile, CheckName)
	c.optional("runtime", t.Runtime, CheckName)
	checkCommand(c, t.Runtime, t.Argv, t.PromptDigest)
	t.Asked.check(c)
}

func (a Asked) check(c *checker) {
	c.optional("asked.image", a.Image, CheckImageRef)
	if a.Isolation != "" {
		c.oneOf("asked.isolation", a.Isolation, string(IsolationRunc), string(IsolationRunsc))
	}
	c.within("asked.timeout_sec", a.TimeoutSec, 0, maxSec)
	c.each("asked.allow", a.Allow, checkHostPort)
	for _, name := range sortedKeys(a.Secrets) {
		at := c.entry("asked.secrets", name)
		at.is("", CheckName(name))
		at.is("", CheckSecretRef(a.Secrets[name]))
	}
}

func (s Snapshot) check(c *checker) {
	c.oneOf("schema", s.Schema, SchemaSnapshot)
	c.is("time", checkTime(s.Time))
	c.is("task_digest", CheckDigest(s.TaskDigest))
	checkSource(c.below("policy"), s.Policy)
	checkSource(c.below("ceiling"), s.Ceiling)
	for _, ref := range sortedKeys(s.Images) {
		at := c.entry("images", ref)
		at.is("", CheckImageRef(ref))
		checkImageFact(at, s.Images[ref])
	}
	c.within("submodules", int64(s.Submodules), 0, maxSafeInteger)
	c.within("lfs_pointers", int64(s.LFSPointers), 0, maxSafeInteger)
}

func checkSource(c *checker, s Source) {
	c.oneOf("status", s.Status, SourceFound, SourceAbsent, SourceUnreadable, SourceBuiltin)
	c.optional("ref", s.Ref, CheckRef)
	c.optional("sha", s.SHA, CheckObjectID)
	c.is("path", checkText(s.Path, maxPath))
	read := s.Status == SourceFound || s.Status == SourceBuiltin
	switch {
	case read:
		c.is("digest", CheckDigest(s.Digest))
	case s.Digest != "":
		c.addf("digest", "is %s, but what is %s has none", quote(s.Digest), s.Status)
	}
}

func checkImageFact(c *checker, f ImageFact) {
	c.is("id", CheckDigest(f.ID))
	c.each("repo_digests", f.RepoDigests, func(s string) error {
		if name, digest, ok := strings.Cut(s, "@"); !ok || name == "" || !isDigest(digest) {
			return Fault{"", "is " + quote(s) + ", want NAME@sha256:DIGEST"}
		}
		return CheckImageRef(s)
	})
	if os, arch, ok := strings.Cut(f.Platform, "/"); !ok || os == "" || arch == "" || !only(f.Platform, isVisible) {
		c.addf("platform", "is %s, want OS/ARCHITECTURE", quote(f.Platform))
	}
	for _, text := range append(append([]string{f.User}, f.EnvKeys...), f.Volumes...) {
		c.is("", CheckArg(text))
	}
}

func (o Outcome) check(c *checker) {
	c.is("run_id", CheckRunID(o.RunID))
	o.checkEnd(c)
	c.is("reason", checkText(o.Reason, 4096))
	c.optional("contract_digest", o.ContractDigest, CheckDigest)
	c.is("evidence", checkText(o.Evidence, maxPath))
	for _, n := range []struct {
		path  string
		value int64
	}{
		{"duration_ms", o.DurationMS}, {"egress.allowed", o.Egress.Allowed}, {"egress.denied", o.Egress.Denied},
		{"egress.bytes_out", o.Egress.BytesOut}, {"patch.files", int64(o.Patch.Files)}, {"patch.bytes", o.Patch.Bytes},
	} {
		c.within(n.path, n.value, 0, maxSafeInteger)
	}
	for i, p := range o.Promotions {
		at := index("promotions", i)
		c.is(at+".digest", CheckDigest(p.Digest))
		c.oneOf(at+".kind", p.Kind, promotionKinds()...)
		c.oneOf(at+".state", p.State, promotionStates()...)
	}
}

// checkEnd holds state and exit status to DESIGN §7's table.
func (o Outcome) checkEnd(c *checker) {
	workload := -1
	if o.WorkloadExit != nil {
		workload = *o.WorkloadExit
		c.within("workload_exit", int64(workload), 0, 255)
	}
	var want []int
	switch o.State {
	case StateCompleted:
		want = []int{0}
		if workload != 0 {
			c.addf("workload_exit", "is not 0, but the state is completed")
		}
	case StateFailed:
		want = []int{workload}
		if workload <= 0 {
			c.addf("workload_exit", "is absent or 0, but the state is failed")
		}
	case StateTimedOut:
		want = []int{ExitTimedOut}
	case StateFailClosed:
		want = []int{ExitFailClosed, ExitRefused}
	case StateRefused:
		want = []int{ExitRefused}
	case StateCancelled, StateSuperseded, StateKilled:
		want = []int{ExitCancelled}
	default:
		c.addf("state", "is %s, which no run ends in", quote(string(o.State)))
		return
	}
	for _, code := range want {
		if o.ExitCode == code {
			return
		}
	}
	c.addf("exit_code", "is %d, which does not go with the state %s", o.ExitCode, o.State)
}
