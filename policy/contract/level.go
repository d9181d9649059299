package contract

import (
	"fmt"
	"slices"
	"strings"
)

// LevelOf grades the authority in c and says why in one line. It looks only at
// what c allows, never at who asked or at what c claims of itself:
//
//	L4  privileged or irreversible: a push without a person (push "trusted",
//	    which also starts CI with the repository's own secrets); a fork's code
//	    together with a secret or a private address
//	L3  authority outside the sandbox and its proxy: a run on a node, a host_exec
//	    tool, or host_exec as something that may be asked for; a private address
//	    (the host's own are among them); a tool that a provider runs on its side,
//	    where no proxy sees it
//	L2  a controlled way out: any network rule, any secret, an approved output
//	L1  something remains: the workspace or another root beside the scratch
//	    directories can be written, or an output may come of the run
//	L0  nothing is written that outlives the run and nothing comes out
//
// What may be asked for (promotable) counts for host_exec only: every other
// kind is a sealed revision with its own level before it takes effect, while
// host_exec has no entry in a contract that could raise the level later.
func LevelOf(c Contract) (Level, string) {
	for _, grade := range []struct {
		level  Level
		reason func(Contract) string
	}{{L4, privileged}, {L3, outside}, {L2, reaching}, {L1, lasting}} {
		if why := grade.reason(c); why != "" {
			return grade.level, why
		}
	}
	return L0, "nothing outlives the run and nothing comes out"
}

func privileged(c Contract) string {
	switch {
	case c.Outputs.Push == PushTrusted:
		return "pushes without a person's approval"
	case c.Head.Fork && len(c.SecretRefs) > 0:
		return "a fork's code runs with a secret"
	case c.Head.Fork && firstPrivate(c.Network) != "":
		return "a fork's code reaches the private address " + firstPrivate(c.Network)
	}
	return ""
}

func outside(c Contract) string {
	switch {
	case c.ExecutionClass == ClassNode:
		return "runs on a node"
	case slices.ContainsFunc(c.Tools, func(t Tool) bool { return isHostExec(t.Name) }):
		return "has a host_exec tool"
	case slices.Contains(c.Promotable, KindHostExec):
		return "may ask for host_exec, which has no entry to grade later"
	case firstPrivate(c.Network) != "":
		return "reaches the private address " + firstPrivate(c.Network)
	case len(c.HostedTools) > 0:
		return fmt.Sprintf("a provider runs the tool %s, past the proxy", quote(c.HostedTools[0]))
	}
	return ""
}

// isHostExec knows the tool by its name, also with a pattern of arguments behind
// it as runtimes write them: host_exec(git status), host_exec:node-7.
func isHostExec(tool string) bool {
	name, _, _ := strings.Cut(tool, "(")
	name, _, _ = strings.Cut(name, ":")
	return strings.TrimSpace(name) == KindHostExec
}

func firstPrivate(n Network) string {
	for _, r := range n.Allow {
		if r.Private {
			return ruleName(r)
		}
	}
	return ""
}

func reaching(c Contract) string {
	switch {
	case len(c.Network.Allow) > 0:
		return "reaches " + ruleName(c.Network.Allow[0])
	case len(c.SecretRefs) > 0:
		return "holds the secret " + c.SecretRefs[0].Name
	case c.Outputs.Grant != nil:
		return "may let an approved change out"
	}
	return ""
}

// scratch are the roots that vanish with the container and that nothing reads
// afterwards.
func scratch(root string) bool {
	return root == "/tmp" || root == "/home/agent" || root == "/dev/shm"
}

func lasting(c Contract) string {
	for _, r := range c.WritableRoots {
		if !scratch(r.Path) || inside(c.Workdir, r.Path) {
			return "may write " + r.Path
		}
	}
	if c.Outputs.Kind != OutputNone {
		return "may produce the output " + c.Outputs.Kind
	}
	return ""
}

// LevelWith is [LevelOf] c with one promotion's change applied: the level that
// its plan states. For host_exec, which changes no entry, it is L3 at least.
func LevelWith(c Contract, kind string, w Widening) (Level, string, error) {
	if kind == KindHostExec {
		if l, why := LevelOf(c); l == L4 {
			return l, why, nil
		}
		return L3, "runs one command on a node", nil
	}
	c = clone(c)
	if err := apply(&c, kind, clone(w), Grant{}); err != nil {
		return "", "", err
	}
	l, why := LevelOf(c)
	return l, why, nil
}
