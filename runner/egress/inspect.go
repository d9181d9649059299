package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"strings"
)

// serveTLS ends the client's TLS, which begins with hello (its bytes are still
// to be read from f.client; the name in it is the target's), and reads HTTP/1.1
// or HTTP/2 requests.
func (f *flow) serveTLS(hello *clientHello) error {
	authority := f.proxy.cfg.Authority
	if authority == nil {
		f.refuse(&Refused{ClassProtocol, "its rule inspects, and the run has no certificate authority"})
		return nil
	}
	conn := tls.Server(f.client, &tls.Config{
		MinVersion:             tls.VersionTLS12,
		NextProtos:             []string{"h2", "http/1.1"},
		SessionTicketsDisabled: true,
		// Small records at the start are for far clients; this one is near.
		DynamicRecordSizingDisabled: true,
		GetCertificate: func(info *tls.ClientHelloInfo) (*tls.Certificate, error) {
			// The name was read once before; both readings must be the same.
			if strings.ToLower(info.ServerName) != hello.serverName || hello.serverName != f.target.Host {
				return nil, fmt.Errorf("the server name is %q, the target %q", info.ServerName, f.target.Host)
			}
			return authority.certificate(f.target.Host)
		},
	})
	ctx, cancel := context.WithTimeout(f.ctx, handshakeTime)
	err := conn.HandshakeContext(ctx)
	cancel()
	if err != nil {
		return nil // the client knows better: it may not trust the authority
	}
	if conn.ConnectionState().NegotiatedProtocol == "h2" {
		return f.serveHTTP2(conn)
	}
	return f.serveHTTP(bufio.NewReaderSize(conn, 16<<10), conn, "https")
}
