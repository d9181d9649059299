package ledger

import (
	"context"
	"crypto"
	"crypto/ed25519"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// dsseVerifier lets the DSSE project's code check our signatures.
type dsseVerifier struct {
	key ed25519.PublicKey
	id  string
}

func (v dsseVerifier) KeyID() (string, error)   { return v.id, nil }
func (v dsseVerifier) Public() crypto.PublicKey { return v.key }
func (v dsseVerifier) Verify(_ context.Context, data, sig []byte) error {
	if !ed25519.Verify(v.key, data, sig) {
		return errors.New("bad signature")
	}
	return nil
}

func TestFilesOf(t *testing.T) {
	got, err := FilesOf(fstest.MapFS{
		"changes.patch":     {Data: []byte("")},
		"contracts/1.json":  {Data: []byte("abc")},
		FileEvidence:        {Data: []byte("not counted")},
		"inputs/policy.yml": {Data: []byte("")},
	})
	const empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	want := map[string]string{
		"changes.patch":     empty,
		"contracts/1.json":  "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
		"inputs/policy.yml": empty,
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v, -want +got:\n%s", err, diff)
	}
}

func TestFilesOfRefuses(t *testing.T) {
	many := fstest.MapFS{}
	for i := range MaxFiles + 1 {
		many[strconv.Itoa(i)] = &fstest.MapFile{}
	}
	for _, c := range []struct {
		name string
		fsys fs.FS
		want string
	}{
		{"a link", fstest.MapFS{"output.log": {Mode: fs.ModeSymlink, Data: []byte("spec.json")}, "spec.json": {}}, "output.log is not a regular"},
		{"a link as evidence", fstest.MapFS{FileEvidence: {Mode: fs.ModeSymlink, Data: []byte("spec.json")}}, "evidence.json is not a regular"},
		{"a pipe", fstest.MapFS{"p": {Mode: fs.ModeNamedPipe}}, "p is not a regular"},
		{"a hostile name", fstest.MapFS{"a\x1b": {Mode: fs.ModeNamedPipe}}, `a\x1b is not`},
		{"many files", many, "more than"},
	} {
		if _, err := FilesOf(c.fsys); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want …%s…", c.name, err, c.want)
		}
	}
}

func TestFilesOfARealDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a"), []byte("abc"), 0o600); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if got, err := FilesOf(root.FS()); err != nil || len(got) != 1 {
		t.Errorf("FilesOf = %v, %v", got, err)
	}
	if err := os.Symlink("/etc/hostname", filepath.Join(dir, "b")); err != nil {
		t.Fatal(err)
	}
	if got, err := FilesOf(root.FS()); err == nil {
		t.Errorf("a link was followed: %v", got)
	}
}
