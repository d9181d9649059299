package ledger

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/policy/contract"
)

// Config is what a [Writer] needs. Every field but Sync and Tenant is required.
type Config struct {
	// Out receives whole lines, one Write a record.
	Out io.Writer
	// Sync, when set, is called after every record, to bring it to stable
	// storage. Its fault is the writer's last word.
	Sync func() error
	// Now is the clock; its values are written in UTC.
	Now func() time.Time
	// Run is the run's id; Tenant its tenant, 0 for a local run.
	Run    string
	Tenant int64
}

// Writer appends records to one run's ledger. It may be used by several
// goroutines; records are in the order in which Append took its lock.
type Writer struct {
	config Config

	mu     sync.Mutex
	head   Head
	bytes  int64
	failed error
}

// NewWriter returns a Writer of an empty ledger.
func NewWriter(config Config) (*Writer, error) {
	if config.Out == nil || config.Now == nil || config.Run == "" {
		return nil, errors.New("opening ledger: Out, Now and Run are required")
	}
	if !contract.Printable(config.Run) {
		return nil, fmt.Errorf("opening ledger: run id %q has characters that cannot be printed", config.Run)
	}
	return &Writer{config: config, head: Head{Digest: Genesis}}, nil
}

// Append writes one record and returns it. data must encode as a JSON object;
// its strings and keys are escaped (see [contract.Escape]; bytes that are not UTF-8 are
// replaced before, so a caller that must keep them escapes them itself).
//
// A record that is too large or malformed is refused and the ledger goes on. A
// failed write or sync is final: every later Append returns the same error.
func (w *Writer) Append(typ string, data any) (Record, error) {
	return w.append(typ, data, true)
}

// AppendUnsynced is Append without the wait for stable storage, for records of
// which there are many at once; the caller brings them there.
func (w *Writer) AppendUnsynced(typ string, data any) (Record, error) {
	return w.append(typ, data, false)
}

func (w *Writer) append(typ string, data any, sync bool) (Record, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failed != nil {
		return Record{}, w.failed
	}
	record, line, err := w.next(typ, data)
	if err != nil {
		return Record{}, fmt.Errorf("recording %s: %w", contract.Escape(typ), err)
	}
	if err := w.write(line, sync); err != nil {
		w.failed = fmt.Errorf("writing ledger: %w", err)
		return Record{}, w.failed
	}
	w.head = Head{Digest: contract.DigestBytes(line[:len(line)-1]), Records: record.Seq}
	w.bytes += int64(len(line))
	return record, nil
}

// Head names the last record that was written.
func (w *Writer) Head() Head {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.head
}

func (w *Writer) next(typ string, data any) (Record, []byte, error) {
	if !validType(typ) {
		return Record{}, nil, errors.New("a record's type is a lower-case word of at most 64 characters")
	}
	escaped, err := escapeData(data)
	if err != nil {
		return Record{}, nil, err
	}
	record := Record{
		V: Version, Seq: w.head.Records + 1, Prev: w.head.Digest,
		Time:   w.config.Now().UTC().Format(timeLayout),
		Tenant: w.config.Tenant, Run: w.config.Run, Type: typ, Data: escaped,
	}
	line, err := contract.EncodeCanonical(record)
	if err != nil {
		return Record{}, nil, err
	}
	line = append(line, '\n')
	switch {
	case len(line) > MaxLine:
		return Record{}, nil, fmt.Errorf("the record has %d bytes, at most %d are allowed", len(line), MaxLine)
	case record.Seq > MaxRecords || w.bytes+int64(len(line)) > MaxBytes:
		return Record{}, nil, errors.New("the ledger is full")
	}
	return record, line, nil
}

func (w *Writer) write(line []byte, sync bool) error {
	n, err := w.config.Out.Write(line)
	if err == nil && n < len(line) {
		err = io.ErrShortWrite
	}
	if err == nil && sync && w.config.Sync != nil {
		err = w.config.Sync()
	}
	return err
}

// escapeData encodes data as a JSON object whose strings are printable.
func escapeData(data any) (json.RawMessage, error) {
	raw, err := json.Marshal(data)
	if err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	object, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("a record's data is a JSON object")
	}
	return contract.EncodeCanonical(escapeValue(object))
}
