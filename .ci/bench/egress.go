package main

import (
	"errors"
	"fmt"
)

// few is how many pairs there are of what has no goal.
const few = 2

// egress measures the way out of a sandbox. Ours is a client in a sealed run;
// the relay is the same client in a container like it, behind two hops that only
// copy. Both are driven in turn, over connections of their own.
func (b *bench) egress() error {
	e, err := b.newEgress()
	if err != nil {
		return err
	}
	defer e.site.close()
	if err := e.onRunc(); err != nil {
		return err
	}
	if has, err := b.hasRunsc(); err != nil || !has {
		return err
	}
	return e.pair("runsc", "loop", func(ours, relay *way) error {
		return errors.Join(
			e.throughput("runsc, opaque", ours, relay, e.bytes/10, few, 0),
			e.latency("runsc, ", ours, relay, few, 200, 0))
	})
}

func (e *egressBench) onRunc() error {
	return e.pair("runc", "loop", func(ours, relay *way) error {
		return errors.Join(
			e.throughput("opaque", ours, relay, e.bytes, e.longPairs(), 0.9),
			e.latency("", ours, relay, e.longPairs(), 2000, 1.2),
			e.setUps(ours, relay),
			e.bodies(ours, relay),
			e.spliced(ours), e.beside(ours))
	})
}

// pair opens both ways for as long as they are measured.
func (e *egressBench) pair(isolation, how string, measure func(ours, relay *way) error) error {
	relay, err := e.relayWay(isolation, how)
	if err != nil {
		return err
	}
	ours, err := e.sealedWay(isolation)
	if err != nil {
		return errors.Join(err, relay.close())
	}
	return errors.Join(measure(ours, relay), ours.close(), relay.close())
}

// rate is the MB/s of an order's bytes.
func rate(w *way, o order) func() (float64, error) {
	return func() (float64, error) {
		r, err := w.ask(o)
		return float64(o.Bytes) / 1e6 / r.Seconds, err
	}
}

// throughput compares one connection's bytes a second, both ways.
func (e *egressBench) throughput(name string, ours, theirs *way, bytes int64, pairs int, goal float64) error {
	for _, kind := range []string{"down", "up"} {
		if err := e.rates(name+", "+kind, ours, theirs, order{Kind: kind, Bytes: bytes}, pairs, goal); err != nil {
			return err
		}
	}
	return nil
}

func (e *egressBench) rates(name string, ours, theirs *way, o order, pairs int, goal float64) error {
	our, their, ratio, err := inTurn(pairs, rate(ours, o), rate(theirs, o))
	if err != nil {
		return fmt.Errorf("%s: %v", name, err)
	}
	e.line(fmt.Sprintf("%d MB %s / %s", o.Bytes/1e6, name, theirs.name), ratio, "", true, goal, fmt.Sprintf("%s MB/s / %s MB/s", figure(our), figure(their)))
	return nil
}

// bodies compares what the proxy reads against TLS through the bare relay: it
// ends the client's TLS and speaks its own to the server.
func (e *egressBench) bodies(ours, theirs *way) error {
	for _, c := range []struct {
		name string
		o    order
	}{
		{"inspected, down", order{Kind: "get", Bytes: e.bytes / 2}},
		{"inspected, up", order{Kind: "put", Bytes: e.bytes / 2}},
		{"inspected, HTTP/2, down", order{Kind: "get", Bytes: e.bytes / 4, HTTP2: true}},
		{"inspected, HTTP/2, up", order{Kind: "put", Bytes: e.bytes / 4, HTTP2: true}},
	} {
		if err := e.rates(c.name, ours, theirs, c.o, 3, 0.5); err != nil {
			return err
		}
	}
	return nil
}

// spliced compares with a relay that lets the kernel move the bytes where it may,
// which in a sealed sandbox it may not.
func (e *egressBench) spliced(ours *way) error {
	relay, err := e.relayWay("runc", "splice")
	if err != nil {
		return err
	}
	relay.name = "relay with splice(2)"
	return errors.Join(e.throughput("opaque", ours, relay, e.bytes, few, 0), relay.close())
}

// longPairs is how often what takes long is measured.
func (e *egressBench) longPairs() int { return max(3, e.pairs/3) }
