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

// Kinds of event that a child sends to its parent: that its warm sandbox waits,
// that it took an order, output of file descriptor 1 or 2, and last a report or
// the error that kept it from having one. Each is its kind, its length in four bytes (big endian), and as many bytes. Output is
// not encoded: a flood of it must cost no more than its bytes.
const (
	eventWarm   = 'W' // the sandbox's name
	eventTaken  = 'T' // nothing has been done for the order yet
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

// eventReader is the parent's end. A stream that ends, or is none, is
// ErrSupervisorLost.
type eventReader struct {
	in  *bufio.Reader
	buf []byte
}

func newEventReader(r io.Reader) *eventReader {
	return &eventReader{in: bufio.NewReaderSize(r, 64<<10)}
}

// next returns one event; its bytes are good until the next.
func (e *eventReader) next() (kind byte, data []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(e.in, head[:]); err != nil {
		return 0, nil, ErrSupervisorLost
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > maxEvent {
		return 0, nil, ErrSupervisorLost
	}
	if int(n) > cap(e.buf) {
		e.buf = make([]byte, n)
	}
	if _, err := io.ReadFull(e.in, e.buf[:n]); err != nil {
		return 0, nil, ErrSupervisorLost
	}
	return head[0], e.buf[:n], nil
}

// expect wants the next event to be of that kind.
func (e *eventReader) expect(want byte) ([]byte, error) {
	kind, data, err := e.next()
	switch {
	case err != nil:
		return nil, err
	case kind == eventError:
		return nil, errors.New(string(data))
	case kind != want:
		return nil, ErrSupervisorLost
	}
	return data, nil
}

// report hands on output until the report.
func (e *eventReader) report(output func(fd int, p []byte)) (Report, error) {
	for {
		kind, data, err := e.next()
		if err != nil {
			return Report{}, err
		}
		switch kind {
		case 1, 2:
			output(int(kind), data)
		case eventError:
			return Report{}, errors.New(string(data))
		case eventReport:
			var report Report
			if err := json.Unmarshal(data, &report); err != nil {
				return Report{}, ErrSupervisorLost
			}
			return report, nil
		default:
			return Report{}, ErrSupervisorLost
		}
	}
}
