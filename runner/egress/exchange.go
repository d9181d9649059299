package egress

import (
	"bufio"
	"context"
	"net"
)

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
