package runner

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/policy/ledger"
)

// Inputs are what a contract was derived from, as bytes; they go into the
// bundle unchanged, so that anyone can derive it again.
type Inputs struct {
	Task     []byte `json:"task"`
	Snapshot []byte `json:"snapshot"`
	Policy   []byte `json:"policy"`
	Ceiling  []byte `json:"ceiling"`
	// Signer is the public key (PEM) of whoever will sign the statement.
	Signer []byte `json:"signer"`
}

// Bundle writes the evidence of one run, file by file and record by record. The
// first fault stays: a bundle with one is never finished, and a bundle without
// evidence.json is incomplete to whoever reads it.
//
// What was written survives the death of every process of ours at once, since
// the kernel has it. Only the machine's own death needs stable storage, and each
// wait for that costs milliseconds. So a workload starts only when all that came
// before is there ([Bundle.Secure]), while it may act every record is there
// before the next step, and nothing is signed before all of it is. Before the
// workload and after its end the files wait for that together: a machine that
// dies then takes the sandbox with it and leaves a bundle that is incomplete
// with or without its last records.
type Bundle struct {
	dir    string
	root   *os.Root
	ledger *ledger.Writer
	file   *os.File // of the ledger
	mu     sync.Mutex
	err    error
	eager  bool       // each record and file goes to stable storage at once
	wait   []*os.File // written, to be synced and closed by Secure
	dirty  atomic.Bool
}

// CreateBundle makes the directory dir, which must not exist, and opens the
// ledger in it.
func CreateBundle(dir, runID string, tenant int64, now func() time.Time) (*Bundle, error) {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return nil, fmt.Errorf("making evidence directory: %v", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making evidence directory: %v; name one that does not exist", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("opening evidence directory: %v", err)
	}
	b := &Bundle{dir: dir, root: root}
	b.file, err = root.OpenFile(ledger.FileLedger, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err == nil {
		b.ledger, err = ledger.NewWriter(ledger.Config{Out: b.file, Sync: b.sync, Now: now, Run: runID, Tenant: tenant})
	}
	if err != nil {
		root.Close()
		return nil, fmt.Errorf("opening ledger: %v", err)
	}
	return b, nil
}

// sync is called after each record.
func (b *Bundle) sync() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.eager {
		return nil
	}
	return b.file.Sync()
}

// Secure returns when all that was written is on stable storage. With eager,
// what is written from now on goes there at once.
func (b *Bundle) Secure(eager bool) {
	b.mu.Lock()
	waiting := b.wait
	b.wait, b.eager = nil, eager
	b.mu.Unlock()
	errs := make([]error, len(waiting)+1)
	var done sync.WaitGroup // at once, which is one commit of a journal
	for i, f := range waiting {
		done.Go(func() { errs[i] = errors.Join(f.Sync(), f.Close()) })
	}
	errs[len(waiting)] = b.file.Sync()
	done.Wait()
	b.keep(errors.Join(errs...))
}

// Record appends to the ledger.
func (b *Bundle) Record(typ string, data any) {
	_, err := b.ledger.Append(typ, data)
	b.keep(err)
}

// RecordSoon appends to the ledger without a wait for stable storage; whatever
// is recorded until then is there a [flushTime] later, while KeepFlushed runs.
func (b *Bundle) RecordSoon(typ string, data any) {
	_, err := b.ledger.AppendUnsynced(typ, data)
	b.keep(err)
	b.dirty.Store(true)
}

// flushTime is how much of what the proxy did a machine that loses its power may
// keep to itself.
const flushTime = 200 * time.Millisecond

// KeepFlushed brings what RecordSoon wrote to stable storage until done closes.
func (b *Bundle) KeepFlushed(done <-chan struct{}) {
	tick := time.NewTicker(flushTime)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
			if b.dirty.Swap(false) {
				b.keep(b.file.Sync())
			}
		}
	}
}

// Write makes one file of the bundle.
func (b *Bundle) Write(name string, data []byte) {
	f, err := b.Create(name)
	if err != nil {
		return
	}
	_, err = f.Write(data)
	b.keep(errors.Join(err, f.Close()))
}

// Create opens a new file of the bundle for writing; its Close, or Secure after
// it, brings it to stable storage.
func (b *Bundle) Create(name string) (BundleFile, error) {
	if dir := filepath.Dir(name); dir != "." {
		if err := b.root.MkdirAll(dir, 0o700); err != nil {
			b.keep(err)
			return nil, err
		}
	}
	f, err := b.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		b.keep(err)
		return nil, err
	}
	return &syncedFile{File: f, bundle: b}, nil
}

// maxText bounds one free text of a record; a record as a whole is bounded by
// the ledger.
const maxText = 512

func clip(s string) string {
	if len(s) <= maxText {
		return s
	}
	return s[:maxText] + "…"
}

// Ensure makes the named file, empty, unless the run has made it: a bundle
// always has the same files.
func (b *Bundle) Ensure(name string) {
	if _, err := b.root.Lstat(name); errors.Is(err, fs.ErrNotExist) {
		b.Write(name, nil)
	}
}

// BundleFile is a file of a bundle while it is written.
type BundleFile interface {
	io.WriteCloser
	Truncate(size int64) error
}

type syncedFile struct {
	*os.File
	bundle *Bundle
}

func (f *syncedFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	f.bundle.keep(err)
	return n, err
}

func (f *syncedFile) Close() error {
	b := f.bundle
	b.mu.Lock()
	later := !b.eager
	if later {
		b.wait = append(b.wait, f.File)
	}
	b.mu.Unlock()
	if later {
		return nil
	}
	err := errors.Join(f.Sync(), f.File.Close())
	b.keep(err)
	return err
}

func (b *Bundle) keep(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil && err != nil {
		b.err = fmt.Errorf("writing evidence: %w", err)
	}
}

// Err is the first fault.
func (b *Bundle) Err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

// WriteInputs stores what the contract was derived from, and the contract;
// sealed is nil for a run that was refused before it had one.
func (b *Bundle) WriteInputs(in Inputs, sealed *contract.Sealed) {
	b.Write(ledger.FileTask, in.Task)
	b.Write(ledger.FileSnapshot, in.Snapshot)
	b.Write(ledger.FilePolicy, in.Policy)
	b.Write(ledger.FileCeiling, in.Ceiling)
	b.Write(ledger.FileSigner, in.Signer)
	if sealed != nil {
		b.Write(ledger.ContractFile(sealed.Contract().Revision), sealed.Bytes())
	}
}

// Finish closes the ledger and makes the statement over everything in the
// bundle. Signing it, and writing it as the bundle's last file, is the
// caller's: the process that ran the workload never holds a signing key.
func (b *Bundle) Finish(p ledger.Predicate) (*ledger.Statement, error) {
	p.Ledger = b.ledger.Head()
	b.Secure(false)
	b.keep(b.file.Close())
	if err := b.Err(); err != nil {
		return nil, err
	}
	files, err := ledger.FilesOf(b.root.FS())
	if err != nil {
		return nil, fmt.Errorf("finishing evidence: %v", err)
	}
	p.Files = files
	s, err := ledger.NewStatement(p)
	if err != nil {
		return nil, fmt.Errorf("finishing evidence: %v", err)
	}
	return &s, b.root.Close()
}
