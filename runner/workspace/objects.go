package workspace

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// treeEntry is one leaf of a git tree.
type treeEntry struct {
	path string
	mode uint32
	oid  string
	size int64 // of a blob
}

// parseTree reads the output of `git ls-tree -z -l`.
func parseTree(b []byte) ([]treeEntry, error) {
	var entries []treeEntry
	for len(b) > 0 {
		rec, rest, ok := bytes.Cut(b, []byte{0})
		meta, path, tab := strings.Cut(string(rec), "\t")
		f := strings.Fields(meta)
		if !ok || !tab || len(f) != 4 {
			return nil, fmt.Errorf("git ls-tree: unexpected record %q", clip(string(rec)))
		}
		b = rest
		mode, err := strconv.ParseUint(f[0], 8, 32)
		if err != nil {
			return nil, fmt.Errorf("git ls-tree: unexpected mode %q", f[0])
		}
		e := treeEntry{path: path, mode: uint32(mode), oid: f[2]}
		if f[1] == "blob" {
			if e.size, err = strconv.ParseInt(f[3], 10, 64); err != nil {
				return nil, &missing{e.oid}
			}
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// canonical is the mode that an index keeps for one in a tree: old versions of
// git wrote others.
func canonical(mode uint32) uint32 {
	switch {
	case mode&0o170000 != 0o100000:
		return mode
	case mode&0o100 != 0:
		return modeExec
	}
	return modeFile
}

// tree lists all leaves of a tree in git's order.
func (g git) tree(ctx context.Context, id string) ([]treeEntry, error) {
	var out bytes.Buffer
	if err := g.run(ctx, gitCall{args: []string{"ls-tree", "-r", "-z", "-l", "--full-tree", id}, stdout: &out}); err != nil {
		return nil, err
	}
	return parseTree(out.Bytes())
}

// initBare makes a bare repository by hand: no template, no hook, no ref, a
// HEAD that names nothing (so that no version of git takes attributes from
// it), and the objects of others beside its own.
func initBare(dir string, oidLen int, alternates ...string) error {
	for _, d := range []string{"objects/pack", "objects/info", "refs", "info"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			return err
		}
	}
	files := map[string]string{
		"HEAD":   "ref: refs/heads/none\n",
		"config": bareConfig(oidLen, true, ""),
	}
	var b strings.Builder
	for _, a := range alternates {
		if strings.ContainsAny(a, "\n\r") {
			return fmt.Errorf("the path %q has a line break, which git's list of object directories cannot hold", a)
		}
		if strings.HasPrefix(a, `"`) || strings.HasPrefix(a, "#") || !filepath.IsAbs(a) {
			return fmt.Errorf("object directory %q is not an absolute path", a)
		}
		b.WriteString(a + "\n")
	}
	if b.Len() > 0 {
		files["objects/info/alternates"] = b.String()
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// bareConfig is the configuration of a repository of ours.
func bareConfig(oidLen int, bare bool, more string) string {
	version, ext := 0, ""
	if oidLen == 32 {
		version, ext = 1, "[extensions]\n\tobjectformat = sha256\n"
	}
	return fmt.Sprintf("[core]\n\trepositoryformatversion = %d\n\tfilemode = true\n\tbare = %t\n%s%s", version, bare, ext, more)
}

// writeTree makes a tree of leaves through a scratch index, so that git's own
// rules for names hold. Objects must be there, except with missingOK.
func (g git) writeTree(ctx context.Context, entries []treeEntry, missingOK bool) (string, error) {
	index, err := scratchIndex(g.dir)
	if err != nil {
		return "", err
	}
	defer os.Remove(index)
	if err := g.fillIndex(ctx, index, entries); err != nil {
		return "", err
	}
	return g.indexTree(ctx, index, missingOK)
}

// scratchIndex names an index file that does not exist yet.
func scratchIndex(dir string) (string, error) {
	f, err := os.CreateTemp(dir, "index-")
	if err != nil {
		return "", err
	}
	f.Close()
	// An empty file is no index; a missing one is an empty index.
	return f.Name(), os.Remove(f.Name())
}

func (g git) fillIndex(ctx context.Context, index string, entries []treeEntry) error {
	sorted := slices.SortedFunc(slices.Values(entries), func(a, b treeEntry) int { return cmp.Compare(a.path, b.path) })
	var in bytes.Buffer
	for _, e := range sorted {
		fmt.Fprintf(&in, "%o %s\t%s\x00", e.mode, e.oid, e.path)
	}
	return g.run(ctx, gitCall{
		args: []string{"update-index", "-z", "--index-info"}, stdin: &in, env: []string{"GIT_INDEX_FILE=" + index},
	})
}

func (g git) indexTree(ctx context.Context, index string, missingOK bool) (string, error) {
	args := []string{"write-tree"}
	if missingOK {
		args = append(args, "--missing-ok")
	}
	id, err := g.lineOf(ctx, gitCall{args: args, env: []string{"GIT_INDEX_FILE=" + index}})
	if err == nil && !isOID(id) {
		err = errors.New("git write-tree: unexpected answer " + strconv.Quote(id))
	}
	return id, err
}

// rawOID are the bytes of an object id that git gave.
func rawOID(id string) []byte {
	b, err := hex.DecodeString(id)
	if err != nil {
		panic("unreachable: an object id of ours is not hexadecimal")
	}
	return b
}

// oidOf is the object id that git gives a blob of these contents.
func oidOf(oidLen int, b []byte) string {
	h := newHash(oidLen)
	h.Write(blobHeader(int64(len(b))))
	h.Write(b)
	return fmt.Sprintf("%x", h.Sum(nil))
}
