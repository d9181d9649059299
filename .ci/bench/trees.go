package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// The tree that goes in and comes out.
const (
	treeFiles = 20_000
	fileBytes = 10_000
)

// trees measures the way of 20,000 files and 200 MB into the workspace and out
// of it, against tar on the host, which copies the checkout into a tmpfs and then
// that tree once more (a disk would only slow tar down). In is from the start of
// the container to a workspace with its .git and index; out is walking, reading
// and hashing every byte and making the (empty) patch.
//
// Our contents come from where tar's do, the checkout, which is clean. A bare
// repository has none: there git must inflate every byte, which tar need not,
// so that line has no goal.
func (b *bench) trees() error {
	repo := filepath.Join(b.dir, "big")
	if err := b.makeTree(repo); err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		fmt.Println("20,000 files: only root can measure them (a tmpfs of its own, the direct way), so not measured")
		return nil
	}
	tmpfs := filepath.Join(b.dir, "tmpfs")
	if err := os.Mkdir(tmpfs, 0o700); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", tmpfs, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=2g"); err != nil {
		return fmt.Errorf("mounting a tmpfs: %v", err)
	}
	defer unix.Unmount(tmpfs, unix.MNT_DETACH)
	bare := repo + ".git"
	if err := b.git(nil, "clone", "-q", "--bare", repo, bare); err != nil {
		return err
	}
	ways := []treeWay{
		{"runc, direct", "direct", "runc", repo, 1.5},
		{"runc, streamed", "streamed", "runc", repo, 2.5},
		{"runc, direct, bare", "direct", "runc", bare, 0},
	}
	if has, err := b.hasRunsc(); err != nil {
		return err
	} else if has {
		ways = append(ways, treeWay{"runsc, direct", "direct", "runsc", repo, 0})
	}
	for _, way := range ways {
		if err := b.tree(way, repo, tmpfs); err != nil {
			return err
		}
	}
	return nil
}

// treeWay is one way of a tree in and out.
type treeWay struct {
	name, transport, isolation string
	from                       string // the repository
	goal                       float64
}

// tree measures one way against tar, which copies the checkout.
func (b *bench) tree(way treeWay, checkout, tmpfs string) error {
	b.env = append(b.env, "COUNTERSIGN_TRANSPORT="+way.transport)
	defer func() { b.env = b.env[:len(b.env)-1] }()
	var in, out, source, tarIn, tarOut, ratioIn, ratioOut, ratioRead []float64
	for i := range max(3, b.pairs/3) + 1 {
		r, err := b.sealed(way.from, []string{"--isolation", way.isolation}, "true")
		if err != nil {
			return err
		}
		tar, err := b.tar(checkout, tmpfs)
		if err != nil {
			return err
		}
		if i == 0 {
			continue // both filled caches
		}
		x, y := ms(r.stages["workspace.loaded"].Sub(r.stages["sandbox.started"])), ms(r.stages["workspace.captured"].Sub(r.last["sandbox.probed"]))
		in, out, tarIn, tarOut = append(in, x), append(out, y), append(tarIn, tar.in), append(tarOut, tar.out)
		ratioIn, ratioOut, ratioRead = append(ratioIn, x/tar.in), append(ratioOut, y/tar.out), append(ratioRead, y/tar.read)
		source = append(source, ms(r.stages["source.read"].Sub(r.stages["run.admitted"])))
	}
	name := "20,000 files / 200 MB, " + way.name + ", "
	b.line(name+"in / tar", median(ratioIn), "", false, way.goal, fmt.Sprintf("%s ms / %s ms", figure(median(in)), figure(median(tarIn))))
	b.line(name+"out / tar", median(ratioOut), "", false, way.goal, fmt.Sprintf("%s ms / %s ms", figure(median(out)), figure(median(tarOut))))
	fmt.Printf("    out / tar that writes nowhere %s; reading and packing the commit, before the container, %s ms\n", figure(median(ratioRead)), figure(median(source)))
	return nil
}

// tarTimes are those of one copy by tar, in milliseconds.
type tarTimes struct{ in, out, read float64 }

// tar copies the checkout into the tmpfs and from there on within it, and then
// only reads it.
func (b *bench) tar(repo, tmpfs string) (tarTimes, error) {
	there, back := filepath.Join(tmpfs, "there"), filepath.Join(tmpfs, "back")
	defer os.RemoveAll(there)
	defer os.RemoveAll(back)
	if err := errors.Join(os.Mkdir(there, 0o700), os.Mkdir(back, 0o700)); err != nil {
		return tarTimes{}, err
	}
	const copied, read = `tar -C "$0" --exclude=./.git -cf - . | tar -C "$1" -xf -`, `tar -C "$0" -cf - . | cat >/dev/null`
	var t tarTimes
	for _, c := range []struct {
		script, from, to string
		took             *float64
	}{{copied, repo, there, &t.in}, {copied, there, back, &t.out}, {read, there, "", &t.read}} {
		took, err := b.command(nil, "/bin/sh", "-c", c.script, c.from, c.to)
		if err != nil {
			return t, err
		}
		*c.took = ms(took)
	}
	return t, nil
}

// makeTree makes a repository whose one commit has the files, packed as a clone
// is, and checks it out. The contents are words, which compress as source does.
func (b *bench) makeTree(repo string) error {
	var in bytes.Buffer
	in.WriteString("commit refs/heads/main\ncommitter bench <b@example.com> 1577836800 +0000\ndata 5\nstart\n")
	rnd := rand.New(rand.NewSource(3))
	words := make([][]byte, 4000)
	for i := range words {
		w := make([]byte, 3+rnd.Intn(9))
		for j := range w {
			w[j] = byte('a' + rnd.Intn(26))
		}
		words[i] = w
	}
	text := make([]byte, 0, fileBytes+16)
	for i := range treeFiles {
		for text = text[:0]; len(text) < fileBytes; {
			end := byte(' ')
			if rnd.Intn(8) == 0 {
				end = '\n'
			}
			text = append(append(text, words[rnd.Intn(len(words))]...), end)
		}
		fmt.Fprintf(&in, "M 100644 inline d%02d/e%02d/file%05d.txt\ndata %d\n%s\n", i%20, i/20%20, i, fileBytes, text[:fileBytes])
	}
	return errors.Join(
		b.git(nil, "init", "-q", "-b", "main", repo),
		b.git(io.Reader(&in), "-C", repo, "fast-import", "--quiet"),
		b.git(nil, "-C", repo, "reset", "-q", "--hard"))
}
