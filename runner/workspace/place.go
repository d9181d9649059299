package workspace

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"path"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// place writes a start tree straight under root, which must be an empty
// directory: the same nodes that [Receive] makes of what [Tree.Send] sends, as
// carefully, without a stream between them. The directories come first; then
// each of two workers reads files and writes them, so that no byte is handed
// from one to the other.
func (t *Tree) place(ctx context.Context, root string, uid int) (Stats, error) {
	fd, err := openEmpty(root)
	if err != nil {
		return Stats{}, fmt.Errorf("placing tree into %s: %w", root, err)
	}
	defer unix.Close(fd)
	p := &placer{maker: newMaker(uid), t: t, root: fd, git: t.dotGit()}
	if err = p.directories(); err == nil {
		err = p.files(ctx)
	}
	done := Stats{Entries: p.entries.Load(), Bytes: p.bytes.Load()}
	if err != nil {
		return done, fmt.Errorf("placing tree: %w", full(err, done))
	}
	return done, nil
}

type placer struct {
	maker
	t    *Tree
	root int
	git  []gitNode

	entries, bytes atomic.Int64
}

// directories makes every directory.
func (p *placer) directories() error {
	into, err := openTreeAt(p.root, ".")
	if err != nil {
		return err
	}
	defer into.close()
	last := ""
	for _, e := range p.t.delivered {
		last = newDirs(last, e.path, func(dir string) { err = cmp.Or(err, p.directory(into, dir)) })
		if e.mode == modeGitlink {
			err = cmp.Or(err, p.directory(into, e.path))
		}
		if err != nil {
			return err
		}
	}
	for _, n := range p.git {
		if n.dir {
			err = cmp.Or(err, p.directory(into, n.path))
		}
	}
	return err
}

func (p *placer) directory(into *treeFiles, dir string) error {
	p.entries.Add(1)
	parent, err := into.directory(dir)
	if err == nil {
		var fd int
		if fd, err = p.mkdir(parent, path.Base(dir)); err == nil {
			err = unix.Close(fd)
		}
	}
	return writing(dir, err)
}

// job is a part of the files that one worker writes.
type job func(context.Context, *placeWorker) error

// jobs begins with what takes longest.
func (p *placer) jobs() (jobs []job) {
	for _, n := range p.git {
		if !n.dir {
			jobs = append(jobs, func(_ context.Context, w *placeWorker) error { return w.gitFile(n) })
		}
	}
	for _, batch := range cutBatches(p.t.blobs()) {
		jobs = append(jobs, func(ctx context.Context, w *placeWorker) error { return w.batch(ctx, batch) })
	}
	return jobs
}

// files fills the directories and closes with the index.
func (p *placer) files(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	jobs := p.jobs()
	var next atomic.Int64
	var workers [readers]placeWorker
	var running sync.WaitGroup
	for i := range workers {
		running.Go(func() {
			if err := workers[i].work(ctx, p, jobs, &next); err != nil {
				cancel(err)
			}
		})
	}
	running.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return p.index(workers[:])
}

// index writes what the workers noted, and the submodules.
func (p *placer) index(workers []placeWorker) error {
	var index []indexEntry
	for _, w := range workers {
		index = append(index, w.index...)
	}
	for _, e := range p.t.submodules() {
		index = append(index, indexEntry{path: e.path, mode: e.mode, oid: rawOID(e.oid)})
	}
	into, err := openTreeAt(p.root, ".")
	if err != nil {
		return err
	}
	defer into.close()
	dir, err := into.directory(gitIndex)
	if err == nil {
		p.entries.Add(1)
		err = p.makeIndex(dir, path.Base(gitIndex), encodeIndex(index, p.t.store.oidLen))
	}
	return writing(gitIndex, err)
}

// placeWorker writes files of its own.
type placeWorker struct {
	*placer
	into  *treeFiles
	from  *batchReader
	buf   []byte
	index []indexEntry
}

// work does the next job until there is none left.
func (w *placeWorker) work(ctx context.Context, p *placer, jobs []job, next *atomic.Int64) (err error) {
	w.placer = p
	if w.into, err = openTreeAt(p.root, "."); err != nil {
		return err
	}
	defer w.into.close()
	w.from = p.t.store.batchReader()
	defer w.from.close()
	for {
		n := next.Add(1) - 1
		if n >= int64(len(jobs)) {
			return nil
		}
		if err := cmp.Or(ctx.Err(), jobs[n](ctx, w)); err != nil {
			return err
		}
	}
}

// batch reads a batch and writes it.
func (w *placeWorker) batch(ctx context.Context, batch []treeEntry) error {
	if batch[0].size > wholeFile {
		return w.from.large(ctx, batch[0], func(r io.Reader) error { return w.entry(batch[0], r) })
	}
	blobs, err := w.from.read(ctx, batch, &w.buf)
	if err != nil {
		return err
	}
	for i, e := range batch {
		if err := w.entry(e, bytes.NewReader(blobs[i])); err != nil {
			return err
		}
	}
	return nil
}

func (w *placeWorker) entry(e treeEntry, r io.Reader) (err error) {
	var st unix.Stat_t
	switch e.mode {
	case modeLink:
		st, err = w.link(e, r)
	case modeExec:
		st, err = w.file(e.path, execMode, r)
	default:
		st, err = w.file(e.path, fileMode, r)
	}
	w.index = append(w.index, indexEntry{e.path, e.mode, rawOID(e.oid), st})
	return writing(e.path, err)
}

func (w *placeWorker) file(p string, mode uint32, r io.Reader) (st unix.Stat_t, err error) {
	w.entries.Add(1)
	dir, err := w.into.directory(p)
	if err != nil {
		return st, err
	}
	return w.makeFile(dir, path.Base(p), mode, func(fd int) error {
		n, err := io.Copy(fdWriter(fd), r)
		w.bytes.Add(n)
		return err
	})
}

func (w *placeWorker) link(e treeEntry, r io.Reader) (st unix.Stat_t, err error) {
	w.entries.Add(1)
	target, err := readTarget(e, r)
	if err != nil {
		return st, err
	}
	dir, err := w.into.directory(e.path)
	if err != nil {
		return st, err
	}
	return w.makeLink(dir, path.Base(e.path), target)
}

func (w *placeWorker) gitFile(n gitNode) error {
	from, _, err := n.open()
	if err != nil {
		return err
	}
	defer from.Close()
	_, err = w.file(n.path, fileMode, from)
	return writing(n.path, err)
}

// writing says what could not be written.
func writing(p string, err error) error {
	if err != nil {
		return fmt.Errorf("writing %q: %w", clip(p), err)
	}
	return nil
}
