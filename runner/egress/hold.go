package egress

import (
	"context"
	"reflect"
	"time"

	"github.com/countersign-dev/countersign/policy/contract"
)

// lease ties what is open to the rule that let it in.
type lease struct {
	rule   int
	entry  contract.NetRule
	cancel context.CancelCauseFunc
	timer  *time.Timer // at the end of the rule's grant; nil without one
}

// admit decides q; a denial whose nearest rule has a hold waits that long for
// other rules, and is notified when the wait begins. It records nothing. When the
// verdict allows, the context ends with ctx, and with a *Refused as its cause
// when the rule is replaced or its grant expires; release must be called.
// Connections and requests both are admitted.
func (p *Proxy) admit(ctx context.Context, q Question) (v Verdict, under context.Context, release func()) {
	v, under, release, changed := p.admitNow(ctx, q)
	wait := p.holdOf(v)
	if v.Allow || wait == 0 {
		return v, under, release
	}
	p.notify(q.Target, v.Class, v.Reason)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for !v.Allow {
		select {
		case <-changed:
			v, under, release, changed = p.admitNow(ctx, q)
		case <-timer.C:
			return v, under, release
		case <-ctx.Done():
			return v, under, release
		}
	}
	return v, under, release
}

// admitNow decides and takes the lease in one step, so that a Replace comes
// before both or after both. changed is closed at the next Replace.
func (p *Proxy) admitNow(ctx context.Context, q Question) (v Verdict, under context.Context, release func(), changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	v = Decide(p.rules, q, p.cfg.Now())
	if !v.Allow {
		return v, ctx, func() {}, p.changed
	}
	under, cancel := context.WithCancelCause(ctx)
	l := &lease{rule: v.Rule, entry: p.rules.Rule(v.Rule), cancel: cancel}
	p.leases[l] = true
	p.arm(l)
	return v, under, func() { p.release(l) }, p.changed
}

func (p *Proxy) release(l *lease) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop(l, nil)
}

// drop ends a lease. p.mu is held.
func (p *Proxy) drop(l *lease, cause error) {
	l.cancel(cause)
	if l.timer != nil {
		l.timer.Stop()
	}
	delete(p.leases, l)
}

// arm sets the lease's timer to the end of its grant, which is in its time: a
// rule past it allows nothing. p.mu is held.
func (p *Proxy) arm(l *lease) {
	if l.timer != nil {
		l.timer.Stop()
	}
	if l.entry.Grant == nil {
		return
	}
	end, err := contract.ParseTime(l.entry.Grant.NotAfter)
	if err != nil {
		p.drop(l, &Refused{ClassExpired, "the end of its grant cannot be read"})
		return
	}
	// A millisecond past the end, so that a clock that stands still is not
	// asked over and over.
	l.timer = time.AfterFunc(end.Sub(p.cfg.Now())+time.Millisecond, func() { p.expire(l) })
}

// expire cuts what a lease let in when its grant has ended by the run's clock.
func (p *Proxy) expire(l *lease) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.leases[l] {
		return
	}
	if l.entry.Grant.Expired(p.cfg.Now()) {
		p.drop(l, &Refused{ClassExpired, "its grant ended at " + l.entry.Grant.NotAfter})
		return
	}
	p.arm(l)
}

// Replace puts the rules of the contract's next revision in force: held
// connections are decided again, open ones whose rule is gone or expired are cut.
func (p *Proxy) Replace(r *Rules) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		return // what was in force to the end is recorded
	}
	p.meters = metersFor(r, p.rules, p.meters)
	p.rules = r
	for l := range p.leases {
		switch {
		case l.rule >= r.Len() || !sameRule(r.Rule(l.rule), l.entry):
			p.drop(l, &Refused{ClassHost, "its rule is gone from the contract"})
		case r.Rule(l.rule).Grant.Expired(p.cfg.Now()):
			p.drop(l, &Refused{ClassExpired, "its grant has ended"})
		default:
			l.entry = r.Rule(l.rule)
			p.arm(l)
		}
	}
	close(p.changed)
	p.changed = make(chan struct{})
}

// sameRule compares what two rules allow, not until when or how much.
func sameRule(a, b contract.NetRule) bool {
	a.Grant, b.Grant = nil, nil
	a.UploadBytes, b.UploadBytes = 0, 0
	return reflect.DeepEqual(a, b)
}

func (p *Proxy) holdOf(v Verdict) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if v.Allow || v.Rule < 0 || v.Rule >= p.rules.Len() {
		return 0
	}
	return time.Duration(p.rules.Rule(v.Rule).HoldSec) * time.Second
}
