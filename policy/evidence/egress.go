package evidence

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/policy/ledger"
)

// wayOut is what the ledger says of a run's way out.
type wayOut struct {
	connected []ledger.Connected // number n at place n-1
	closed    map[int64]ledger.Closed
	requests  []ledger.Request
	denied    int64 // records of refusals
	more      int64 // refusals that were counted only
	rules     []ledger.RuleCount
	totals    *ledger.EgressCount // nil: no way out was opened
}

// egress holds what the ledger says of the way out to itself, to the contract
// and to the statement.
func (v *verifier) egress() {
	out, err := readWayOut(v.records)
	if !v.check("egress records", err, "%d connections, %d requests, %d refusals", len(out.connected), len(out.requests), plus(out.denied, out.more)) {
		return
	}
	var n contract.Network
	if len(v.contracts) > 0 {
		n = v.contracts[len(v.contracts)-1].Contract().Network
	}
	v.check("egress and contract", out.within(n), "everything that went out is within its %d rules", len(n.Allow))
	v.check("egress totals", out.recount(), "they are the sums of the records")
	v.check("egress and statement", v.repeatsEgress(out, n), "it repeats the totals")
}

// countLimit is above every count that a document may hold.
const countLimit = 1 << 53

// plus adds two counts. A sum beyond the limit stays there, where it equals none.
func plus(a, b int64) int64 { return min(a+b, countLimit) }

func readWayOut(records []ledger.Record) (wayOut, error) {
	out := wayOut{closed: map[int64]ledger.Closed{}}
	var wrong faultList
	for _, r := range records {
		if err := out.take(r); err != nil {
			wrong.add("record %d (%s) %v", r.Seq, r.Type, err)
		}
	}
	if n := len(out.connected) - len(out.closed); n > 0 {
		wrong.add("%d connections were never closed", n)
	}
	if out.totals == nil && (len(out.connected) > 0 || len(out.requests) > 0 || out.denied > 0 || len(out.rules) > 0 || out.more > 0) {
		wrong.add("there is no %s", ledger.TypeEgressTotals)
	}
	return out, wrong.err()
}

// take adds one record. Counts at the end come after what they count: rules, then
// refusals that were counted only, then the totals.
func (out *wayOut) take(r ledger.Record) error {
	if !strings.HasPrefix(r.Type, "egress.") {
		return nil
	}
	if out.totals != nil {
		return errors.New("comes after the totals")
	}
	ended := len(out.rules) > 0 || out.more > 0
	switch r.Type {
	case ledger.TypeEgressRule, ledger.TypeEgressMore, ledger.TypeEgressTotals:
		return out.takeEnd(r)
	}
	if ended {
		return errors.New("comes after the counts of the end")
	}
	switch r.Type {
	case ledger.TypeConnected:
		return out.takeConnected(r)
	case ledger.TypeClosed:
		return out.takeClosed(r)
	case ledger.TypeRequest:
		var d ledger.Request
		if err := read(r, &d, &d.BytesOut, &d.BytesIn); err != nil {
			return err
		}
		out.requests = append(out.requests, d)
	case ledger.TypeDenied:
		out.denied++
	default:
		return errors.New("is of no type that is known here")
	}
	return nil
}

func (out *wayOut) takeConnected(r ledger.Record) error {
	var d ledger.Connected
	if err := read(r, &d, &d.Connection); err != nil {
		return err
	}
	out.connected = append(out.connected, d)
	if n := int64(len(out.connected)); d.Connection != n {
		return fmt.Errorf("is of connection %d, expected %d", d.Connection, n)
	}
	return nil
}

func (out *wayOut) takeClosed(r ledger.Record) error {
	var d ledger.Closed
	if err := read(r, &d, &d.Connection, &d.BytesOut, &d.BytesIn); err != nil {
		return err
	}
	if d.Connection < 1 || d.Connection > int64(len(out.connected)) {
		return fmt.Errorf("is of connection %d, which was not made before", d.Connection)
	}
	if _, twice := out.closed[d.Connection]; twice {
		return fmt.Errorf("is of connection %d, which was closed before", d.Connection)
	}
	out.closed[d.Connection] = d
	made := out.connected[d.Connection-1]
	if made.Host != d.Host || made.Port != d.Port || made.Rule != d.Rule {
		return fmt.Errorf("is of connection %d to %s:%d under rule %d, which was made to %s:%d under rule %d",
			d.Connection, d.Host, d.Port, d.Rule, made.Host, made.Port, made.Rule)
	}
	return nil
}

