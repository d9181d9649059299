package ledger

// Types of record about a run's way out. Its proxy writes them; none is there
// when the contract lets nothing out. Data is one of the structs below; a proxy
// may add fields.
const (
	TypeConnected    = "egress.connected" // data is [Connected]
	TypeClosed       = "egress.closed"    // data is [Closed]
	TypeRequest      = "egress.request"   // data is [Request]
	TypeDenied       = "egress.denied"    // data is [Denied]
	TypeEgressRule   = "egress.rule"      // data is [RuleCount]
	TypeEgressMore   = "egress.more"      // data is [MoreDenied]
	TypeEgressTotals = "egress.totals"    // data is [EgressCount]
)

// Connected says that a connection out was made: connection N of the run, counted
// from 1, to the target that was asked for, under the rule at that place of the
// contract's network.allow. Address is what was dialled, with its port.
type Connected struct {
	Connection int64  `json:"connection"`
	Host       string `json:"host"`
	Port       int    `json:"port"`
	Rule       int    `json:"rule"`
	Mode       string `json:"mode"`
	Address    string `json:"address"`
}

// Closed ends a connection, exactly once, with the bytes of the wire both ways.
type Closed struct {
	Connection int64  `json:"connection"`
	Host       string `json:"host"`
	Port       int    `json:"port"`
	Rule       int    `json:"rule"`
	BytesOut   int64  `json:"bytes_out"`
	BytesIn    int64  `json:"bytes_in"`
}

// Request is one request that was allowed and sent, at least in part. Path is in
// normal form, without a query; BytesOut is what was charged for it against the
// rule's upload; Status is 0 when no answer came.
type Request struct {
	Host     string `json:"host"`
	Port     int    `json:"port"`
	Rule     int    `json:"rule"`
	Method   string `json:"method"`
	Path     string `json:"path"`
	Status   int    `json:"status"`
	BytesOut int64  `json:"bytes_out"`
	BytesIn  int64  `json:"bytes_in"`
}

// Denied is one refusal. Host may be no host name at all. Of one host, port and
// class only so many are recorded one by one; the rest are counted.
type Denied struct {
	Host   string `json:"host"`
	Port   int    `json:"port"`
	Class  string `json:"class"`
	Reason string `json:"reason"`
}

// RuleCount is what went out by one rule. Charged are the bytes that counted
// against its upload.
type RuleCount struct {
	Rule        int    `json:"rule"`
	Host        string `json:"host"`
	Port        int    `json:"port"`
	Connections int64  `json:"connections"`
	BytesOut    int64  `json:"bytes_out"`
	BytesIn     int64  `json:"bytes_in"`
	Charged     int64  `json:"charged"`
}

// MoreDenied counts the refusals of one host, port and class that have no record
// of their own.
type MoreDenied struct {
	Host  string `json:"host"`
	Port  int    `json:"port"`
	Class string `json:"class"`
	Count int64  `json:"count"`
}

// EgressCount is the last record about a way out. Allowed counts the connections
// and requests that were let pass, Denied all refusals.
type EgressCount struct {
	Allowed  int64 `json:"allowed"`
	Denied   int64 `json:"denied"`
	BytesOut int64 `json:"bytes_out"`
	BytesIn  int64 `json:"bytes_in"`
}

// EgressRule is what the statement says of one rule of the contract: what was
// enforced of it, and what went out by it.
type EgressRule struct {
	Rule        int    `json:"rule"`
	Host        string `json:"host"`
	Port        int    `json:"port"`
	Mode        string `json:"mode"`
	Coverage    string `json:"coverage"`
	Connections int64  `json:"connections"`
	BytesOut    int64  `json:"bytes_out"`
	BytesIn     int64  `json:"bytes_in"`
	Charged     int64  `json:"charged"`
}
