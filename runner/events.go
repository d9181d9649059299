package runner

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// Kinds of event that a child sends to its parent: output of file descriptor 1
// or 2, and last a report or the error that kept it from having one. Each is
// its kind, its length in four bytes (big endian), and as many bytes. Output is
// not encoded: a flood of it must cost no more than its bytes.
const (
	eventReport = 'R'
	eventError  = 'E'
)

// maxEvent bounds one event in bytes. The child is this program; the bound is
// for one that went wrong.
const maxEvent = 64 << 20

// eventWriter is the child's end. It may be used by several goroutines.
type eventWriter struct {
	mu sync.Mutex
	w  *bufio.Writer
}

func newEventWriter(w io.Writer) *eventWriter {
	return &eventWriter{w: bufio.NewWriterSize(w, 64<<10)}
}

func (e *eventWriter) send(kind byte, p []byte) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(p) > maxEvent {
		return fmt.Errorf("sending an event: it has %d bytes", len(p))
	}
	head := binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(p)))
	_, err := e.w.Write(head)
	if err == nil {
		_, err = e.w.Write(p)
	}
	if err == nil {
		err = e.w.Flush()
	}
	return err
}

func (e *eventWriter) report(r Report) error {
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encoding report: %v", err)
	}
	return e.send(eventReport, data)
}

// readEvents hands on output until the report. A stream that ends before it, or
// is not one, is ErrSupervisorLost.
func readEvents(r io.Reader, output func(fd int, p []byte)) (Report, error) {
	in := bufio.NewReaderSize(r, 64<<10)
	var head [5]byte
	var buf []byte
	for {
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return Report{}, ErrSupervisorLost
		}
		n := binary.BigEndian.Uint32(head[1:])
		if n > maxEvent {
			return Report{}, ErrSupervisorLost
		}
		if int(n) > cap(buf) {
			buf = make([]byte, n)
		}
		buf = buf[:n]
		if _, err := io.ReadFull(in, buf); err != nil {
			return Report{}, ErrSupervisorLost
		}
		switch head[0] {
		case 1, 2:
			output(int(head[0]), buf)
		case eventError:
			return Report{}, errors.New(string(buf))
		case eventReport:
			var report Report
			if err := json.Unmarshal(buf, &report); err != nil {
				return Report{}, ErrSupervisorLost
			}
			return report, nil
		default:
			return Report{}, ErrSupervisorLost
		}
	}
}
