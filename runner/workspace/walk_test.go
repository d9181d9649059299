package workspace

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// flat writes a listing as one line for each thing, for comparison.
func flat(l *Listing) string {
	var b strings.Builder
	for _, e := range l.Entries {
		fmt.Fprintf(&b, "%c %s", e.Kind, e.Path)
		if e.Kind == Symlink {
			fmt.Fprintf(&b, " -> %s", e.Target)
		} else {
			fmt.Fprintf(&b, " %d", e.Size)
		}
		b.WriteString("\n")
	}
	for _, x := range l.LeftOut {
		fmt.Fprintf(&b, "- %s %s\n", x.Reason, x.Path)
	}
	if l.Incomplete != 0 {
		fmt.Fprintf(&b, "incomplete %s\n", l.Incomplete)
	}
	return b.String()
}

func must(t testing.TB, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func write(t testing.TB, name, text string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644))
}

func TestWalk(t *testing.T) {
	big := Bounds{Entries: 1000, Depth: 50, Bytes: 1 << 20, File: 1 << 20, Time: time.Minute}
	tight := func(f func(*Bounds)) Bounds { b := big; f(&b); return b }
	for _, c := range []struct {
		name   string
		bounds Bounds
		make   func(t *testing.T, root string)
		want   string
	}{
		{"nothing", big, func(*testing.T, string) {}, ""},
		{"order and kinds", big, func(t *testing.T, r string) {
			write(t, r+"/a-b", "12")
			write(t, r+"/a/b", "1")
			write(t, r+"/x", "")
			must(t, os.Chmod(r+"/x", 0o755), os.Symlink("../../etc/passwd", r+"/l"), os.Symlink("/", r+"/root"), os.Mkdir(r+"/empty", 0o755))
		}, "f a/b 1\nf a-b 2\nl l -> ../../etc/passwd\nl root -> /\nx x 0\n"},
		{"what has no contents", big, func(t *testing.T, r string) {
			must(t, unix.Mkfifo(r+"/fifo", 0o644))
			l, err := net.Listen("unix", r+"/sock")
			must(t, err)
			t.Cleanup(func() { l.Close() })
		}, "- fifo fifo\n- socket sock\n"},
		{"set-id bits", big, func(t *testing.T, r string) {
			write(t, r+"/s", "1")
			must(t, os.Chmod(r+"/s", 0o755|os.ModeSetuid))
		}, "x s 1\n- setuid_bit s\n"},
		{"git directories", big, func(t *testing.T, r string) {
			write(t, r+"/.git/config", "1")
			write(t, r+"/sub/.git", "gitdir: /elsewhere")
			write(t, r+"/sub/f", "1")
		}, "f sub/f 1\n- git_directory .git\n- git_directory sub/.git\n"},
		{"what its owner may not read", big, func(t *testing.T, r string) {
			write(t, r+"/d/f", "1")
			write(t, r+"/f", "1")
			must(t, os.Chmod(r+"/d", 0o300), os.Chmod(r+"/f", 0o200))
			t.Cleanup(func() { os.Chmod(r+"/d", 0o700) }) // or its owner cannot remove it
		}, "- unreadable d\n- unreadable f\n"},
		{"deep", tight(func(b *Bounds) { b.Depth = 2 }), func(t *testing.T, r string) {
			write(t, r+"/1/2/3/f", "1")
			write(t, r+"/1/2/f", "1")
		}, "f 1/2/f 1\n- too_deep 1/2/3\n"},
		{"a large file", tight(func(b *Bounds) { b.File = 5 }), func(t *testing.T, r string) {
			write(t, r+"/a", "12345")
			write(t, r+"/b", "123456")
			must(t, os.WriteFile(r+"/c", nil, 0o644), os.Truncate(r+"/c", 1<<30)) // within the file size limit of a sandbox
		}, "f a 5\n- too_large b\n- too_large c\n"},
		{"large in all", tight(func(b *Bounds) { b.Bytes = 7 }), func(t *testing.T, r string) {
			write(t, r+"/a", "12345")
			write(t, r+"/b", "123")
			write(t, r+"/c", "12")
			must(t, os.Link(r+"/a", r+"/d"))
		}, "f a 5\nf c 2\n- total_too_large b\n- total_too_large d\n"},
		{"many", tight(func(b *Bounds) { b.Entries = 2 }), func(t *testing.T, r string) {
			write(t, r+"/a", "")
			write(t, r+"/b", "")
			write(t, r+"/c", "")
		}, "f a 0\nf b 0\n- too_many c\nincomplete too_many\n"},
		{"just as many", tight(func(b *Bounds) { b.Entries = 2 }), func(t *testing.T, r string) {
			write(t, r+"/a", "")
			write(t, r+"/b", "")
		}, "f a 0\nf b 0\n"},
		{"no time", tight(func(b *Bounds) { b.Time = 0 }), func(t *testing.T, r string) {
			write(t, r+"/a", "")
		}, "- out_of_time a\nincomplete out_of_time\n"},
		{"closed bounds", Bounds{Time: time.Minute}, func(t *testing.T, r string) {
			write(t, r+"/a", "")
		}, "- too_many a\nincomplete too_many\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			c.make(t, root)
			l, err := Walk(t.Context(), root, c.bounds)
			must(t, err)
			if got := flat(l); got != c.want {
				t.Errorf("got\n%swant\n%s", got, c.want)
			}
		})
	}
}

