package egress

import (
	"fmt"
	"net"
	"net/netip"
)

// OwnAddresses lists the addresses of this machine's interfaces, without zones.
// They change while a run goes on (a container's network brings a bridge), so
// that each dial reads them anew.
func OwnAddresses() ([]netip.Addr, error) {
	interfaces, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("reading this machine's addresses: %v", err)
	}
	var own []netip.Addr
	for _, a := range interfaces {
		p, err := netip.ParsePrefix(a.String())
		if err != nil {
			return nil, fmt.Errorf("reading this machine's addresses: %v", err)
		}
		own = append(own, p.Addr().Unmap())
	}
	return own, nil
}
