package workspace

import (
	"bytes"
	"context"
	"crypto/sha1"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var testBounds = Bounds{Entries: 100, Depth: 5, Bytes: 1000, File: 600, Time: time.Minute}

// stream builds what a hostile sender could send, record by record.
func stream(magic string, records ...func(*encoder)) []byte {
	var b bytes.Buffer
	e := newEncoder(&b, magic)
	for _, r := range records {
		r(e)
	}
	e.flush()
	return b.Bytes()
}

func file(path string, size uint64) func(*encoder) {
	return func(e *encoder) { e.byte('f'); e.string(path); e.uint(size); e.uint(size); e.uint(1) }
}

func symlink(path, target string) func(*encoder) {
	return func(e *encoder) { e.byte('l'); e.string(path); e.string(target); e.uint(1) }
}

func left(path string, why Reason) func(*encoder) {
	return func(e *encoder) { e.byte('-'); e.byte(byte(why)); e.string(path) }
}

func listingEnd(why Reason, visited uint64) func(*encoder) {
	return func(e *encoder) { e.byte('E'); e.byte(byte(why)); e.uint(visited) }
}

func raw(s string) func(*encoder) { return func(e *encoder) { e.w.WriteString(s) } }

func TestDecodeListing(t *testing.T) {
	many := func(e *encoder) {
		for i := range 101 {
			file(string(rune('A'+i/26))+string(rune('a'+i%26)), 0)(e)
		}
	}
	end := listingEnd(0, 100)
	for _, c := range []struct {
		name string
		in   []byte
		err  string // "" is allowed
	}{
		{"empty", stream(listingMagic, end), ""},
		{"one of each", stream(listingMagic, file("a", 1), symlink("b", "/etc"), left("c", ReasonFIFO), end), ""},
		{"case twins", stream(listingMagic, file("A", 1), file("a", 1), end), ""},
		{"a directory's files after its namesake's neighbour", stream(listingMagic, file("a/b", 1), file("a-b", 1), end), ""},
		{"odd bytes", stream(listingMagic, file("\xff\n\t\"\\", 1), end), ""},
		{"nothing", nil, "ends early"},
		{"other magic", stream(treeMagic, end), "not a"},
		{"no end", stream(listingMagic, file("a", 1)), "ends early"},
		{"cut in a record", stream(listingMagic, file("a", 1), end)[:len(listingMagic)+3], "ends early"},
		{"unknown record", stream(listingMagic, raw("z"), end), "unknown kind"},
		{"parent", stream(listingMagic, file("../x", 1), end), "leaves its directory"},
		{"inner parent", stream(listingMagic, file("a/../../x", 1), end), "leaves its directory"},
		{"dot", stream(listingMagic, file("./x", 1), end), "leaves its directory"},
		{"absolute", stream(listingMagic, file("/etc/passwd", 1), end), "empty part"},
		{"doubled slash", stream(listingMagic, file("a//b", 1), end), "empty part"},
		{"trailing slash", stream(listingMagic, file("a/", 1), end), "empty part"},
		{"empty path", stream(listingMagic, file("", 1), end), "empty path"},
		{"NUL", stream(listingMagic, file("a\x00b", 1), end), "NUL"},
		{"long name", stream(listingMagic, file(strings.Repeat("n", 256), 1), end), "more than 255"},
		{"long path", stream(listingMagic, raw("f"), func(e *encoder) { e.uint(1 << 40) }), "length of path"},
		{"deep", stream(listingMagic, file("1/2/3/4/5/6/f", 1), end), "deep"},
		{"twice", stream(listingMagic, file("a", 1), file("a", 1), end), "twice"},
		{"out of order", stream(listingMagic, file("b", 1), file("a", 1), end), "out of order"},
		{"plain byte order", stream(listingMagic, file("a-b", 1), file("a/b", 1), end), "out of order"},
		{"under a file", stream(listingMagic, file("a", 1), file("a/b", 1), end), "no directory"},
		{"under a link", stream(listingMagic, symlink("a", "/etc"), file("a/passwd", 1), end), "no directory"},
		{"deep under a link", stream(listingMagic, symlink("a", "/"), file("a/etc/passwd", 1), end), "no directory"},
		{"in .git", stream(listingMagic, file(".git/hooks/post-checkout", 1), end), ".git"},
		{"in a nested .git", stream(listingMagic, file("a/.git/config", 1), end), ".git"},
		{"large file", stream(listingMagic, file("a", 601), end), "size of 601"},
		{"large sum", stream(listingMagic, file("a", 600), file("b", 401), end), "size of 401"},
		{"huge size", stream(listingMagic, file("a", 1<<63+1), end), "size of"},
		{"too many", stream(listingMagic, many, end), "more than 100"},
		{"empty target", stream(listingMagic, symlink("a", ""), end), "empty or holds"},
		{"NUL target", stream(listingMagic, symlink("a", "x\x00y"), end), "holds a NUL"},
		{"long target", stream(listingMagic, symlink("a", strings.Repeat("t", 4096)), end), "link target"},
		{"entry after left out", stream(listingMagic, left("a", ReasonFIFO), file("b", 1), end), "after what was left out"},
		{"unknown reason", stream(listingMagic, left("a", 'Z'), end), "unknown reason"},
		{"unknown early end", stream(listingMagic, listingEnd('Z', 0)), "unknown reason"},
		{"more listed than visited", stream(listingMagic, file("a", 1), listingEnd(0, 0)), "0 visited"},
	} {
		l, err := DecodeListing(bytes.NewReader(c.in), testBounds)
		switch {
		case c.err == "" && err != nil:
			t.Errorf("%s: refused: %v", c.name, err)
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%s: got %v, want …%s…", c.name, err, c.err)
		case err == nil:
			var again bytes.Buffer
			if err := EncodeListing(&again, l); err != nil || !bytes.Equal(again.Bytes(), c.in) {
				t.Errorf("%s: does not encode to what it was read from", c.name)
			}
		}
	}
}

func FuzzDecodeListing(f *testing.F) {
	f.Add(stream(listingMagic, file("a/b", 1), file("a-b", 1), symlink("b", "/etc"), left("c/d", ReasonLarge), listingEnd(0, 9)))
	f.Add(stream(listingMagic, symlink("a", "/"), file("a/etc/passwd", 1), listingEnd(0, 9)))
	f.Add(stream(listingMagic, file("../x", 1), listingEnd(ReasonMany, 9)))
	f.Fuzz(func(t *testing.T, in []byte) {
		l, err := DecodeListing(bytes.NewReader(in), testBounds)
		if err != nil {
			return
		}
		if l.Total() > testBounds.Bytes || int64(len(l.Entries)) > testBounds.Entries {
			t.Fatal("past the bounds")
		}
		seen := map[string]bool{}
		for _, e := range l.Entries {
			if CheckPath(e.Path) != nil || !filepath.IsLocal(e.Path) || seen[e.Path] {
				t.Fatalf("path %q", e.Path)
			}
			seen[e.Path] = true
		}
		for p := range seen {
			for d := filepath.Dir(p); d != "."; d = filepath.Dir(d) {
				if seen[d] {
					t.Fatalf("%q lies under %q", p, d)
				}
			}
		}
	})
}

func contents(path, body string) func(*encoder) {
	return func(e *encoder) {
		e.byte(recContents)
		e.string(path)
		e.uint(uint64(len(body)))
		e.w.WriteString(body)
	}
}

func TestReceiveFiles(t *testing.T) {
	want := []Entry{{Path: "a", Kind: Regular, Size: 2}, {Path: "b/c", Kind: Executable, Size: 0}, {Path: "d", Kind: Regular, Size: 3}}
	end := raw("E")
	for _, c := range []struct {
		name string
		in   []byte
		err  string
	}{
		{"as asked", stream(filesMagic, contents("a", "xy"), contents("b/c", ""), contents("d", "123"), end), ""},
		{"one fewer", stream(filesMagic, contents("a", "xy"), contents("b/c", ""), end), `ends before "d"`},
		{"one more", stream(filesMagic, contents("a", "xy"), contents("b/c", ""), contents("d", "123"), contents("e", ""), end), "more files"},
		{"other order", stream(filesMagic, contents("b/c", ""), contents("a", "xy"), contents("d", "123"), end), `"b/c" came`},
		{"twice", stream(filesMagic, contents("a", "xy"), contents("a", "xy"), contents("d", "123"), end), `"a" came`},
		{"another path", stream(filesMagic, contents("../a", "xy"), end), `"../a" came`},
		{"longer", stream(filesMagic, contents("a", "xyz"), end), "3 bytes and was listed with 2"},
		{"shorter", stream(filesMagic, contents("a", "x"), end), "1 bytes and was listed with 2"},
		{"cut in contents", stream(filesMagic, raw("c\x01a\x02x")), "ends early"},
		{"huge path", stream(filesMagic, raw("c\xff\xff\xff\xff\x7f")), "length of path"},
		{"no end", stream(filesMagic, contents("a", "xy"), contents("b/c", ""), contents("d", "123")), "ends early"},
	} {
		var got strings.Builder
		_, err := ReceiveFiles(bytes.NewReader(c.in), want, testBounds, func(e Entry, r io.Reader) error {
			if e.Path == "d" {
				return nil // a sink may leave contents unread
			}
			b, err := readAll(r, e.Size)
			got.Write(b)
			return err
		})
		if c.err == "" && (err != nil || got.String() != "xy") {
			t.Errorf("%s: %q, %v", c.name, got.String(), err)
		}
		if c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: got %v, want …%s…", c.name, err, c.err)
		}
	}
	b := testBounds
	b.Bytes = 4
	if _, err := ReceiveFiles(bytes.NewReader(stream(filesMagic, contents("a", "xy"), contents("b/c", ""), contents("d", "123"), end)), want, b,
		func(Entry, io.Reader) error { return nil }); err == nil {
		t.Error("contents past the bounds are taken")
	}
}

