package workspace_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/runner/workspace"
	"github.com/countersign-dev/countersign/runner/workspace/workspacetest"
)

// files is a tree: path to "f" (file), "x" (executable) or "l" (link), a colon,
// and the contents.
type files map[string]string

func (f files) write(t testing.TB, root string) {
	t.Helper()
	for path, node := range f {
		name := filepath.Join(root, path)
		kind, body, _ := strings.Cut(node, ":")
		err := os.MkdirAll(filepath.Dir(name), 0o755)
		switch kind {
		case "f":
			err = errors.Join(err, os.WriteFile(name, []byte(body), 0o644))
		case "x":
			err = errors.Join(err, os.WriteFile(name, []byte(body), 0o755))
		case "l":
			err = errors.Join(err, os.Symlink(body, name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// roundTrip commits before, runs it into after, and applies the patch onto a
// fresh clone: index, files and tree must be what after is.
func roundTrip(t testing.TB, before, after files) (*workspace.Patch, []byte) {
	t.Helper()
	up := t.TempDir()
	dir := filepath.Join(up, "repo")
	sh(t, up, "git init -q -b main repo")
	before.write(t, dir)
	sh(t, dir, "git config core.autocrlf false; git add -f -A .; "+commit+" -m x")
	s, tree := start(t, dir, workspace.StartOptions{})

	root := newRoot(t, -1)
	after.write(t, root)
	_, p, patch := capture(t, s, tree, root)

	if err := os.WriteFile(up+"/p", patch, 0o600); err != nil {
		t.Fatal(err)
	}
	apply := "git apply --index --whitespace=nowarn ../p"
	if len(patch) == 0 {
		apply = ":"
	}
	got := sh(t, up, "git clone -q --no-local -c core.attributesFile=/dev/null repo clone; cd clone; "+apply)
	if got != "" {
		t.Logf("git apply: %s", got)
	}
	rest := sh(t, up+"/clone", "git ls-files -s -z | tr '\\0' '\\1'")
	for line := range strings.SplitSeq(strings.TrimSuffix(rest, "\x01"), "\x01") {
		if line == "" {
			continue
		}
		meta, path, _ := strings.Cut(line, "\t")
		kind, body, ok := strings.Cut(after[path], ":")
		mode := map[string]string{"f": "100644", "x": "100755", "l": "120000"}[kind]
		if !ok || !strings.HasPrefix(meta, mode) {
			t.Errorf("%q is %q in the clone and %.40q after", path, meta, after[path])
			continue
		}
		if blob := sh(t, up+"/clone", "git cat-file blob "+strings.Fields(meta)[1]+"; echo ."); blob != body+"." {
			t.Errorf("%q holds %.60q in the clone, want %.60q", path, blob, body)
		}
		delete(after, path)
	}
	for path := range after {
		t.Errorf("%q is not in the clone", path)
	}
	if out := sh(t, up+"/clone", "git status --porcelain --ignored | grep -v '^[MADRT]  ' || true"); out != "" {
		t.Errorf("the clone's files differ from its index: %s", out)
	}
	return p, patch
}

func TestPatch(t *testing.T) {
	text := strings.Repeat("line\n", 50)
	for _, c := range []struct {
		name          string
		before, after files
		changes       string
	}{
		{"nothing", files{"a": "f:1\n"}, files{"a": "f:1\n"}, ""},
		{"from nothing", files{}, files{"a": "f:1\n"}, "A a"},
		{"to nothing", files{"a": "f:1\n", "d/b": "x:2"}, files{}, "D a,D d/b"},
		{"text", files{"a": "f:1\n2\n"}, files{"a": "f:1\n3\n"}, "M a"},
		{"mode on", files{"a": "f:1\n"}, files{"a": "x:1\n"}, "M a"},
		{"mode off", files{"a": "x:1\n"}, files{"a": "f:1\n"}, "M a"},
		{"mode and text", files{"a": "x:1\n"}, files{"a": "f:2\n"}, "M a"},
		{"mode of an empty file", files{"a": "f:"}, files{"a": "x:"}, "M a"},
		{"empty added", files{"b": "f:1"}, files{"a": "f:", "b": "f:1"}, "A a"},
		{"empty deleted", files{"a": "f:", "b": "f:1"}, files{"b": "f:1"}, "D a"},
		{"emptied", files{"a": "f:1\n"}, files{"a": "f:"}, "M a"},
		{"filled", files{"a": "f:"}, files{"a": "f:1\n"}, "M a"},
		{"no newline at the end", files{"a": "f:1\n2"}, files{"a": "f:1\n2\n"}, "M a"},
		{"newline at the end goes", files{"a": "f:1\n2\n"}, files{"a": "f:1\n2"}, "M a"},
		{"binary", files{"a": "f:\x00\x01\x02"}, files{"a": "f:\x00\x03"}, "M a"},
		{"binary added", files{}, files{"a": "f:" + string(bytes.Repeat([]byte{0, 255, 7}, 5000))}, "A a"},
		{"binary to text", files{"a": "f:\x00\x01\x02"}, files{"a": "f:text\n"}, "M a"},
		{"text to binary", files{"a": "f:text\n"}, files{"a": "f:te\x00xt"}, "M a"},
		{"NUL beyond what git looks at", files{"a": "f:" + text}, files{"a": "f:" + strings.Repeat(text, 50) + "\x00\n"}, "M a"},
		{"other encodings", files{"a": "f:\xff\xfeh\n"}, files{"a": "f:\xe9\n\xff"}, "M a"},
		{"rename", files{"a": "f:" + text}, files{"b": "f:" + text}, "R a>b"},
		{"rename with change and mode", files{"a": "f:" + text}, files{"d/b": "x:" + text + "more\n"}, "R a>d/b"},
		{"rename of a binary", files{"a": "f:\x00" + text}, files{"b": "f:\x00" + text}, "R a>b"},
		{"swap", files{"a": "f:1" + text, "b": "f:2\n"}, files{"b": "f:1" + text, "a": "f:2\n"}, "M a,M b"},
		{"rename into its own name", files{"a": "f:" + text}, files{"a/a": "f:" + text}, "R a>a/a"},
		{"rename out of a directory of the name", files{"a/a": "f:" + text}, files{"a": "f:" + text}, "R a/a>a"},
		{"rename over a deleted file's directory", files{"a": "f:" + text, "b/x": "f:q\n"}, files{"b": "f:" + text}, "D b/x,R a>b"},
		{"link added", files{}, files{"l": "l:../../etc/passwd"}, "A l"},
		{"link moved", files{"l": "l:a"}, files{"l": "l:b\nc"}, "M l"},
		{"link to file", files{"l": "l:a"}, files{"l": "f:a"}, "T l"},
		{"file to link", files{"l": "x:a\n"}, files{"l": "l:a\n"}, "T l"},
		{"link to directory", files{"l": "l:d", "d/f": "f:1\n"}, files{"l/f": "f:1\n"}, "D l,R d/f>l/f"},
		{"directory to link", files{"l/f": "f:1\n"}, files{"l": "l:d", "d/f": "f:1\n"}, "A l,R l/f>d/f"},
		{"file to directory", files{"a": "f:1\n"}, files{"a/b/c": "f:2\n"}, "A a/b/c,D a"},
		{"directory to file", files{"a/b/c": "f:2\n", "a/d": "f:3\n"}, files{"a": "f:1\n"}, "A a,D a/b/c,D a/d"},
		{"rename of a link", files{"l": "l:somewhere/far/away"}, files{"m": "l:somewhere/far/away"}, "R l>m"},
		// git makes a rename of it and then refuses to apply that: the fallback.
		{"link moves out of a directory's way", files{"a/b": "l:somewhere"}, files{"j": "l:somewhere", "a/b/c": "f:1\n"}, "A a/b/c,A j,D a/b"},
		{"names with spaces", files{"a b": "f:1\n", " lead": "f:1\n", "trail ": "f:1\n"}, files{"a b": "f:2\n", " lead": "x:1\n", "trail ": "f:"}, "M  lead,M a b,M trail "},
		{"names with line breaks", files{"a\nb": "f:1\n"}, files{"a\nb": "f:2\n", "c\r\n": "f:1\n", "\n": "f:"}, "A \n,A c\r\n,M a\nb"},
		{"names with quotes", files{`"q"`: "f:1\n", `back\slash`: "f:1\n", "tab\t": "f:1\n"}, files{`"q"`: "f:2\n", `back\slash`: "x:1\n", "tab\t": "f:3\n"}, "M \"q\",M back\\slash,M tab\t"},
		{"names that are not UTF-8", files{"\xff\xfe": "f:1\n"}, files{"\xff\xfe": "f:2\n", "\xe9": "f:"}, "A \xe9,M \xff\xfe"},
		{"names that look like a patch", files{"a/b": "f:1\n", "b/a b/a": "f:1\n"}, files{"a/b": "x:1\n", "b/a b/a": "x:1\n", "dev/null": "f:n\n", "-- a": "f:"}, "A -- a,A dev/null,M a/b,M b/a b/a"},
		{"names that look like an option", files{"-p": "f:1\n"}, files{"-p": "f:2\n", "--cached": "f:1\n"}, "A --cached,M -p"},
		{"names that look like magic", files{":(top)x": "f:1\n", ":": "f:1\n"}, files{":(top)x": "f:2\n", ":": "f:2\n", ":!y": "f:1\n", "*": "f:1\n", "[a]": "f:1\n"}, "A *,A :!y,A [a],M :,M :(top)x"},
		{"case twins", files{"a": "f:1\n", "A": "f:1\n"}, files{"a": "f:2\n", "A": "f:3\n"}, "M A,M a"},
		{"contents that look like a patch", files{"a": "f:x\n"}, files{"a": "f:--- a/b\n+++ b/b\n@@ -1 +1 @@\n-x\n+y\ndiff --git a/c b/c\n-- \n\\ No newline at end of file\n"}, "M a"},
		{"CRLF", files{"a": "f:1\r\n2\r\n"}, files{"a": "f:1\r\n2\n3\r\n"}, "M a"},
		{"lone CR and trailing space", files{"a": "f:1\r2 \t\n"}, files{"a": "f:1\r2\n\r"}, "M a"},
		{"a huge line", files{"a": "f:" + strings.Repeat("x", 3<<20)}, files{"a": "f:" + strings.Repeat("x", 3<<20) + "y"}, "M a"},
		{"attributes of the tree", files{".gitattributes": "f:* -text -diff merge=ours\n", "a": "f:1\n"}, files{".gitattributes": "f:* -text binary\n", "a": "f:2\n", "b": "f:3\r\n"}, "A b,M .gitattributes,M a"},
		{"one of many copies", files{"a": "f:" + text}, files{"a": "f:" + text, "b": "f:" + text, "c": "f:" + text}, "A b,A c"},
		{"ignore rules change", files{".gitignore": "f:*.log\n", "a.log": "f:1\n"}, files{".gitignore": "f:*.txt\n", "a.log": "f:2\n", "b.txt": "f:1\n"}, "A b.txt,M .gitignore,M a.log"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, patch := roundTrip(t, c.before, c.after)
			var got []string
			for _, ch := range p.Changes {
				s := ch.Status + " " + ch.Path
				if ch.From != "" {
					s = ch.Status + " " + ch.From + ">" + ch.Path
				}
				got = append(got, s)
			}
			if s := strings.Join(sorted(got), ","); s != c.changes {
				t.Errorf("changes\n got %q\nwant %q", s, c.changes)
			}
			if p.Stats.Files != len(p.Changes) || p.Stats.Bytes != int64(len(patch)) {
				t.Errorf("stats %+v of %d changes, %d bytes", p.Stats, len(p.Changes), len(patch))
			}
		})
	}
}

func TestPatchOfManyFiles(t *testing.T) {
	before, after := files{}, files{}
	for i := range 1500 {
		before[fmt.Sprintf("d%d/f%d", i%7, i)] = fmt.Sprintf("f:%d\n", i)
		after[fmt.Sprintf("e%d/f%d", i%5, i)] = fmt.Sprintf("f:%d\n", i)
	}
	after["e0/f0"] = "x:0\n"
	up := t.TempDir()
	dir := filepath.Join(up, "repo")
	sh(t, up, "git init -q -b main repo")
	before.write(t, dir)
	sh(t, dir, "git add -A .; "+commit+" -m x")
	s, tree := start(t, dir, workspace.StartOptions{})
	root := newRoot(t, -1)
	after.write(t, root)
	c, p, patch := capture(t, s, tree, root)
	if err := os.WriteFile(up+"/p", patch, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := sh(t, dir, "git apply --index ../p; git write-tree"); got != c.Tree || p.Stats.Files < 1500 {
		t.Errorf("%d files lead to %s, not %s", p.Stats.Files, got, c.Tree)
	}
}

func TestPatchBound(t *testing.T) {
	dir := newRepo(t, `echo x > f; git add .; `+commit+` -m one`)
	s, tree := start(t, dir, workspace.StartOptions{})
	root := load(t, tree)
	if err := os.WriteFile(root+"/g", []byte(strings.Repeat("line\n", 1000)), 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := s.Capture(t.Context(), workspace.Direct{Root: root, UID: -1}, tree, workspacetest.Bounds)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	p, err := s.Patch(t.Context(), tree, c.Tree, &out, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	size := p.Stats.Bytes
	for _, limit := range []int64{0, 1, size - 1} {
		out.Reset()
		_, err := s.Patch(t.Context(), tree, c.Tree, &out, limit)
		if large, ok := errors.AsType[*workspace.TooLarge](err); !ok || large.Limit != limit || out.Len() != 0 {
			t.Errorf("bound %d: %v, %d bytes written", limit, err, out.Len())
		}
	}
	if _, err := s.Patch(t.Context(), tree, c.Tree, &out, size); err != nil {
		t.Errorf("just the size: %v", err)
	}
}

// TestIgnored compares with what git itself says in a checkout of the commit.
func TestIgnored(t *testing.T) {
	dir := newRepo(t, `printf '*.log\n!keep.log\n/top\nbuild/\n**/deep/x\n\\#hash\nsp ace\n[ab].c\n' > .gitignore; mkdir -p sub/.g other; printf '!*.log\n/only\n' > sub/.gitignore
mkdir -p build2 sub/build; echo t > tracked.log; echo t > sub/build/tracked; git add -f .; `+commit+` -m one`)
	s, tree := start(t, dir, workspace.StartOptions{})
	root := load(t, tree)
	sh(t, root, `for f in x.log keep.log top other/top build other/build/f sub/x.log sub/only only sub/deep/x deep/x '#hash' 'sp ace' a.c ab.c tracked.log/in ':(top)q.log' 'new
line.log' '*.c' '-z.log' ; do [ "$f" = tracked.log/in ] && rm -f tracked.log; mkdir -p "./$(dirname -- "./$f")"; echo y > "./$f"; done
echo z > sub/build/tracked; echo z > sub/build/new; mkdir -p node; printf 'evil.log\n*\n' > node/.gitignore; echo n > node/n; echo '!x.log' >> .gitignore`)
	var want []string
	// The same files in a checkout whose ignore files are the commit's.
	twin := filepath.Join(t.TempDir(), "twin")
	sh(t, filepath.Dir(dir), "git clone -q --no-local repo "+twin+"; cp -a "+root+"/. "+twin+"/.copy; cd "+twin+"; rm -rf .copy/.git; mv .git ../g; rm -rf tracked.log; cp -a .copy/. .; rm -rf .copy; mv ../g .git; git checkout -q HEAD -- .gitignore sub/.gitignore; rm node/.gitignore")
	for f := range strings.SplitSeq(sh(t, twin, "git ls-files -o -i --exclude-standard -z | tr '\\0' '\\1'"), "\x01") {
		if f != "" {
			want = append(want, f)
		}
	}
	l, err := workspace.Walk(t.Context(), root, workspacetest.Bounds)
	if err != nil {
		t.Fatal(err)
	}
	sel, err := s.Select(t.Context(), tree, l)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, x := range sel.LeftOut {
		got = append(got, x.Path)
	}
	if a, b := strings.Join(sorted(got), "|"), strings.Join(sorted(want), "|"); a != b || len(want) < 8 {
		t.Errorf("ignored\n got %q\nwant %q", a, b)
	}
}

// FuzzPatch makes two trees of a few names that get in each other's way.
func FuzzPatch(f *testing.F) {
	f.Add([]byte("\x00\x01\x02\x03\x04\x05\x06\x07"), []byte("\x07\x06\x05\x04\x03\x02\x01\x00"))
	f.Add([]byte("\x10\x21\x32"), []byte("\x11\x22\x33\x44\x55\x66"))
	f.Add([]byte("\x88\x99\xaa"), []byte("\x89\x98\xab\xba"))
	f.Fuzz(func(t *testing.T, before, after []byte) {
		if len(before) > 12 || len(after) > 12 {
			return
		}
		roundTrip(t, fuzzTree(before), fuzzTree(after))
	})
}

// fuzzTree reads a byte as a name and a node; a later one replaces what is in
// its way.
func fuzzTree(b []byte) files {
	names := []string{"a", "a/a", "a/b/c", "b", "b/a", "c d", "e\n", "\xff", `q"`, "b a/b", "a/b", "f", "g/h", "i", "j", "a.b"}
	long := strings.Repeat("some line of text\n", 12)
	nodes := []string{
		"f:", "x:", "f:1\n", "f:1", "x:" + long, "f:" + long, "f:" + long + "end", "l:a", "l:b/a", "f:\x00bin", "f:" + long + "\x00", "f:\r\n\r",
		"x:\x00bin", "l:" + long[:40], "f:2\n", "f:--- a/a\n+++ b/a\n",
	}
	tree := files{}
	for i, c := range b {
		name := names[(int(c)+i)&15]
		for other := range tree {
			if strings.HasPrefix(other, name+"/") || strings.HasPrefix(name, other+"/") {
				delete(tree, other)
			}
		}
		tree[name] = nodes[c>>4]
	}
	return tree
}

func sorted(s []string) []string {
	slices.Sort(s)
	return s
}
