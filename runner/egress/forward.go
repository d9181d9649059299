package egress

import (
	"bufio"
	"context"
	"errors"

	"github.com/countersign-dev/countersign/policy/contract"
)

// serveForward serves requests in absolute form on a connection to the proxy;
// first was read, its body was not.
func (p *Proxy) serveForward(ctx context.Context, client *peeked, first *head) error {
	s := newSession(p, ctx, client, bufio.NewReader(client))
	f := &forward{session: s, client: client, end: func() {}}
	defer func() { f.end() }()
	s.route = f.route
	s.serve(first)
	return nil
}

// forward is a connection whose requests say each where they go. The way to the
// last target is kept for the next request.
type forward struct {
	session *session
	client  *peeked
	o       *origin
	end     func() // of the way to o
}

// errCanary says that a request is for the proxy itself.
var errCanary = errors.New("a request for the canary")

func (f *forward) route(h *head) (*origin, string, error) {
	t, target, err := h.absolute()
	f.session.target = t
	switch {
	case err != nil:
		return nil, "", err
	case t == (Target{CanaryHost, CanaryPort}):
		return nil, "", errCanary
	case f.o != nil && f.o.flow.target == t && f.o.ctx.Err() == nil:
		return f.o, target, nil
	}
	f.end()
	f.o, f.end = nil, func() {}
	if err := f.connect(t); err != nil {
		return nil, "", err
	}
	return f.o, target, nil
}

// connect asks for the connection first, as for a tunnel: a rule may name the
// host and no request of it.
func (f *forward) connect(t Target) error {
	p := f.session.proxy
	v, under, release := p.admit(f.session.ctx, Question{Target: t})
	if !v.Allow {
		release()
		return &Refused{v.Class, v.Reason}
	}
	entry, _ := p.entry(v.Rule)
	scheme := "http"
	if entry.Mode == contract.RuleGateway {
		scheme = "https"
	}
	way := &flow{proxy: p, target: t, rule: v.Rule, entry: entry, ctx: under, client: f.client, established: true}
	f.o = way.newOrigin(scheme, false)
	f.end = func() { f.o.close(); release() }
	return nil
}
