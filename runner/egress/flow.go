package egress

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/policy/contract"
)

// Bounds in time, of what a client must send before it is known what it wants.
// What flows after that is bounded by the run only.
const (
	firstHead   = 60 * time.Second // the first head, or first bytes, of a connection
	firstBytes  = 30 * time.Second // what tells the protocol, from its first byte
	refusalWait = 3 * time.Second  // for a client that is refused to say something
	lingerTime  = 2 * time.Second  // for a client to take its refusal
	lingerBytes = 256 << 10
)

// The client in the sandbox that makes connections for programs that know of no
// proxy names itself; what it asks for is answered inside the tunnel.
const (
	clientHeader      = "countersign-client"
	clientTransparent = "transparent"
)

// Reasons of an egress.closed that are no class.
const (
	reasonEnd   = "end"     // both sides said what they had to say
	reasonReset = "reset"   // one side broke off
	reasonRun   = "run_end" // the run ended
)

// flow is one connection of the sandbox to one target, allowed when it was made.
type flow struct {
	proxy  *Proxy
	target Target           // what the client asked for
	rule   int              // place in the contract's network.allow
	entry  contract.NetRule // that rule, as it was then
	// ctx ends with the proxy, the connection, or the rule that let it in.
	ctx    context.Context
	client *peeked
	// established says that the client was told of its tunnel.
	established bool
	// dialled is open to the target already where the server may speak first;
	// whoever speaks to the target first takes it (set to nil) before it
	// connects anew.
	dialled *outbound
}

// serve is one connection of the sandbox, from its first byte to its last.
func (p *Proxy) serve(conn net.Conn) {
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	unwatch := p.closeWith(ctx, conn)
	defer unwatch()
	defer conn.Close()

	client := &peeked{Conn: conn}
	client.SetReadDeadline(time.Now().Add(firstHead))
	r := bufio.NewReader(client)
	h, err := readHead(r, headBounds)
	if err != nil {
		p.refuseHead(client, Target{}, err)
		return
	}
	buffered, _ := r.Peek(r.Buffered())
	client.unread(buffered)
	client.SetReadDeadline(time.Time{})
	switch {
	case h.method == "CONNECT":
		p.tunnel(ctx, client, h)
	case h.target[0] == '/' || h.target == "*":
		p.refuseHead(client, Target{}, malformed("a request to the proxy names no host; it wants CONNECT NAME:PORT or http://NAME"))
	default:
		p.fault(p.serveForward(ctx, client, h))
	}
}

// fault logs what is neither a refusal nor a connection's end.
func (p *Proxy) fault(err error) {
	var refused *Refused
	var network net.Error
	if err == nil || p.ctx.Err() != nil || errors.As(err, &refused) || errors.As(err, &network) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, context.Canceled) {
		return
	}
	p.cfg.Log.Error("serving a connection of the sandbox", "error", err)
}

// refuseHead answers a head that cannot be served. A connection that just ends
// is answered nothing.
func (p *Proxy) refuseHead(client *peeked, t Target, err error) {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = &Refused{ClassBounds, "the head did not come in time"}
	}
	if refused := (*Refused)(nil); errors.As(err, &refused) {
		writeRefusal(client, refused.Class, p.deny(t, refused.Class, refused.Reason))
		linger(client)
	}
}

// tunnel serves a CONNECT.
func (p *Proxy) tunnel(ctx context.Context, client *peeked, h *head) {
	t, err := h.authority()
	f := &flow{proxy: p, target: t, ctx: ctx, client: client}
	if slices.Equal(h.values(clientHeader), []string{clientTransparent}) && f.establish() != nil {
		return
	}
	if err != nil {
		f.refuse(err)
		return
	}
	if t == (Target{CanaryHost, CanaryPort}) {
		f.serveCanary()
		return
	}
	v, under, release := p.admit(ctx, Question{Target: t})
	defer release()
	if !v.Allow {
		f.refuse(&Refused{v.Class, v.Reason})
		return
	}
	unwatch := p.closeWith(under, client.Conn)
	defer unwatch()
	f.ctx, f.rule = under, v.Rule
	f.entry, _ = p.entry(v.Rule)
	if f.entry.Mode == contract.RuleOpaque {
		err = f.serveOpaque()
	} else {
		err = f.serveRead()
	}
	p.fault(err)
}

// establish tells the client that its tunnel is there, once.
func (f *flow) establish() error {
	if f.established {
		return nil
	}
	f.established = true
	_, err := io.WriteString(f.client, "HTTP/1.1 200 Connection established\r\n\r\n")
	return err
}

// refuse denies the flow and tells its client, unless the flow was cut or its
// client is gone: then there is nobody to tell and nothing that was wanted.
func (f *flow) refuse(err error) {
	refused := (*Refused)(nil)
	if !errors.As(err, &refused) || f.ctx.Err() != nil {
		return
	}
	text := f.proxy.deny(f.target, refused.Class, refused.Reason)
	if f.established {
		refuseInside(f.client, refused.Class, text)
		return
	}
	writeRefusal(f.client, refused.Class, text)
	linger(f.client)
}

// serveRead serves a flow whose requests are read. Nothing is dialled before
// it is known what the client speaks.
func (f *flow) serveRead() error {
	if err := f.establish(); err != nil {
		return err
	}
	f.client.SetReadDeadline(time.Now().Add(firstHead))
	if _, err := f.client.Peek(1); err != nil {
		return err
	}
	kind, err := classify(f.client)
	var hello *clientHello
	if err == nil {
		hello, err = f.judge(kind)
	}
	if err != nil {
		f.refuse(late(err))
		return err
	}
	f.client.SetReadDeadline(time.Time{})
	switch {
	case hello != nil:
		return f.serveTLS(hello)
	case f.entry.Mode == contract.RuleGateway:
		return f.serveHTTP(bufio.NewReader(f.client), f.client, "https")
	}
	return f.serveHTTP(bufio.NewReader(f.client), f.client, "http")
}

// judge says whether a flow of this rule's mode may speak what it does. A hello
// names the target; there is one exactly when TLS is spoken.
func (f *flow) judge(kind protocol) (*clientHello, error) {
	mode := f.entry.Mode
	switch {
	case kind == protocolTLS && mode == contract.RuleGateway:
		return nil, &Refused{ClassProtocol, "it is a gateway, which is spoken to in plain HTTP (http://), not in TLS"}
	case kind == protocolTLS:
		hello, err := readHello(f.client)
		if err == nil && hello.serverName != f.target.Host {
			err = &Refused{ClassMismatch, "the TLS ClientHello names the server " + hello.serverName}
		}
		return hello, err
	case kind != protocolHTTP && mode != contract.RuleOpaque:
		return nil, &Refused{ClassProtocol, "its rule reads requests, and this is neither HTTP nor TLS"}
	}
	return nil, nil
}

// late turns a deadline of ours into a refusal.
func late(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return &Refused{ClassBounds, "what it speaks did not come in time"}
	}
	return err
}
