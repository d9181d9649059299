package egress

import (
	"context"
	"net"
)

// outbound is a connection that a rule let out. It counts its bytes; Close
// records them once.
type outbound struct {
	net.Conn
}

// connect resolves dial, checks every address, dials one that passed, and
// records it for the rule; dial is t, or the upstream of a gateway. An error is
// a *Refused, which is not recorded yet. Ending ctx closes the connection.
func (p *Proxy) connect(ctx context.Context, t Target, rule int, dial Target) (*outbound, error) {
	return nil, &Refused{ClassUnreachable, "is not built yet"}
}

// CloseWrite tells the server that no more bytes come.
func (o *outbound) CloseWrite() error { return nil }

// because says why the connection ends; the first reason is recorded.
func (o *outbound) because(reason string) {}
