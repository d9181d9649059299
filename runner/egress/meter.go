package egress

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// meter counts one rule's connections and bytes. It outlives a revision of the
// contract that keeps the rule.
type meter struct {
	connections, out, in atomic.Int64

	mu    sync.Mutex
	limit int64 // bytes that may be sent in all
	used  int64
}

func (m *meter) charged() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used
}

// RuleTotals is what went out by one rule: connections, bytes of the wire both
// ways, and bytes charged against its upload.
type RuleTotals struct{ Connections, BytesOut, BytesIn, Charged int64 }

// RuleTotals counts so far, one entry for each rule in force, in the contract's
// order.
func (p *Proxy) RuleTotals() []RuleTotals {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]RuleTotals, len(p.meters))
	for i, m := range p.meters {
		all[i] = RuleTotals{m.connections.Load(), m.out.Load(), m.in.Load(), m.charged()}
	}
	return all
}

func (m *meter) setLimit(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.limit = n
}

func (m *meter) charge(n int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n < 0 || n > m.limit-m.used {
		return &Refused{ClassBudget, fmt.Sprintf("its rule lets out %d bytes a run, of which %d were sent", m.limit, m.used)}
	}
	m.used += n
	return nil
}

// charge counts n bytes that are about to leave against the rule's budget.
// Past the budget it is a *Refused (ClassBudget) and none of them may be sent.
func (p *Proxy) charge(rule int, n int) error {
	m := p.meter(rule)
	if m == nil {
		return &Refused{ClassBudget, "its rule is gone from the contract"}
	}
	return m.charge(int64(n))
}

func (p *Proxy) meter(rule int) *meter {
	p.mu.Lock()
	defer p.mu.Unlock()
	if rule < 0 || rule >= len(p.meters) {
		return nil
	}
	return p.meters[rule]
}

// metersFor keeps the meters of rules that stay where they are, so that a
// revision does not fill a budget again.
func metersFor(next, before *Rules, meters []*meter) []*meter {
	out := make([]*meter, next.Len())
	for i := range out {
		if i < len(meters) && sameRule(next.Rule(i), before.Rule(i)) {
			out[i] = meters[i]
		} else {
			out[i] = new(meter)
		}
		out[i].setLimit(next.Rule(i).UploadBytes)
	}
	return out
}
