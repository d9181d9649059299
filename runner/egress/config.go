package egress

import (
	"context"
	"crypto/x509"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/countersign-dev/countersign/runner/redact"
)

// Names by which the canaries see that the proxy is in force. It answers
// CanaryHost itself on one port. UnlistedHost can be in no contract (RFC 2606): it
// is refused like any other name. What is refused of the two is neither counted,
// recorded nor told to a person.
const (
	CanaryHost   = "canary.internal"
	CanaryPort   = 80
	UnlistedHost = "unlisted.invalid"
)

// Answer is what a name resolved to.
type Answer struct {
	Addresses []netip.Addr
	Aliases   []string // the chain of CNAMEs, in order
}

// Resolver finds the addresses of a name, which is absolute: no search list
// applies. It is asked once a connection.
type Resolver interface {
	Resolve(ctx context.Context, host string) (Answer, error)
}

// Dialer connects to an address that was checked. [net.Dialer] is one.
type Dialer interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// Config is one run's proxy. Every field without a stated default is required.
type Config struct {
	Rules    *Rules
	Resolver Resolver
	Dialer   Dialer // nil: a net.Dialer with a bound
	// Own lists the addresses of this machine, read anew for each dial.
	Own func() ([]netip.Addr, error)
	// Credentials are what rules inject, by the secret's name.
	Credentials map[string]redact.Secret
	// Secrets are all secrets of the run: a body that holds one is refused
	// where bodies are read, and an echo of one is masked.
	Secrets []redact.Secret
	// Authority makes certificates for inspected hosts; required when a rule
	// inspects, else nil.
	Authority *Authority
	// Roots are trusted when the server of a gateway or an inspected host shows
	// its certificate; nil: the system's.
	Roots *x509.CertPool
	// Record appends to the run's ledger; values are data, escaped by it.
	Record func(typ string, data any)
	// Notify is called once for each host, port and class that was denied.
	Notify func(Boundary)
	// Peer refuses a connection to the socket that is not the sandbox's. Nil
	// refuses none.
	Peer func(*net.UnixConn) error
	Now  func() time.Time
	Log  *slog.Logger // faults of the proxy; nothing that was sent through it
}

// Boundary is an attempt to go past the contract.
type Boundary struct {
	Host   string `json:"host"` // escaped; may be no host name at all
	Port   int    `json:"port"`
	Class  Class  `json:"class"`
	Reason string `json:"reason"` // a sentence that says how to ask for it
}

// Types of ledger record.
const (
	TypeConnected = "egress.connected" // a connection out: target, rule, mode, address, aliases
	TypeClosed    = "egress.closed"    // its bytes both ways
	TypeRequest   = "egress.request"   // one request that was read: method, path, status
	TypeDenied    = "egress.denied"    // a refusal: target, class, reason
	TypeRule      = "egress.rule"      // at the end: one rule's counts
	TypeMore      = "egress.more"      // at the end: refusals of one target and class that were counted only
	TypeTotals    = "egress.totals"    // at the end: the counts of all
)
