package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/countersign-dev/countersign/runner/redact"
)

// localSecrets are the sources of a run at a terminal, by scheme. warn says what
// a person should mend.
func localSecrets(warn func(format string, args ...any)) map[string]secretSource {
	return map[string]secretSource{"file": fileSecrets{warn}, "env": envSecrets{os.LookupEnv}}
}

// fixedLease is a value that its source cannot take back.
type fixedLease struct{ value *redact.Secret }

func (l fixedLease) Value() *redact.Secret { return l.value }

// Revoke forgets the value.
func (l fixedLease) Revoke(context.Context) error {
	l.value.Zero()
	return nil
}

// newFixedLease takes a copy of value and clears it. One line break at its end is
// the file's or the shell's, not the secret's.
func newFixedLease(value []byte) (secretLease, error) {
	defer clear(value)
	trimmed := bytes.TrimSuffix(value, []byte("\n"))
	if len(trimmed) < len(value) {
		trimmed = bytes.TrimSuffix(trimmed, []byte("\r"))
	}
	if len(trimmed) == 0 {
		return nil, errors.New("is empty")
	}
	return fixedLease{redact.NewSecret(trimmed)}, nil
}

// fileSecrets reads file:///ABSOLUTE/PATH, taken as it is written, without
// percent-encoding. Links are followed, because mounted secrets are links; what
// is there must be a regular file.
type fileSecrets struct {
	warn func(format string, args ...any)
}

func (s fileSecrets) Lease(_ context.Context, ref string) (secretLease, error) {
	path := strings.TrimPrefix(ref, "file://")
	if !filepath.IsAbs(path) || filepath.Clean(path) != path {
		return nil, fmt.Errorf("%s is not file:// and an absolute path in its one spelling, such as file:///run/keys/model", ref)
	}
	// Nothing waits for somebody to open the other end of a pipe.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, fmt.Errorf("reading it: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("reading it: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	if info.Mode().Perm()&0o004 != 0 {
		s.warn("everybody on this machine can read the secret in %s: chmod 600 it", path)
	}
	value, err := io.ReadAll(io.LimitReader(f, maxSecretBytes+1))
	if err != nil {
		return nil, fmt.Errorf("reading it: %w", err)
	}
	if len(value) > maxSecretBytes {
		return nil, fmt.Errorf("%s has more than %d bytes", path, maxSecretBytes)
	}
	lease, err := newFixedLease(value)
	if err != nil {
		return nil, fmt.Errorf("%s %w", path, err)
	}
	return lease, nil
}

// envSecrets reads env://NAME from this program's own environment.
type envSecrets struct {
	lookup func(name string) (string, bool)
}

func (s envSecrets) Lease(_ context.Context, ref string) (secretLease, error) {
	name := strings.TrimPrefix(ref, "env://")
	value, ok := s.lookup(name)
	if !ok {
		return nil, fmt.Errorf("the environment has no %s: set it where countersign is started, and export it", name)
	}
	if len(value) > maxSecretBytes {
		return nil, fmt.Errorf("%s has more than %d bytes", name, maxSecretBytes)
	}
	lease, err := newFixedLease([]byte(value))
	if err != nil {
		return nil, fmt.Errorf("the variable %s %w", name, err)
	}
	return lease, nil
}
