package main

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/countersign-dev/countersign/policy/ledger"
)

// signingKey signs the statements of this user's runs.
type signingKey = ed25519.PrivateKey

// Names of the key's files in the configuration directory. The public one is
// for others, to be given to `countersign verify --key`.
const (
	keyFile    = "signing-key.pem"
	publicFile = "signing-key.pub.pem"
	maxKeyFile = 4096
)

// loadOrCreateKey returns the signing key in dir and its public key as PEM. On
// first use it makes both; of several processes that do so at once one wins,
// and all get its key. A key file that others could have read or written, a
// link, or one that another user owns is refused.
func loadOrCreateKey(dir string) (signingKey, []byte, error) {
	path := filepath.Join(dir, keyFile)
	text, err := readKeyFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = createKeyFile(dir, path); err == nil {
			text, err = readKeyFile(path)
		}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("loading signing key: %w", err)
	}
	key, err := ledger.ParsePrivateKey(text)
	if err != nil {
		return nil, nil, fmt.Errorf("loading signing key %s: %v; move the file away to have a new one made", path, err)
	}
	public, err := ledger.EncodePublicKey(key.Public().(ed25519.PublicKey))
	if err == nil {
		err = publish(dir, public)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("loading signing key: %w", err)
	}
	return key, public, nil
}

func readKeyFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ELOOP) {
		return nil, fmt.Errorf("%s is a symbolic link; put the key itself there", path)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file", path)
	case info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("%s can be used by others (mode %04o); if nobody else had it, run: chmod 600 %s", path, info.Mode().Perm(), path)
	case !ok || int(owner.Uid) != os.Geteuid():
		return nil, fmt.Errorf("%s belongs to another user", path)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	if err == nil && len(text) > maxKeyFile {
		err = fmt.Errorf("%s is larger than a key", path)
	}
	return text, err
}

// createKeyFile writes a new key beside path and links it there, which fails,
// and changes nothing, when another process was faster.
func createKeyFile(dir, path string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	key, err := ledger.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	text, err := ledger.EncodePrivateKey(key)
	if err != nil {
		return err
	}
	temp, err := writeTemp(dir, text, 0o600)
	if err != nil {
		return err
	}
	defer os.Remove(temp)
	if err := os.Link(temp, path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncDir(dir)
}

// publish keeps the public key's file in step with the private one.
func publish(dir string, public []byte) error {
	path := filepath.Join(dir, publicFile)
	if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, public) {
		return nil
	}
	temp, err := writeTemp(dir, public, 0o644)
	if err != nil {
		return err
	}
	if err := os.Rename(temp, path); err != nil {
		os.Remove(temp)
		return err
	}
	return syncDir(dir)
}

// writeTemp makes a file that only this user can read until it has its mode and
// its contents are on disk.
func writeTemp(dir string, text []byte, mode os.FileMode) (string, error) {
	f, err := os.CreateTemp(dir, ".key-*") // 0600
	if err != nil {
		return "", err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err != nil {
		os.Remove(f.Name())
		return "", err
	}
	return f.Name(), nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