func TestDecodePaths(t *testing.T) {
	p := func(path string) func(*encoder) { return func(e *encoder) { e.byte('p'); e.string(path) } }
	end := raw("E")
	for _, c := range []struct {
		in []byte
		ok bool
	}{
		{stream(pathsMagic, p("a"), p("a0"), p("b/c"), end), true},
		{stream(pathsMagic, end), true},
		{stream(pathsMagic, p("a")), false},
		{stream(pathsMagic, p("b"), p("a"), end), false},
		{stream(pathsMagic, p("a"), p("a/b"), end), false},
		{stream(pathsMagic, p("../a"), end), false},
		{stream(pathsMagic, raw("q"), end), false},
	} {
		if _, err := DecodePaths(bytes.NewReader(c.in), testBounds); (err == nil) != c.ok {
			t.Errorf("%q: %v", c.in, err)
		}
	}
}

func treeFile(path, body string, flags uint64) func(*encoder) {
	return func(e *encoder) {
		e.byte(recFile)
		e.string(path)
		e.uint(flags)
		e.uint(uint64(len(body)))
		if flags&flagIndex != 0 {
			e.w.Write(make([]byte, sha1.Size))
		}
		e.w.WriteString(body)
	}
}

func treeDir(path string) func(*encoder) {
	return func(e *encoder) { e.byte(recDir); e.string(path) }
}

