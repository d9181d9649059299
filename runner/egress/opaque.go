package egress

import (
	"bufio"
	"context"
	"errors"
	"io"
	"sync"
	"time"
)

// copyBuffer is how much is copied at a time on the way out, in bytes. From a Unix
// socket, larger ones and splice(2) were measured to be no faster, and what is
// not seen cannot be charged before it is sent.
const copyBuffer = 128 << 10

// serveOpaque joins client and target. The server may speak first; what the
// client says is held back until it is known to be allowed.
func (f *flow) serveOpaque() error {
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	out, err := f.proxy.connect(ctx, f.target, f.rule, f.target)
	if err != nil {
		f.refuse(err)
		return err
	}
	defer func() { out.Close() }()
	if err := f.establish(); err != nil {
		return err
	}
	g := &gate{}
	server := make(chan error, 1)
	go func() { server <- f.fromServer(out, g) }()

	kind, err := classify(f.client)
	if err == nil {
		_, err = f.judge(kind)
	}
	if err == nil && kind != protocolHTTP {
		f.client.SetReadDeadline(time.Time{})
		return f.join(out, server)
	}
	spoke := f.shut(g, out, server)
	f.client.SetReadDeadline(time.Time{})
	if err == nil && !spoke {
		f.dialled = out
		return f.serveHTTP(bufio.NewReader(f.client), f.client, "http")
	}
	if err == nil {
		err = &Refused{ClassProtocol, "its client speaks HTTP where its server spoke first"}
	}
	return f.abandon(out, late(err), spoke)
}

// gate lets the server's first bytes through until the flow is taken from it.
type gate struct {
	mu          sync.Mutex
	spoke, done bool
}

// pass says whether the server may speak to the client.
func (g *gate) pass() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.spoke = g.spoke || !g.done
	return g.spoke
}

func (g *gate) shut() (spoke bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.done = true
	return g.spoke
}

// shut keeps the server from speaking, and waits until nobody reads from it any
// more. When it spoke before, the client can be told nothing and is closed.
func (f *flow) shut(g *gate, out *outbound, server <-chan error) (spoke bool) {
	if spoke = g.shut(); spoke {
		f.client.Close()
	}
	out.SetReadDeadline(time.Unix(1, 0))
	<-server
	out.SetReadDeadline(time.Time{})
	return spoke
}

// fromServer copies what the server says to the client, once it may.
func (f *flow) fromServer(out *outbound, g *gate) error {
	_, err := out.Peek(1)
	if !g.pass() {
		return nil
	}
	if err != nil && !errors.Is(err, io.EOF) {
		f.client.Close()
		return err
	}
	if err := out.copyTo(f.client.Conn); err != nil {
		return err
	}
	return f.client.CloseWrite()
}

// join copies both ways until both sides have ended theirs or one broke off.
func (f *flow) join(out *outbound, server <-chan error) error {
	client := make(chan error, 1)
	go func() {
		client <- f.toServer(out)
	}()
	var first error
	for range 2 {
		var err error
		select {
		case err = <-client:
		case err = <-server:
		}
		if err != nil && first == nil {
			first = err
			out.because(f.reason(err))
			f.client.Close()
			out.Conn.Close()
		}
	}
	if refused := (*Refused)(nil); errors.As(first, &refused) {
		f.proxy.deny(f.target, refused.Class, refused.Reason)
	}
	return first
}

// toServer passes on what the client says, charged before it leaves.
func (f *flow) toServer(out *outbound) error {
	buffer := f.proxy.buffers.Get().(*[copyBuffer]byte)
	defer f.proxy.buffers.Put(buffer)
	for {
		n, err := f.client.Read(buffer[:])
		if n > 0 {
			if err := f.proxy.charge(f.rule, n); err != nil {
				return err
			}
			if _, err := out.Write(buffer[:n]); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return out.CloseWrite()
		case err != nil:
			return err
		}
	}
}

// reason is why a connection of the flow ended, for its record.
func (f *flow) reason(err error) string {
	refused := (*Refused)(nil)
	switch cause := context.Cause(f.ctx); {
	case errors.As(cause, &refused), errors.As(err, &refused):
		return string(refused.Class)
	case errors.Is(cause, errEnded):
		return reasonRun
	case err != nil:
		return reasonReset
	}
	return reasonEnd
}

// abandon ends a flow that may not go on. Once the server has spoken, the
// client gets no more than the end.
func (f *flow) abandon(out *outbound, err error, spoke bool) error {
	out.because(f.reason(err))
	out.Close()
	if !spoke {
		f.refuse(err)
		return err
	}
	refused := (*Refused)(nil)
	if errors.As(err, &refused) && f.ctx.Err() == nil {
		f.proxy.deny(f.target, refused.Class, refused.Reason)
	}
	return err
}
