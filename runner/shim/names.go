package shim

import (
	"errors"
	"net/netip"
	"sync"
)

// mostNames bounds how many names a run may ask for; the descriptors that
// their listeners take may bound it further.
const mostNames = 1024

// errNamesFull says that no further name gets an address.
var errNamesFull = errors.New("too many names were asked for")

// firstAddress is the start of 127.64.0.0/10: loopback, and far from the
// addresses below 127.1 that programs listen on.
func firstAddress() netip.Addr { return netip.AddrFrom4([4]byte{127, 64, 0, 1}) }

// names gives every host name a loopback address of its own. What was given
// once is kept for the life of the sandbox, so an address always means one name.
type names struct {
	most int
	// open listens at an address before it is told to anyone.
	open func(name string, at netip.Addr) error

	mu      sync.Mutex // held while open runs: addresses are given one by one
	next    netip.Addr
	address map[string]netip.Addr
	name    map[netip.Addr]string
}

func newNames(most int, open func(string, netip.Addr) error) *names {
	return &names{
		most: most, open: open, next: firstAddress(),
		address: make(map[string]netip.Addr), name: make(map[netip.Addr]string),
	}
}

// addressOf gives name, as contract.ParseHost returned it, its address. The
// error is errNamesFull or one of open's, after which the name has none.
func (n *names) addressOf(name string) (netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if at, ok := n.address[name]; ok {
		return at, nil
	}
	if len(n.address) >= n.most {
		return netip.Addr{}, errNamesFull
	}
	at := n.next
	if err := n.open(name, at); err != nil {
		return netip.Addr{}, err
	}
	n.next = at.Next()
	n.address[name], n.name[at] = at, name
	return at, nil
}

// nameOf is the name that an address was given to.
func (n *names) nameOf(at netip.Addr) (string, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	name, ok := n.name[at]
	return name, ok
}
