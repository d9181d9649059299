package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestVerifyFindsWhatWasChanged spoils the bundle of a real run, one way at a
// time, and puts it right again.
func TestVerifyFindsWhatWasChanged(t *testing.T) {
	needDocker(t)
	c := newCheckout(t, map[string]string{"a.txt": "one\n"})
	dir := filepath.Join(t.TempDir(), "evidence")
	if r := c.exec("run", "--evidence", dir, "--", "sh", "-c", "echo said; echo two >a.txt"); r.code != 0 {
		t.Fatalf("run ended with %d: %s", r.code, r.stderr)
	}
	key := filepath.Join(built.dir, "config", publicFile)
	verify := func(want int, line string, args ...string) {
		t.Helper()
		r := c.exec(append([]string{"verify", dir}, args...)...)
		if r.code != want || !strings.Contains(r.stdout, line) {
			t.Errorf("verify ended with %d, want %d and %q:\n%s%s", r.code, want, line, r.stdout, r.stderr)
		}
	}
	verify(0, "\nverified: signed by sha256:", "--key", key)
	verify(0, "\nconsistent, signer unknown")

	foreign := t.TempDir()
	if _, _, err := loadOrCreateKey(foreign); err != nil {
		t.Fatal(err)
	}
	verify(verifyFailed, "FAIL  signature: signed by another key", "--key", filepath.Join(foreign, publicFile))

	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		good, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		bad := bytes.Clone(good)
		bad[len(bad)/2] ^= 1
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			return err
		}
		verify(verifyFailed, "\nFAIL  ", "--key", key)
		if err := os.Remove(path); err != nil {
			return err
		}
		if filepath.Base(path) == "evidence.json" {
			verify(verifyIncomplete, "\nincomplete: ", "--key", key)
		} else {
			verify(verifyFailed, "\nFAIL  ", "--key", key)
		}
		return os.WriteFile(path, good, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	extra := filepath.Join(dir, "inputs", "extra")
	if err := os.WriteFile(extra, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	verify(verifyFailed, "FAIL  file inputs/extra: was added", "--key", key)
	if err := os.Remove(extra); err != nil {
		t.Fatal(err)
	}
	verify(0, "\nverified", "--key", key)
}
