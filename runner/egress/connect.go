package egress

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Bounds of one connection out.
const (
	resolveTime     = 10 * time.Second
	dialTime        = 10 * time.Second // one address
	allDialsTime    = 30 * time.Second // all of them
	maxDialled      = 16               // addresses of an answer that are looked at
	maxShownAliases = 8                // recorded
)

// outbound is a connection that a rule let out. It counts its bytes; Close
// records them once.
type outbound struct {
	*peeked
	proxy   *Proxy
	meter   *meter
	opened  connectedRecord
	unwatch func()

	mu      sync.Mutex
	out, in int64
	settled bool // recorded: what comes late is not counted anywhere
	reason  string
	once    sync.Once
}

// connect resolves dial, checks every address, dials one that passed, and
// records it for the rule; dial is t, or the upstream of a gateway. An error is
// a *Refused, which is not recorded yet. Ending ctx closes the connection.
func (p *Proxy) connect(ctx context.Context, t Target, rule int, dial Target) (*outbound, error) {
	entry, m := p.entry(rule)
	if m == nil {
		return nil, &Refused{ClassHost, "its rule is gone from the contract"}
	}
	answer, err := p.resolve(ctx, dial.Host)
	if err != nil {
		return nil, err
	}
	usable, err := p.check(answer.Addresses, entry.Private)
	if err != nil {
		return nil, err
	}
	// One record now and one when it is closed.
	if !p.recorder.reserve(2) {
		return nil, fullLedger()
	}
	conn, address, err := p.dial(ctx, usable, dial.Port)
	if err != nil {
		p.recorder.giveBack(2)
		return nil, err
	}
	o := &outbound{peeked: &peeked{Conn: conn}, proxy: p, meter: m, opened: connectedRecord{
		Host: t.Host, Port: t.Port, Rule: rule, Mode: entry.Mode, Address: address,
		Aliases: shownAliases(answer.Aliases), Refused: len(answer.Addresses) - len(usable),
	}}
	if dial != t {
		o.opened.Upstream = dial.String()
	}
	m.connections.Add(1)
	p.allowed.Add(1)
	p.recorder.putConnected(&o.opened)
	o.unwatch = p.closeWith(ctx, conn)
	return o, nil
}

func (p *Proxy) resolve(ctx context.Context, host string) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, resolveTime)
	defer cancel()
	answer, err := p.cfg.Resolver.Resolve(ctx, host)
	if err != nil {
		return Answer{}, &Refused{ClassUnresolved, "its name has no address: " + err.Error()}
	}
	if len(answer.Addresses) == 0 {
		return Answer{}, &Refused{ClassUnresolved, "its name has no address"}
	}
	answer.Addresses = answer.Addresses[:min(len(answer.Addresses), maxDialled)]
	return answer, nil
}

// check returns the addresses that may be dialled. With none, the error is of
// the first that may not.
func (p *Proxy) check(addresses []netip.Addr, private bool) ([]netip.Addr, error) {
	own, err := p.cfg.Own()
	if err != nil {
		p.cfg.Log.Error("reading this machine's addresses", "error", err)
		return nil, &Refused{ClassAddress, "the addresses of this machine cannot be read, so none can be told from it"}
	}
	var usable []netip.Addr
	var first error
	for _, a := range addresses {
		checked, err := Check(a, private, own)
		if err == nil {
			usable = append(usable, checked)
		} else if first == nil {
			first = err
		}
	}
	if len(usable) == 0 {
		return nil, &Refused{ClassAddress, first.Error()}
	}
	return usable, nil
}

// dial tries the addresses in order and says which one answered.
func (p *Proxy) dial(ctx context.Context, addresses []netip.Addr, port int) (net.Conn, string, error) {
	ctx, cancel := context.WithTimeout(ctx, allDialsTime)
	defer cancel()
	var last error
	for _, a := range addresses {
		address := netip.AddrPortFrom(a, uint16(port)).String()
		one, cancelOne := context.WithTimeout(ctx, dialTime)
		conn, err := p.cfg.Dialer.DialContext(one, "tcp", address)
		cancelOne()
		if err == nil {
			return conn, address, nil
		}
		last = err
		if ctx.Err() != nil {
			break
		}
	}
	return nil, "", &Refused{ClassUnreachable, "it cannot be reached: " + last.Error()}
}

func shownAliases(names []string) []string {
	var out []string
	for _, n := range names[:min(len(names), maxShownAliases)] {
		out = append(out, ascii(n, maxShownHost))
	}
	return out
}

// String is HOST:PORT.
func (t Target) String() string { return fmt.Sprintf("%s:%d", t.Host, t.Port) }

func (o *outbound) Read(b []byte) (int, error) {
	n, err := o.peeked.Read(b)
	o.count(0, n)
	return n, err
}

func (o *outbound) Write(b []byte) (int, error) {
	n, err := o.peeked.Write(b)
	o.count(n, 0)
	return n, err
}

// copyTo passes on what the server says until it ends, without a copy through
// this process where the kernel can (splice(2)): then it is counted at the end.
func (o *outbound) copyTo(to net.Conn) error {
	if _, err := to.Write(o.ahead); err != nil {
		return err
	}
	o.count(0, len(o.ahead))
	o.ahead = nil
	n, err := io.Copy(to, o.Conn)
	o.count(0, int(n))
	return err
}

// count adds to all sums or to none, so that those of the rules and of the run
// are the sums of what is recorded of the connections.
func (o *outbound) count(out, in int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.settled {
		return
	}
	o.out, o.in = o.out+int64(out), o.in+int64(in)
	o.meter.out.Add(int64(out))
	o.meter.in.Add(int64(in))
	o.proxy.out.Add(int64(out))
	o.proxy.in.Add(int64(in))
}

// settle ends the counting.
func (o *outbound) settle() (out, in int64, reason string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.settled = true
	return o.out, o.in, o.reason
}

// because says why the connection ends; the first reason is recorded.
func (o *outbound) because(reason string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.reason == "" {
		o.reason = reason
	}
}

// Close ends the connection and records its bytes, once.
func (o *outbound) Close() error {
	var err error
	o.once.Do(func() {
		o.unwatch()
		err = o.peeked.Close()
		o.because(reasonEnd)
		out, in, reason := o.settle()
		o.proxy.recorder.put(TypeClosed, closedRecord{
			o.opened.Connection, o.opened.Host, o.opened.Port, o.opened.Rule, out, in, reason,
		})
	})
	return err
}
