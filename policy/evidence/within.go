package evidence

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/policy/ledger"
)

// within holds what went out to the rules of the contract.
func (out *wayOut) within(n contract.Network) error {
	var wrong faultList
	for _, d := range out.connected {
		if err := connectedWithin(n, d); err != nil {
			wrong.add("connection %d to %s:%d %v", d.Connection, d.Host, d.Port, err)
		}
	}
	sent := map[int]int64{}
	for _, d := range out.requests {
		if err := requestWithin(n, d); err != nil {
			wrong.add("request %s %s:%d%s %v", d.Method, d.Host, d.Port, d.Path, err)
		}
		sent[d.Rule] = plus(sent[d.Rule], d.BytesOut)
	}
	for i, c := range out.rules {
		switch {
		case i >= len(n.Allow):
			wrong.add("rule %d is not in the contract", i)
		case c.Host != n.Allow[i].Host || c.Port != n.Allow[i].Port:
			wrong.add("rule %d is of %s:%d, the contract's of %s:%d", i, c.Host, c.Port, n.Allow[i].Host, n.Allow[i].Port)
		case c.Charged > n.Allow[i].UploadBytes:
			wrong.add("rule %d let out %d bytes, the contract lets out %d", i, c.Charged, n.Allow[i].UploadBytes)
		case sent[i] > c.Charged:
			wrong.add("rule %d was charged %d bytes, its requests had %d", i, c.Charged, sent[i])
		}
	}
	return wrong.err()
}

// ruleFor is the contract's rule at place i, if it is for host and port.
func ruleFor(n contract.Network, i int, host string, port int) (contract.NetRule, error) {
	if i < 0 || i >= len(n.Allow) {
		return contract.NetRule{}, fmt.Errorf("is under rule %d, which is not in the contract", i)
	}
	r := n.Allow[i]
	pattern, err := contract.ParseHostPattern(r.Host)
	name, errName := contract.ParseHost(host)
	if err != nil || errName != nil || name != host || !pattern.Match(host) || r.Port != port {
		return r, fmt.Errorf("is under rule %d, which is for %s:%d", i, r.Host, r.Port)
	}
	return r, nil
}

func connectedWithin(n contract.Network, d ledger.Connected) error {
	r, err := ruleFor(n, d.Rule, d.Host, d.Port)
	if err != nil {
		return err
	}
	if d.Mode != r.Mode {
		return fmt.Errorf("was %s, its rule is %s", d.Mode, r.Mode)
	}
	address, err := netip.ParseAddrPort(d.Address)
	if err != nil {
		return fmt.Errorf("dialled %q, which is no address with a port", d.Address)
	}
	if want := portOf(r); int(address.Port()) != want {
		return fmt.Errorf("dialled port %d, its rule's is %d", address.Port(), want)
	}
	return reachable(address.Addr().Unmap(), r.Private)
}

// portOf is the port that a rule's connections go to.
func portOf(r contract.NetRule) int {
	if r.Mode != contract.RuleGateway {
		return r.Port
	}
	port, err := strconv.Atoi(r.Upstream[strings.LastIndexByte(r.Upstream, ':')+1:])
	if err != nil {
		return 0 // no contract that was sealed has such an upstream
	}
	return port
}

// reachable refuses the plain cases of addresses that only a private rule, or
// none, may reach. What the proxy refuses besides is its own to test.
func reachable(a netip.Addr, private bool) error {
	switch {
	case a.IsUnspecified() || a.IsMulticast() || a.IsLinkLocalUnicast():
		return fmt.Errorf("dialled %s, which no rule may reach", a)
	case !private && (a.IsPrivate() || a.IsLoopback()):
		return fmt.Errorf("dialled %s, which is not public, and its rule is not private", a)
	}
	return nil
}

// maxPath is where a recorded path was cut, in bytes; what was cut is not judged.
const maxPath = 512

func requestWithin(n contract.Network, d ledger.Request) error {
	r, err := ruleFor(n, d.Rule, d.Host, d.Port)
	if err != nil {
		return err
	}
	if err := contract.CheckMethod(d.Method); err != nil {
		return fmt.Errorf("has a method that %v", err)
	}
	if r.Mode == contract.RuleOpaque {
		return nil
	}
	if !slices.Contains(r.Methods, d.Method) {
		return errors.New("has a method that its rule does not list")
	}
	matches := func(text string) bool {
		pattern, err := contract.ParsePathPattern(text)
		return err == nil && pattern.Match(d.Path)
	}
	if len(d.Path) < maxPath && !slices.ContainsFunc(r.Paths, matches) {
		return errors.New("has a path that its rule does not list")
	}
	return nil
}

// faultList keeps the first few of what may be very many.
type faultList struct {
	texts []string
	left  int
}

const maxFaults = 5

func (l *faultList) add(format string, args ...any) {
	if len(l.texts) == maxFaults {
		l.left++
		return
	}
	l.texts = append(l.texts, fmt.Sprintf(format, args...))
}

// err is nil for none.
func (l *faultList) err() error {
	if l.left > 0 {
		return problems(append(l.texts, fmt.Sprintf("%d more", l.left)))
	}
	return problems(l.texts)
}
