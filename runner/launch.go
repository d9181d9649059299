package runner

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"syscall"
)

// Launch is the parent's side: it starts command, which must call ServeOrder,
// hands it the order, and returns its report. A cancelled ctx asks the child to
// end the run, and kill (which may be nil) to end it at once; Launch waits for
// the report all the same. command's Stdin and Stdout are Launch's own.
func Launch(ctx context.Context, command *exec.Cmd, order Order, output func(fd int, p []byte), kill <-chan struct{}) (Report, error) {
	s, err := startSupervisor(command, errand{})
	if err != nil {
		return Report{}, err
	}
	report, _, err := s.perform(ctx, order, output, kill)
	return report, err
}

// supervisor is a started child as its parent sees it.
type supervisor struct {
	command *exec.Cmd
	stdin   io.WriteCloser
	events  *eventReader
	// quiet, when it is not nil, closes once nobody else reads events.
	quiet chan struct{}
}

func startSupervisor(command *exec.Cmd, first errand) (*supervisor, error) {
	stdin, err := command.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("starting supervisor: %v", err)
	}
	stdout, err := command.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("starting supervisor: %v", err)
	}
	// A Ctrl-C goes to the whole foreground group; the child is told by word.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("starting supervisor: %v", err)
	}
	s := &supervisor{command: command, stdin: stdin, events: newEventReader(stdout)}
	line, err := json.Marshal(first)
	if err == nil {
		_, err = stdin.Write(append(line, '\n'))
	}
	if err != nil {
		s.end()
		return nil, fmt.Errorf("starting supervisor: %v", err)
	}
	return s, nil
}

// end closes the child's standard input, which ends what it does, and waits.
func (s *supervisor) end() error {
	s.stdin.Close()
	return s.command.Wait()
}

// perform hands over the order and returns the report when the child has ended.
// taken says whether the child got so far as to begin: if not, nothing has been
// done for the order, and another may be given it.
func (s *supervisor) perform(ctx context.Context, order Order, output func(fd int, p []byte), kill <-chan struct{}) (report Report, taken bool, err error) {
	data, err := json.Marshal(order)
	if err != nil {
		s.end()
		return Report{}, false, fmt.Errorf("encoding order: %v", err)
	}
	done := make(chan struct{})
	told := tell(ctx, s.stdin, append(data, '\n'), kill, done)
	if s.quiet != nil {
		<-s.quiet
	}
	if _, err = s.events.expect(eventTaken); err == nil {
		taken = true
		report, err = s.events.report(output)
	}
	close(done)
	<-told
	waitErr := s.end()
	if err != nil && waitErr != nil {
		err = fmt.Errorf("%w (%v)", err, waitErr)
	}
	return report, taken, err
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
