package evidence

import (
	"slices"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/policy/ledger"
)

const onlinePolicy = `version: 1
default: a
profiles:
  a:
    image: countersign/sandbox:latest
    network:
      allow:
        - {host: "*.files.example.com", port: 443, upload: 1KiB}
        - {host: model.internal, upstream: "https://api.example.com:8443", mode: gateway, methods: [GET, POST], paths: [/v1/**], upload: 2KiB}
        - {host: lan.example.com, port: 80, mode: inspect, methods: [GET], paths: [/], private: true}
`

// Records of a run under onlinePolicy: two tunnels, a gateway with two requests
// and refusals. Numbers are chosen so that no two sums are equal by chance.
func onlineRecords() []record {
	return []record{
		{ledger.TypeConnected, ledger.Connected{Connection: 1, Host: "x.files.example.com", Port: 443, Rule: 0, Mode: "opaque", Address: "192.0.2.1:443"}},
		{ledger.TypeDenied, ledger.Denied{Host: "other.example.com", Port: 443, Class: "host_not_listed", Reason: "no"}},
		{ledger.TypeConnected, ledger.Connected{Connection: 2, Host: "model.internal", Port: 80, Rule: 1, Mode: "gateway", Address: "[2001:db8::1]:8443"}},
		{ledger.TypeRequest, ledger.Request{Host: "model.internal", Port: 80, Rule: 1, Method: "POST", Path: "/v1/messages", Status: 200, BytesOut: 300, BytesIn: 70}},
		{ledger.TypeClosed, ledger.Closed{Connection: 1, Host: "x.files.example.com", Port: 443, Rule: 0, BytesOut: 1000, BytesIn: 5}},
		{ledger.TypeConnected, ledger.Connected{Connection: 3, Host: "y.files.example.com", Port: 443, Rule: 0, Mode: "opaque", Address: "192.0.2.2:443"}},
		{ledger.TypeDenied, ledger.Denied{Host: "\\x00", Port: 0, Class: "bad_name", Reason: "no"}},
		{ledger.TypeRequest, ledger.Request{Host: "model.internal", Port: 80, Rule: 1, Method: "GET", Path: "/v1/models", BytesOut: 100}},
		{ledger.TypeClosed, ledger.Closed{Connection: 3, Host: "y.files.example.com", Port: 443, Rule: 0, BytesOut: 20, BytesIn: 7}},
		{ledger.TypeClosed, ledger.Closed{Connection: 2, Host: "model.internal", Port: 80, Rule: 1, BytesOut: 600, BytesIn: 90}},
		{ledger.TypeEgressRule, ledger.RuleCount{Rule: 0, Host: "*.files.example.com", Port: 443, Connections: 2, BytesOut: 1020, BytesIn: 12, Charged: 1024}},
		{ledger.TypeEgressRule, ledger.RuleCount{Rule: 1, Host: "model.internal", Port: 80, Connections: 1, BytesOut: 600, BytesIn: 90, Charged: 400}},
		{ledger.TypeEgressRule, ledger.RuleCount{Rule: 2, Host: "lan.example.com", Port: 80}},
		{ledger.TypeEgressMore, ledger.MoreDenied{Host: "other.example.com", Port: 443, Class: "host_not_listed", Count: 9}},
		{ledger.TypeEgressTotals, ledger.EgressCount{Allowed: 5, Denied: 11, BytesOut: 1620, BytesIn: 102}},
	}
}

// online gives a run the way out of onlinePolicy.
func (r *run) online() {
	r.policy = []byte(onlinePolicy)
	r.snapshot.Policy = contract.Source{Status: contract.SourceFound, Ref: "file", Digest: contract.DigestBytes(r.policy)}
	r.derive()
	r.wayOut = onlineRecords()
	r.state = onlineStatement
}

func onlineStatement(p *ledger.Predicate) {
	p.Egress = contract.EgressTotals{Allowed: 5, Denied: 11, BytesOut: 1620}
	p.EgressRules = []ledger.EgressRule{
		{Rule: 0, Host: "*.files.example.com", Port: 443, Mode: "opaque", Coverage: "name-port-bytes", Connections: 2, BytesOut: 1020, BytesIn: 12, Charged: 1024},
		{Rule: 1, Host: "model.internal", Port: 80, Mode: "gateway", Coverage: "enforced", Connections: 1, BytesOut: 600, BytesIn: 90, Charged: 400},
		{Rule: 2, Host: "lan.example.com", Port: 80, Mode: "inspect", Coverage: "enforced"},
	}
}