func TestWalkRoot(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/file", "")
	must(t, os.Symlink("/etc", dir+"/link"), unix.Mkfifo(dir+"/fifo", 0o644))
	for _, root := range []string{"link", "file", "fifo", "absent"} {
		if _, err := Walk(t.Context(), filepath.Join(dir, root), testBounds); err == nil {
			t.Errorf("it walks a root that is %s", root)
		}
	}
}

func TestWalkMounts(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	root := t.TempDir()
	write(t, root+"/here/f", "1")
	must(t, os.Mkdir(root+"/tmpfs", 0o755), os.Mkdir(root+"/bind", 0o755))
	write(t, root+"/boundfile", "")
	must(t, unix.Mount("tmpfs", root+"/tmpfs", "tmpfs", 0, "size=64k"))
	defer unix.Unmount(root+"/tmpfs", unix.MNT_DETACH)
	write(t, root+"/tmpfs/f", "1")
	// The same file system again: its device number is no different.
	must(t, unix.Mount(root+"/here", root+"/bind", "", unix.MS_BIND, ""))
	defer unix.Unmount(root+"/bind", unix.MNT_DETACH)
	must(t, unix.Mount(root+"/here/f", root+"/boundfile", "", unix.MS_BIND, ""))
	defer unix.Unmount(root+"/boundfile", unix.MNT_DETACH)
	l, err := Walk(t.Context(), root, Bounds{Entries: 100, Depth: 5, Bytes: 100, File: 100, Time: time.Minute})
	must(t, err)
	if got, want := flat(l), "f here/f 1\n- other_mount bind\n- other_mount boundfile\n- other_mount tmpfs\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// TestWalkDevices uses device nodes, which a sandbox cannot make.
func TestWalkDevices(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("making devices needs root")
	}
	root := t.TempDir()
	must(t, unix.Mknod(root+"/null", unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))), unix.Mknod(root+"/blk", unix.S_IFBLK|0o666, int(unix.Mkdev(7, 99))))
	l, err := Walk(t.Context(), root, testBounds)
	must(t, err)
	if got, want := flat(l), "- device blk\n- device null\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// TestBeyondPathMax walks and reads a file whose path no system call takes.
func TestBeyondPathMax(t *testing.T) {
	root := t.TempDir()
	name := strings.Repeat("d", 200)
	fd, err := openAt(unix.AT_FDCWD, root, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	must(t, err)
	var path string
	for range 60 {
		must(t, unix.Mkdirat(fd, name, 0o755))
		next, err := openAt(fd, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		must(t, err)
		unix.Close(fd)
		fd, path = next, path+name+"/"
	}
	leaf, err := openAt(fd, "leaf", unix.O_WRONLY|unix.O_CREAT, 0o644)
	must(t, err, writeAll(leaf, []byte("deep")))
	unix.Close(leaf)
	unix.Close(fd)
	path += "leaf"

	b := Bounds{Entries: 100, Depth: 100, Bytes: 100, File: 100, Time: time.Minute}
	l, err := Walk(t.Context(), root, b)
	must(t, err)
	if len(l.Entries) != 1 || l.Entries[0].Path != path || len(l.LeftOut) != 0 {
		t.Fatalf("walked %d entries, %d left out", len(l.Entries), len(l.LeftOut))
	}
	var out strings.Builder
	if _, err := SendFiles(context.Background(), &out, root, []string{path}, b); err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(out.String(), "\x04deepE") {
		t.Error("the contents did not arrive")
	}
}

func TestSendFilesRefuses(t *testing.T) {
	root := t.TempDir()
	outside := t.TempDir()
	write(t, outside+"/f", "secret")
	write(t, root+"/ok", "fine")
	write(t, root+"/large", strings.Repeat("x", 700))
	must(t, os.Symlink(outside, root+"/dir"), os.Symlink(outside+"/f", root+"/link"), unix.Mkfifo(root+"/fifo", 0o644), os.Mkdir(root+"/d", 0o755))
	for _, p := range []string{"dir/f", "link", "fifo", "d", "large", "absent", "../" + filepath.Base(outside) + "/f", outside + "/f", "ok/f"} {
		var out strings.Builder
		if _, err := SendFiles(t.Context(), &out, root, []string{p}, testBounds); err == nil {
			t.Errorf("it sends %q", p)
		}
		if strings.Contains(out.String(), "secret") {
			t.Errorf("contents outside the root leave through %q", p)
		}
	}
	if _, err := SendFiles(t.Context(), &strings.Builder{}, root, []string{"ok"}, testBounds); err != nil {
		t.Error(err)
	}
}