func (out *wayOut) takeEnd(r ledger.Record) error {
	switch r.Type {
	case ledger.TypeEgressRule:
		var d ledger.RuleCount
		if err := read(r, &d, &d.Connections, &d.BytesOut, &d.BytesIn, &d.Charged); err != nil {
			return err
		}
		out.rules = append(out.rules, d)
		if out.more > 0 {
			return errors.New("comes after the refusals that were counted only")
		}
		if d.Rule != len(out.rules)-1 {
			return fmt.Errorf("is of rule %d, expected %d", d.Rule, len(out.rules)-1)
		}
	case ledger.TypeEgressMore:
		var d ledger.MoreDenied
		if err := read(r, &d, &d.Count); err != nil {
			return err
		}
		out.more = plus(out.more, d.Count)
	case ledger.TypeEgressTotals:
		var d ledger.EgressCount
		if err := read(r, &d, &d.Allowed, &d.Denied, &d.BytesOut, &d.BytesIn); err != nil {
			return err
		}
		out.totals = &d
	}
	return nil
}

// read decodes a record's data and holds its counts to what can be added up.
func read(r ledger.Record, data any, counts ...*int64) error {
	if err := json.Unmarshal(r.Data, data); err != nil {
		return err
	}
	for _, n := range counts {
		if *n < 0 || *n >= countLimit {
			return fmt.Errorf("has the count %d", *n)
		}
	}
	return nil
}

// recount adds the records up again. Without totals there are none.
func (out *wayOut) recount() error {
	if out.totals == nil {
		return nil
	}
	sums := make([]ledger.RuleCount, len(out.rules))
	var wrong faultList
	for _, d := range out.connected {
		c := out.closed[d.Connection]
		if d.Rule < 0 || d.Rule >= len(sums) {
			wrong.add("connection %d is under rule %d, which has no %s", d.Connection, d.Rule, ledger.TypeEgressRule)
			continue
		}
		s := &sums[d.Rule]
		s.Connections, s.BytesOut, s.BytesIn = s.Connections+1, plus(s.BytesOut, c.BytesOut), plus(s.BytesIn, c.BytesIn)
	}
	all := ledger.EgressCount{Allowed: int64(len(out.connected) + len(out.requests)), Denied: plus(out.denied, out.more)}
	for i, said := range out.rules {
		s := sums[i]
		s.Rule, s.Host, s.Port, s.Charged = said.Rule, said.Host, said.Port, said.Charged
		if s != said {
			wrong.add("rule %d counts %d connections, %d bytes out, %d in; its records make %d, %d and %d",
				i, said.Connections, said.BytesOut, said.BytesIn, s.Connections, s.BytesOut, s.BytesIn)
		}
		all.BytesOut, all.BytesIn = plus(all.BytesOut, s.BytesOut), plus(all.BytesIn, s.BytesIn)
	}
	if *out.totals != all {
		wrong.add("the totals are %+v; the records make %+v", *out.totals, all)
	}
	return wrong.err()
}

// repeatsEgress compares what the statement says with the ledger.
func (v *verifier) repeatsEgress(out wayOut, n contract.Network) error {
	p := v.statement.Predicate
	if out.totals == nil {
		switch {
		case p.Egress != (contract.EgressTotals{}) || len(p.EgressRules) > 0:
			return errors.New("it has totals, but the ledger has none")
		case p.Exit.WorkloadExit != nil && n.Mode == contract.NetworkAllowlist:
			return errors.New("a workload ran that had a way out, but the ledger has no totals of it")
		}
		return nil
	}
	var wrong faultList
	if want := (contract.EgressTotals{Allowed: out.totals.Allowed, Denied: out.totals.Denied, BytesOut: out.totals.BytesOut}); p.Egress != want {
		wrong.add("the totals are %+v, signed were %+v", want, p.Egress)
	}
	if len(p.EgressRules) != len(n.Allow) || len(out.rules) != len(n.Allow) {
		wrong.add("the contract has %d rules, the ledger counts %d and the statement %d", len(n.Allow), len(out.rules), len(p.EgressRules))
		return wrong.err()
	}
	for i, r := range n.Allow {
		c := out.rules[i]
		want := ledger.EgressRule{
			Rule: i, Host: r.Host, Port: r.Port, Mode: r.Mode, Coverage: r.Coverage,
			Connections: c.Connections, BytesOut: c.BytesOut, BytesIn: c.BytesIn, Charged: c.Charged,
		}
		if p.EgressRules[i] != want {
			wrong.add("rule %d is %+v, signed was %+v", i, want, p.EgressRules[i])
		}
	}
	return wrong.err()
}
