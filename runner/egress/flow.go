package egress

import (
	"bufio"
	"context"
	"net"

	"github.com/countersign-dev/countersign/policy/contract"
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
	// dialled is open to the target already where the server may speak first;
	// whoever speaks to the target first takes it (set to nil) before it
	// connects anew.
	dialled *outbound
}

// peeked is a connection whose next bytes can be looked at.
type peeked struct {
	net.Conn
	ahead []byte // read, and not given out
}

// HTTP layer (stubs; its room is exchange.go, inspect.go and forward.go).

// serveHTTP reads HTTP/1 requests of a flow until the connection ends; scheme
// is what is spoken to the upstream.
func (f *flow) serveHTTP(r *bufio.Reader, w net.Conn, scheme string) error { return nil }

// serveTLS ends the client's TLS, which begins with hello (its bytes are still
// to be read from f.client; the name in it is the target's), and reads HTTP/1.1
// or HTTP/2 requests.
func (f *flow) serveTLS(hello *clientHello) error { return nil }

// serveForward serves requests in absolute form on a connection to the proxy;
// first was read, its body was not.
func (p *Proxy) serveForward(ctx context.Context, client *peeked, first *head) error { return nil }
