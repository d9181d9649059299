package contract

import "strings"

func (Contract) kind() string { return "contract" }

func (d Contract) check(c *checker) {
	d.checkOrigin(c)
	d.checkExecution(c)
	d.checkFiles(c)
	d.checkNetwork(c)
	d.checkSecrets(c)
	checkLimits(c.below("limits"), d.Limits)
	checkOutputs(c.below("outputs"), d.Outputs)
	c.each("promotable", d.Promotable, func(s string) error { return checkWord(s, promotionKinds()...) })
	c.is("not_after", checkTime(d.NotAfter))
	if want, why := LevelOf(d); d.Level != want {
		c.addf("level", "is %s, but the contract's authority is %s: it %s", quote(string(d.Level)), want, why)
	}
}

// checkOrigin judges where the contract comes from.
func (d Contract) checkOrigin(c *checker) {
	c.oneOf("schema", d.Schema, SchemaContract)
	c.is("run_id", CheckRunID(d.RunID))
	c.within("revision", int64(d.Revision), 1, 1000)
	switch {
	case d.Revision == 1 && d.Parent != "":
		c.addf("parent", "is %s, but revision 1 has none", quote(d.Parent))
	case d.Revision > 1:
		c.is("parent", CheckDigest(d.Parent))
	}
	checkSubject(c, subject{d.Tenant, d.Repo, d.Base, d.Head, d.PullRequest, d.Start, d.Labels})
	checkPerson(c.below("requested_by"), d.RequestedBy)
	c.is("policy.rev", checkText(d.Policy.Rev, maxName))
	c.is("policy.ref", CheckRef(d.Policy.Ref))
	c.optional("policy.sha", d.Policy.SHA, CheckObjectID)
	c.is("policy.digest", CheckDigest(d.Policy.Digest))
	c.is("policy.ceiling_digest", CheckDigest(d.Policy.CeilingDigest))
	c.is("snapshot_digest", CheckDigest(d.SnapshotDigest))
}

// subject is what Task and Contract say alike about the repository.
type subject struct {
	tenant      int64
	repo        Repo
	base        Ref
	head        Head
	pullRequest int
	start       Start
	labels      []string
}

func checkSubject(c *checker, s subject) {
	c.within("tenant", s.tenant, 0, maxSafeInteger)
	checkRepo(c.below("repo"), s.repo)
	c.optional("base.ref", s.base.Ref, CheckRef)
	c.optional("base.sha", s.base.SHA, CheckObjectID)
	c.is("head.sha", CheckObjectID(s.head.SHA))
	c.within("pull_request", int64(s.pullRequest), 0, maxSafeInteger)
	if s.pullRequest > 0 && (s.base.Ref == "" || s.base.SHA == "") {
		c.addf("base", "is incomplete; a pull request has a base branch and its commit")
	}
	c.is("start.sha", CheckObjectID(s.start.SHA))
	c.optional("start.patch_digest", s.start.PatchDigest, CheckDigest)
	c.each("labels", s.labels, func(l string) error { return filled(l, maxName) })
	for i := 1; i < len(s.labels); i++ {
		if s.labels[i] < s.labels[i-1] {
			c.addf(index("labels", i), "is out of order; labels are sorted")
		}
	}
}

func checkRepo(c *checker, r Repo) {
	c.within("id", r.ID, 0, maxSafeInteger)
	c.is("full_name", CheckRepoName(r.FullName))
	if r.ID > 0 && !strings.Contains(r.FullName, "/") {
		c.addf("full_name", "is %s; a repository with an id is named OWNER/NAME", quote(r.FullName))
	}
}

func checkPerson(c *checker, p Person) {
	c.within("id", p.ID, 0, maxSafeInteger)
	c.is("login", filled(p.Login, maxName))
	c.is("role", CheckName(p.Role))
}

// checkExecution judges what runs, where and in what.
func (d Contract) checkExecution(c *checker) {
	c.oneOf("execution_class", string(d.ExecutionClass), string(ClassWorkspaceSandbox), string(ClassHardenedSandbox), string(ClassNode))
	c.oneOf("isolation", string(d.Isolation), string(IsolationRunc), string(IsolationRunsc))
	if d.ExecutionClass == ClassWorkspaceSandbox && d.Isolation == IsolationRunsc || d.ExecutionClass == ClassHardenedSandbox && d.Isolation == IsolationRunc {
		c.addf("isolation", "is %q under %q; workspace_sandbox runs under runc, hardened_sandbox under runsc", d.Isolation, d.ExecutionClass)
	}
	c.optional("runtime", d.Runtime, CheckName)
	checkCommand(c, d.Runtime, d.Argv, d.PromptDigest)
	checkEnv(c, d.Env)
	checkImage(c, d.Image)
	c.each("hosted_tools", d.HostedTools, func(s string) error { return filled(s, maxName) })
	names := make([]string, len(d.Tools))
	for i, t := range d.Tools {
		names[i] = t.Name
		checkGrant(c.element("tools", i), t.Grant)
	}
	c.each("tools", names, func(s string) error { return filled(s, maxName) })
}

// maxArgs bounds the elements of a command.
const maxArgs = 4096

// checkCommand wants something to run: a command, or a prompt for a runtime.
func checkCommand(c *checker, runtime string, argv []string, promptDigest string) {
	c.optional("prompt_digest", promptDigest, CheckDigest)
	checkArgv(c, argv)
	if len(argv) == 0 && (runtime == "" || promptDigest == "") {
		c.addf("argv", "is empty; give a command, or a runtime with a prompt")
	}
}

