package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// secretForms are the shapes of credentials that people commit by mistake.
// They match real ones only, so that a test's made-up value is written in two
// halves or too short.
var secretForms = []*regexp.Regexp{
	regexp.MustCompile(`-----BEGIN ([A-Z]+ )*PRIVATE KEY-----`),
	regexp.MustCompile(`\bgh[pousr]_[A-Za-z0-9]{36}`),
	regexp.MustCompile(`\bgithub_pat_[A-Za-z0-9_]{40}`),
	regexp.MustCompile(`\bglpat-[A-Za-z0-9_-]{20}`),
	regexp.MustCompile(`\b(AKIA|ASIA)[A-Z0-9]{16}\b`),
	regexp.MustCompile(`\bAIza[A-Za-z0-9_-]{35}`),
	regexp.MustCompile(`\bsk-(ant-|proj-)?[A-Za-z0-9_-]{32}`),
	regexp.MustCompile(`\bxox[abprs]-[A-Za-z0-9-]{20}`),
	regexp.MustCompile(`\bnpm_[A-Za-z0-9]{36}`),
	regexp.MustCompile(`\bhvs\.[A-Za-z0-9_-]{24}`),
	regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{20,}\.eyJ[A-Za-z0-9_-]{20,}\.[A-Za-z0-9_-]{20,}`),
}

// registryHosts are hosts of package registries. The repository names none:
// mirrors and registries are the machine's own affair. Written in parts, so
// that this file does not name them either.
var registryHosts = hosts(
	"proxy golang org", "sum golang org", "registry npmjs org", "registry yarnpkg com", "pypi org", "files pythonhosted org",
	"crates io", "rubygems org", "repo maven apache org", "repo1 maven org", "deb debian org", "security debian org",
	"archive ubuntu com", "security ubuntu com", "ghcr io", "quay io", "gcr io", "mcr microsoft com",
	"registry-1 docker io", "index docker io", "hub docker com", "deb nodesource com",
)

func hosts(parts ...string) [][]byte {
	var out [][]byte
	for _, p := range parts {
		out = append(out, []byte(strings.ReplaceAll(p, " ", ".")))
	}
	return out
}

// unrecorded are directories that hold no recorded file of ours.
var unrecorded = []string{".git", "bin", "vendor", ".countersign"}

func TestRecordedFiles(t *testing.T) {
	root := filepath.Join("..", "..")
	seen := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains(unrecorded, d.Name()):
			return filepath.SkipDir
		case !d.Type().IsRegular():
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		seen++
		for _, fault := range recordFaults(text) {
			t.Errorf("%s %s", path, fault)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < 20 {
		t.Errorf("only %d files were read", seen)
	}
}

// recordFaults says what a recorded file holds that it must not. It never
// repeats the find.
func recordFaults(text []byte) []string {
	var out []string
	for _, form := range secretForms {
		if at := form.FindIndex(text); at != nil {
			out = append(out, "holds what looks like a secret, form "+form.String())
		}
	}
	lower := bytes.ToLower(text)
	for _, host := range registryHosts {
		if namesHost(lower, host) {
			out = append(out, "names the package registry "+string(host))
		}
	}
	return out
}

// namesHost reports whether text holds host as a whole name.
func namesHost(text, host []byte) bool {
	for at := 0; ; {
		i := bytes.Index(text[at:], host)
		if i < 0 {
			return false
		}
		start, end := at+i, at+i+len(host)
		if (start == 0 || !partOfName(text[start-1])) && (end == len(text) || !partOfName(text[end]) || text[end] == '.') {
			return true
		}
		at = end
	}
}

func partOfName(b byte) bool {
	return b == '-' || b == '_' || b >= '0' && b <= '9' || b >= 'a' && b <= 'z'
}

func TestRecordFaults(t *testing.T) {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	for _, c := range []struct {
		name, text string
		want       int
	}{
		{"plain text", "a key is named by model-key", 0},
		{"private key", "-----BEGIN OPENSSH " + "PRIVATE KEY-----\n", 1},
		{"private key without a kind", "-----BEGIN " + "PRIVATE KEY-----\n", 1},
		{"public key", "-----BEGIN PUBLIC KEY-----\n", 0},
		{"token", "ghp" + "_" + letters, 1},
		{"short token", "ghp" + "_abc", 0},
		{"model key", "sk-" + "ant-" + letters, 1},
		{"registry", "https://" + "pypi." + "org/simple", 1},
		{"registry in capitals", "PYPI." + "ORG", 1},
		{"registry below another name", "mirror." + "pypi." + "org", 1},
		{"longer name", "my" + "pypi." + "org", 0},
		{"longer suffix", "pypi." + "organisation", 0},
		{"end of a sentence", "ask pypi." + "org.", 1},
	} {
		if got := recordFaults([]byte(c.text)); len(got) != c.want {
			t.Errorf("%s: %q, want %d faults", c.name, got, c.want)
		}
	}
}
