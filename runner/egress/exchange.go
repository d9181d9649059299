package egress

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/countersign-dev/countersign/policy/contract"
)

// request is one request of the sandbox, read strictly, whatever version of
// HTTP it came in.
type request struct {
	target Target
	method string
	path   string // in normal form; in an opaque tunnel as it was sent
	query  string // "", or "?" and what follows it
	// fields go from end to end: none is about one connection, and Host is not
	// among them. Names are in lower case.
	fields []field
	body   *body    // nil: none
	expect bool     // the client waits for 100 (Continue)
	socket *upgrade // the client's half of a WebSocket handshake, else nil
	http2  bool
	// trailers says that the client takes fields behind the answer's body.
	trailers bool
}

// requestRecord is the data of [TypeRequest].
type requestRecord struct {
	Host     string `json:"host"`
	Port     int    `json:"port"`
	Rule     int    `json:"rule"`
	Method   string `json:"method"`
	Path     string `json:"path"` // with the query, escaped and cut
	Status   int    `json:"status"`
	BytesOut int64  `json:"bytes_out"` // head and body
	BytesIn  int64  `json:"bytes_in"`  // the answer's body
}

const maxRecordedPath = 512 // bytes

// exchange decides about one request, sends it on and its answer back, and
// records both. An error means that the answer broke off: the connection, or
// the stream, must be cut.
func (o *origin) exchange(ctx context.Context, w http.ResponseWriter, q *request) error {
	p := o.flow.proxy
	leave, err := p.reading.enter()
	if err != nil {
		return p.refuse(w, q.target, err)
	}
	defer leave()
	verdict, under, release := p.admit(ctx, Question{q.target, q.method, q.path, q.socket != nil})
	defer release()
	if !verdict.Allow {
		return p.refuse(w, q.target, &Refused{verdict.Class, verdict.Reason})
	}
	entry, _ := p.entry(verdict.Rule)
	if !sameSetup(o.flow.entry, entry) {
		return p.refuse(w, q.target, &Refused{ClassProtocol, "its connection was made under a rule of another mode; connect again"})
	}
	if !p.recorder.reserve(1) {
		return p.refuse(w, q.target, fullLedger())
	}
	record := &requestRecord{Host: q.target.Host, Port: q.target.Port, Rule: verdict.Rule, Method: q.method, Path: ascii(q.path+q.query, maxRecordedPath)}
	answered, err := o.pass(under, w, q, passage{verdict.Rule, entry}, record)
	if err != nil {
		err = o.explain(under, w, q, answered, err)
	}
	if record.BytesOut == 0 {
		p.recorder.giveBack(1) // nothing was sent
		return err
	}
	p.allowed.Add(1)
	p.recorder.put(TypeRequest, record)
	return err
}

// explain says why a request or its answer broke off: in the answer, when none
// was begun.
func (o *origin) explain(ctx context.Context, w http.ResponseWriter, q *request, answered bool, err error) error {
	p := o.flow.proxy
	refused := refusal(ctx, q, err)
	switch {
	case refused != nil && answered:
		p.deny(q.target, refused.Class, refused.Reason)
		return err
	case answered || ctx.Err() != nil && refused == nil: // the client is gone, or the run at its end
		return err
	case refused != nil:
		return p.refuse(w, q.target, refused)
	}
	say(w, http.StatusBadGateway, "countersign: "+q.target.String()+" did not answer: the connection to it broke off")
	return nil
}

// pass sends the request and relays the answer; answered says whether some of
// the answer was given to the client.
func (o *origin) pass(ctx context.Context, w http.ResponseWriter, q *request, by passage, record *requestRecord) (answered bool, err error) {
	out, err := o.outgoing(ctx, q, by)
	if err != nil {
		return false, err
	}
	n := headSize(out)
	if err := o.flow.proxy.charge(by.rule, n); err != nil {
		return false, err
	}
	record.BytesOut = int64(n)
	if q.body != nil {
		defer func() {
			q.body.Close() // the answer is over; no more goes out
			record.BytesOut += q.body.out.Load()
		}()
		if !q.http2 {
			o.sending.Store(q.body)
			defer o.sending.Store(nil)
		}
	}
	answer, err := o.transport.RoundTrip(out)
	if err != nil {
		return false, err
	}
	defer answer.Body.Close()
	record.Status = answer.StatusCode
	if answer.StatusCode == http.StatusSwitchingProtocols {
		return o.switchProtocols(ctx, w, q, by, answer, record)
	}
	return o.relay(w, q, by, answer, record)
}

// passage is the rule under which a request passes.
type passage struct {
	rule  int
	entry contract.NetRule
}

// reads says whether the rule has something to say about what requests hold.
func (b passage) reads() bool { return b.entry.Mode != contract.RuleOpaque }

// sameSetup says whether two rules agree on everything that a connection was
// set up by.
func sameSetup(a, b contract.NetRule) bool {
	return a.Mode == b.Mode && a.Upstream == b.Upstream && a.Private == b.Private
}

// refusal finds why a request that failed was refused; nil when it was not.
func refusal(ctx context.Context, q *request, err error) *Refused {
	if q.body != nil {
		if r := q.body.refused.Load(); r != nil {
			return r
		}
	}
	var r *Refused
	if err != nil && (errors.As(context.Cause(ctx), &r) || errors.As(err, &r)) {
		return r
	}
	return untrusted(err)
}

// refuse answers with the sentence of a refusal and records it. It returns
// what is no refusal.
func (p *Proxy) refuse(w http.ResponseWriter, t Target, err error) error {
	var r *Refused
	if !errors.As(err, &r) {
		return err
	}
	say(w, statusOf(r.Class), p.deny(t, r.Class, r.Reason))
	return nil
}

// say answers with one line for a person.
func say(w http.ResponseWriter, status int, sentence string) {
	w.Header().Set("Content-Type", "text/plain; charset=us-ascii")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Length", strconv.Itoa(len(sentence)+1))
	w.WriteHeader(status)
	// A client that is gone has no use for the sentence; it is recorded.
	io.WriteString(w, sentence+"\n")
}