func TestEgressVerifies(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(*run)
	}{
		{"a run that used its way out", (*run).online},
		{"a run that did not", func(r *run) {
			r.online()
			r.wayOut = append(r.wayOut[10:13:13], record{ledger.TypeEgressTotals, ledger.EgressCount{}})
			for i := range 3 {
				c := r.wayOut[i].data.(ledger.RuleCount)
				r.wayOut[i].data = ledger.RuleCount{Rule: c.Rule, Host: c.Host, Port: c.Port}
			}
			r.state = func(p *ledger.Predicate) {
				onlineStatement(p)
				p.Egress = contract.EgressTotals{}
				for i, e := range p.EgressRules {
					p.EgressRules[i] = ledger.EgressRule{Rule: e.Rule, Host: e.Host, Port: e.Port, Mode: e.Mode, Coverage: e.Coverage}
				}
			}
		}},
		{"a run that ended before its way out was opened", func(r *run) {
			r.online()
			r.wayOut, r.exit = nil, ledger.Exit{State: contract.StateFailClosed, ExitCode: contract.ExitFailClosed, Reason: "unavailable: x"}
			r.state = func(p *ledger.Predicate) { p.Canaries = nil }
		}},
		{"a path that was cut", func(r *run) {
			r.online()
			d := r.wayOut[3].data.(ledger.Request)
			d.Path = "/" + string(slices.Repeat([]byte("a"), 511))
			r.wayOut[3].data = d
		}},
		{"a private address of a private rule", func(r *run) {
			r.online()
			r.connected(0, func(d *ledger.Connected) {
				d.Host, d.Port, d.Rule, d.Mode, d.Address = "lan.example.com", 80, 2, "inspect", "[::ffff:192.168.0.9]:80"
			})
			closed := ledger.Closed{Connection: 1, Host: "lan.example.com", Port: 80, Rule: 2, BytesOut: 1000, BytesIn: 5}
			r.wayOut[4].data = closed
			r.count(0, func(c *ledger.RuleCount) { c.Connections, c.BytesOut, c.BytesIn = 1, 20, 7 })
			r.count(2, func(c *ledger.RuleCount) { c.Connections, c.BytesOut, c.BytesIn = 1, 1000, 5 })
			r.state = func(p *ledger.Predicate) {
				onlineStatement(p)
				e := p.EgressRules
				e[0].Connections, e[0].BytesOut, e[0].BytesIn = 1, 20, 7
				e[2].Connections, e[2].BytesOut, e[2].BytesIn = 1, 1000, 5
			}
		}},
	} {
		r := newRun(t)
		c.make(r)
		if got := Verify(r.write(), nil); got.Verdict != Consistent {
			t.Errorf("%s: %s, failed: %+v", c.name, got.Verdict, got.Failures())
		}
	}
}

// connected, request and count change one record of the way out: the n-th
// connection's, the n-th request's, the n-th rule's count.
func (r *run) connected(n int, change func(*ledger.Connected)) { changeRecord(r, n, change) }
func (r *run) closed(n int, change func(*ledger.Closed))       { changeRecord(r, n, change) }
func (r *run) request(n int, change func(*ledger.Request))     { changeRecord(r, n, change) }
func (r *run) count(n int, change func(*ledger.RuleCount))     { changeRecord(r, n, change) }
func (r *run) totals(change func(*ledger.EgressCount))         { changeRecord(r, 0, change) }

func changeRecord[D any](r *run, n int, change func(*D)) {
	r.t.Helper()
	for i, rec := range r.wayOut {
		d, ok := rec.data.(D)
		if !ok {
			continue
		}
		if n == 0 {
			change(&d)
			r.wayOut[i].data = d
			return
		}
		n--
	}
	r.t.Fatal("there is no such record")
}

// without removes the record at a place, or moves it to the end.
func (r *run) without(i int) { r.wayOut = slices.Delete(r.wayOut, i, i+1) }
func (r *run) last(i int) {
	rec := r.wayOut[i]
	r.without(i)
	r.wayOut = append(r.wayOut, rec)
}

// signed changes the statement of a run that is otherwise as it was.
func (r *run) signed(change func(*ledger.Predicate)) {
	r.state = func(p *ledger.Predicate) {
		onlineStatement(p)
		change(p)
	}
}

