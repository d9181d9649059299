package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/countersign-dev/countersign/policy"
	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/runner"
	"github.com/countersign-dev/countersign/runner/docker"
	"github.com/countersign-dev/countersign/runner/workspace"
)

// policyPath is where a repository keeps its policy, on its default branch.
const policyPath = ".github/countersign.yml"

// maxFile bounds a policy or ceiling given by path; policy.Parse has the rule.
const maxFile = 1 << 20

// runFlags are the flags that `run` and `contract` share.
type runFlags struct {
	repo, rev, policy, ceiling, profile, image, isolation, evidence, resolver, approve string

	dirty, json bool
	timeoutSet  bool // --timeout was given
	labels      []string
	allow       []string
	secrets     []string
	timeout     time.Duration
}

func (f *runFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.SetInterspersed(false)
	fl.StringVar(&f.repo, "repo", ".", "the repository's `DIR`")
	fl.StringVar(&f.rev, "rev", "HEAD", "the commit `REV` whose tree is the workspace")
	fl.BoolVar(&f.dirty, "dirty", false, "take the working copy as it is instead of the commit's tree (recorded)")
	fl.StringVar(&f.policy, "policy", "", "policy `FILE` (default: .github/countersign.yml on the default branch, else a built-in one)")
	fl.StringVar(&f.ceiling, "ceiling", "", "ceiling `FILE` (default: a built-in one that leaves the machine's owner in charge)")
	fl.StringVar(&f.profile, "profile", "", "the policy's profile `NAME`")
	fl.StringArrayVar(&f.labels, "label", nil, "a `LABEL` for the policy's rules (repeatable)")
	fl.StringVar(&f.image, "image", "", "image `REF` in place of the profile's; it must be on this machine")
	fl.StringArrayVar(&f.allow, "allow", nil, "grant a tunnel to `HOST:PORT`: 1 MiB may be sent, its inside is not seen, public addresses only; or agree to a private rule of the repository's policy (repeatable)")
	fl.StringArrayVar(&f.secrets, "secret", nil, "grant a secret as the file /run/secret/NAME, or agree to one of the repository's policy: `NAME=REF`, REF being file:///PATH or env://VARIABLE (repeatable)")
	fl.StringVar(&f.isolation, "isolation", "", "runc or runsc, `NAME` of the OCI runtime")
	fl.DurationVar(&f.timeout, "timeout", 0, "wall clock, a duration such as 90s")
	fl.StringVar(&f.resolver, "resolver", "", "name server `ADDR` that the proxy asks, IP or IP:PORT (default: /etc/hosts and /etc/resolv.conf of this machine)")
	fl.StringVar(&f.approve, "approve", "deny", "what to do with promotions: `prompt|deny` (prompt is not built yet: refused)")
}

// check refuses what no part of this build could honour, and puts what has
// several spellings into one.
func (f *runFlags) check() error {
	if err := errors.Join(f.oneResolver(), f.oneAllow()); err != nil {
		return err
	}
	switch {
	case f.approve == "prompt":
		return errors.New("--approve prompt: promotions are not built yet; only deny is there")
	case f.approve != "deny":
		return fmt.Errorf("--approve is %q: want prompt or deny", f.approve)
	case f.timeout < 0 || f.timeout%time.Second != 0 || f.timeoutSet && f.timeout == 0:
		return fmt.Errorf("--timeout is %s: want whole seconds, above zero", f.timeout)
	case f.dirty && f.rev != "HEAD":
		return errors.New("--dirty takes the working copy and --rev a commit's tree: give one of them")
	}
	return nil
}

// oneResolver makes --resolver IP:PORT. A name is refused: who would be asked for
// its address?
func (f *runFlags) oneResolver() error {
	if f.resolver == "" {
		return nil
	}
	at, err := netip.ParseAddrPort(f.resolver)
	if err != nil {
		var ip netip.Addr
		ip, err = netip.ParseAddr(strings.Trim(f.resolver, "[]"))
		at = netip.AddrPortFrom(ip, 53)
	}
	if err != nil || at.Port() == 0 || at.Addr().Zone() != "" || at.Addr().IsUnspecified() {
		return fmt.Errorf("--resolver is %q: want the name server's IP or IP:PORT, such as 192.0.2.1:53", f.resolver)
	}
	f.resolver = at.String()
	return nil
}

// oneAllow puts every --allow into lower case, once.
func (f *runFlags) oneAllow() error {
	var hosts []string
	for _, text := range f.allow {
		host, port, err := contract.ParseHostPort(text)
		if err != nil {
			return fmt.Errorf("--allow %v", err)
		}
		if one := fmt.Sprintf("%s:%d", host, port); !slices.Contains(hosts, one) {
			hosts = append(hosts, one)
		}
	}
	f.allow = hosts
	return nil
}

