package workspace

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
)

const (
	readers    = 2       // of contents, beside the one who takes them
	batchBytes = 1 << 20 // how far a reader reads before it hands on; twice that is held
	batchFiles = 1 << 12
)

// contents hands the blobs of entries to f, in order; f need not read one
// whole. They are read ahead by two readers, from the checkout where it has them
// and from the object store otherwise (where each reader has a git that unpacks
// for it). A blob over wholeFile is not held in memory.
func (s *Store) contents(ctx context.Context, entries []treeEntry, f func(e treeEntry, r io.Reader) error) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	batches := cutBatches(entries)
	var read [readers]chan filled
	for k := range read {
		read[k] = make(chan filled)
		running.Go(func() { s.readAhead(ctx, batches, k, read[k]) })
	}
	large := s.batchReader()
	defer large.close()
	for i, batch := range batches {
		if batch[0].size > wholeFile {
			err := large.large(ctx, batch[0], func(r io.Reader) error { return f(batch[0], r) })
			if err != nil {
				return err
			}
			continue
		}
		var got filled
		select {
		case got = <-read[i%readers]:
		case <-ctx.Done():
			return ctx.Err()
		}
		if got.err != nil {
			return got.err
		}
		for j, e := range batch {
			if err := f(e, bytes.NewReader(got.blobs[j])); err != nil {
				return err
			}
		}
	}
	return nil
}

// cutBatches cuts entries into runs that one reader reads at once. A blob over
// wholeFile is one by itself.
func cutBatches(entries []treeEntry) (batches [][]treeEntry) {
	for len(entries) > 0 {
		n, size := 1, entries[0].size
		for n < min(len(entries), batchFiles) && size+entries[n].size <= batchBytes {
			size += entries[n].size
			n++
		}
		batches = append(batches, entries[:n:n])
		entries = entries[n:]
	}
	return batches
}

// filled is a batch that was read. Its blobs are valid until the same reader
// hands on the next but one.
type filled struct {
	blobs [][]byte
	err   error
}

// readAhead reads every batch that is the k-th reader's.
func (s *Store) readAhead(ctx context.Context, batches [][]treeEntry, k int, out chan<- filled) {
	b := s.batchReader()
	defer b.close()
	var buf [2][]byte // the taker works on one while the other is filled
	for n := 0; k < len(batches); k += readers {
		if batches[k][0].size > wholeFile {
			continue
		}
		blobs, err := b.read(ctx, batches[k], &buf[n%2])
		n++
		select {
		case out <- filled{blobs, err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// batchReader reads blobs of a start tree: from the checkout what it has, from
// the object store the rest. It is used by one goroutine at a time.
type batchReader struct {
	checkout *checkout
	objects  *objectReader
}

func (s *Store) batchReader() *batchReader {
	return &batchReader{checkout: openCheckout(s.from.Worktree, s.oidLen), objects: newObjectReader(s.start)}
}

func (b *batchReader) close() {
	b.checkout.close()
	b.objects.close()
}

// read reads one batch into buf, which it grows.
func (b *batchReader) read(ctx context.Context, batch []treeEntry, buf *[]byte) (blobs [][]byte, err error) {
	total := 0
	for _, e := range batch {
		total += int(e.size)
	}
	*buf = slices.Grow((*buf)[:0], total)
	rest := (*buf)[:total]
	var oids []string
	var absent []int // of the batch, what the checkout does not have
	for i, e := range batch {
		blob := rest[:e.size:e.size]
		rest = rest[e.size:]
		blobs = append(blobs, blob)
		if !b.checkout.blob(e, blob) {
			oids, absent = append(oids, e.oid), append(absent, i)
		}
	}
	err = b.objects.blobs(ctx, oids, func(i int, size int64, r io.Reader) error {
		if e := batch[absent[i]]; size != e.size {
			return errSize(e)
		}
		_, err := io.ReadFull(r, blobs[absent[i]])
		return early(err)
	})
	return blobs, err
}

// large reads one blob that is not to be held in memory.
func (b *batchReader) large(ctx context.Context, e treeEntry, f func(io.Reader) error) error {
	return b.objects.blobs(ctx, []string{e.oid}, func(_ int, size int64, r io.Reader) error {
		if size != e.size {
			return errSize(e)
		}
		return f(r)
	})
}

// errSize is a size that git listed and does not keep to.
func errSize(e treeEntry) error {
	return fmt.Errorf("object %s is not of the %d bytes that it was listed with", e.oid, e.size)
}