// TestEgressLies are statements about a way out, signed by the right key, that do
// not follow from the ledger, and ledgers that do not follow from the contract.
func TestEgressLies(t *testing.T) {
	for _, c := range []struct {
		name string
		lie  func(*run)
		line string
	}{
		{"more was denied", func(r *run) { r.signed(func(p *ledger.Predicate) { p.Egress.Denied-- }) }, "egress and statement"},
		{"more was allowed", func(r *run) { r.signed(func(p *ledger.Predicate) { p.Egress.Allowed-- }) }, "egress and statement"},
		{"more went out", func(r *run) { r.signed(func(p *ledger.Predicate) { p.Egress.BytesOut-- }) }, "egress and statement"},
		{"more went out by a rule", func(r *run) { r.signed(func(p *ledger.Predicate) { p.EgressRules[0].BytesOut-- }) }, "egress and statement"},
		{"a rule enforced less", func(r *run) {
			r.signed(func(p *ledger.Predicate) { p.EgressRules[0].Coverage = contract.CoverageEnforced })
		}, "egress and statement"},
		{"a rule is of another mode", func(r *run) { r.signed(func(p *ledger.Predicate) { p.EgressRules[0].Mode = "inspect" }) }, "egress and statement"},
		{"a rule is not in the statement", func(r *run) { r.signed(func(p *ledger.Predicate) { p.EgressRules = p.EgressRules[:2] }) }, "egress and statement"},
		{"no rule is in the statement", func(r *run) { r.signed(func(p *ledger.Predicate) { p.EgressRules = nil }) }, "egress and statement"},
		{"nothing of it is in the ledger", func(r *run) { r.wayOut = nil }, "egress and statement"},
		{"nothing of it is anywhere", func(r *run) { r.wayOut, r.state = nil, nil }, "egress and statement"},

		{"a connection that was not counted", func(r *run) { r.count(0, func(c *ledger.RuleCount) { c.Connections-- }) }, "egress totals, egress and statement"},
		{"bytes that were not counted", func(r *run) { r.closed(0, func(d *ledger.Closed) { d.BytesOut++ }) }, "egress totals"},
		{"bytes back that were not counted", func(r *run) { r.closed(0, func(d *ledger.Closed) { d.BytesIn++ }) }, "egress totals"},
		{"a request that was not counted", func(r *run) { r.without(3) }, "egress totals"},
		{"a refusal that was not counted", func(r *run) { r.without(1) }, "egress totals"},
		{"refusals that were not counted", func(r *run) { r.without(13) }, "egress totals"},
		{"totals of another run", func(r *run) { r.totals(func(c *ledger.EgressCount) { c.BytesIn++ }) }, "egress totals"},
		{"counts that overflow", func(r *run) {
			r.wayOut[13].data = ledger.MoreDenied{Count: 1<<53 - 1}
			r.wayOut = slices.Insert(r.wayOut, 14, r.wayOut[13], r.wayOut[13])
		}, "egress totals"},

		{"more than the rule lets out", func(r *run) {
			r.count(0, func(c *ledger.RuleCount) { c.Charged = 1025 })
			r.signed(func(p *ledger.Predicate) { p.EgressRules[0].Charged = 1025 })
		}, "egress and contract"},
		{"a request that was not charged", func(r *run) { r.request(0, func(d *ledger.Request) { d.BytesOut = 301 }) }, "egress and contract"},
		{"another host", func(r *run) { r.rename("x.files.example.org") }, "egress and contract"},
		{"a host two labels below the star", func(r *run) { r.rename("a.b.files.example.com") }, "egress and contract"},
		{"a host in another spelling", func(r *run) { r.rename("X.files.example.com") }, "egress and contract"},
		{"another port", func(r *run) {
			r.connected(0, func(d *ledger.Connected) { d.Port = 22 })
			r.closed(0, func(d *ledger.Closed) { d.Port = 22 })
		}, "egress and contract"},
		{"another mode", func(r *run) { r.connected(0, func(d *ledger.Connected) { d.Mode = "inspect" }) }, "egress and contract"},
		{"a rule that the contract does not have", func(r *run) { r.rule(3) }, "egress and contract, egress totals"},
		{"no rule at all", func(r *run) { r.rule(-1) }, "egress and contract, egress totals"},
		{"a private address", func(r *run) { r.dialled("10.0.0.1:443") }, "egress and contract"},
		{"this machine's address", func(r *run) { r.dialled("127.0.0.1:443") }, "egress and contract"},
		{"this machine's address, mapped", func(r *run) { r.dialled("[::ffff:127.0.0.1]:443") }, "egress and contract"},
		{"a metadata address", func(r *run) { r.dialled("169.254.169.254:443") }, "egress and contract"},
		{"a name in an address's place", func(r *run) { r.dialled("x.files.example.com:443") }, "egress and contract"},
		{"an address with another port", func(r *run) { r.dialled("192.0.2.1:22") }, "egress and contract"},
		{"a gateway's inner port", func(r *run) { r.connected(1, func(d *ledger.Connected) { d.Address = "[2001:db8::1]:80" }) }, "egress and contract"},
		{"another method", func(r *run) { r.request(0, func(d *ledger.Request) { d.Method = "DELETE" }) }, "egress and contract"},
		{"no method", func(r *run) { r.request(0, func(d *ledger.Request) { d.Method = "CONNECT" }) }, "egress and contract"},
		{"another path", func(r *run) { r.request(0, func(d *ledger.Request) { d.Path = "/v2/messages" }) }, "egress and contract"},
		{"a request to another host", func(r *run) { r.request(0, func(d *ledger.Request) { d.Host = "other.internal" }) }, "egress and contract"},
		{"a request under no rule", func(r *run) { r.request(0, func(d *ledger.Request) { d.Rule = 9 }) }, "egress and contract"},
		{"counts of a rule for another host", func(r *run) { r.count(1, func(c *ledger.RuleCount) { c.Host = "x.internal" }) }, "egress and contract"},

		{"a connection that was never closed", func(r *run) { r.without(4) }, "egress records"},
		{"a connection that was never made", func(r *run) { r.without(0) }, "egress records"},
		{"a connection that was made twice", func(r *run) { r.wayOut = slices.Insert(r.wayOut, 1, r.wayOut[0]) }, "egress records"},
		{"a connection that was closed twice", func(r *run) { r.wayOut = slices.Insert(r.wayOut, 5, r.wayOut[4]) }, "egress records"},
		{"a connection that was closed before it was made", func(r *run) { r.wayOut[4], r.wayOut[0] = r.wayOut[0], r.wayOut[4] }, "egress records"},
		{"a connection that ends elsewhere", func(r *run) { r.closed(0, func(d *ledger.Closed) { d.Rule = 1 }) }, "egress records"},
		{"a request after the counts", func(r *run) { r.last(3); r.wayOut[13], r.wayOut[14] = r.wayOut[14], r.wayOut[13] }, "egress records"},
		{"a refusal after the totals", func(r *run) { r.last(1) }, "egress records"},
		{"two totals", func(r *run) { r.wayOut = append(r.wayOut, r.wayOut[14]) }, "egress records"},
		{"no totals", func(r *run) { r.without(14) }, "egress records"},
		{"counts of rules out of order", func(r *run) { r.wayOut[10], r.wayOut[11] = r.wayOut[11], r.wayOut[10] }, "egress records"},
		{"counts of rules after those of refusals", func(r *run) { r.wayOut[12], r.wayOut[13] = r.wayOut[13], r.wayOut[12] }, "egress records"},
		{"a count below zero", func(r *run) { r.closed(0, func(d *ledger.Closed) { d.BytesOut = -1 }) }, "egress records"},
		{"a count that is no count", func(r *run) { r.wayOut[4].data = map[string]any{"connection": 1, "bytes_out": "1"} }, "egress records"},
		{"a record of another type", func(r *run) { r.wayOut[4].typ = "egress.other" }, "egress records"},
	} {
		r := newRun(t)
		r.online()
		c.lie(r)
		got := Verify(r.write(), nil)
		if got.Verdict != Failed || failures(got) != c.line {
			t.Errorf("%s: %s, failed: %+v; want %s", c.name, got.Verdict, got.Failures(), c.line)
		}
	}
}

