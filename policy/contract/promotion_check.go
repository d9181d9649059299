package contract

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

func (Plan) kind() string      { return "plan" }
func (Promotion) kind() string { return "promotion" }
func (Decision) kind() string  { return "decision" }
func (Patch) kind() string     { return "patch" }

func promotionKinds() []string {
	return []string{KindNetwork, KindPath, KindSecret, KindLimits, KindTool, KindOutput, KindHostExec}
}

func promotionStates() []string {
	return []string{PromotionRequested, PromotionApproved, PromotionExecuting, PromotionUsed, PromotionDenied, PromotionExpired, PromotionRevoked}
}

// checkWord refuses a value that is not among words.
func checkWord(s string, words ...string) error {
	if !slices.Contains(words, s) {
		return fmt.Errorf("is %s, want one of %s", quote(s), strings.Join(words, ", "))
	}
	return nil
}

func (p Plan) check(c *checker) {
	c.oneOf("schema", p.Schema, SchemaPlan)
	c.oneOf("kind", p.Kind, promotionKinds()...)
	p.checkCommand(c)
	p.checkPlaces(c)
	p.checkBinding(c)
	p.Change.check(c, p.Kind)
	c.is("reason", filled(p.Reason, 4096))
	c.oneOf("level", string(p.Level), string(L0), string(L1), string(L2), string(L3), string(L4))
	c.is("level_reason", filled(p.LevelReason, 1024))
	c.within("ttl_sec", p.TTLSec, 1, maxSec)
	c.within("uses", int64(p.Uses), 1, maxUses)
	if (p.Kind == KindOutput) != (p.PatchDigest != "") {
		c.addf("patch_digest", "is %s; the kind output names the patch that leaves, no other kind does", quote(p.PatchDigest))
	}
	c.optional("patch_digest", p.PatchDigest, CheckDigest)
}

func (p Plan) checkCommand(c *checker) {
	checkArgv(c, p.Argv)
	if len(p.Shell) > maxArg || bytes.IndexByte(p.Shell, 0) >= 0 {
		c.addf("shell", "is %d bytes or holds a NUL; the bound is %d and no NUL", len(p.Shell), maxArg)
	}
	if len(p.Argv) > 0 && len(p.Shell) > 0 {
		c.addf("shell", "stands beside argv; a plan has one command")
	}
	for i, part := range p.Commands {
		at := index("commands", i)
		c.oneOf(at+".kind", part.Kind, PartCommand, PartSubstitution, PartRedirect, PartPipeToShell, PartAssignment, PartDynamic)
		for _, f := range []struct{ name, text string }{{"text", part.Text}, {"in", part.In}, {"note", part.Note}} {
			if !Printable(f.text) {
				c.addf(member(at, f.name), "holds %s, which does not print; escape it", quote(f.text))
			}
		}
		c.within(at+".line", int64(part.Line), 1, maxArg+1)
		c.within(at+".column", int64(part.Column), 1, maxArg+1)
	}
	if len(p.Commands) > 0 && len(p.Shell) == 0 {
		c.addf("commands", "lists commands of a shell text that is not there")
	}
	if len(p.Argv) == 0 && len(p.Shell) == 0 {
		p.checkNoCommand(c)
		return
	}
	c.is("interpreter.path", CheckDir(p.Interpreter.Path))
	c.is("interpreter.digest", CheckDigest(p.Interpreter.Digest))
	checkCwd(c, p.Cwd)
}

// checkCwd allows the root directory, where a command may well run.
func checkCwd(c *checker, cwd string) {
	if cwd != "/" {
		c.is("cwd", CheckDir(cwd))
	}
}

func (p Plan) checkNoCommand(c *checker) {
	if p.Kind == KindHostExec {
		c.addf("argv", "is empty; host_exec runs one command")
	}
	if p.Interpreter != (Interpreter{}) {
		c.addf("interpreter", "is named without a command")
	}
	if p.Cwd != "" {
		checkCwd(c, p.Cwd)
	}
}

func (p Plan) checkPlaces(c *checker) {
	for i, r := range p.ResolvedPaths {
		c.is(index("resolved_paths", i)+".word", CheckArg(r.Word))
		if r.Path != "/" {
			c.is(index("resolved_paths", i)+".path", CheckDir(r.Path))
		}
		c.optional(index("resolved_paths", i)+".digest", r.Digest, CheckDigest)
	}
	c.optional("input_tree_digest", p.InputTreeDigest, CheckDigest)
	if p.Kind == KindHostExec && p.InputTreeDigest == "" {
		c.addf("input_tree_digest", "is empty; host_exec reads a frozen tree")
	}
	if p.Kind == KindHostExec && len(p.Shell) > 0 {
		c.addf("shell", "stands in host_exec, which runs an exact argv and no shell")
	}
	c.each("env_names", p.EnvNames, CheckEnvName)
	if !slices.IsSorted(p.EnvNames) {
		c.addf("env_names", "is out of order; names are sorted")
	}
	c.each("roots.read", p.Roots.Read, CheckDir)
	c.each("roots.write", p.Roots.Write, CheckDir)
	c.is("target", filled(p.Target, maxPath))
	c.each("destinations", p.Destinations, checkHostPort)
}

// checkBinding judges what ties the plan to one run at one moment.
func (p Plan) checkBinding(c *checker) {
	c.is("run_id", CheckRunID(p.RunID))
	c.is("agent", filled(p.Agent, maxName))
	c.is("session", filled(p.Session, maxName))
	c.is("contract_digest", CheckDigest(p.ContractDigest))
	checkRepo(c.below("repo"), p.Repo)
	c.is("head_sha", CheckObjectID(p.HeadSHA))
	c.optional("base_ref", p.BaseRef, CheckRef)
	c.is("policy_digest", CheckDigest(p.PolicyDigest))
	c.is("ceiling_digest", CheckDigest(p.CeilingDigest))
	if len(p.Nonce) != 32 || !only(p.Nonce, isLowerHex) {
		c.addf("nonce", "is %s, want 128 random bits in 32 lower-case hexadecimal digits", quote(p.Nonce))
	}
}

