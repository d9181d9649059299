package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
)

// Store is one run's private object store, beside the user's repository and
// never in it. It holds bare repositories made by hand:
//
//	start.git   what of the start tree the user's repository does not have
//	send.git    exactly the objects of the delivered tree, one pack
//	result.git  what came back
//
// start.git reads the user's objects as alternates; result.git reads both.
// A Store is used by one goroutine at a time.
type Store struct {
	dir    string
	from   *Repo
	oidLen int
	start  git
	send   git
	result git
	serial atomic.Int64
}

// NewStore makes the store in dir, which is created, or must be empty. The
// caller keeps dir private (mode 0700) and removes it.
func NewStore(ctx context.Context, dir string, from *Repo) (*Store, error) {
	s, err := newStore(ctx, dir, from)
	if err != nil {
		return nil, fmt.Errorf("making object store: %w", err)
	}
	return s, nil
}

func newStore(ctx context.Context, dir string, from *Repo) (*Store, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(abs, 0o700); err != nil {
		return nil, err
	}
	if names, err := os.ReadDir(abs); err != nil || len(names) > 0 {
		return nil, errors.Join(err, fmt.Errorf("%s is not empty", abs))
	}
	s := &Store{dir: abs, from: from}
	switch from.format {
	case "sha1":
		s.oidLen = 20
	case "sha256":
		s.oidLen = 32
	default:
		return nil, fmt.Errorf("object format %q is not supported", from.format)
	}
	for _, r := range []struct {
		g          *git
		name       string
		alternates []string
	}{
		{&s.start, "start.git", []string{filepath.Join(from.CommonDir, "objects")}},
		{&s.send, "send.git", nil},
		{&s.result, "result.git", []string{filepath.Join(abs, "start.git", "objects"), filepath.Join(from.CommonDir, "objects")}},
	} {
		*r.g = git{from.git.bin, filepath.Join(abs, r.name)}
		if err := initBare(r.g.dir, s.oidLen, r.alternates...); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// scratch names a path in the store that is not used yet.
func (s *Store) scratch(what string) string {
	return filepath.Join(s.dir, what+"-"+strconv.FormatInt(s.serial.Add(1), 10))
}