func treeLink(path, target string) func(*encoder) {
	return func(e *encoder) {
		e.byte(recLink)
		e.string(path)
		e.string(target)
		e.w.Write(make([]byte, sha1.Size))
	}
}

func treeEnd(entries, size uint64) func(*encoder) {
	return func(e *encoder) { e.byte(recEnd); e.uint(entries); e.uint(size) }
}

func oidSize(n uint64) func(*encoder) { return func(e *encoder) { e.uint(n) } }

func TestReceive(t *testing.T) {
	sha := oidSize(20)
	for _, c := range []struct {
		name string
		in   []byte
		err  string
	}{
		{"a tree", stream(treeMagic, sha, treeDir("a"), treeFile("a/b", "x", flagIndex|flagExec), treeLink("l", "/etc"), treeEnd(3, 1)), ""},
		{"an empty tree", stream(treeMagic, sha, treeEnd(0, 0)), ""},
		{"cut", stream(treeMagic, sha, treeDir("a")), "ends early"},
		{"cut in contents", stream(treeMagic, sha, raw("F\x01a\x00\x05xy")), "ends early"},
		{"odd id size", stream(treeMagic, oidSize(7)), "object ids of 7"},
		{"through a link", stream(treeMagic, sha, treeLink("l", "/etc"), treeFile("l/x", "x", 0), treeEnd(2, 1)), "without its directory"},
		{"through a file", stream(treeMagic, sha, treeFile("f", "", 0), treeFile("f/x", "x", 0), treeEnd(2, 1)), "without its directory"},
		{"link twice", stream(treeMagic, sha, treeLink("l", "/etc/passwd"), treeFile("l", "x", 0), treeEnd(2, 1)), "exists"},
		{"directory over link", stream(treeMagic, sha, treeLink("l", "/etc"), treeDir("l"), treeEnd(2, 0)), "exists"},
		{"directory twice", stream(treeMagic, sha, treeDir("d"), treeDir("d"), treeEnd(2, 0)), "exists"},
		{"parent", stream(treeMagic, sha, treeFile("../x", "x", 0)), "leaves its directory"},
		{"absolute", stream(treeMagic, sha, treeFile("/x", "x", 0)), "empty part"},
		{"back to a closed directory", stream(treeMagic, sha, treeDir("a"), treeDir("b"), treeFile("a/x", "x", 0), treeEnd(3, 1)), "out of order"},
		{"no directory", stream(treeMagic, sha, treeFile("a/x", "x", 0)), "without its directory"},
		{"too many", stream(treeMagic, sha, treeDir("a"), treeDir("b"), treeDir("c"), treeDir("d"), treeEnd(4, 0)), "more than 3 entries"},
		{"too large", stream(treeMagic, sha, treeFile("a", strings.Repeat("x", 101), 0)), "size of 101"},
		{"too large in all", stream(treeMagic, sha, treeFile("a", strings.Repeat("x", 60), 0), treeFile("b", strings.Repeat("x", 60), 0)), "size of 60"},
		{"empty target", stream(treeMagic, sha, treeLink("l", "")), "empty"},
		{"wrong count", stream(treeMagic, sha, treeDir("a"), treeEnd(2, 0)), "counts 2"},
		{"unknown flags", stream(treeMagic, sha, treeFile("a", "x", 8)), "flags"},
		{"unknown record", stream(treeMagic, sha, raw("Zx"), treeEnd(0, 0)), "ends early"},
	} {
		root := t.TempDir()
		_, err := Receive(t.Context(), bytes.NewReader(c.in), root, ReceiveOptions{UID: -1, Entries: 3, Bytes: 100})
		if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: got %v, want …%s…", c.name, err, c.err)
		}
	}
}

