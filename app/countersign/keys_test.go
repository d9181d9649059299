package main

import (
	"crypto/ed25519"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/countersign-dev/countersign/policy/ledger"
)

func TestKeyIsMadeOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	first, public, err := loadOrCreateKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	again, samePublic, err := loadOrCreateKey(dir)
	if err != nil || !again.Equal(first) || string(samePublic) != string(public) {
		t.Errorf("the second call gives another key: %v", err)
	}
	info, err := os.Stat(filepath.Join(dir, keyFile))
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("the key file is %v, %v; want 0600", info.Mode(), err)
	}
	text, err := os.ReadFile(filepath.Join(dir, publicFile))
	if err != nil || string(text) != string(public) {
		t.Errorf("the public key beside it is %q, %v", text, err)
	}
	keys, err := ledger.ParsePublicKeys(text)
	if err != nil || !keys[0].Equal(first.Public().(ed25519.PublicKey)) {
		t.Errorf("the public key is not the private one's: %v", err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 2 {
		t.Errorf("%d files are left, want the two keys", len(entries))
	}
}

func TestKeyOfManyAtOnce(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	keys := make([]signingKey, 16)
	for i := range keys {
		wg.Add(1)
		go func() {
			defer wg.Done()
			var err error
			if keys[i], _, err = loadOrCreateKey(dir); err != nil {
				t.Error(err)
			}
		}()
	}
	wg.Wait()
	for i := range keys {
		if !keys[i].Equal(keys[0]) {
			t.Fatalf("caller %d has another key", i)
		}
	}
}

func TestKeyFileIsRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(path string) error
		want string
	}{
		{"readable by the group", func(p string) error { return os.Chmod(p, 0o640) }, "chmod 600"},
		{"writable by others", func(p string) error { return os.Chmod(p, 0o602) }, "chmod 600"},
		{"a link", func(p string) error {
			if err := os.Rename(p, p+".real"); err != nil {
				return err
			}
			return os.Symlink(p+".real", p)
		}, "symbolic link"},
		{"a directory", func(p string) error {
			if err := os.Remove(p); err != nil {
				return err
			}
			return os.Mkdir(p, 0o700)
		}, "not a regular file"},
		{"no key", func(p string) error { return os.WriteFile(p, []byte("x"), 0o600) }, "move the file away"},
		{"large", func(p string) error { return os.WriteFile(p, make([]byte, maxKeyFile+1), 0o600) }, "larger than a key"},
	} {
		dir := t.TempDir()
		if _, _, err := loadOrCreateKey(dir); err != nil {
			t.Fatal(err)
		}
		if err := c.make(filepath.Join(dir, keyFile)); err != nil {
			t.Fatal(err)
		}
		if _, _, err := loadOrCreateKey(dir); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want …%s…", c.name, err, c.want)
		}
	}
}

func TestKeyOfAnotherUserIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Log("only root can give a file away")
		return
	}
	dir := t.TempDir()
	if _, _, err := loadOrCreateKey(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(filepath.Join(dir, keyFile), 12345, 12345); err != nil {
		t.Fatal(err)
	}
	if _, _, err := loadOrCreateKey(dir); err == nil || !strings.Contains(err.Error(), "belongs to another user") {
		t.Errorf("got %v", err)
	}
}