func (f *runFlags) asked() (contract.Asked, error) {
	a := contract.Asked{
		Image: f.image, Isolation: f.isolation, TimeoutSec: int64(f.timeout / time.Second),
		Allow: f.allow, Secrets: map[string]string{},
	}
	for _, s := range f.secrets {
		name, ref, ok := strings.Cut(s, "=")
		if !ok || name == "" || ref == "" {
			return a, fmt.Errorf("--secret %q: want NAME=REF", s)
		}
		if _, twice := a.Secrets[name]; twice {
			return a, fmt.Errorf("--secret: %s is given twice", name)
		}
		a.Secrets[name] = ref
	}
	return a, nil
}

// facts is everything that one local decision rests on, read once.
type facts struct {
	repo       *workspace.Repo
	policyName string // where the policy was found, for people
	task       contract.Task
	snapshot   contract.Snapshot
	policyText []byte
	ceiling    []byte
	derivation policy.Derivation
	inputs     runner.Inputs
	// refused is why there is no contract: the policy or ceiling is not valid,
	// or the derivation's *policy.Refusal.
	refused error
}

// gather reads the facts for flags and argv, and derives the contract.
func gather(ctx context.Context, f *runFlags, argv []string, stateDir string, engine *docker.Engine, now time.Time) (*facts, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, gatherTime, fmt.Errorf("reading the repository took longer than %s: is one of its files, or of git's settings, a pipe or a device?", gatherTime))
	defer cancel()
	g, err := gatherFacts(ctx, f, argv, stateDir, engine, now)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = context.Cause(ctx)
	}
	return g, err
}

// gatherTime bounds what is read before anything is decided; a large working
// copy takes most of it.
const gatherTime = 10 * time.Minute

func gatherFacts(ctx context.Context, f *runFlags, argv []string, stateDir string, engine *docker.Engine, now time.Time) (*facts, error) {
	g := &facts{}
	if err := g.readTask(ctx, f, argv, stateDir, now); err != nil {
		return nil, err
	}
	in, err := g.readPolicy(ctx, f)
	if err != nil {
		return nil, err
	}
	if err := g.readSnapshot(ctx, &in, engine, now); err != nil || g.refused != nil {
		return g, err
	}
	if g.derivation = policy.Derive(in); g.derivation.Refusal != nil {
		g.refused = g.derivation.Refusal
	}
	return g, nil
}

func (g *facts) readTask(ctx context.Context, f *runFlags, argv []string, stateDir string, now time.Time) error {
	var err error
	if g.repo, err = workspace.OpenRepo(ctx, f.repo); err != nil {
		return err
	}
	if dir := repoDir(g.repo); !utf8.ValidString(dir) {
		return fmt.Errorf("the repository's path %q is not UTF-8 text, in which evidence names it: move it", dir)
	}
	if f.dirty && g.repo.Worktree == "" {
		return errors.New("--dirty: the repository has no working copy")
	}
	asked, err := f.asked()
	if err != nil {
		return err
	}
	head, err := g.repo.Resolve(ctx, f.rev)
	if err != nil {
		return err
	}
	base, baseSHA, err := g.repo.DefaultBranch(ctx)
	if err != nil && !errors.Is(err, workspace.ErrNoDefaultBranch) {
		return err
	}
	id, err := contract.NewRunID(now, rand.Reader)
	if err != nil {
		return err
	}
	start := contract.Start{SHA: head}
	if f.dirty {
		if start.PatchDigest, err = dirtyDigest(ctx, g.repo, head, stateDir, id); err != nil {
			return err
		}
	}
	g.task = contract.Task{
		Schema: contract.SchemaTask, RunID: id, Event: contract.Event{Kind: contract.EventLocal},
		Repo: contract.Repo{FullName: contract.LocalRepoName(repoDir(g.repo))},
		Base: contract.Ref{Ref: base, SHA: baseSHA}, Head: contract.Head{SHA: head}, Start: start,
		Actor:  contract.Person{ID: 0, Login: "local", Role: contract.RoleLocal},
		Labels: sortedSet(f.labels), Profile: f.profile, Argv: argv, Asked: asked,
	}
	if err := contract.Validate(g.task); err != nil {
		return err
	}
	return nil
}

// dirtyDigest names what the working copy changes against head. The run's own
// process reads it again and refuses one that changed in between.
//
// It works in a claimed directory, so that a sweep finds what a killed process
// leaves of the working copy's contents.
func dirtyDigest(ctx context.Context, repo *workspace.Repo, head, stateDir, runID string) (string, error) {
	claim, err := runner.NewClaim(stateDir, runID+"-dirty")
	if err != nil {
		return "", fmt.Errorf("reading working copy: %w", err)
	}
	defer claim.Release()
	store, err := workspace.NewStore(ctx, filepath.Join(claim.Scratch, "store"), repo)
	if err != nil {
		return "", err
	}
	tree, err := store.Start(ctx, workspace.StartOptions{SHA: head, Dirty: repo.Worktree})
	if err != nil {
		return "", err
	}
	return tree.PatchDigest, nil
}

// sortedSet is a list as documents hold it.
func sortedSet(list []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(list)))
}

// repoDir is the directory that names a repository.
func repoDir(r *workspace.Repo) string {
	if r.Worktree != "" {
		return r.Worktree
	}
	return strings.TrimSuffix(r.GitDir, ".git")
}

