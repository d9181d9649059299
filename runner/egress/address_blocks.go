package egress

import "net/netip"

// block is a range of addresses of one kind; in a list the first that holds an
// address counts.
type block struct {
	prefix netip.Prefix
	kind   Kind
}

// kindIn is the kind of the first block that holds a, or otherwise.
func kindIn(blocks []block, a netip.Addr, otherwise Kind) Kind {
	for _, b := range blocks {
		if b.prefix.Contains(a) {
			return b.kind
		}
	}
	return otherwise
}

// ipv4Blocks is the IANA IPv4 Special-Purpose Address Registry (RFC 6890, as of
// 2026) with multicast (RFC 5771), and what clouds hand out credentials at. It
// differs from the registry to the strict side: all of 192.0.0.0/24 is reserved,
// also its two global anycast addresses. The global AS112 and AMT blocks have no
// row.
var ipv4Blocks = []block{
	{at("0.0.0.0/8"), KindUnspecified},
	{at("10.0.0.0/8"), KindPrivate},
	{at("100.100.100.200/32"), KindMetadata}, // Alibaba Cloud
	{at("100.64.0.0/10"), KindShared},
	{at("127.0.0.0/8"), KindLoopback},
	{at("168.63.129.16/32"), KindMetadata},   // Azure's wire server
	{at("169.254.169.254/32"), KindMetadata}, // AWS, Azure, Google Cloud and most others
	{at("169.254.170.0/24"), KindMetadata},   // AWS: credentials of tasks and pods
	{at("169.254.0.0/16"), KindLinkLocal},
	{at("172.16.0.0/12"), KindPrivate},
	{at("192.0.0.192/32"), KindMetadata}, // Oracle Cloud, the earlier generation
	{at("192.0.0.0/24"), KindReserved},
	{at("192.0.2.0/24"), KindDocumentation},
	{at("192.88.99.0/24"), KindTransition}, // 6to4 relays, RFC 7526
	{at("192.168.0.0/16"), KindPrivate},
	{at("198.18.0.0/15"), KindBenchmarking},
	{at("198.51.100.0/24"), KindDocumentation},
	{at("203.0.113.0/24"), KindDocumentation},
	{at("224.0.0.0/4"), KindMulticast},
	{at("255.255.255.255/32"), KindBroadcast},
	{at("240.0.0.0/4"), KindReserved},
}

// ipv6Blocks is the IANA IPv6 Special-Purpose Address Registry (RFC 6890, as of
// 2026) without what [embeddings] has, inside the one range that is allocated as
// global unicast: what has no row is reserved. Stricter than the registry: all
// of 2001::/23 (protocol assignments).
var ipv6Blocks = []block{
	{at("2001:2::/48"), KindBenchmarking},
	{at("2001::/23"), KindReserved},
	{at("2001:db8::/32"), KindDocumentation},
	{at("3fff::/20"), KindDocumentation}, // RFC 9637
	{at("2000::/3"), KindGlobal},
	{at("fd00:ec2::/32"), KindMetadata},    // AWS: metadata, pod credentials, resolver
	{at("fd20:ce::254/128"), KindMetadata}, // Google Cloud
	{at("fd00:42::42/128"), KindMetadata},  // Scaleway
	{at("fc00::/7"), KindUniqueLocal},
	{at("fe80::/10"), KindLinkLocal},
	{at("ff00::/8"), KindMulticast},
}

// embeddings are the IPv6 ranges whose addresses hold an IPv4 address, four
// bytes at offset.
var embeddings = []struct {
	prefix   netip.Prefix
	offset   int
	inverted bool
	direct   bool // leads to the host that it holds
}{
	{prefix: at("::/96"), offset: 12},                      // IPv4-compatible, RFC 4291 §2.5.5.1
	{prefix: at("::ffff:0:0:0/96"), offset: 12},            // IPv4-translated, RFC 2765 §2.1
	{prefix: at("64:ff9b::/96"), offset: 12, direct: true}, // NAT64, RFC 6052
	{prefix: at("64:ff9b:1::/48"), offset: 12},             // NAT64 of a network's own, RFC 8215
	{prefix: at("2001::/32"), offset: 12, inverted: true},  // Teredo: the client, RFC 4380 §4
	{prefix: at("2002::/16"), offset: 2},                   // 6to4, RFC 3056
}

func at(s string) netip.Prefix { return netip.MustParsePrefix(s) }
