package runner

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"syscall"
)

// Each run is supervised by a process of its own, so that a fault in what
// parses hostile input reaches no other run, no signing key and no credential
// but that run's. The two talk over the child's standard streams: the order and
// then one word a line ("cancel", "kill") go in, events come out. When the
// parent dies, the child's standard input ends, and the run with it.

// ErrSupervisorLost says that a supervising process ended without a report.
// Whatever is left of its run must be swept, and its bundle stays incomplete.
var ErrSupervisorLost = errors.New("the supervising process ended without a report")

// Words that a parent sends to its child.
const (
	wordCancel = "cancel"
	wordKill   = "kill"
)

// ServeOrder is the child's side: it reads one order from in, supervises it,
// and writes events to out until the report, which is the last.
func ServeOrder(ctx context.Context, s *Supervisor, in io.Reader, out io.Writer) error {
	reader := bufio.NewReader(in)
	line, err := reader.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("reading order: %v", err)
	}
	var order Order
	if err := json.Unmarshal(line, &order); err != nil {
		return fmt.Errorf("reading order: %v", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	kill := make(chan struct{})
	s.Kill = kill
	go awaitWords(reader, cancel, kill)

	events := newEventWriter(out)
	s.Output = func(fd int, p []byte) {
		if err := events.send(byte(fd), p); err != nil {
			cancel() // nobody listens any more
		}
	}
	report, err := s.Supervise(ctx, order)
	if err != nil {
		return events.send(eventError, []byte(err.Error()))
	}
	return events.report(report)
}

// awaitWords ends the run when the parent says so, or is gone.
func awaitWords(r *bufio.Reader, cancel func(), kill chan<- struct{}) {
	for {
		word, err := r.ReadString('\n')
		if err == nil && word == wordKill+"\n" {
			close(kill)
			cancel()
			return
		}
		cancel()
		if err != nil {
			return
		}
	}
}

// Launch is the parent's side: it starts command, which must call ServeOrder,
// hands it the order, and returns its report. A cancelled ctx asks the child to
// end the run, and kill (which may be nil) to end it at once; Launch waits for
// the report all the same. command's Stdin and Stdout are Launch's own.
func Launch(ctx context.Context, command *exec.Cmd, order Order, output func(fd int, p []byte), kill <-chan struct{}) (Report, error) {
	data, err := json.Marshal(order)
	if err != nil {
		return Report{}, fmt.Errorf("encoding order: %v", err)
	}
	stdin, err := command.StdinPipe()
	if err != nil {
		return Report{}, fmt.Errorf("starting supervisor: %v", err)
	}
	stdout, err := command.StdoutPipe()
	if err != nil {
		return Report{}, fmt.Errorf("starting supervisor: %v", err)
	}
	// A Ctrl-C goes to the whole foreground group; the child is told by word.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := command.Start(); err != nil {
		return Report{}, fmt.Errorf("starting supervisor: %v", err)
	}
	done := make(chan struct{})
	told := tell(ctx, stdin, append(data, '\n'), kill, done)
	report, err := readEvents(stdout, output)
	close(done)
	<-told
	stdin.Close()
	waitErr := command.Wait()
	if err != nil && waitErr != nil {
		err = fmt.Errorf("%w (%v)", err, waitErr)
	}
	return report, err
}

// tell writes the order, then a word for each way of ending, until done.
func tell(ctx context.Context, w io.Writer, order []byte, kill, done <-chan struct{}) <-chan struct{} {
	told := make(chan struct{})
	go func() {
		defer close(told)
		if _, err := w.Write(order); err != nil {
			return // the child is gone, which reading its events will say
		}
		cancelled := ctx.Done()
		for {
			select {
			case <-done:
				return
			case <-cancelled:
				cancelled = nil
				io.WriteString(w, wordCancel+"\n")
			case <-kill:
				io.WriteString(w, wordKill+"\n")
				return
			}
		}
	}()
	return told
}
