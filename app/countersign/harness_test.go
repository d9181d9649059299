package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/countersign-dev/countersign/policy/contract"
)

// The tests of this package run the real binaries, as a person would, on the
// real engine. TestMain builds them once.
var built struct {
	dir   string // both binaries
	state string // state directory of all runs: short, a socket's path is bounded
}

const sandboxImage = "countersign/sandbox:latest"

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "cs")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	built.dir, built.state = filepath.Join(dir, "bin"), filepath.Join(dir, "s")
	for _, args := range [][]string{programArgs(), {"build", "-o", built.dir + "/", module + "/runner/shim/countersign-shim"}} {
		cmd := exec.Command("go", args...)
		cmd.Env = append(os.Environ(), "GOFLAGS=")
		if !slices.Contains(args, "-race") {
			cmd.Env = append(cmd.Env, "CGO_ENABLED=0")
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "building: %v\n%s", err, out)
			return 1
		}
	}
	return m.Run()
}

// programArgs build the program that the tests start; under the race detector
// that one is what races could be in. The shim stays static.
func programArgs() []string {
	args := []string{"build", "-o", built.dir + "/"}
	if raceEnabled {
		args = append(args, "-race")
	}
	return append(args, module+"/app/countersign")
}

// Every verb has its scripts in testdata/script. Those that need the engine
// begin with "[!docker] skip".
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Condition: func(cond string) (bool, error) {
			if cond != "docker" {
				return false, fmt.Errorf("unknown condition %q", cond)
			}
			return haveDocker()
		},
		Setup: func(e *testscript.Env) error {
			e.Setenv("PATH", built.dir+string(os.PathListSeparator)+os.Getenv("PATH"))
			e.Setenv("COUNTERSIGN_STATE_DIR", built.state)
			e.Setenv("COUNTERSIGN_CONFIG_DIR", filepath.Join(e.WorkDir, "config"))
			e.Setenv("DOCKER_HOST", os.Getenv("DOCKER_HOST"))
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("GIT_CONFIG_NOSYSTEM", "1")
			for _, who := range []string{"AUTHOR", "COMMITTER"} {
				e.Setenv("GIT_"+who+"_NAME", "tester")
				e.Setenv("GIT_"+who+"_EMAIL", "tester@example.com")
			}
			return nil
		},
	})
}

// haveDocker says whether there is an engine with the sandbox image. Where CI
// demands them, their absence is an error.
func haveDocker() (bool, error) {
	out, err := exec.Command("docker", "image", "inspect", "--format", "{{.Id}}", sandboxImage).CombinedOutput()
	if err != nil && os.Getenv("COUNTERSIGN_TEST_REQUIRE_DOCKER") == "1" {
		return false, fmt.Errorf("the engine or %s is missing: %s", sandboxImage, out)
	}
	return err == nil, nil
}

// needDocker skips a test that needs the engine where there is none.
func needDocker(t *testing.T) {
	t.Helper()
	have, err := haveDocker()
	if err != nil {
		t.Fatal(err)
	}
	if !have {
		t.Skipf("no engine with %s here", sandboxImage)
	}
}

// checkout is a repository for one test, with runs of its own.
type checkout struct {
	t   *testing.T
	dir string
	env []string
}

// newCheckout makes a repository with one commit of files; a name that ends in
// "*" is made executable.
func newCheckout(t *testing.T, files map[string]string) *checkout {
	t.Helper()
	c := &checkout{t: t, dir: t.TempDir()}
	c.env = append(os.Environ(),
		"COUNTERSIGN_STATE_DIR="+built.state, "COUNTERSIGN_CONFIG_DIR="+filepath.Join(built.dir, "config"),
		"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=tester", "GIT_AUTHOR_EMAIL=t@example.com", "GIT_COMMITTER_NAME=tester", "GIT_COMMITTER_EMAIL=t@example.com")
	c.git("init", "-q", "-b", "main")
	c.write(files)
	c.git("add", "-A")
	c.git("commit", "-q", "--allow-empty", "-m", "start")
	return c
}

func (c *checkout) write(files map[string]string) {
	c.t.Helper()
	for name, text := range files {
		mode := os.FileMode(0o644)
		if exec := strings.TrimSuffix(name, "*"); exec != name {
			name, mode = exec, 0o755
		}
		path := filepath.Join(c.dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), mode)); err != nil {
			c.t.Fatal(err)
		}
	}
}

func (c *checkout) git(args ...string) string {
	c.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Env = c.dir, c.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		c.t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// result is what one command line printed and how it ended.
type result struct {
	code           int
	stdout, stderr string
	outcome        contract.Outcome // with --json
}

func (c *checkout) command(args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(built.dir, "countersign"), args...)
	cmd.Dir, cmd.Env = c.dir, c.env
	return cmd
}

// exec runs one command line of the real binary.
func (c *checkout) exec(args ...string) result {
	c.t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := c.command(args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		c.t.Fatal(err)
	}
	code := cmd.ProcessState.ExitCode()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		code = 128 + int(status.Signal())
	}
	return result{code: code, stdout: stdout.String(), stderr: stderr.String()}
}

// run is `countersign run --json args`; args has the "--".
func (c *checkout) run(args ...string) result {
	c.t.Helper()
	r := c.exec(append([]string{"run", "--json"}, args...)...)
	if err := json.Unmarshal([]byte(r.stdout), &r.outcome); err != nil {
		c.t.Fatalf("standard output is not one JSON object: %v\n%s\n%s", err, r.stdout, r.stderr)
	}
	return r
}

// sh runs a shell text sealed, under the given policy text ("" for the
// built-in one).
func (c *checkout) sh(policy, script string) result {
	c.t.Helper()
	args := []string{}
	if policy != "" {
		path := filepath.Join(c.t.TempDir(), "policy.yml")
		if err := os.WriteFile(path, []byte(policy), 0o644); err != nil {
			c.t.Fatal(err)
		}
		args = append(args, "--policy", path)
	}
	return c.run(append(args, "--", "/bin/sh", "-c", script)...)
}

func (r result) file(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(r.outcome.Evidence, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// leftovers are the containers, volumes and run directories of the runs in
// this package's state directory.
func leftovers(t *testing.T) []string {
	t.Helper()
	var left []string
	for _, args := range [][]string{
		{"ps", "-a", "--filter", "label=countersign.managed", "--format", `{{.Label "countersign.rundir"}} {{.Names}}`},
		{"volume", "ls", "--filter", "label=countersign.managed", "--format", `{{.Label "countersign.rundir"}} {{.Name}}`},
	} {
		out, err := exec.Command("docker", args...).Output()
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(out)) {
			if strings.HasPrefix(line, built.state+"/") {
				left = append(left, strings.TrimSpace(line))
			}
		}
	}
	for _, claims := range []string{"run_*", "warm_*"} {
		dirs, err := filepath.Glob(filepath.Join(built.state, claims))
		if err != nil {
			t.Fatal(err)
		}
		left = append(left, dirs...)
	}
	return left
}

func dockerOutput(args ...string) (string, error) {
	out, err := exec.Command("docker", args...).Output()
	return string(out), err
}
