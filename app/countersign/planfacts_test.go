package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func writeFiles(t *testing.T, files map[string]string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestLookupFindsWhatExecveWould(t *testing.T) {
	dir := writeFiles(t, map[string]string{"one/tool": "", "two/tool": "", "two/other": "", "plain": "", "sub/dir/x": ""})
	if err := os.Chmod(filepath.Join(dir, "plain"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("two/other", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ path, name, want string }{
		{dir + "/one:" + dir + "/two", "tool", "one/tool"},
		{dir + "/two:" + dir + "/one", "tool", "two/tool"},
		{dir + "/nowhere:" + dir + "/two", "other", "two/other"},
		{"two", "other", "two/other"}, // relative: from the directory
		{"", "link", ""},
		{":/nowhere", "link", "two/other"}, // an empty element is the directory itself
		{"/nowhere", "./link", "two/other"},
		{dir + "/one", "two/other", "two/other"}, // a slash: no PATH
		{dir, "plain", "!not executable"},
		{dir, "sub", "!not a regular file"},
		{dir, "nothing", "!not on PATH"},
		{dir, "./nothing", "!no such file"},
	} {
		got, err := lookup{cwd: dir, path: c.path}.find(c.name)
		if want, bad := strings.CutPrefix(c.want, "!"); bad || want == "" {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s on %q: %s, %v; want …%s…", c.name, c.path, got, err, want)
			}
			continue
		}
		if err != nil || got != filepath.Join(dir, c.want) {
			t.Errorf("%s on %q: %s, %v; want %s", c.name, c.path, got, err, c.want)
		}
	}
}

func TestInterpretersFollowScripts(t *testing.T) {
	dir := writeFiles(t, map[string]string{
		"bin/real": "\x7fELF", "bin/env": "\x7fELF", "bin/loop": "#!bin/loop\n",
		"direct": "#!bin/real -x\n", "spaced": "#! \tbin/real\n", "crlf": "#!bin/real\r\n", "byenv": "#!bin/env real\n", "envflags": "#!bin/env -S real -x\n",
		"twice": "#!direct\n", "missing": "#!bin/none\n", "plain": "text\n", "empty": "", "noend": "#!bin/real",
	})
	for _, c := range []struct{ script, want string }{
		{"direct", "#!bin/real -x=bin/real"},
		{"spaced", "#! \tbin/real=bin/real"},
		{"crlf", "!no such file"}, // the kernel looks for a name with the carriage return
		{"noend", "#!bin/real=bin/real"},
		{"byenv", "#!bin/env real=bin/env real=bin/real"},
		{"envflags", "#!bin/env -S real -x=bin/env"},
		{"twice", "#!direct=direct #!bin/real -x=bin/real"},
		{"plain", ""},
		{"empty", ""},
		{"bin/real", ""},
		{"missing", "!no such file"},
		{"bin/loop", "!name each other"},
	} {
		found, err := lookup{cwd: dir, path: dir + "/bin"}.interpreters(filepath.Join(dir, c.script))
		if want, bad := strings.CutPrefix(c.want, "!"); bad {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, %v; want …%s…", c.script, found, err, want)
			}
			continue
		}
		var got []string
		for _, r := range found {
			rel, _ := filepath.Rel(dir, r.Path)
			got = append(got, r.Word+"="+rel)
		}
		if err != nil || strings.Join(got, " ") != c.want {
			t.Errorf("%s: %q, %v; want %q", c.script, strings.Join(got, " "), err, c.want)
		}
	}
}

func TestWordsThatNameFiles(t *testing.T) {
	dir := writeFiles(t, map[string]string{"tool": "\x7fELF", "data": "abc"})
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o755); err != nil {
		t.Fatal(err)
	}
	found, err := lookup{cwd: dir}.words([]string{"./tool", "data", "folder", "--flag", "", "none", "data"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range found {
		rel, _ := filepath.Rel(dir, r.Path)
		got = append(got, r.Word+"="+rel+" "+r.Digest[:min(len(r.Digest), 14)])
	}
	// SHA-256 of "\x7fELF" and of "abc".
	want := "./tool=tool sha256:3bdbb4f; data=data sha256:ba7816b; folder=folder "
	if all := strings.Join(got, "; "); all != want {
		t.Errorf("got  %s\nwant %s", all, want)
	}
}
