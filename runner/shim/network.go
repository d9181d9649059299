package shim

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/runner/shim/protocol"
)

// ownDescriptors are what the shim needs beside relays and listeners.
const ownDescriptors = 64

// network is the sandbox's side of its way out: it names, listens and carries,
// and decides nothing. It ends with the process.
type network struct {
	relay *relay
	ports []int
	own   string // the sandbox's host name
	names *names
}

// openNetwork begins to answer names and to carry connections to the proxy at
// the Unix socket path. After an error nothing listens.
func openNetwork(m protocol.Network, path string) (*network, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	n := &network{relay: newRelay(path), ports: slices.Concat(m.Ports, protocol.CommonPorts())}
	slices.Sort(n.ports)
	n.ports = slices.Compact(n.ports)
	most, err := roomForNames(len(n.ports))
	if err != nil {
		return nil, err
	}
	if n.own, err = ownName(); err != nil {
		return nil, err
	}
	n.names = newNames(most, n.listen)
	if err := n.begin(); err != nil {
		return nil, err
	}
	return n, nil
}

// roomForNames is how many names may have a listener on each port within the
// limit of open files.
func roomForNames(ports int) (int, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("reading the limit of open files: %v", err)
	}
	free := int64(min(limit.Cur, 1<<30)) - ownDescriptors - 2*mostConnections
	most := min(free/int64(ports), mostNames)
	if most < 1 {
		return 0, fmt.Errorf("opening the network: a limit of %d open files leaves no room for listeners on %d ports", limit.Cur, ports)
	}
	return int(most), nil
}

// ownName is the host name as a name server is asked for it; "" is never asked.
func ownName() (string, error) {
	name, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("reading the host name: %v", err)
	}
	name, err = contract.ParseHost(strings.ToLower(name))
	if err != nil {
		return "", nil // no program can ask for it
	}
	return name, nil
}

// begin listens, and serves only when everything could be listened on.
func (n *network) begin() error {
	datagrams, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(nameServer()))
	if err != nil {
		return fmt.Errorf("opening the name server: %v", err)
	}
	queries, err := listenTCP(nameServer())
	if err != nil {
		datagrams.Close()
		return fmt.Errorf("opening the name server: %v", err)
	}
	explicit, err := listenTCP(netip.MustParseAddrPort(protocol.ExplicitProxy))
	if err != nil {
		datagrams.Close()
		queries.close()
		return fmt.Errorf("opening the explicit proxy: %v", err)
	}
	go n.serveDatagrams(datagrams)
	go n.serveQueries(queries)
	go n.relay.serve(explicit, "")
	return nil
}

func nameServer() netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr(protocol.NameServer), 53)
}

// listen makes the address of a name lead to the proxy. A port that the
// workload itself listens on, at every address, stays the workload's.
func (n *network) listen(name string, at netip.Addr) error {
	listeners := make(map[int]*socket, len(n.ports))
	for _, port := range n.ports {
		l, err := listenTCP(netip.AddrPortFrom(at, uint16(port)))
		if errors.Is(err, unix.EADDRINUSE) {
			continue
		}
		if err != nil {
			for _, l := range listeners {
				l.close()
			}
			return err
		}
		listeners[port] = l
	}
	for port, l := range listeners {
		go n.relay.serve(l, connectHead(name, port))
	}
	return nil
}
