package contract

import (
	"fmt"
	"path"
	"strings"
	"time"
	"unicode/utf8"
)

// Bounds of single values, in bytes. maxArg is the kernel's MAX_ARG_STRLEN
// (execve(2)); maxPath is PATH_MAX without its terminator.
const (
	maxArg  = 128<<10 - 1
	maxPath = 4095
	maxName = 256
)

// CheckObjectID refuses what is not a full git object id: 40 (SHA-1) or 64
// (SHA-256) lower-case hexadecimal digits, not all zero, which is git's word
// for none.
func CheckObjectID(s string) error {
	if len(s) != 40 && len(s) != 64 || !only(s, isLowerHex) {
		return fmt.Errorf("is %s, want a full object id of 40 or 64 lower-case hexadecimal digits", quote(s))
	}
	if strings.Trim(s, "0") == "" {
		return fmt.Errorf("is the null object id; name a commit")
	}
	return nil
}

// CheckRepoName refuses what is not owner/name, or for a local repository a
// bare name: letters, digits, hyphen, underscore, dot.
func CheckRepoName(s string) error {
	parts := strings.Split(s, "/")
	ok := len(parts) <= 2 && len(s) <= maxName
	for _, p := range parts {
		ok = ok && p != "" && p != "." && p != ".." && p[0] != '-' && only(p, isNameByte)
	}
	if !ok {
		return fmt.Errorf("is %s, want OWNER/NAME of letters, digits, hyphen, underscore and dot", quote(s))
	}
	return nil
}

// LocalRepoName makes a repository name from a directory's: what a name may not
// hold becomes a hyphen, and an empty rest "local".
func LocalRepoName(directory string) string {
	b := []byte(path.Base(directory))
	for i := range b {
		if !isNameByte(b[i]) {
			b[i] = '-'
		}
	}
	if name := strings.TrimLeft(string(b[:min(len(b), 100)]), "-."); name != "" {
		return name
	}
	return "local"
}

func isNameByte(b byte) bool { return isAlnum(b) || b == '-' || b == '_' || b == '.' }

// CheckRef refuses a branch or tag name that git check-ref-format(1) refuses.
func CheckRef(s string) error {
	bad := s == "" || len(s) > maxName || s == "@" || s[0] == '-' ||
		strings.HasSuffix(s, ".") || strings.Contains(s, "..") || strings.Contains(s, "@{") ||
		strings.ContainsAny(s, " ~^:?*[\\\x7f") || checkText(s, maxName) != nil
	for part := range strings.SplitSeq(s, "/") {
		bad = bad || part == "" || part[0] == '.' || strings.HasSuffix(part, ".lock")
	}
	if bad {
		return fmt.Errorf("is %s, want a branch name as git allows it", quote(s))
	}
	return nil
}

// CheckEnvName refuses what is not a portable name of an environment variable
// (POSIX XBD 3.216, lower case allowed).
func CheckEnvName(s string) error {
	if s == "" || len(s) > maxName || isDigit(s[0]) || !only(s, func(b byte) bool { return isAlnum(b) || b == '_' }) {
		return fmt.Errorf("is %s, want a variable's name of letters, digits and underscore", quote(s))
	}
	return nil
}

// CheckArg refuses what execve(2) or JSON cannot carry: a NUL, more than 128
// KiB, text that is not UTF-8.
func CheckArg(s string) error {
	if strings.IndexByte(s, 0) >= 0 {
		return fmt.Errorf("holds a NUL byte, which no command can be given")
	}
	if len(s) > maxArg {
		return fmt.Errorf("is %d bytes, the kernel's bound is %d", len(s), maxArg)
	}
	if !utf8.ValidString(s) {
		return fmt.Errorf("is not UTF-8 text: %s", quote(s))
	}
	return nil
}

// CheckName refuses what is not the name of a profile or a secret: it starts
// with a letter or digit and goes on with letters, digits, hyphen, underscore,
// dot, 64 bytes at most. Such a name is also a safe file name.
func CheckName(s string) error {
	if s == "" || len(s) > 64 || !isAlnum(s[0]) || !only(s, isNameByte) {
		return fmt.Errorf("is %s, want a name of letters, digits, hyphen, underscore and dot, 64 at most", quote(s))
	}
	return nil
}

// CheckSecretRef refuses what is not a reference, SCHEME://REST in visible
// ASCII (vault://ci/key@v7, file:///run/key, env://NAME). It cannot tell a
// reference from a value that looks like one; that no value is given here is
// the caller's duty.
func CheckSecretRef(s string) error {
	scheme, rest, ok := strings.Cut(s, "://")
	schemeByte := func(b byte) bool { return isLower(b) || isDigit(b) }
	if !ok || rest == "" || len(s) > 1024 || scheme == "" || !isLower(scheme[0]) || !only(scheme, schemeByte) || !only(rest, isVisible) {
		return fmt.Errorf("is not a secret's reference; write SCHEME://PATH, such as vault://ci/model-key@v7, never the value")
	}
	return nil
}

// CheckDir refuses what is not an absolute path of a directory below the root
// in its one spelling: no empty, "." or ".." segment, no trailing slash, no
// control character.
func CheckDir(s string) error {
	if err := checkText(s, maxPath); err != nil {
		return err
	}
	switch {
	case !path.IsAbs(s):
		return fmt.Errorf("is %s, want an absolute path", quote(s))
	case path.Clean(s) != s:
		return fmt.Errorf("is %s, write %s", quote(s), quote(path.Clean(s)))
	case s == "/":
		return fmt.Errorf("is the root directory; name one below it")
	}
	return nil
}

// inside says whether the clean path p is dir or lies below it.
func inside(p, dir string) bool {
	rest, ok := strings.CutPrefix(p, dir)
	return ok && (rest == "" || rest[0] == '/')
}

// CheckWritableRoot is [CheckDir] for a directory that a run may write. The
// kernel's file systems, /dev but for /dev/shm, and what Countersign mounts for
// itself are refused, also when they lie inside it; a socket is never a root.
func CheckWritableRoot(s string) error {
	if err := CheckDir(s); err != nil {
		return err
	}
	if s == "/dev/shm" {
		return nil
	}
	for _, kept := range []string{"/proc", "/sys", "/dev", "/countersign", "/run/countersign", "/run/secret", "/var/run/countersign"} {
		if inside(s, kept) || inside(kept, s) {
			return fmt.Errorf("is %s, which touches %s; that is not the workload's to write", quote(s), kept)
		}
	}
	if strings.HasSuffix(s, ".sock") {
		return fmt.Errorf("is %s; a socket is never given to a run", quote(s))
	}
	return nil
}

// CheckProtected refuses what is not a glob over paths of the repository:
// relative, without "." and ".." segments.
func CheckProtected(s string) error {
	if err := filled(s, maxPath); err != nil {
		return err
	}
	for part := range strings.SplitSeq(s, "/") {
		if part == "" || part == "." || part == ".." {
			return fmt.Errorf("is %s, want a path relative to the repository, such as .github/**", quote(s))
		}
	}
	return nil
}

// FormatTime writes t as documents hold it: RFC 3339, UTC, whole seconds, cut
// off.
func FormatTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// ParseTime reads what [FormatTime] wrote and nothing else: an offset or a
// fraction, which the layout lets through, comes out in another spelling.
func ParseTime(s string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil || FormatTime(t) != s {
		return time.Time{}, fmt.Errorf("is %s, want a time such as 2026-11-29T13:00:00Z", quote(s))
	}
	return t, nil
}

func checkTime(s string) error {
	_, err := ParseTime(s)
	return err
}
