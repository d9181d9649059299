package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// git is a git binary bound to one git directory.
//
// Every call has an environment of its own: no system, global or XDG
// configuration, no attributes or excludes of the machine, no prompt, no
// replacement objects, no optional locks. What the repository's own
// configuration could start or reach is switched off by command-line
// configuration, which wins over it: hooks, the file system monitor, and every
// transport (a partial clone would fetch a missing object by itself). The
// commands that this package gives to the user's repository read objects and
// refs only.
type git struct {
	bin string
	dir string
}

// gitSettings go before every command; see git. GIT_ALLOW_PROTOCOL stands
// beside protocol.allow because a repository's protocol.<name>.allow would win
// over the latter.
var gitSettings = []string{
	"core.hooksPath=/dev/null",
	"core.fsmonitor=false",
	"core.attributesFile=/dev/null",
	"core.excludesFile=/dev/null",
	"core.commitGraph=false",
	"advice.graftFileDeprecated=false",
	"core.untrackedCache=false",
	"core.fsync=none",
	"pack.compression=1",
	"pack.writeReverseIndex=false",
	"core.pager=cat",
	"core.quotePath=true",
	"core.protectHFS=true",
	"core.protectNTFS=true",
	"protocol.allow=never",
	"gc.auto=0",
	"maintenance.auto=false",
	"safe.directory=*",
}

func gitEnv() []string {
	return []string{
		"PATH=/usr/local/bin:/usr/bin:/bin",
		"HOME=/dev/null",
		"XDG_CONFIG_HOME=/dev/null",
		"LC_ALL=C",
		"TZ=UTC",
		"GIT_CONFIG_NOSYSTEM=1",
		"GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_ATTR_NOSYSTEM=1",
		"GIT_TERMINAL_PROMPT=0",
		"GIT_ASKPASS=/bin/false",
		"GIT_SSH_COMMAND=/bin/false",
		"GIT_OPTIONAL_LOCKS=0",
		"GIT_NO_REPLACE_OBJECTS=1",
		"GIT_NO_LAZY_FETCH=1",
		"GIT_GRAFT_FILE=/dev/null",
		"GIT_ALLOW_PROTOCOL=none",
		"GIT_LITERAL_PATHSPECS=1",
		"GIT_PAGER=cat",
		"GIT_EDITOR=/bin/false",
	}
}

// gitCall is one run of git.
type gitCall struct {
	args   []string // the command first
	set    []string // configuration beside gitSettings
	env    []string // beside gitEnv
	cwd    string   // "" for the git directory
	stdin  io.Reader
	stdout io.Writer
}

// gitError is a git that said no.
type gitError struct {
	args   []string
	code   int // -1 when it did not exit by itself
	stderr string
	err    error
}

func (e *gitError) Error() string {
	if e.stderr != "" {
		return fmt.Sprintf("git %s: %s", e.args[0], e.stderr)
	}
	return fmt.Sprintf("git %s: %v", e.args[0], e.err)
}

func (e *gitError) Unwrap() error { return e.err }

func findGit() (string, error) {
	bin, err := exec.LookPath("git")
	if err != nil {
		return "", errors.New("finding git: no git on PATH; install it (Debian: apt-get install git)")
	}
	return bin, nil
}

// command prepares a call. A cancelled ctx ends git with everything it started.
func (g git) command(ctx context.Context, c gitCall, stderr *tail) *exec.Cmd {
	args := make([]string, 0, 2*len(gitSettings)+len(c.args)+1)
	for _, s := range slices.Concat(gitSettings, c.set) {
		args = append(args, "-c", s)
	}
	args = append(args, "--git-dir="+g.dir)
	cmd := exec.CommandContext(ctx, g.bin, append(args, c.args...)...)
	cmd.Env = append(gitEnv(), c.env...)
	if cmd.Dir = c.cwd; c.cwd == "" {
		cmd.Dir = g.dir
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.stdin, c.stdout, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

func (g git) run(ctx context.Context, c gitCall) error {
	var stderr tail
	return callError(ctx, c, g.command(ctx, c, &stderr).Run(), &stderr)
}

// callError makes a *gitError of how a call ended.
func callError(ctx context.Context, c gitCall, err error, stderr *tail) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("git %s: %w", c.args[0], ctx.Err())
	}
	e := &gitError{args: c.args, code: -1, stderr: stderr.String(), err: err}
	if x, ok := errors.AsType[*exec.ExitError](err); ok {
		e.code = x.ExitCode()
	}
	return e
}

// line runs a command and returns its output without the final newline.
func (g git) line(ctx context.Context, args ...string) (string, error) {
	return g.lineOf(ctx, gitCall{args: args})
}

func (g git) lineOf(ctx context.Context, c gitCall) (string, error) {
	var out bytes.Buffer
	c.stdout = &out
	err := g.run(ctx, c)
	return strings.TrimSuffix(out.String(), "\n"), err
}

// tail keeps the last bytes of what git says on stderr.
type tail struct{ b []byte }

const tailBytes = 2 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p[max(0, len(p)-tailBytes):]...)
	t.b = t.b[max(0, len(t.b)-tailBytes):]
	return len(p), nil
}

func (t *tail) String() string {
	return strings.TrimSpace(strings.ToValidUTF8(string(t.b), "?"))
}

// missing says that the repository lacks an object that the run needs.
type missing struct{ oid string }

func (m *missing) Error() string {
	return fmt.Sprintf("object %s is not in the repository: a partial or shallow clone lacks it, and nothing is fetched for a run; fetch it first (git fetch --refetch, or git clone without --filter)", m.oid)
}

// isOID says whether s is a full object id, SHA-1 or SHA-256.
func isOID(s string) bool {
	return (len(s) == 40 || len(s) == 64) && strings.Trim(s, "0123456789abcdef") == ""
}