func (g *facts) readPolicy(ctx context.Context, f *runFlags) (policy.Input, error) {
	in := policy.Input{Task: g.task}
	g.snapshot = contract.Snapshot{Schema: contract.SchemaSnapshot, Dirty: f.dirty}
	name, err := g.findPolicy(ctx, f)
	if err != nil {
		return in, err
	}
	g.policyName = name
	if in.Policy, err = policy.Parse(name, g.policyText); err != nil {
		g.refused = fmt.Errorf("the policy is not valid:\n%w", err)
	}
	ceilingName := "built-in ceiling"
	g.ceiling, g.snapshot.Ceiling = policy.BuiltinLocalCeiling(), contract.Source{Status: contract.SourceBuiltin, Ref: "builtin"}
	if f.ceiling != "" {
		ceilingName = f.ceiling
		if g.ceiling, err = readBounded(f.ceiling); err != nil {
			return in, fmt.Errorf("reading ceiling: %v", err)
		}
		g.snapshot.Ceiling = contract.Source{Status: contract.SourceFound, Ref: "file", Path: f.ceiling}
	}
	g.snapshot.Ceiling.Digest = contract.DigestBytes(g.ceiling)
	if in.Ceiling, err = policy.ParseCeiling(ceilingName, g.ceiling); err != nil {
		g.refused = fmt.Errorf("the ceiling is not valid:\n%w", err)
	}
	return in, nil
}

// findPolicy reads --policy, else the file on the default branch, else the
// built-in policy, and returns a name for errors.
func (g *facts) findPolicy(ctx context.Context, f *runFlags) (string, error) {
	source := &g.snapshot.Policy
	if f.policy != "" {
		text, err := readBounded(f.policy)
		if err != nil {
			return "", fmt.Errorf("reading policy: %v", err)
		}
		g.policyText = text
		*source = contract.Source{Status: contract.SourceFound, Ref: "file", Path: f.policy, Digest: contract.DigestBytes(text)}
		return f.policy, nil
	}
	if g.task.Base.SHA != "" {
		text, found, err := g.repo.ReadFile(ctx, g.task.Base.SHA, policyPath)
		if err != nil {
			return "", err
		}
		if found {
			g.policyText = text
			*source = contract.Source{
				Status: contract.SourceFound, Ref: g.task.Base.Ref, SHA: g.task.Base.SHA, Path: policyPath, Digest: contract.DigestBytes(text),
			}
			return g.task.Base.Ref + ":" + policyPath, nil
		}
	}
	if g.task.Base.SHA == "" {
		// A policy that is there and does not apply must not go unnoticed.
		if _, found, err := g.repo.ReadFile(ctx, g.task.Head.SHA, policyPath); err != nil || found {
			return "", errors.Join(err, fmt.Errorf("the commit has a policy, but which branch is the default one, whose policy counts, cannot be told: there is no origin/HEAD and no main; "+
				"name the policy with --policy, or run git remote set-head origin --auto"))
		}
	}
	g.policyText = policy.BuiltinPolicy()
	*source = contract.Source{Status: contract.SourceBuiltin, Ref: "builtin", Digest: contract.DigestBytes(g.policyText)}
	return "built-in policy", nil
}

func readBounded(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxFile {
		return nil, fmt.Errorf("%s is not a regular file of at most %d bytes", path, maxFile)
	}
	return os.ReadFile(path)
}

// imageRefs are the images that the decision may need; none without a valid
// policy.
func (g *facts) imageRefs(in policy.Input) []string {
	if g.refused != nil {
		return nil
	}
	return policy.ImageRefs(in)
}

// code is the exit status of a run that got no contract: what the machine
// lacks is 125, what the policy does not allow is 126.
func (g *facts) code() int {
	var r *policy.Refusal
	if errors.As(g.refused, &r) && r.Code == policy.CodeImageMissing {
		return contract.ExitFailClosed
	}
	return contract.ExitRefused
}

// readSnapshot asks the engine for the images that the decision may need, and
// fixes the snapshot.
func (g *facts) readSnapshot(ctx context.Context, in *policy.Input, engine *docker.Engine, now time.Time) error {
	task, err := contract.Encode(g.task)
	if err != nil {
		return err
	}
	g.snapshot.Time = now.UTC().Format(time.RFC3339)
	g.snapshot.TaskDigest = contract.DigestBytes(task)
	g.snapshot.Images = map[string]contract.ImageFact{}
	for _, ref := range g.imageRefs(*in) {
		fact, err := engine.Image(ctx, ref)
		if err != nil {
			return err
		}
		if fact != nil {
			g.snapshot.Images[ref] = *fact
		}
	}
	snapshot, err := contract.Encode(g.snapshot)
	if err != nil {
		return err
	}
	in.Snapshot = g.snapshot
	g.inputs = runner.Inputs{Task: task, Snapshot: snapshot, Policy: g.policyText, Ceiling: g.ceiling}
	return nil
}