func (r *run) rename(host string) {
	r.connected(0, func(d *ledger.Connected) { d.Host = host })
	r.closed(0, func(d *ledger.Closed) { d.Host = host })
}

func (r *run) rule(i int) {
	r.connected(0, func(d *ledger.Connected) { d.Rule = i })
	r.closed(0, func(d *ledger.Closed) { d.Rule = i })
}

func (r *run) dialled(address string) {
	r.connected(0, func(d *ledger.Connected) { d.Address = address })
}

// TestEgressWithoutAWayOut: a contract that lets nothing out has no record of it.
func TestEgressWithoutAWayOut(t *testing.T) {
	for name, records := range map[string][]record{
		"a connection": {onlineRecords()[0], onlineRecords()[4], {ledger.TypeEgressTotals, ledger.EgressCount{Allowed: 1}}},
		"a request":    {onlineRecords()[3], {ledger.TypeEgressTotals, ledger.EgressCount{Allowed: 1}}},
		"a rule":       {onlineRecords()[10], {ledger.TypeEgressTotals, ledger.EgressCount{}}},
	} {
		r := newRun(t)
		r.wayOut = records
		if got := Verify(r.write(), nil); got.Verdict != Failed || !strings.HasPrefix(failures(got), "egress and contract") {
			t.Errorf("%s: %s, failed: %+v", name, got.Verdict, got.Failures())
		}
	}
}

// TestFaultListIsBounded: a hostile ledger has many faults and a short report.
func TestFaultListIsBounded(t *testing.T) {
	r := newRun(t)
	r.online()
	for range 1000 {
		r.wayOut = append(r.wayOut, record{ledger.TypeDenied, ledger.Denied{Host: "late.example.com"}})
	}
	got := Verify(r.write(), nil)
	if failures(got) != "egress records" || len(got.Failures()[0].Detail) > 1000 {
		t.Errorf("%+v", got.Failures())
	}
}
