package shim

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/runner/shim/protocol"
)

func TestPlaceSecrets(t *testing.T) {
	dir := t.TempDir()
	data := []byte("hunter2\n")
	if err := placeSecrets(dir, []protocol.SecretFile{{Name: "npm.token", Data: data}, {Name: "empty"}}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"npm.token": "hunter2\n", "empty": ""} {
		path := filepath.Join(dir, name)
		info, err := os.Lstat(path)
		if err != nil || info.Mode() != 0o400 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
		if got := fileOf(t, path); string(got) != want {
			t.Errorf("%s holds %q", name, got)
		}
	}
	if strings.Trim(string(data), "\x00") != "" {
		t.Errorf("the shim still has %q", data)
	}
}

// What is there already, a link above all, is not written to, and the error
// says nothing of the secret.
func TestPlaceSecretsReplacesNothing(t *testing.T) {
	dir := t.TempDir()
	target := filepath.Join(dir, "target")
	if err := os.Symlink(target, filepath.Join(dir, "key")); err != nil {
		t.Fatal(err)
	}
	data := []byte("hunter2")
	err := placeSecrets(dir, []protocol.SecretFile{{Name: "key", Data: data}})
	if err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "key") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Lstat(target); err == nil {
		t.Error("a link was followed")
	}
	if strings.Trim(string(data), "\x00") != "" {
		t.Errorf("after a fault the shim still has %q", data)
	}
}
