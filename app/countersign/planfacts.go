package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/countersign-dev/countersign/policy/contract"
)

// Bounds of what a plan reads.
const (
	maxHashed   = 4 << 30 // bytes of one file
	maxNamed    = 256     // files that the words of one command name
	shebangSize = 256     // BINPRM_BUF_SIZE, binfmts.h
	maxShebangs = 4       // interpreters of interpreters, as execve(2) allows
)

// lookup finds files as execve and the shell would, from a directory and a PATH
// that are given.
type lookup struct {
	cwd  string
	path string
}

func resolveDir(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	if err != nil {
		return "", fmt.Errorf("resolving --cwd: %v", err)
	}
	if info, err := os.Stat(abs); err != nil || !info.IsDir() {
		return "", fmt.Errorf("resolving --cwd: %s is not a directory", abs)
	}
	return abs, nil
}

// program resolves argv[0] and digests its file.
func (l lookup) program(name string) (contract.Interpreter, error) {
	path, err := l.find(name)
	if err != nil {
		return contract.Interpreter{}, err
	}
	digest, err := hashFile(path)
	if err != nil {
		return contract.Interpreter{}, err
	}
	return contract.Interpreter{Path: path, Digest: digest}, nil
}

// find returns the resolved path of a program. Elements of PATH that are empty
// or relative count from the directory, as they do for execvp(3).
func (l lookup) find(name string) (string, error) {
	candidates := []string{l.abs(name)}
	if !strings.Contains(name, "/") {
		candidates = nil
		for _, dir := range filepath.SplitList(l.path) {
			candidates = append(candidates, filepath.Join(l.abs(dir), name))
		}
	}
	why := fmt.Errorf("finding %s: it is not on PATH", contract.Escape(name))
	for _, c := range candidates {
		err := executable(c)
		if err == nil {
			return filepath.EvalSymlinks(c)
		}
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			why = fmt.Errorf("finding %s: %v", contract.Escape(name), err)
		} else if strings.Contains(name, "/") {
			why = fmt.Errorf("finding %s: there is no such file", contract.Escape(name))
		}
	}
	return "", why
}

func (l lookup) abs(path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(l.cwd, path)
}

func executable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", contract.Escape(path))
	}
	if err := unix.Access(path, unix.X_OK); err != nil || info.Mode().Perm()&0o111 == 0 {
		return fmt.Errorf("%s is not executable", contract.Escape(path))
	}
	return nil
}

// words resolves every word that names a file: the program, the interpreters
// that scripts name in their first line, and arguments that exist as they stand.
func (l lookup) words(argv []string) ([]contract.ResolvedPath, error) {
	program, err := l.find(argv[0])
	if err != nil {
		return nil, err
	}
	found := []contract.ResolvedPath{{Word: argv[0], Path: program}}
	scripts, err := l.interpreters(program)
	if err != nil {
		return nil, err
	}
	found = append(found, scripts...)
	for _, word := range argv[1:] {
		if word == "" || strings.IndexByte(word, 0) >= 0 {
			continue
		}
		path, err := filepath.EvalSymlinks(l.abs(word))
		if err != nil {
			continue // it names no file
		}
		found = append(found, contract.ResolvedPath{Word: word, Path: path})
	}
	found = distinct(found)
	if len(found) > maxNamed {
		return nil, fmt.Errorf("the command names %d files, at most %d can be shown", len(found), maxNamed)
	}
	for i, r := range found {
		if info, err := os.Stat(r.Path); err != nil || !info.Mode().IsRegular() {
			continue
		}
		if found[i].Digest, err = hashFile(r.Path); err != nil {
			return nil, err
		}
	}
	return found, nil
}

func distinct(list []contract.ResolvedPath) []contract.ResolvedPath {
	seen := map[contract.ResolvedPath]bool{}
	var out []contract.ResolvedPath
	for _, r := range list {
		if !seen[r] {
			seen[r] = true
			out = append(out, r)
		}
	}
	return out
}

// interpreters follows #! lines as execve(2) does. Of `#!/usr/bin/env NAME` it
// also finds NAME, which is what will read the script.
func (l lookup) interpreters(script string) ([]contract.ResolvedPath, error) {
	var found []contract.ResolvedPath
	for range maxShebangs {
		line, err := shebang(script)
		if err != nil || line == "" {
			return found, err
		}
		path, arg := strings.TrimLeft(line, " \t"), ""
		if i := strings.IndexAny(path, " \t"); i >= 0 {
			path, arg = path[:i], strings.TrimSpace(path[i:])
		}
		next, err := l.find(l.abs(path)) // the kernel does not look at PATH
		if err != nil {
			return nil, fmt.Errorf("reading the first line of %s: %w", contract.Escape(script), err)
		}
		found = append(found, contract.ResolvedPath{Word: "#!" + line, Path: next})
		if filepath.Base(path) == "env" && arg != "" && !strings.ContainsAny(arg, " \t=") && arg[0] != '-' {
			named, err := l.find(arg)
			if err != nil {
				return nil, fmt.Errorf("reading the first line of %s: %w", contract.Escape(script), err)
			}
			found = append(found, contract.ResolvedPath{Word: arg, Path: named})
			next = named
		}
		script = next
	}
	return nil, fmt.Errorf("reading the first line of %s: more than %d interpreters name each other", contract.Escape(script), maxShebangs)
}

// shebang is the first line of a script without its #!, "" for another file.
func shebang(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	head, err := bufio.NewReaderSize(f, shebangSize).Peek(shebangSize)
	if err != nil && err != io.EOF {
		return "", err
	}
	text, ok := strings.CutPrefix(string(head), "#!")
	if !ok {
		return "", nil
	}
	line, _, _ := strings.Cut(text, "\n")
	return strings.TrimRight(line, " \t"), nil
}

// hashFile digests a regular file; it never waits on anything else.
func hashFile(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", fmt.Errorf("digesting file: %v", err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return "", fmt.Errorf("digesting file: %s is not a regular file", contract.Escape(path))
	}
	h := sha256.New()
	n, err := io.Copy(h, io.LimitReader(f, maxHashed+1))
	if err != nil {
		return "", fmt.Errorf("digesting file: %v", err)
	}
	if n > maxHashed {
		return "", fmt.Errorf("digesting file: %s is larger than %d bytes", contract.Escape(path), int64(maxHashed))
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), nil
}
