package egress

import "sync"

// maxRunRecords bounds the egress records of a run, before those of its end.
const maxRunRecords = 100_000

// recorder writes the run's egress records, one at a time and none after the
// end.
type recorder struct {
	mu    sync.Mutex
	write func(typ string, data any)
	left  int // records that were not promised yet
	ended bool
	made  int64 // connections
}

// reserve promises n records.
func (r *recorder) reserve(n int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended || r.left < n {
		return false
	}
	r.left -= n
	return true
}

// giveBack takes back a promise of n records.
func (r *recorder) giveBack(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left += n
}

// put writes a record that was promised, unless the run's records have ended.
func (r *recorder) put(typ string, data any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ended {
		r.write(typ, data)
	}
}

// putConnected records a connection under the next number, so that numbers rise
// without a gap.
func (r *recorder) putConnected(c *connectedRecord) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return
	}
	r.made++
	c.Connection = r.made
	r.write(TypeConnected, *c)
}

func (r *recorder) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
}

func fullLedger() *Refused {
	return &Refused{ClassBounds, "this run has as many egress records as it may, and what cannot be recorded is not done"}
}

// record appends to the run's ledger. It is a *Refused (ClassBounds) when the
// run has as many egress records as it may; what it was about must not be done.
func (p *Proxy) record(typ string, data any) error {
	if !p.recorder.reserve(1) {
		return fullLedger()
	}
	if typ == TypeRequest {
		p.allowed.Add(1)
	}
	p.recorder.put(typ, data)
	return nil
}

// Data of the records. Connection numbers tie an egress.closed to its
// egress.connected.
type (
	connectedRecord struct {
		Connection int64    `json:"connection"`
		Host       string   `json:"host"`
		Port       int      `json:"port"`
		Rule       int      `json:"rule"`
		Mode       string   `json:"mode"`
		Address    string   `json:"address"` // what was dialled, with its port
		Upstream   string   `json:"upstream,omitempty"`
		Aliases    []string `json:"aliases,omitempty"`
		Refused    int      `json:"addresses_refused,omitempty"` // of the same answer
	}
	closedRecord struct {
		Connection int64  `json:"connection"`
		Host       string `json:"host"`
		Port       int    `json:"port"`
		Rule       int    `json:"rule"`
		BytesOut   int64  `json:"bytes_out"`
		BytesIn    int64  `json:"bytes_in"`
		Reason     string `json:"reason"` // end, reset, or the class of what cut it
	}
	deniedRecord struct {
		Host   string `json:"host"`
		Port   int    `json:"port"`
		Class  Class  `json:"class"`
		Reason string `json:"reason"`
	}
	ruleRecord struct {
		Rule        int    `json:"rule"`
		Host        string `json:"host"`
		Port        int    `json:"port"`
		Connections int64  `json:"connections"`
		BytesOut    int64  `json:"bytes_out"`
		BytesIn     int64  `json:"bytes_in"`
		Charged     int64  `json:"charged"` // against upload_bytes
	}
	moreRecord struct {
		Host  string `json:"host"`
		Port  int    `json:"port"`
		Class Class  `json:"class"`
		Count int64  `json:"count"` // refusals that have no record
	}
	totalsRecord struct {
		Allowed  int64 `json:"allowed"`
		Denied   int64 `json:"denied"`
		BytesOut int64 `json:"bytes_out"`
		BytesIn  int64 `json:"bytes_in"`
	}
)

// recordEnd writes the counts and closes the ledger to what comes later.
func (p *Proxy) recordEnd() {
	p.mu.Lock()
	rules := p.rules
	p.mu.Unlock()
	for i, t := range p.RuleTotals() {
		e := rules.Rule(i)
		p.recorder.put(TypeRule, ruleRecord{i, e.Host, e.Port, t.Connections, t.BytesOut, t.BytesIn, t.Charged})
	}
	for _, m := range p.denials.more() {
		p.recorder.put(TypeMore, m)
	}
	t := p.Totals()
	p.recorder.put(TypeTotals, totalsRecord{t.Allowed, t.Denied, t.BytesOut, p.in.Load()})
	p.recorder.end()
}
