package runner

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Each run is supervised by a process of its own, so that a fault in what
// parses hostile input reaches no other run, no signing key and no credential
// but that run's. The two talk over the child's standard streams: an errand, the
// order and then one word a line ("cancel", "kill") go in, events come out. When
// the parent dies, the child's standard input ends, and the run with it.

// ErrSupervisorLost says that a supervising process ended without a report.
// Whatever is left of its run must be swept, and its bundle stays incomplete.
var ErrSupervisorLost = errors.New("the supervising process ended without a report")

// Words that a parent sends to its child.
const (
	wordCancel = "cancel"
	wordKill   = "kill"
)

// errand is the first line to a child: the sandbox that is to wait for an
// order, or nothing, and then the order comes at once.
type errand struct {
	Warm *WarmOrder `json:"warm"`
}

// ServeOrder is the child's side: it reads its errand and one order from in,
// supervises it, and writes events to out until the report, which is the last.
// A child whose warm sandbox was not wanted in the end returns no error.
func ServeOrder(ctx context.Context, s *Supervisor, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := &child{s: s, in: bufio.NewReader(in), events: newEventWriter(out), cancel: cancel}
	s.Output = func(fd int, p []byte) {
		if err := c.events.send(byte(fd), p); err != nil {
			cancel() // nobody listens any more
		}
	}
	var e errand
	if err := c.read(&e); err != nil {
		return err
	}
	report, err := c.serve(ctx, e)
	switch {
	case errors.Is(err, errUnwanted):
		return nil
	case err != nil:
		return c.events.send(eventError, []byte(err.Error()))
	}
	return c.events.report(report)
}

// errUnwanted says that a warm sandbox was discarded without a run.
var errUnwanted = errors.New("no order came")

type child struct {
	s      *Supervisor
	in     *bufio.Reader
	events *eventWriter
	cancel func()
}

func (c *child) read(value any) error {
	line, err := c.in.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("reading order: %w", err)
	}
	if err := json.Unmarshal(line, value); err != nil {
		return fmt.Errorf("reading order: %v", err)
	}
	return nil
}

func (c *child) serve(ctx context.Context, e errand) (Report, error) {
	if e.Warm != nil {
		return c.serveWarm(ctx, *e.Warm)
	}
	var order Order
	if err := c.read(&order); err != nil {
		return Report{}, err
	}
	if err := c.take(); err != nil {
		return Report{}, err
	}
	return c.s.Supervise(ctx, order)
}

// take tells the parent that from now on the order is being performed, and
// listens to its words.
func (c *child) take() error {
	kill := make(chan struct{})
	c.s.Kill = kill
	go awaitWords(c.in, c.cancel, kill)
	return c.events.send(eventTaken, nil)
}

// serveWarm makes a sandbox and waits for its order. It is discarded when the
// order does not come: the parent is gone or wants it no more, or the sandbox
// has ended by itself.
func (c *child) serveWarm(ctx context.Context, want WarmOrder) (Report, error) {
	w, err := c.s.Warm(ctx, want)
	if err != nil {
		return Report{}, err
	}
	var order Order
	if err := c.wait(w, &order); err != nil {
		return Report{}, errors.Join(err, w.Discard(ctx))
	}
	if err := c.take(); err != nil {
		return Report{}, errors.Join(err, w.Discard(ctx))
	}
	report, err := w.Supervise(ctx, order)
	if err != nil { // it was not even begun
		err = errors.Join(err, w.Discard(ctx))
	}
	return report, err
}

func (c *child) wait(w *Warm, order *Order) error {
	if err := c.events.send(eventWarm, []byte(w.Name())); err != nil {
		return err
	}
	came := make(chan error, 1)
	go func() { came <- c.read(order) }()
	select {
	case err := <-came:
		if errors.Is(err, io.EOF) || w.gone() {
			return errUnwanted
		}
		return err
	case <-w.Gone():
		return errUnwanted
	}
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
