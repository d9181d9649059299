package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/countersign-dev/countersign/policy/contract"
)

// maxOpen bounds the connections of one sandbox at a time.
const maxOpen = 512

// Proxy serves one run.
type Proxy struct {
	cfg Config
	// ctx is the life of the proxy: it ends with Close, and so does everything
	// that was derived from it.
	ctx      context.Context
	end      context.CancelCauseFunc
	work     sync.WaitGroup
	buffers  sync.Pool // of *[copyBuffer]byte
	reading  *reading
	recorder recorder
	denials  denials
	closing  sync.Once

	allowed, in, out atomic.Int64

	mu       sync.Mutex
	listener net.Listener
	open     int
	rules    *Rules
	meters   []*meter // one for each rule
	leases   map[*lease]bool
	changed  chan struct{} // closed at the next Replace
}

var errEnded = errors.New("the run has ended")

// New checks the configuration; it opens nothing.
func New(cfg Config) (*Proxy, error) {
	for _, f := range []struct {
		name    string
		missing bool
	}{
		{"Rules", cfg.Rules == nil}, {"Resolver", cfg.Resolver == nil}, {"Own", cfg.Own == nil}, {"Record", cfg.Record == nil},
		{"Notify", cfg.Notify == nil}, {"Now", cfg.Now == nil}, {"Log", cfg.Log == nil},
	} {
		if f.missing {
			return nil, fmt.Errorf("making the egress proxy: Config.%s is missing", f.name)
		}
	}
	for i := range cfg.Rules.Len() {
		if r := cfg.Rules.Rule(i); r.Mode == contract.RuleInspect && cfg.Authority == nil {
			return nil, fmt.Errorf("making the egress proxy: network.allow[%d] inspects and Config.Authority is missing", i)
		}
	}
	if cfg.Dialer == nil {
		cfg.Dialer = &net.Dialer{Timeout: dialTime}
	}
	read, err := newReading(cfg)
	if err != nil {
		return nil, fmt.Errorf("making the egress proxy: %v", err)
	}
	p := &Proxy{
		cfg:      cfg,
		reading:  read,
		buffers:  sync.Pool{New: func() any { return new([copyBuffer]byte) }},
		recorder: recorder{write: cfg.Record, left: maxRunRecords},
		denials:  denials{counts: make(map[denialKey]*denialCount)},
		rules:    cfg.Rules,
		meters:   metersFor(cfg.Rules, nil, nil),
		leases:   make(map[*lease]bool),
		changed:  make(chan struct{}),
	}
	p.ctx, p.end = context.WithCancelCause(context.Background())
	return p, nil
}

// Serve accepts connections of the sandbox until Close, and closes the
// listener. It may be called once. The error is nil after Close.
func (p *Proxy) Serve(l net.Listener) error {
	defer l.Close()
	if err := p.begin(l); errors.Is(err, errEnded) {
		return nil
	} else if err != nil {
		return err
	}
	defer p.work.Done()
	var pause time.Duration
	for {
		conn, err := l.Accept()
		switch {
		case err == nil:
			pause = 0
			p.accept(conn)
		case p.ctx.Err() != nil:
			return nil
		case passes(err):
			p.cfg.Log.Error("accepting a connection of the sandbox", "error", err)
			if pause = min(max(2*pause, 5*time.Millisecond), time.Second); !p.sleep(pause) {
				return nil
			}
		default:
			return fmt.Errorf("accepting connections of the sandbox: %w", err)
		}
	}
}

// begin takes the listener, so that Close finds it.
func (p *Proxy) begin(l net.Listener) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		return errors.New("serving egress: Serve was called before")
	}
	p.listener = l
	if p.ctx.Err() != nil {
		return errEnded
	}
	p.work.Add(1)
	return nil
}

// passes says whether accepting may work again: the machine is short of
// something, or the peer is gone already.
func passes(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func (p *Proxy) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-p.ctx.Done():
		return false
	}
}

// accept starts to serve a connection, or turns it away.
func (p *Proxy) accept(conn net.Conn) {
	if err := p.checkPeer(conn); err != nil {
		p.deny(Target{}, ClassPeer, err.Error())
		conn.Close()
		return
	}
	if full, ended := p.enter(); full {
		text := p.deny(Target{}, ClassBounds, fmt.Sprintf("%d connections are open, which is the bound", maxOpen))
		conn.SetDeadline(time.Now().Add(time.Second))
		writeRefusal(conn, ClassBounds, text)
		conn.Close()
		return
	} else if ended {
		conn.Close()
		return
	}
	go func() {
		defer p.leave()
		p.serve(conn)
	}()
}

func (p *Proxy) checkPeer(conn net.Conn) error {
	if p.cfg.Peer == nil {
		return nil
	}
	u, ok := conn.(*net.UnixConn)
	if !ok {
		return errors.New("its peer cannot be told")
	}
	return p.cfg.Peer(u)
}

func (p *Proxy) enter() (full, ended bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	full, ended = p.open >= maxOpen, p.ctx.Err() != nil
	if !full && !ended {
		p.open++
		p.work.Add(1)
	}
	return full, ended
}

func (p *Proxy) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open--
	p.work.Done()
}

// closeWith closes c when ctx ends, in a goroutine that Close waits for. stop
// must be called.
func (p *Proxy) closeWith(ctx context.Context, c net.Conn) (stop func()) {
	p.work.Add(1)
	stopFunc := context.AfterFunc(ctx, func() {
		defer p.work.Done()
		c.Close()
	})
	return func() {
		if stopFunc() {
			p.work.Done()
		}
	}
}

// Close cuts every connection, records the totals and returns when nothing of
// the proxy runs any more. It may be called more than once.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.end(errEnded)
	if p.listener != nil {
		p.listener.Close()
	}
	p.mu.Unlock()
	p.work.Wait()
	p.closing.Do(p.recordEnd)
	return nil
}

// Totals counts decisions and bytes so far: connections that were made and
// requests that were let through, refusals of both, and bytes that left.
func (p *Proxy) Totals() contract.EgressTotals {
	return contract.EgressTotals{Allowed: p.allowed.Load(), Denied: p.denials.sum(), BytesOut: p.out.Load()}
}

// entry is the rule in force at a place, and its meter; nil when there is none.
func (p *Proxy) entry(rule int) (contract.NetRule, *meter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if rule < 0 || rule >= len(p.meters) {
		return contract.NetRule{}, nil
	}
	return p.rules.Rule(rule), p.meters[rule]
}
