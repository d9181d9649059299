package runner

import (
	"fmt"
	"slices"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/runner/shim/protocol"
)

// Writable directories that exist in every sandbox, beside the workspace.
const (
	WorkspaceDir = "/workspace"
	HomeDir      = "/home/agent"
	TmpDir       = "/tmp"
	ShmDir       = "/dev/shm"
)

// Admit lists what the contract asks for that this build has no executor for,
// one sentence each. A contract with such an entry is refused before anything
// is made: an entry is never ignored.
func Admit(c contract.Contract) []string {
	var no []string
	add := func(bad bool, format string, args ...any) {
		if bad {
			no = append(no, fmt.Sprintf(format, args...))
		}
	}
	for _, n := range c.Network.Allow {
		add(n.API != "", "network rule %s:%d: api %q: requests of a model's API are not read yet", n.Host, n.Port, n.API)
		add(n.Grant != nil && n.Grant.Uses > 0, "network rule %s:%d: a grant for a number of uses is not built yet", n.Host, n.Port)
	}
	add(c.Runtime != "" && c.Runtime != RuntimeCommand, "runtime %q: agents are not built yet, only commands", c.Runtime)
	add(c.PromptDigest != "", "prompt: agents are not built yet, only commands")
	add(len(c.Argv) == 0, "argv: there is no command to run")
	add(len(c.Tools) > 0 || len(c.HostedTools) > 0, "tools: agents are not built yet, so there is nothing that a tool could be allowed to")
	add(c.ExecutionClass == contract.ClassNode, "execution class %q: host execution is not built yet", c.ExecutionClass)
	add(c.Outputs.Kind == contract.OutputComment, "outputs: kind %q is not built yet", c.Outputs.Kind)
	add(c.Outputs.Push == contract.PushTrusted, "outputs: push %q is not built yet", c.Outputs.Push)
	add(c.Isolation == contract.IsolationRunsc && c.Limits.Pids < gvisorPids,
		"limits.pids is %d: gVisor's own threads count too, so isolation %s needs at least %d", c.Limits.Pids, c.Isolation, gvisorPids)
	return append(append(no, admitRoots(c)...), admitDenied(c)...)
}

// engineOwned are where the sandbox's own files and the kernel's are: what
// stands there is not an image's or a repository's to deny.
func engineOwned() []string {
	return []string{"/proc", "/sys", "/dev", protocol.ShimDir, protocol.SocketDir}
}

// admitDenied refuses what could only be denied by breaking the sandbox.
func admitDenied(c contract.Contract) []string {
	var no []string
	for _, p := range c.ReadDenied {
		for _, root := range engineOwned() {
			if under(p, root) || under(root, p) {
				no = append(no, fmt.Sprintf("read_denied %s: %s is the sandbox's own", p, root))
			}
		}
		if p == WorkspaceDir || under(p, WorkspaceDir+"/.git") {
			no = append(no, fmt.Sprintf("read_denied %s: the workspace always has its tree and a .git of its own, of one commit", p))
		}
	}
	return no
}

// RuntimeCommand is the runtime of a plain command.
const RuntimeCommand = "command"

func admitRoots(c contract.Contract) []string {
	var no []string
	var have []string
	for _, r := range c.WritableRoots {
		have = append(have, r.Path)
		if !slices.Contains([]string{WorkspaceDir, HomeDir, TmpDir, ShmDir}, r.Path) {
			no = append(no, fmt.Sprintf("writable root %s: only %s, %s, %s and %s can be made writable", r.Path, WorkspaceDir, TmpDir, HomeDir, ShmDir))
		}
	}
	for _, must := range []string{HomeDir, TmpDir, ShmDir} {
		if !slices.Contains(have, must) {
			no = append(no, fmt.Sprintf("writable roots: a sandbox without a writable %s is not built yet", must))
		}
	}
	if c.Workdir != WorkspaceDir {
		no = append(no, fmt.Sprintf("workdir %s: only %s can be the working directory", c.Workdir, WorkspaceDir))
	}
	return no
}