func checkArgv(c *checker, argv []string) {
	if len(argv) > maxArgs {
		c.addf("argv", "has %d elements, the bound is %d", len(argv), maxArgs)
	}
	for i, a := range argv {
		if err := CheckArg(a); err != nil {
			c.is(index("argv", i), err)
		}
	}
	if len(argv) > 0 && argv[0] == "" {
		c.addf("argv[0]", "is empty, want a program")
	}
}

func checkEnv(c *checker, env map[string]string) {
	for _, name := range sortedKeys(env) {
		at := c.entry("env", name)
		at.is("", CheckEnvName(name))
		at.is("", CheckArg(name+"="+env[name]))
	}
}

func checkImage(c *checker, i Image) {
	c.is("image.ref", CheckImageRef(i.Ref))
	c.is("image.digest", CheckDigest(i.Digest))
	c.oneOf("image.digest_kind", i.DigestKind, DigestRepo, DigestImageID)
	pinned := RefDigest(i.Ref)
	switch {
	case pinned == "":
	case pinned == i.Ref && (i.Digest != pinned || i.DigestKind != DigestImageID):
		c.addf("image.digest", "is %s (%s), but the reference is the image id %s", quote(i.Digest), quote(i.DigestKind), pinned)
	case pinned != i.Ref && (i.Digest != pinned || i.DigestKind != DigestRepo):
		c.addf("image.digest", "is %s (%s), but the reference pins the repository digest %s", quote(i.Digest), quote(i.DigestKind), pinned)
	}
}

// checkFiles judges directories: roots stand apart, and nothing is both denied
// and given.
func (d Contract) checkFiles(c *checker) {
	c.is("workdir", CheckDir(d.Workdir))
	short := c.each("read_denied", d.ReadDenied, CheckDir)
	paths := make([]string, len(d.WritableRoots))
	for i, r := range d.WritableRoots {
		paths[i] = r.Path
		checkGrant(c.element("writable_roots", i), r.Grant)
	}
	if !c.each("writable_roots", paths, CheckWritableRoot) || !short {
		return
	}
	for i, p := range paths {
		for j, q := range paths {
			if i != j && p != q && inside(p, q) {
				c.addf(index("writable_roots", i), "is %s, which is already inside %s", quote(p), quote(q))
			}
		}
		for _, denied := range d.ReadDenied {
			if inside(p, denied) {
				c.addf(index("writable_roots", i), "is %s, which read_denied hides by %s", quote(p), quote(denied))
			}
		}
	}
	for i, denied := range d.ReadDenied {
		if inside(d.Workdir, denied) {
			c.addf(index("read_denied", i), "is %s, which hides the working directory", quote(denied))
		}
	}
}

func (d Contract) checkSecrets(c *checker) {
	names := make([]string, len(d.SecretRefs))
	for i, s := range d.SecretRefs {
		names[i] = s.Name
		checkSecret(c.element("secret_refs", i), s)
	}
	c.each("secret_refs", names, CheckName)
}

func checkSecret(c *checker, s SecretRef) {
	c.is("ref", CheckSecretRef(s.Ref))
	c.oneOf("deliver", s.Deliver, DeliverInject, DeliverFile)
	checkGrant(c, s.Grant)
}

// Ways to deliver a secret.
const (
	DeliverInject = "inject" // added by the proxy, outside the sandbox
	DeliverFile   = "file"   // a file in memory, inside
)

// checkGrant judges the grant of what c stands at, if it has one.
func checkGrant(c *checker, g *Grant) {
	if g == nil {
		return
	}
	c.is("grant.promotion", CheckDigest(g.Promotion))
	c.is("grant.not_after", checkTime(g.NotAfter))
	c.within("grant.uses", int64(g.Uses), 0, maxUses)
}

const (
	maxUses = 1000
	maxMB   = 1 << 24 // 16 TiB, far from overflowing bytes in 63 bits
	maxSec  = 30 * 24 * 3600
)

// checkLimits wants every bound to be there: a kernel reads a size of zero as
// no bound at all.
func checkLimits(c *checker, l Limits) {
	if !(l.CPU >= 0.01 && l.CPU <= 1024) {
		c.addf("cpu", "is %v, want 0.01 to 1024 cores", l.CPU)
	}
	for _, mb := range []struct {
		name  string
		value int64
	}{{"memory_mb", l.MemoryMB}, {"disk_mb", l.DiskMB}, {"home_mb", l.HomeMB}, {"tmp_mb", l.TmpMB}, {"shm_mb", l.ShmMB}, {"log_mb", l.LogMB}} {
		c.within(mb.name, mb.value, 1, maxMB)
	}
	c.within("pids", l.Pids, 1, 1<<22)
	c.within("files", l.Files, 1, 1<<32)
	c.within("timeout_sec", l.TimeoutSec, 1, maxSec)
	c.within("wait_sec", l.WaitSec, 0, maxSec)
	if !(l.CostUSD >= 0 && l.CostUSD <= 1e6) {
		c.addf("cost_usd", "is %v, want 0 to 1000000", l.CostUSD)
	}
	checkGrant(c, l.Grant)
}

func checkOutputs(c *checker, o Outputs) {
	c.oneOf("kind", o.Kind, OutputNone, OutputPatch, OutputComment, OutputPullRequest)
	c.oneOf("push", o.Push, PushNever, PushApproved, PushTrusted)
	if o.Push != PushNever && o.Kind != OutputPullRequest {
		c.addf("push", "is %s, but only the kind pull_request pushes", quote(o.Push))
	}
	least := int64(0)
	if o.Kind == OutputPatch || o.Kind == OutputPullRequest {
		least = 1
	}
	c.within("max_files", int64(o.MaxFiles), least, 1e6)
	c.within("max_bytes", o.MaxBytes, least, 1<<30)
	c.each("protected_paths", o.ProtectedPaths, CheckProtected)
	checkGrant(c, o.Grant)
}
