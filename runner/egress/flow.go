package egress

import (
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
