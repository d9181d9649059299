package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// bench is one measuring session in a directory of its own.
type bench struct {
	ctx    context.Context
	pairs  int
	bytes  int64  // of a transfer through the way out
	dir    string // short: a socket's path is bounded
	bin    string // directory of both programs
	repo   string // with one small commit
	env    []string
	made   int // runs, for the names of their evidence
	met    int
	missed []string
}

func newBench(ctx context.Context, pairs int) (*bench, error) {
	bin, err := filepath.Abs("bin")
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(bin, "countersign-shim")); err != nil {
		return nil, fmt.Errorf("there is no bin/countersign-shim below the current directory: run make bench")
	}
	dir, err := os.MkdirTemp("", "csb")
	if err != nil {
		return nil, err
	}
	b := &bench{ctx: ctx, pairs: max(3, pairs), dir: dir, bin: bin, repo: filepath.Join(dir, "repo")}
	b.env = append(os.Environ(),
		"COUNTERSIGN_STATE_DIR="+filepath.Join(dir, "s"), "COUNTERSIGN_CONFIG_DIR="+filepath.Join(dir, "config"),
		"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=bench", "GIT_AUTHOR_EMAIL=b@example.com", "GIT_COMMITTER_NAME=bench", "GIT_COMMITTER_EMAIL=b@example.com")
	err = b.git(nil, "init", "-q", "-b", "main", b.repo)
	if err == nil {
		err = os.WriteFile(filepath.Join(b.repo, "a.txt"), []byte("hello\n"), 0o644)
	}
	err = errors.Join(err, b.git(nil, "-C", b.repo, "add", "-A"), b.git(nil, "-C", b.repo, "commit", "-q", "-m", "start"))
	if err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

func (b *bench) close() {
	if err := os.RemoveAll(b.dir); err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
	}
}

func (b *bench) git(stdin io.Reader, args ...string) error {
	_, err := b.command(stdin, "git", args...)
	return err
}

// command runs a program and returns how long it took.
func (b *bench) command(stdin io.Reader, name string, args ...string) (time.Duration, error) {
	cmd := exec.CommandContext(b.ctx, name, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // a run then clears up
	cmd.WaitDelay = time.Minute
	var out bytes.Buffer
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = b.env, stdin, &out, &out
	begun := time.Now()
	err := cmd.Run()
	took := time.Since(begun)
	if err != nil {
		return took, fmt.Errorf("%s %s: %v: %s", name, strings.Join(args[:min(len(args), 4)], " "), err, bytes.TrimSpace(out.Bytes()))
	}
	return took, nil
}

// output runs a program and returns what it printed, without the space around.
func (b *bench) output(name string, args ...string) (string, error) {
	cmd := exec.CommandContext(b.ctx, name, args...)
	cmd.Env = b.env
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %v", name, args[0], err)
	}
	return strings.TrimSpace(string(out)), nil
}

// sealedRun is one run under countersign.
type sealedRun struct {
	took   time.Duration
	stages map[string]time.Time // of the first record of each type in the ledger
	last   map[string]time.Time // of the last
	output string
}

// sealed runs a command under countersign; flags come before the command.
func (b *bench) sealed(repo string, flags []string, argv ...string) (sealedRun, error) {
	b.made++
	dir := filepath.Join(b.dir, fmt.Sprintf("e%d", b.made))
	defer os.RemoveAll(dir)
	args := slices.Concat([]string{"run", "--repo", repo, "--evidence", dir}, flags, []string{"--"}, argv)
	var r sealedRun
	var err error
	if r.took, err = b.command(nil, filepath.Join(b.bin, "countersign"), args...); err != nil {
		return r, err
	}
	output, err := os.ReadFile(filepath.Join(dir, "output.log"))
	if err != nil {
		return r, err
	}
	r.output = strings.TrimSpace(string(output))
	if r.stages, r.last, err = readStages(filepath.Join(dir, "ledger.jsonl")); err != nil {
		return r, err
	}
	return r, nil
}

func readStages(path string) (first, last map[string]time.Time, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	first, last = map[string]time.Time{}, map[string]time.Time{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var r struct {
			Type string
			Time time.Time
		}
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, nil, err
		}
		if _, seen := first[r.Type]; !seen {
			first[r.Type] = r.Time
		}
		last[r.Type] = r.Time
	}
	return first, last, nil
}

// inTurn calls ours and theirs n times in turn, the first of each being thrown
// away, and returns the medians of both and of the ratios of the pairs.
func inTurn(n int, ours, theirs func() (float64, error)) (our, their, ratio float64, err error) {
	var o, t, r []float64
	for i := range n + 1 {
		x, err := ours()
		if err != nil {
			return 0, 0, 0, err
		}
		y, err := theirs()
		if err != nil {
			return 0, 0, 0, err
		}
		if i > 0 {
			o, t, r = append(o, x), append(t, y), append(r, x/y)
		}
	}
	return median(o), median(t), median(r), nil
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
