package ledger

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/countersign-dev/countersign/policy/contract"
)

// Verify reads a ledger from its first line and checks that every line is one
// canonical, printable record that follows the one before it and belongs to the
// same run. It returns the head and the records up to where it stopped; a fault
// is a [*BrokenError] that names the line, any other error is r's own.
//
// It cannot find that whole lines at the end are missing, or that lines which
// continue the chain were added there: compare the head with a signed one.
func Verify(r io.Reader) (Head, []Record, error) {
	head := Head{Digest: Genesis}
	var records []Record
	var total int64
	in := bufio.NewReaderSize(r, MaxLine)
	for {
		line, err := in.ReadSlice('\n')
		if err == io.EOF && len(line) == 0 {
			return head, records, nil
		}
		at := head.Records + 1
		if err != nil {
			return head, records, readError(at, err)
		}
		total += int64(len(line))
		if at > MaxRecords || total > MaxBytes {
			return head, records, &BrokenError{at, "the ledger is larger than a ledger may be"}
		}
		record, err := parseLine(line[:len(line)-1])
		if err == nil {
			err = follows(head, records, record)
		}
		if err != nil {
			return head, records, &BrokenError{at, err.Error()}
		}
		head = Head{Digest: contract.DigestBytes(line[:len(line)-1]), Records: at}
		records = append(records, record)
	}
}

func readError(at int64, err error) error {
	switch {
	case err == io.EOF:
		return &BrokenError{at, "the line is cut off: it has no newline"}
	case errors.Is(err, bufio.ErrBufferFull):
		return &BrokenError{at, fmt.Sprintf("the line is longer than %d bytes", MaxLine)}
	}
	return fmt.Errorf("reading ledger: %w", err)
}

// parseLine decodes one line and refuses any other spelling of the same record.
func parseLine(line []byte) (Record, error) {
	var record Record
	if err := contract.DecodeStrict(line, &record); err != nil {
		return Record{}, fmt.Errorf("not a record: %v", err)
	}
	again, err := contract.EncodeCanonical(record)
	if err != nil {
		return Record{}, fmt.Errorf("not a record: %v", err)
	}
	if !bytes.Equal(again, line) {
		return Record{}, errors.New("the line is not canonical JSON")
	}
	return record, checkFields(record)
}

func checkFields(record Record) error {
	if record.V != Version {
		return fmt.Errorf("record version %d is not %d", record.V, Version)
	}
	if t, err := time.Parse(timeLayout, record.Time); err != nil || t.Format(timeLayout) != record.Time {
		return fmt.Errorf("time %q is not UTC with milliseconds", record.Time)
	}
	if !validType(record.Type) {
		return fmt.Errorf("type %q is not a lower-case word", record.Type)
	}
	var data map[string]any
	if err := json.Unmarshal(record.Data, &data); err != nil || data == nil {
		return errors.New("data is not a JSON object")
	}
	if !contract.Printable(record.Run) || !valuePrintable(data) {
		return errors.New("a value holds characters that were not escaped")
	}
	return nil
}

// follows reports why record cannot come after what was read so far.
func follows(head Head, before []Record, record Record) error {
	if record.Seq != head.Records+1 {
		return fmt.Errorf("seq is %d, expected %d: a line is missing, added or moved", record.Seq, head.Records+1)
	}
	if record.Prev != head.Digest {
		return errors.New("prev does not name the line before: that line or this one was changed")
	}
	if len(before) > 0 && (record.Run != before[0].Run || record.Tenant != before[0].Tenant) {
		return errors.New("the record belongs to another run")
	}
	return nil
}