// check wants exactly the entry that kind names, well formed and without a
// grant: the grant is written by [Revise].
func (w Widening) check(c *checker, kind string) {
	for _, f := range []struct {
		kind  string
		set   bool
		grant func() *Grant
		check func(c *checker)
	}{
		{KindNetwork, w.Network != nil, func() *Grant { return w.Network.Grant }, func(c *checker) { checkRule(c, *w.Network) }},
		{KindPath, w.Path != nil, func() *Grant { return w.Path.Grant }, func(c *checker) { c.is("", CheckWritableRoot(w.Path.Path)) }},
		{KindSecret, w.Secret != nil, func() *Grant { return w.Secret.Grant }, func(c *checker) {
			c.is("name", CheckName(w.Secret.Name))
			checkSecret(c, *w.Secret)
		}},
		{KindLimits, w.Limits != nil, func() *Grant { return w.Limits.Grant }, func(c *checker) { checkLimits(c, *w.Limits) }},
		{KindTool, w.Tool != nil, func() *Grant { return w.Tool.Grant }, func(c *checker) { c.is("name", filled(w.Tool.Name, maxName)) }},
		{KindOutput, w.Output != nil, func() *Grant { return w.Output.Grant }, func(c *checker) { checkOutputs(c, *w.Output) }},
	} {
		at := c.entry("change", f.kind)
		switch {
		case f.set && f.kind != kind:
			at.addf("", "is set in a plan of the kind %s; a plan changes the one entry of its kind", quote(kind))
		case !f.set && f.kind == kind:
			at.addf("", "is absent; a plan of the kind %s changes that entry", kind)
		case f.set && f.grant() != nil:
			at.addf("grant", "is set; the grant comes with the approval")
		case f.set:
			f.check(at)
		}
	}
}

func (p Promotion) check(c *checker) {
	c.oneOf("schema", p.Schema, SchemaPromotion)
	var inner checker
	p.Plan.check(&inner)
	for _, f := range inner.faults {
		c.addf("plan."+f.Path, "%s", f.Problem)
	}
	if digest, err := DigestOf(clone(p.Plan)); err != nil {
		c.is("plan", err)
	} else if p.Digest != digest {
		c.addf("digest", "is %s, but the plan's is %s", quote(p.Digest), digest)
	}
	from, err := ParseTime(p.RequestedAt)
	c.is("requested_at", err)
	until, err := ParseTime(p.NotAfter)
	c.is("not_after", err)
	if !until.After(from) {
		c.addf("not_after", "is not after requested_at")
	}
}

func (d Decision) check(c *checker) {
	c.oneOf("schema", d.Schema, SchemaDecision)
	c.is("promotion", CheckDigest(d.Promotion))
	c.oneOf("verdict", d.Verdict, VerdictApprove, VerdictDeny)
	checkPerson(c.below("by"), d.By)
	c.oneOf("via", d.Via, ViaButton, ViaReview, ViaComment, ViaPrompt)
	c.is("source", checkText(d.Source, maxName))
	if local := d.Via == ViaPrompt; local != (d.Source == "") {
		c.addf("source", "is %s; a prompt has none, every other way names its event", quote(d.Source))
	}
	c.is("head_sha", CheckObjectID(d.HeadSHA))
	c.is("time", checkTime(d.Time))
}

func (p Patch) check(c *checker) {
	c.oneOf("schema", p.Schema, SchemaPatch)
	c.is("run_id", CheckRunID(p.RunID))
	c.is("contract_digest", CheckDigest(p.ContractDigest))
	c.is("start.sha", CheckObjectID(p.Start.SHA))
	c.optional("start.patch_digest", p.Start.PatchDigest, CheckDigest)
	c.is("digest", CheckDigest(p.Digest))
	c.within("bytes", p.Bytes, 0, maxSafeInteger)
	c.within("ignored", p.Ignored, 0, maxSafeInteger)
	c.within("refused", p.Refused, 0, maxSafeInteger)
	for i, f := range p.Files {
		f.check(c, index("files", i))
		if i > 0 && bytes.Compare(p.Files[i-1].Path, f.Path) >= 0 {
			c.addf(index("files", i), "is out of order or stands here twice; files are sorted by path")
		}
	}
}

func (f PatchFile) check(c *checker, at string) {
	if len(f.Path) == 0 || len(f.Path) > maxPath || bytes.IndexByte(f.Path, 0) >= 0 || f.Path[0] == '/' {
		c.addf(at+".path", "is %s, want a path in the repository", quote(string(f.Path)))
	}
	for part := range strings.SplitSeq(string(f.Path), "/") {
		if part == "" || part == "." || part == ".." || strings.EqualFold(part, ".git") {
			c.addf(at+".path", "is %s, which no commit can hold", quote(string(f.Path)))
			break
		}
	}
	c.oneOf(at+".change", f.Change, FileAdded, FileModified, FileDeleted)
	modes := []string{"100644", "100755", "120000"}
	if f.Change == FileAdded {
		c.oneOf(at+".old_mode", f.OldMode, "")
	} else {
		c.oneOf(at+".old_mode", f.OldMode, modes...)
	}
	if f.Change == FileDeleted {
		c.oneOf(at+".new_mode", f.NewMode, "")
	} else {
		c.oneOf(at+".new_mode", f.NewMode, modes...)
	}
}
