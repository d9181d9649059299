package egress

// Target is where a connection wants to go: a name as contract.ParseHost
// returned it, and a port.
type Target struct {
	Host string
	Port int
}

// Question is what is decided: a connection to a target, or, when Method is
// not empty, one request on it. Path is in normal form.
type Question struct {
	Target
	Method    string
	Path      string
	WebSocket bool
}

// Verdict answers a Question. The zero Verdict denies.
type Verdict struct {
	Allow bool
	// Rule is the place in the contract's network.allow of the rule that
	// allows, or of the one that came nearest to it; -1 when none did.
	Rule   int
	Class  Class
	Reason string // one sentence for a person; safe to print
}

// Class groups verdicts and refusals, for records and tests.
type Class string

// Classes of what Decide says.
const (
	ClassAllowed   Class = "allowed"
	ClassHost      Class = "host_not_listed"
	ClassPort      Class = "port_not_listed"
	ClassMethod    Class = "method_not_listed"
	ClassPath      Class = "path_not_listed"
	ClassWebSocket Class = "websocket_not_listed"
	ClassExpired   Class = "grant_expired"
)

// Classes of what is refused around it.
const (
	ClassName        Class = "bad_name"      // not a host name, or an address in some spelling
	ClassMismatch    Class = "name_mismatch" // tunnel, server name and Host are not one name
	ClassAddress     Class = "address_refused"
	ClassUnresolved  Class = "unresolved"
	ClassUnreachable Class = "unreachable"
	ClassMalformed   Class = "malformed" // parsers could disagree on it
	ClassProtocol    Class = "protocol"  // not what the rule's mode speaks: h2c, TLS to a gateway, an upgrade
	ClassBudget      Class = "upload_budget"
	ClassBody        Class = "body_refused"
	ClassBounds      Class = "bounds"       // too many connections, too large a head, too slow
	ClassPeer        Class = "foreign_peer" // not a process of this run's sandbox
)
