package runner

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/policy/contract"
)

// WarmIdle is how long a sandbox may wait for its run.
const WarmIdle = 30 * time.Minute

// WarmOrder asks for a sandbox of a shape whose run is not known yet.
type WarmOrder struct {
	Shape Shape `json:"shape"`
	// Transport is as in the Order that is to come.
	Transport string `json:"transport"`
}

// Warm is a sandbox that was started before its job: the shim in it has greeted
// and waits. It holds nothing of any run, is used for one run or none, and is
// gone with it.
type Warm struct {
	*instance
	made time.Time
}

// Warm makes a sandbox of that shape. When it cannot, nothing is left of it.
func (s *Supervisor) Warm(ctx context.Context, order WarmOrder) (*Warm, error) {
	id, err := contract.NewRunID(s.Now(), s.Rand)
	if err != nil {
		return nil, fmt.Errorf("naming a sandbox: %v", err)
	}
	i := &instance{s: s, name: warmPrefix + strings.TrimPrefix(id, "run_"), shape: order.Shape, transport: order.Transport, idle: WarmIdle}
	if err := i.make(ctx); err != nil {
		return nil, errors.Join(err, i.discard(ctx))
	}
	return &Warm{instance: i, made: s.Now()}, nil
}

// make takes every step that needs no contract.
func (i *instance) make(ctx context.Context) error {
	for _, step := range []struct {
		name string
		do   func(*instance, context.Context) error
	}{
		{"claim", (*instance).takeDirectory},
		{"engine", (*instance).readEngine},
		{"shim", (*instance).compile},
		{"create", (*instance).create},
		{"start", (*instance).start},
		{"greet", (*instance).greet},
	} {
		bounded, cancel := context.WithTimeout(ctx, startTime)
		err := step.do(i, bounded)
		cancel()
		if err != nil {
			return fmt.Errorf("making a warm sandbox (%s): %w", step.name, err)
		}
		i.s.failPoint(step.name)
	}
	return nil
}

func (i *instance) discard(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	return i.remove(ctx)
}

// Name is the sandbox's.
func (w *Warm) Name() string { return w.name }

// Gone closes when the sandbox has ended, which one that waits never should.
func (w *Warm) Gone() <-chan struct{} { return w.end.done }

func (w *Warm) gone() bool {
	select {
	case <-w.end.done:
		return true
	default:
		return false
	}
}

// Discard leaves nothing of a sandbox that no run took.
func (w *Warm) Discard(ctx context.Context) error { return w.discard(ctx) }

// Supervise performs a run as [Supervisor.Supervise] does, in this sandbox. It
// may be called once, and the sandbox is gone after it. An order of another
// shape is an error, and leaves it waiting.
func (w *Warm) Supervise(ctx context.Context, order Order) (Report, error) {
	return w.s.supervise(ctx, order, w)
}

// fits refuses a run that would have been given another sandbox.
func (w *Warm) fits(want *instance) error {
	a, errA := w.shape.Key()
	b, errB := want.shape.Key()
	if err := errors.Join(errA, errB); err != nil {
		return err
	}
	if a != b || w.transport != want.transport {
		return errors.New("a warm sandbox was given the order of another shape")
	}
	return nil
}
