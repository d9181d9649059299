package runner

import (
	"context"
	"log/slog"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"github.com/countersign-dev/countersign/policy/contract"
)

// PoolConfig is what a [Pool] needs. Every field is required.
type PoolConfig struct {
	// Command makes the command of a supervising process, see [Launch].
	Command func() (*exec.Cmd, error)
	// MemoryBytes bounds what the warm sandboxes may hold together, each counted
	// with the whole memory limit of its shape. A shape that does not fit is
	// never kept.
	MemoryBytes int64
	// Depth is how many sandboxes of one shape are kept, at least one.
	Depth int
	// Waiting is told how many sandboxes wait whenever that changes. It must
	// neither block nor call the pool.
	Waiting func(sandboxes int)
	Log     *slog.Logger
}

// Pool keeps sandboxes that were started before their job. A run whose contract
// has the shape of one gets it and does not wait for a container; every other
// starts cold. A sandbox is used for one run and never shared; each is
// supervised by the process that will supervise its run, so that a pool holds no
// more of a run than [Launch] does. Sandboxes are made one at a time.
//
// Nothing is kept until [Pool.Want] or [Pool.Launch] named a shape. Of several
// the ones named last are kept, as far as the memory allows.
type Pool struct {
	cfg  PoolConfig
	wake chan struct{}
	stop context.CancelFunc
	done chan struct{}

	mu      sync.Mutex
	wanted  []WarmOrder // named last first
	warm    []*warmSupervisor
	counted int // what Waiting was told last
}

// NewPool starts a pool, which must be closed.
func NewPool(cfg PoolConfig) *Pool {
	ctx, stop := context.WithCancel(context.Background())
	p := &Pool{cfg: cfg, wake: make(chan struct{}, 1), stop: stop, done: make(chan struct{})}
	go p.fill(ctx)
	return p
}

// Close discards every sandbox and returns when none is left. A run that took
// one goes on.
func (p *Pool) Close() {
	p.stop()
	<-p.done
}

// Want names a shape of which sandboxes are to be kept.
func (p *Pool) Want(order WarmOrder) {
	p.mu.Lock()
	p.wanted = rewant(p.wanted, order)
	p.mu.Unlock()
	p.poke()
}

func (p *Pool) poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Launch is [Launch] in a warm sandbox where there is one of the contract's
// shape, and its shape is wanted from then on. A sandbox that turned out to be
// dead before it took the order is no fault of the run, which then starts cold.
func (p *Pool) Launch(ctx context.Context, order Order, output func(fd int, p []byte), kill <-chan struct{}) (Report, error) {
	sealed, err := contract.Open(order.Contract)
	if err != nil {
		return Report{}, err
	}
	want := WarmOrder{Shape: ShapeOf(sealed.Contract()), Transport: order.Transport}
	w := p.take(want)
	p.Want(want)
	if w != nil {
		report, taken, err := w.perform(ctx, order, output, kill)
		if taken || err == nil {
			return report, err
		}
		p.cfg.Log.Warn("a warm sandbox could not be used; starting cold", "sandbox", w.name, "error", err)
	}
	command, err := p.cfg.Command()
	if err != nil {
		return Report{}, err
	}
	return Launch(ctx, command, order, output, kill)
}

func (p *Pool) take(want WarmOrder) *warmSupervisor {
	key := want.key()
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.count()
	for i, w := range p.warm {
		if w.key == key && !w.dead.Load() && time.Now().Before(w.expires) {
			p.warm = append(p.warm[:i:i], p.warm[i+1:]...)
			return w
		}
	}
	return nil
}

// fill makes and discards until it is stopped, one sandbox at a time.
func (p *Pool) fill(ctx context.Context) {
	defer close(p.done)
	defer p.discardAll()
	expiry := time.NewTicker(WarmIdle / 4)
	defer expiry.Stop()
	for {
		if !p.step(ctx, time.Now()) {
			select {
			case <-ctx.Done():
				return
			case <-p.wake:
			case <-expiry.C:
			}
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// step does the one thing that the pool needs most, and says whether there may
// be more to do.
func (p *Pool) step(ctx context.Context, now time.Time) bool {
	p.mu.Lock()
	var drop []*warmSupervisor
	var have []string
	p.warm = keep(p.warm, func(w *warmSupervisor) bool {
		if w.dead.Load() || now.After(w.expires) {
			drop = append(drop, w)
			return false
		}
		return true
	})
	for _, w := range p.warm {
		have = append(have, w.key)
	}
	next, surplus := planPool(p.wanted, have, p.cfg.Depth, p.cfg.MemoryBytes)
	p.warm = keep(p.warm, func(w *warmSupervisor) bool {
		if surplus[w.key] > 0 {
			surplus[w.key]--
			drop = append(drop, w)
			return false
		}
		return true
	})
	p.count()
	p.mu.Unlock()
	for _, w := range drop {
		w.end()
	}
	if next == nil {
		return false
	}
	return p.add(ctx, *next)
}

// add makes one sandbox. A shape that cannot be had is not tried again before
// it is named again.
func (p *Pool) add(ctx context.Context, order WarmOrder) bool {
	w, err := p.start(ctx, order)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		if ctx.Err() == nil {
			p.cfg.Log.Warn("a warm sandbox could not be made", "error", err)
		}
		p.wanted = unwant(p.wanted, order)
		return true
	}
	p.warm = append(p.warm, w)
	p.count()
	return true
}

// count is called with mu held.
func (p *Pool) count() {
	if p.counted != len(p.warm) {
		p.counted = len(p.warm)
		p.cfg.Waiting(p.counted)
	}
}

func (p *Pool) start(ctx context.Context, order WarmOrder) (*warmSupervisor, error) {
	expires := time.Now().Add(WarmIdle)
	command, err := p.cfg.Command()
	if err != nil {
		return nil, err
	}
	s, err := startSupervisor(command, errand{Warm: &order})
	if err != nil {
		return nil, err
	}
	// A child that is not wanted any more ends with its standard input.
	unwatch := context.AfterFunc(ctx, func() { s.stdin.Close() })
	name, err := s.events.expect(eventWarm)
	if !unwatch() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		s.end()
		return nil, err
	}
	w := &warmSupervisor{supervisor: s, name: string(name), key: order.key(), expires: expires}
	s.quiet = make(chan struct{})
	go w.watch(p.poke)
	return w, nil
}

func (p *Pool) discardAll() {
	p.mu.Lock()
	all := p.warm
	p.warm = nil
	p.count()
	p.mu.Unlock()
	for _, w := range all {
		w.end()
	}
}

// warmSupervisor is a child whose sandbox waits.
type warmSupervisor struct {
	*supervisor
	name    string
	key     string
	expires time.Time
	dead    atomic.Bool
}

// watch notices a child that ends by itself. It reads ahead and takes nothing:
// the first byte of an order's events stays for whoever performs it.
func (w *warmSupervisor) watch(tell func()) {
	defer close(w.quiet)
	if _, err := w.events.in.Peek(1); err != nil {
		w.dead.Store(true)
		tell()
	}
}