func FuzzReceive(f *testing.F) {
	sha := oidSize(20)
	f.Add(stream(treeMagic, sha, treeDir("a"), treeFile("a/b", "x", flagIndex), treeLink("l", "../../out"), treeEnd(3, 1)))
	f.Add(stream(treeMagic, sha, treeLink("l", "../out"), treeFile("l/x", "x", 0), treeEnd(2, 1)))
	f.Add(stream(treeMagic, sha, treeDir("a"), treeDir("a/b"), treeFile("a/c", "x", flagExec), func(e *encoder) { e.byte(recIndex); e.string("i") }, treeEnd(4, 1)))
	f.Fuzz(func(t *testing.T, in []byte) {
		dir := t.TempDir()
		root := filepath.Join(dir, "root")
		out := filepath.Join(dir, "out")
		if err := errors.Join(os.Mkdir(root, 0o700), os.Mkdir(out, 0o700)); err != nil {
			t.Fatal(err)
		}
		Receive(t.Context(), bytes.NewReader(in), root, ReceiveOptions{UID: -1, Entries: 20, Bytes: 1000})
		if names, _ := os.ReadDir(dir); len(names) != 2 {
			t.Fatalf("it wrote beside its root: %v", names)
		}
		if names, _ := os.ReadDir(out); len(names) != 0 {
			t.Fatalf("it wrote through a link: %v", names)
		}
	})
}

func TestReceiveFull(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	body := strings.Repeat("x", 40<<10)
	sha := oidSize(20)
	for _, c := range []struct {
		name, options string
		in            []byte
	}{
		{"bytes", "size=64k", stream(treeMagic, sha, treeFile("a", body, 0), treeFile("b", body, 0), treeEnd(2, 80<<10))},
		{"inodes", "nr_inodes=3", stream(treeMagic, sha, treeFile("a", "", 0), treeFile("b", "", 0), treeDir("c"), treeEnd(3, 0))},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			if err := unix.Mount("tmpfs", root, "tmpfs", 0, c.options); err != nil {
				t.Fatal(err)
			}
			defer unix.Unmount(root, unix.MNT_DETACH)
			_, err := Receive(context.Background(), bytes.NewReader(c.in), root, ReceiveOptions{UID: -1, Entries: 10, Bytes: 1 << 20})
			full, ok := errors.AsType[*Full](err)
			if !ok || full.Written.Entries < 2 || !strings.Contains(err.Error(), "limits.disk") {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestComparePaths(t *testing.T) {
	sorted := []string{"A", "a", "a/b", "a/b/c", "a/c", "a\x01", "a-b", "a.b", "a0", "b"}
	for i, x := range sorted {
		for j, y := range sorted {
			if got := ComparePaths(x, y); (got < 0) != (i < j) || (got > 0) != (i > j) {
				t.Errorf("%q and %q: %d", x, y, got)
			}
		}
	}
	if !slices.IsSortedFunc(sorted, ComparePaths) {
		t.Error("not sorted")
	}
}

func TestRefusedName(t *testing.T) {
	for _, c := range []struct {
		name          string
		file, symlink bool
	}{
		{".git", true, true},
		{".GIT", true, true},
		{".gIt", true, true},
		{"git~1", true, true},
		{"GIT~1", true, true},
		{".git ", true, true},
		{".git...", true, true},
		{".git::$INDEX_ALLOCATION", true, true},
		{`a\.git`, true, true},
		{`.git\x`, true, true},
		{".g\u200cit", true, true},
		{".gitmodules", false, true},
		{".GITMODULES", false, true},
		{"gitmod~1", false, true},
		{"gi7eba~1", false, true},
		{".gitignore", false, false},
		{".gitattributes", false, false},
		{".github", false, false},
		{"git", false, false},
		{"gitk", false, false},
		{"a.git", false, false},
		{"gift~1", false, true}, // more than git refuses, which is fine
		{`back\slash`, false, false},
	} {
		if got := refusedName(c.name, false); got != c.file {
			t.Errorf("file %q: refused %t", c.name, got)
		}
		if got := refusedName(c.name, true); got != c.symlink {
			t.Errorf("link %q: refused %t", c.name, got)
		}
	}
}
