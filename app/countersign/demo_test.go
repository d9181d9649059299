package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestDemo(t *testing.T) {
	needDocker(t)
	c := newCheckout(t, nil)
	tmp := t.TempDir()
	c.env = append(c.env, "TMPDIR="+tmp)
	r := c.exec("demo")
	if r.code != 0 {
		t.Fatalf("demo ended with %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	for _, want := range []string{
		fmt.Sprintf("%d attempts, all refused", demoAttempts),
		"+| tablespoon | 15 |",
		"\nverified: signed by ",
		"\nFAIL  file output.log: was changed",
		"countersign: elsewhere.example.com:443 is not in this run's contract",
		"\ncurl ended with 35\n",
		"the container engine's, which no run is ever given",
	} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("demo does not show %q\n%s", want, r.stdout)
		}
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("demo left %v behind (%v)", left, err)
	}
}

func TestDemoKeeps(t *testing.T) {
	needDocker(t)
	c := newCheckout(t, nil)
	tmp := t.TempDir()
	c.env = append(c.env, "TMPDIR="+tmp)
	if r := c.exec("demo", "--keep"); r.code != 0 {
		t.Fatalf("demo ended with %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	kept, err := filepath.Glob(filepath.Join(tmp, "countersign-demo-*", "evidence", "evidence.json"))
	if err != nil || len(kept) != 1 {
		t.Fatalf("demo kept %v (%v)", kept, err)
	}
	if r := c.exec("verify", filepath.Dir(kept[0])); r.code != 0 {
		t.Errorf("what demo kept does not verify: %d\n%s", r.code, r.stdout)
	}
}

// The engine is out of reach: the demo says so with the status of a sandbox
// that could not be had.
func TestDemoWithoutEngine(t *testing.T) {
	c := newCheckout(t, nil)
	c.env = append(c.env, "DOCKER_HOST=unix:///nonexistent/docker.sock")
	r := c.exec("demo")
	if r.code != 125 || !strings.Contains(r.stdout+r.stderr, "/nonexistent/docker.sock") {
		t.Errorf("demo ended with %d: want 125 and the engine's address\n%s%s", r.code, r.stdout, r.stderr)
	}
}

func TestCountAttempts(t *testing.T) {
	refused, succeeded := countAttempts(strings.NewReader(
		"OK\nrefused    look up a name  no route\nSUCCEEDED  become root\nrefusedly\nrefused    talk to Docker  none"))
	if refused != 2 || !slices.Equal(succeeded, []string{"become root"}) {
		t.Errorf("got %d refused and %q succeeded: want 2 and become root", refused, succeeded)
	}
}

// Every attempt of the embedded program is waited for.
func TestDemoAttempts(t *testing.T) {
	text, err := demoFiles.ReadFile("demo/probe")
	if err != nil {
		t.Fatal(err)
	}
	list, _, _ := strings.Cut(string(text[strings.Index(string(text), "ATTEMPTS = ["):]), "\n]\n")
	if n := strings.Count(list, "\n    (\""); n != demoAttempts {
		t.Errorf("the probe makes %d attempts: want %d", n, demoAttempts)
	}
}

func TestMainFields(t *testing.T) {
	show := mainFields()
	var got []string
	for _, line := range []string{"├─ argv     make test", "│    · asked", "├─ image    x", "│    · profile test", "├─ imagery  y", "└─ level    L1", "     · may write"} {
		if show(line) {
			got = append(got, line)
		}
	}
	want := []string{"├─ image    x", "│    · profile test", "└─ level    L1", "     · may write"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
