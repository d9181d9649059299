package egress

import (
	"fmt"
	"net/netip"
)

// Kind says what an address is for.
type Kind string

// KindGlobal is what a rule may dial without saying more.
const KindGlobal Kind = "global"

// Kinds that only a rule with private: true may dial.
const (
	KindPrivate      Kind = "private"      // RFC 1918
	KindLoopback     Kind = "loopback"     // RFC 1122, RFC 4291
	KindShared       Kind = "shared"       // carrier-grade NAT, RFC 6598
	KindUniqueLocal  Kind = "unique-local" // RFC 4193
	KindBenchmarking Kind = "benchmarking" // RFC 2544, RFC 5180; some VPN clients answer with it
	KindOwn          Kind = "this machine"
)

// Kinds that nothing may dial.
const (
	KindUnspecified   Kind = "unspecified"    // with the rest of 0.0.0.0/8: Linux dials itself
	KindLinkLocal     Kind = "link-local"     // RFC 3927, RFC 4291; clouds keep metadata there
	KindMetadata      Kind = "cloud metadata" // hands out the credentials of the machine
	KindMulticast     Kind = "multicast"
	KindBroadcast     Kind = "broadcast"
	KindDocumentation Kind = "documentation"
	KindReserved      Kind = "reserved"   // by a registry, or not allocated
	KindTransition    Kind = "transition" // 6to4, Teredo and the like: a relay decides where bytes go
	KindZoned         Kind = "zoned"      // RFC 4007: another host on each link
	KindInvalid       Kind = "invalid"
)

// mayDial says whether a rule allows the kind, given its private.
func (k Kind) mayDial(private bool) bool {
	switch k {
	case KindGlobal:
		return true
	case KindPrivate, KindLoopback, KindShared, KindUniqueLocal, KindBenchmarking, KindOwn:
		return private
	}
	return false
}

// Classify takes an address out of its IPv6 embedding and says of what kind it
// is. It is pure, and closed: an address that the registries of RFC 6890 do not
// make globally reachable, or that nobody has, is not global.
//
// Two embeddings lead to exactly the host that they name, and have its kind:
// IPv4-mapped (RFC 4291 §2.5.5.2) and NAT64 under its well-known prefix (RFC
// 6052). Every other one is KindTransition, whatever is inside. A network's own
// NAT64 prefix (RFC 6052 §2.2) looks like any global address and cannot be told.
func Classify(addr netip.Addr) (unwrapped netip.Addr, kind Kind) {
	switch {
	case !addr.IsValid():
		return addr, KindInvalid
	case addr.Zone() != "":
		return addr, KindZoned
	case addr.Unmap().Is4():
		return addr.Unmap(), kindIn(ipv4Blocks, addr.Unmap(), KindGlobal)
	case addr.IsUnspecified():
		return addr, KindUnspecified
	case addr.IsLoopback():
		return addr, KindLoopback
	}
	v4, direct := embedded(addr)
	switch {
	case !v4.IsValid():
		return addr, kindIn(ipv6Blocks, addr, KindReserved)
	case !direct:
		return v4, KindTransition
	}
	return v4, kindIn(ipv4Blocks, v4, KindGlobal)
}

// embedded returns the IPv4 address inside a, the zero Addr when there is none,
// and whether dialling a leads to it. Neither :: nor ::1 may be given.
func embedded(a netip.Addr) (v4 netip.Addr, direct bool) {
	b := a.As16()
	for _, e := range embeddings {
		if !e.prefix.Contains(a) {
			continue
		}
		v := [4]byte(b[e.offset:])
		if e.inverted {
			for i := range v {
				v[i] = ^v[i]
			}
		}
		return netip.AddrFrom4(v), e.direct
	}
	if b[8]&^2 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe { // ISATAP, RFC 5214 §6.1
		return netip.AddrFrom4([4]byte(b[12:])), false
	}
	return netip.Addr{}, false
}

// Check returns the address to dial for addr, or an [AddressError]. It is pure;
// own lists the addresses of this machine (see [OwnAddresses]), and private is
// the rule's.
func Check(addr netip.Addr, private bool, own []netip.Addr) (netip.Addr, error) {
	unwrapped, kind := Classify(addr)
	if kind.mayDial(true) && isOneOf(own, addr, unwrapped) {
		kind = KindOwn
	}
	if !kind.mayDial(private) {
		return netip.Addr{}, &AddressError{Addr: addr, Inside: unwrapped, Kind: kind}
	}
	return addr.Unmap(), nil
}

func isOneOf(own []netip.Addr, addr, unwrapped netip.Addr) bool {
	for _, o := range own {
		if o = o.Unmap().WithZone(""); o == addr || o == unwrapped {
			return true
		}
	}
	return false
}

// AddressError says why an address is not dialled. Its text is ASCII.
type AddressError struct {
	Addr   netip.Addr // as it was resolved
	Inside netip.Addr // the address that it embeds, or Addr
	Kind   Kind
}

func (e *AddressError) Error() string {
	if e.Kind == KindInvalid {
		return "there is no address"
	}
	what := string(e.Kind)
	if e.Inside != e.Addr {
		what = e.Inside.String() + ", " + what
	}
	addr := e.Addr.WithZone("") // a zone is any text
	if e.Kind.mayDial(true) {
		return fmt.Sprintf("%s (%s) needs a rule with private: true", addr, what)
	}
	return fmt.Sprintf("%s (%s) is allowed by no rule", addr, what)
}
