package workspace

import (
	"errors"
	"fmt"
	"strings"
)

// CheckPath says whether p can name something inside a tree: relative, no empty
// part, no "." or "..", no NUL, at most [MaxPath] bytes and [MaxDepth]
// directories. It says nothing about whether git would take the name.
func CheckPath(p string) error {
	switch {
	case p == "":
		return errors.New("empty path")
	case len(p) > MaxPath:
		return fmt.Errorf("path of %d bytes, more than %d", len(p), MaxPath)
	case strings.IndexByte(p, 0) >= 0:
		return fmt.Errorf("path %q holds a NUL", clip(p))
	case strings.Count(p, "/") > MaxDepth:
		return fmt.Errorf("path %q is more than %d directories deep", clip(p), MaxDepth)
	}
	for part := range strings.SplitSeq(p, "/") {
		switch {
		case part == "":
			return fmt.Errorf("path %q has an empty part", clip(p))
		case part == "." || part == "..":
			return fmt.Errorf("path %q leaves its directory", clip(p))
		case len(part) > 255:
			return fmt.Errorf("path %q has a name of more than 255 bytes", clip(p))
		}
	}
	return nil
}

// ComparePaths orders paths part by part, so that what lies in a directory
// follows at once after the directory's own name: the order a depth-first walk
// with sorted names visits them in. Two paths where one lies under the other
// are therefore neighbours, which is how conflicts are found.
func ComparePaths(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if x, y := a[i], b[i]; x != y {
			switch {
			case x == '/':
				return -1
			case y == '/':
				return 1
			case x < y:
				return -1
			}
			return 1
		}
	}
	return len(a) - len(b)
}

// within says whether p is dir or lies under it.
func within(p, dir string) bool {
	return strings.HasPrefix(p, dir) && (len(p) == len(dir) || p[len(dir)] == '/')
}

// clip shortens a path for a message.
func clip(p string) string {
	if len(p) > 200 {
		return p[:200] + "…"
	}
	return p
}

// refusedName says whether git refuses a path with this name as a part of it on
// some system that people check repositories out on: what HFS+ or NTFS would
// take for ".git", and as a link what they would take for ".gitmodules". It
// refuses a little more than git does, so that git itself never has to.
// https://git-scm.com/docs/git-config, core.protectHFS and core.protectNTFS.
func refusedName(name string, link bool) bool {
	// NTFS takes a backslash for a separator and drops trailing dots, spaces
	// and streams.
	for part := range strings.SplitSeq(strings.ToLower(dropIgnorable(name)), `\`) {
		part, _, _ = strings.Cut(part, ":")
		part = strings.TrimRight(part, " .")
		if part == ".git" || part == "git~1" {
			return true
		}
		if link && (strings.HasPrefix(part, ".gitmodules") || strings.HasPrefix(part, "gi") && strings.Contains(part, "~")) {
			return true
		}
	}
	return false
}

// dropIgnorable removes the code points that HFS+ ignores in names.
func dropIgnorable(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 0x200c && r <= 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x206a && r <= 0x206f, r == 0xfeff:
			return -1
		}
		return r
	}, name)
}

// refusedPath applies refusedName to every part of a path.
func refusedPath(p string, link bool) bool {
	for part := range strings.SplitSeq(p, "/") {
		if refusedName(part, link) {
			return true
		}
	}
	return false
}
