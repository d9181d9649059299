package plan

import (
	"path"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// word is one argument of a command as far as it is known before it runs. Text
// is its value when Known, else its source.
type word struct {
	Text  string
	Known bool
	node  *syntax.Word
}

// knownWord evaluates a word that no expansion can change: literals, quotes and
// backslashes. Parameters, substitutions, globs, braces, a leading tilde and
// $'…' leave it unknown.
func knownWord(w *syntax.Word) (string, bool) {
	var b strings.Builder
	for i, part := range w.Parts {
		switch part := part.(type) {
		case *syntax.Lit:
			text, ok := unquoteLiteral(part.Value, i == 0)
			if !ok {
				return "", false
			}
			b.WriteString(text)
		case *syntax.SglQuoted:
			if part.Dollar {
				return "", false
			}
			b.WriteString(part.Value)
		case *syntax.DblQuoted:
			text, ok := unquoteDouble(part)
			if !ok {
				return "", false
			}
			b.WriteString(text)
		default:
			return "", false
		}
	}
	return b.String(), true
}

// unquoteLiteral removes the backslashes of unquoted text (POSIX 2.2.1).
func unquoteLiteral(s string, first bool) (string, bool) {
	if first && strings.HasPrefix(s, "~") {
		return "", false
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			if i++; i == len(s) {
				return "", false
			}
			b.WriteByte(s[i])
		case '*', '?':
			return "", false
		case '[', '{':
			if expands(s[i:]) {
				return "", false
			}
			b.WriteByte(s[i])
		default:
			b.WriteByte(s[i])
		}
	}
	return b.String(), true
}

// expands reports whether a bracket begins a glob's set or a brace expansion;
// [ alone and {} are plain words.
func expands(s string) bool {
	if s[0] == '[' {
		return strings.Contains(s[1:], "]")
	}
	return strings.Contains(s, ",") || strings.Contains(s, "..")
}

// unquoteDouble removes the backslashes of double-quoted text (POSIX 2.2.3).
func unquoteDouble(q *syntax.DblQuoted) (string, bool) {
	if q.Dollar {
		return "", false
	}
	var b strings.Builder
	for _, part := range q.Parts {
		lit, ok := part.(*syntax.Lit)
		if !ok {
			return "", false
		}
		b.WriteString(unescapeDouble(lit.Value))
	}
	return b.String(), true
}

func unescapeDouble(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) && strings.IndexByte("$`\"\\\n", s[i+1]) >= 0 {
			if i++; s[i] == '\n' {
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// baseName is a program's name without directory and version: python3.12 and
// /usr/bin/python are python.
func baseName(s string) string {
	base := path.Base(s)
	if short := strings.TrimRight(base, "0123456789."); short != "" {
		return short
	}
	return base
}

// The three sets below only choose what a reader is told beside a command that
// is listed anyway. Nothing is allowed or refused by them, and a program that is
// missing from them is still shown with every word of its command.

// shellVariant says how the text given to a shell is parsed; ok is false for a
// program that is no shell, and the variant is -1 for a shell whose language
// cannot be listed.
func shellVariant(name string) (variant syntax.LangVariant, ok bool) {
	switch baseName(name) {
	case "sh", "dash", "ash", "posh", "yash":
		return syntax.LangPOSIX, true
	case "bash", "rbash":
		return syntax.LangBash, true
	case "ksh", "mksh", "lksh", "pdksh", "oksh":
		return syntax.LangMirBSDKorn, true
	case "zsh", "fish", "csh", "tcsh", "pwsh", "nu", "elvish":
		return -1, true
	}
	return 0, false
}

// interprets reports whether a program runs what it reads on standard input
// when it is given nothing else.
func interprets(name string) bool {
	if _, shell := shellVariant(name); shell {
		return true
	}
	switch baseName(name) {
	case "python", "pypy", "perl", "ruby", "node", "nodejs", "deno", "bun", "php", "lua", "luajit", "tclsh", "wish",
		"Rscript", "R", "julia", "osascript", "guile", "racket", "sbcl", "ghci", "irb", "jshell", "scala", "groovy",
		"ssh", "at", "batch", "xargs", "parallel":
		return true
	}
	return false
}

// wraps reports whether a program runs the command that its arguments name.
func wraps(name string) bool {
	switch baseName(name) {
	case "env", "sudo", "doas", "su", "runuser", "setpriv", "nohup", "nice", "ionice", "chrt", "taskset", "timeout",
		"setsid", "stdbuf", "script", "xargs", "parallel", "exec", "command", "builtin", "time", "watch", "find",
		"busybox", "toybox", "chroot", "unshare", "nsenter", "flock", "strace", "ltrace", "gdb", "bwrap", "firejail",
		"docker", "podman", "kubectl", "ssh", "systemd-run", "coproc", "noglob", "nocorrect":
		return true
	}
	return false
}

// programs returns the indexes of words that name a program this command runs:
// the first, and behind a wrapper every known word that names an interpreter or
// another wrapper.
func programs(words []word) []int {
	if len(words) == 0 || !words[0].Known {
		return nil
	}
	found := []int{0}
	if !wraps(words[0].Text) {
		return found
	}
	for i, w := range words[1:] {
		if w.Known && (interprets(w.Text) || wraps(w.Text)) {
			found = append(found, i+1)
		}
	}
	return found
}

// peel skips the shell's own prefixes (command, builtin, exec) and their flags.
func peel(words []word) []word {
	for len(words) > 1 && words[0].Known {
		switch words[0].Text {
		case "command", "builtin", "exec":
		default:
			return words
		}
		words = words[1:]
		for len(words) > 1 && words[0].Known && strings.HasPrefix(words[0].Text, "-") {
			words = words[1:]
		}
	}
	return words
}
