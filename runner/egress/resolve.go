package egress

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// SystemResolver asks the hosts file of this machine, then the name servers of
// its resolv.conf. Both are read for each look-up, so that a change counts at
// once. Names are absolute (no search list, no ndots), and sources that only a C
// library knows (mDNS, LDAP) are not asked.
func SystemResolver() Resolver {
	return &resolver{
		hosts:   func(host string) ([]netip.Addr, error) { return inHosts("/etc/hosts", host) },
		servers: func() ([]netip.AddrPort, error) { return nameServers("/etc/resolv.conf") },
		timeout: exchangeTimeout,
	}
}

// NewResolver asks the one name server at addr, ADDRESS or ADDRESS:PORT (an IPv6
// address with a port in brackets); the port is 53 by default.
func NewResolver(addr string) (Resolver, error) {
	server, err := netip.ParseAddrPort(addr)
	if err != nil {
		ip, err := netip.ParseAddr(addr)
		if err != nil {
			return nil, fmt.Errorf("resolver %.80q: want ADDRESS or ADDRESS:PORT, the address as a number", addr)
		}
		server = netip.AddrPortFrom(ip, 53)
	}
	if server.Port() == 0 {
		return nil, fmt.Errorf("resolver %.80q: the port is 0, want 1 to 65535", addr)
	}
	return &resolver{
		servers: func() ([]netip.AddrPort, error) { return []netip.AddrPort{server}, nil },
		timeout: exchangeTimeout,
	}, nil
}

// resolver keeps nothing between two look-ups: each connection dials what its
// own look-up found.
type resolver struct {
	hosts   func(host string) ([]netip.Addr, error) // asked first; nil: none
	servers func() ([]netip.AddrPort, error)        // asked in order
	timeout time.Duration                           // of one question to one server
}

// Resolve returns the IPv4 addresses of host, a name that contract.ParseHost
// returned, and then its IPv6 addresses. One kind is enough when the question
// for the other fails. An error says which of these it was: the name does not
// exist, it has no address, a server failed, none answered.
func (r *resolver) Resolve(ctx context.Context, host string) (Answer, error) {
	if problem := hostProblem(host); problem != "" {
		return Answer{}, fmt.Errorf("resolving a name: %s", problem)
	}
	found, err := r.resolve(ctx, host)
	if err != nil {
		return Answer{}, fmt.Errorf("resolving %s: %w", host, err)
	}
	return found, nil
}

func (r *resolver) resolve(ctx context.Context, host string) (Answer, error) {
	if r.hosts != nil {
		if addrs, err := r.hosts(host); err != nil || len(addrs) > 0 {
			return Answer{Addresses: addrs}, err
		}
	}
	servers, err := r.servers()
	if err != nil {
		return Answer{}, err
	}
	type result struct {
		Answer
		err error
	}
	v6 := make(chan result, 1)
	go func() {
		found, err := lookUp(ctx, servers, r.timeout, host, dnsmessage.TypeAAAA)
		v6 <- result{found, err}
	}()
	found, err := lookUp(ctx, servers, r.timeout, host, dnsmessage.TypeA)
	second := <-v6
	return join(found, err, second.Answer, second.err)
}

// join makes one answer of the two types'. Without an address, that the name
// does not exist explains most, and that it has no address least.
func join(a Answer, errA error, b Answer, errB error) (Answer, error) {
	switch {
	case errA == nil && errB == nil:
		a.Addresses = append(a.Addresses, b.Addresses...)
		return a, nil
	case errA == nil:
		return a, nil
	case errB == nil:
		return b, nil
	case errors.Is(errB, errNoName) || errors.Is(errA, errNoData):
		return Answer{}, errB
	}
	return Answer{}, errA
}
