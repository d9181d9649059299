package egress

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// dnsScript says what a server of the test sends back for a question, one
// message after the other; none is silence.
type dnsScript func(query dnsmessage.Message, network string) []dnsmessage.Message

// serveDNS answers on one loopback port, over UDP and TCP, until the test ends.
func serveDNS(t *testing.T, script dnsScript) netip.AddrPort {
	t.Helper()
	udp, tcp := listenDNS(t)
	t.Cleanup(func() { udp.Close(); tcp.Close() })
	go func() {
		buf := make([]byte, 4096)
		for {
			n, from, err := udp.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			for _, reply := range dnsReplies(script, buf[:n], "udp") {
				udp.WriteToUDPAddrPort(reply, from)
			}
		}
	}()
	go func() {
		for {
			c, err := tcp.Accept()
			if err != nil {
				return
			}
			answerTCP(c, script)
		}
	}()
	return tcp.Addr().(*net.TCPAddr).AddrPort()
}

// listenDNS takes a port that is free for both networks.
func listenDNS(t *testing.T) (*net.UDPConn, net.Listener) {
	t.Helper()
	for range 100 {
		tcp, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		udp, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(tcp.Addr().(*net.TCPAddr).AddrPort()))
		if err == nil {
			return udp, tcp
		}
		tcp.Close()
	}
	t.Fatal("no port is free for UDP and TCP")
	return nil, nil
}

func answerTCP(c net.Conn, script dnsScript) {
	defer c.Close()
	var size [2]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return
	}
	query := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(c, query); err != nil {
		return
	}
	for _, reply := range dnsReplies(script, query, "tcp") {
		c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...))
	}
}

func dnsReplies(script dnsScript, query []byte, network string) [][]byte {
	var q dnsmessage.Message
	if q.Unpack(query) != nil {
		return nil
	}
	var out [][]byte
	for _, m := range script(q, network) {
		packed, err := m.Pack()
		if err != nil {
			panic(err) // a mistake in the test
		}
		out = append(out, packed)
	}
	return out
}

// dnsReply answers q with records; a record is OWNER TYPE VALUE.
func dnsReply(q dnsmessage.Message, records ...string) dnsmessage.Message {
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: q.ID, Response: true, RecursionDesired: true, RecursionAvailable: true},
		Questions: q.Questions,
	}
	for _, r := range records {
		f := strings.Fields(r)
		h := dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName(f[0]), Class: dnsmessage.ClassINET, TTL: 60}
		var body dnsmessage.ResourceBody
		switch f[1] {
		case "A":
			body = &dnsmessage.AResource{A: netip.MustParseAddr(f[2]).As4()}
		case "AAAA":
			body = &dnsmessage.AAAAResource{AAAA: netip.MustParseAddr(f[2]).As16()}
		case "CNAME":
			body = &dnsmessage.CNAMEResource{CNAME: dnsmessage.MustNewName(f[2])}
		case "CHAOS-A":
			h.Class = dnsmessage.ClassCHAOS
			body = &dnsmessage.AResource{A: netip.MustParseAddr(f[2]).As4()}
		case "TXT":
			body = &dnsmessage.TXTResource{TXT: f[2:]}
		}
		m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: body})
	}
	return m
}

// ipv4Only answers the question for IPv4 addresses by script and the one for IPv6
// addresses with none.
func ipv4Only(script func(q dnsmessage.Message) dnsmessage.Message) dnsScript {
	return func(q dnsmessage.Message, _ string) []dnsmessage.Message {
		if q.Questions[0].Type != dnsmessage.TypeA {
			return []dnsmessage.Message{dnsReply(q)}
		}
		return []dnsmessage.Message{script(q)}
	}
}

func zone(lines ...string) dnsScript {
	return ipv4Only(func(q dnsmessage.Message) dnsmessage.Message { return dnsReply(q, lines...) })
}

func dnsFailure(code dnsmessage.RCode) dnsScript {
	return func(q dnsmessage.Message, _ string) []dnsmessage.Message {
		m := dnsReply(q)
		m.RCode = code
		return []dnsmessage.Message{m}
	}
}

func resolverAt(servers ...netip.AddrPort) *resolver {
	return &resolver{servers: func() ([]netip.AddrPort, error) { return servers, nil }, timeout: exchangeTimeout}
}

// showAnswer writes an answer as its addresses, then its aliases.
func showAnswer(a Answer) string {
	return strings.TrimSpace(fmt.Sprint(a.Addresses) + " " + strings.Join(a.Aliases, " "))
}

const askedHost = "www.example.com"

func TestResolveAnswers(t *testing.T) {
	chain := func(n int) []string {
		lines := []string{"www.example.com. CNAME a0.example.com."}
		for i := 1; i < n; i++ {
			lines = append(lines, fmt.Sprintf("a%d.example.com. CNAME a%d.example.com.", i-1, i))
		}
		return append(lines, fmt.Sprintf("a%d.example.com. A 192.0.2.1", n-1))
	}
	for name, c := range map[string]struct {
		script dnsScript
		want   string
	}{
		"one address":       {zone("www.example.com. A 192.0.2.1"), "[192.0.2.1]"},
		"another case":      {zone("WWW.Example.COM. A 192.0.2.1"), "[192.0.2.1]"},
		"several, in order": {zone("www.example.com. A 192.0.2.9", "www.example.com. A 192.0.2.1"), "[192.0.2.9 192.0.2.1]"},
		"aliases": {zone("www.example.com. CNAME b.example.net.", "b.example.net. CNAME C.example.org.", "c.example.org. A 192.0.2.7"),
			"[192.0.2.7] b.example.net C.example.org"},
		"aliases in another order": {zone("b.example.net. A 192.0.2.7", "www.example.com. CNAME b.example.net."), "[192.0.2.7] b.example.net"},
		"aliases at the bound":     {zone(chain(8)...), "[192.0.2.1] a0.example.com a1.example.com a2.example.com a3.example.com a4.example.com a5.example.com a6.example.com a7.example.com"},
		"records of other names":   {zone("other.example.com. A 192.0.2.66", "www.example.com. CHAOS-A 192.0.2.67", "www.example.com. TXT x", "www.example.com. A 192.0.2.1"), "[192.0.2.1]"},
		"an alias twice":           {zone("www.example.com. CNAME b.example.net.", "www.example.com. CNAME B.example.net.", "b.example.net. A 192.0.2.7"), "[192.0.2.7] B.example.net"},
	} {
		found, err := resolverAt(serveDNS(t, c.script)).Resolve(t.Context(), askedHost)
		if got := showAnswer(found); got != c.want || err != nil {
			t.Errorf("%s: %s, %v, want %s", name, got, err, c.want)
		}
	}
	for name, c := range map[string]struct {
		script dnsScript
		want   string
	}{
		"no such name":           {dnsFailure(dnsmessage.RCodeNameError), "does not exist (NXDOMAIN)"},
		"no address":             {zone(), "has no address"},
		"a failed server":        {dnsFailure(dnsmessage.RCodeServerFailure), "failed (SERVFAIL)"},
		"a server that refuses":  {dnsFailure(dnsmessage.RCodeRefused), "failed (REFUSED)"},
		"a code of no name":      {dnsFailure(dnsmessage.RCodeNotImplemented), "failed (code"},
		"an alias to nothing":    {zone("www.example.com. CNAME b.example.net."), "has no address"},
		"only another name":      {zone("other.example.com. A 192.0.2.66"), "has no address"},
		"a loop":                 {zone("www.example.com. CNAME b.example.net.", "b.example.net. CNAME www.example.com."), "chain of more than 8 aliases"},
		"an alias to itself":     {zone("www.example.com. CNAME www.example.com."), "chain of more than 8 aliases"},
		"aliases past the bound": {zone(chain(9)...), "chain of more than 8 aliases"},
		"two aliases":            {zone("www.example.com. CNAME b.example.net.", "www.example.com. CNAME c.example.net."), "two aliases for one name"},
		"too many records":       {zone(slices.Repeat([]string{"x. TXT x"}, 257)...), "more than 256 records"},
	} {
		found, err := resolverAt(serveDNS(t, c.script)).Resolve(t.Context(), askedHost)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), askedHost) {
			t.Errorf("%s: %s, %v, want an error with %q", name, showAnswer(found), err, c.want)
		}
	}
}

// IPv4 comes first, and one kind is enough when the other question fails.
func TestResolveBothKinds(t *testing.T) {
	servfail := func(q dnsmessage.Message) dnsmessage.Message {
		return dnsFailure(dnsmessage.RCodeServerFailure)(q, "")[0]
	}
	v4 := func(q dnsmessage.Message) dnsmessage.Message { return dnsReply(q, "www.example.com. A 192.0.2.1") }
	v6 := func(q dnsmessage.Message) dnsmessage.Message { return dnsReply(q, "www.example.com. AAAA 2001:db8::1") }
	none := func(q dnsmessage.Message) dnsmessage.Message { return dnsReply(q) }
	noName := func(q dnsmessage.Message) dnsmessage.Message { return dnsFailure(dnsmessage.RCodeNameError)(q, "")[0] }
	for name, c := range map[string]struct {
		a, aaaa func(dnsmessage.Message) dnsmessage.Message
		want    string
	}{
		"both":             {v4, v6, "[192.0.2.1 2001:db8::1]"},
		"no IPv6":          {v4, none, "[192.0.2.1]"},
		"no IPv4":          {none, v6, "[2001:db8::1]"},
		"IPv6 fails":       {v4, servfail, "[192.0.2.1]"},
		"IPv4 fails":       {servfail, v6, "[2001:db8::1]"},
		"none, IPv6 fails": {none, servfail, "SERVFAIL"},
		"none, IPv4 fails": {servfail, none, "SERVFAIL"},
		"no name, fails":   {servfail, noName, "NXDOMAIN"},
		"fails, no name":   {noName, servfail, "NXDOMAIN"},
	} {
		r := resolverAt(serveDNS(t, func(q dnsmessage.Message, _ string) []dnsmessage.Message {
			if q.Questions[0].Type == dnsmessage.TypeA {
				return []dnsmessage.Message{c.a(q)}
			}
			return []dnsmessage.Message{c.aaaa(q)}
		}))
		found, err := r.Resolve(t.Context(), askedHost)
		if got := showAnswer(found) + fmt.Sprint(err); !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// What answers another question is passed over, however near it comes.
func TestResolvePassesOverForeignMessages(t *testing.T) {
	r := resolverAt(serveDNS(t, func(q dnsmessage.Message, network string) []dnsmessage.Message {
		if q.Questions[0].Type != dnsmessage.TypeA {
			return []dnsmessage.Message{dnsReply(q)}
		}
		forged := func(edit func(*dnsmessage.Message)) dnsmessage.Message {
			m := dnsReply(q, "www.example.com. A 198.51.100.66", "WWW.example.com. A 198.51.100.66")
			m.Questions = slices.Clone(m.Questions)
			edit(&m)
			return m
		}
		return []dnsmessage.Message{
			forged(func(m *dnsmessage.Message) { m.ID++ }),
			forged(func(m *dnsmessage.Message) { m.Response = false }),
			forged(func(m *dnsmessage.Message) { m.OpCode = 4 }),
			forged(func(m *dnsmessage.Message) { m.Questions = nil }),
			forged(func(m *dnsmessage.Message) { m.Questions = append(m.Questions, m.Questions[0]) }),
			forged(func(m *dnsmessage.Message) { m.Questions[0].Type = dnsmessage.TypeAAAA }),
			forged(func(m *dnsmessage.Message) { m.Questions[0].Class = dnsmessage.ClassCHAOS }),
			forged(func(m *dnsmessage.Message) { m.Questions[0].Name = dnsmessage.MustNewName("WWW.example.com.") }),
			dnsReply(q, "www.example.com. A 192.0.2.1"),
		}
	}))
	found, err := r.Resolve(t.Context(), askedHost)
	if got := showAnswer(found); got != "[192.0.2.1]" || err != nil {
		t.Errorf("%s, %v", got, err)
	}
}

// A flood of foreign messages ends the exchange before its time does.
func TestResolveBoundsForeignMessages(t *testing.T) {
	r := resolverAt(serveDNS(t, func(q dnsmessage.Message, _ string) []dnsmessage.Message {
		m := dnsReply(q)
		m.ID++
		return slices.Repeat([]dnsmessage.Message{m}, 2*maxForeign)
	}))
	r.timeout = time.Hour
	if _, err := r.Resolve(t.Context(), askedHost); !errors.Is(err, errForeign) {
		t.Errorf("%v", err)
	}
}

// What does not fit a datagram comes over TCP, and no more of it is kept than is
// used.
func TestResolveOverTCP(t *testing.T) {
	var lines []string
	for i := range 100 {
		lines = append(lines, fmt.Sprintf("www.example.com. A 192.0.2.%d", i))
	}
	var overTCP atomic.Int32
	truncating := func(answer func(q dnsmessage.Message) []dnsmessage.Message) dnsScript {
		return func(q dnsmessage.Message, network string) []dnsmessage.Message {
			switch {
			case q.Questions[0].Type != dnsmessage.TypeA:
				return []dnsmessage.Message{dnsReply(q)}
			case network == "tcp":
				overTCP.Add(1)
				return answer(q)
			}
			m := dnsReply(q, "www.example.com. A 198.51.100.66")
			m.Truncated = true
			return []dnsmessage.Message{m}
		}
	}
	r := resolverAt(serveDNS(t, truncating(func(q dnsmessage.Message) []dnsmessage.Message { return []dnsmessage.Message{dnsReply(q, lines...)} })))
	found, err := r.Resolve(t.Context(), askedHost)
	if err != nil || len(found.Addresses) != maxAddresses || found.Addresses[0].String() != "192.0.2.0" {
		t.Errorf("%d addresses, %v", len(found.Addresses), err)
	}
	if overTCP.Load() != 1 {
		t.Errorf("asked %d times over TCP", overTCP.Load())
	}
	for name, c := range map[string]struct {
		answer func(q dnsmessage.Message) []dnsmessage.Message
		want   string
	}{
		"closed": {func(dnsmessage.Message) []dnsmessage.Message { return nil }, "EOF"},
		"foreign": {func(q dnsmessage.Message) []dnsmessage.Message {
			m := dnsReply(q)
			m.ID++
			return []dnsmessage.Message{m}
		}, "does not answer the question"},
		"truncated": {func(q dnsmessage.Message) []dnsmessage.Message {
			m := dnsReply(q)
			m.Truncated = true
			return []dnsmessage.Message{m}
		}, "truncated"},
	} {
		_, err := resolverAt(serveDNS(t, truncating(c.answer))).Resolve(t.Context(), askedHost)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestResolveAsksTheNextServer(t *testing.T) {
	closed, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
	if err != nil {
		t.Fatal(err)
	}
	dead := closed.LocalAddr().(*net.UDPAddr).AddrPort()
	closed.Close()
	broken := serveDNS(t, dnsFailure(dnsmessage.RCodeServerFailure))
	good := serveDNS(t, zone("www.example.com. A 192.0.2.1"))
	found, err := resolverAt(dead, broken, good).Resolve(t.Context(), askedHost)
	if got := showAnswer(found); got != "[192.0.2.1]" || err != nil {
		t.Errorf("%s, %v", got, err)
	}
	if _, err := resolverAt(dead).Resolve(t.Context(), askedHost); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("a dead server: %v", err)
	}
	// That there is no such name is an answer: the next server is not asked.
	noName := serveDNS(t, dnsFailure(dnsmessage.RCodeNameError))
	if _, err := resolverAt(noName, good).Resolve(t.Context(), askedHost); !errors.Is(err, errNoName) {
		t.Errorf("%v", err)
	}
}

// A server that fails once is asked once more.
func TestResolveAsksAgain(t *testing.T) {
	var failed atomic.Bool
	good := zone("www.example.com. A 192.0.2.1")
	r := resolverAt(serveDNS(t, func(q dnsmessage.Message, network string) []dnsmessage.Message {
		if q.Questions[0].Type == dnsmessage.TypeA && failed.CompareAndSwap(false, true) {
			return dnsFailure(dnsmessage.RCodeServerFailure)(q, network)
		}
		return good(q, network)
	}))
	found, err := r.Resolve(t.Context(), askedHost)
	if got := showAnswer(found); got != "[192.0.2.1]" || err != nil || !failed.Load() {
		t.Errorf("%s, %v", got, err)
	}
}

func TestResolveEnds(t *testing.T) {
	silent := serveDNS(t, func(dnsmessage.Message, string) []dnsmessage.Message { return nil })
	r := resolverAt(silent)
	r.timeout = time.Millisecond
	if _, err := r.Resolve(t.Context(), askedHost); err == nil || !strings.Contains(err.Error(), "no answer within 1ms") {
		t.Errorf("a silent server: %v", err)
	}
	gone := errors.New("the run is over")
	ctx, cancel := context.WithCancelCause(t.Context())
	r = resolverAt(serveDNS(t, func(dnsmessage.Message, string) []dnsmessage.Message { cancel(gone); return nil }))
	r.timeout = time.Hour
	if _, err := r.Resolve(ctx, askedHost); !errors.Is(err, gone) {
		t.Errorf("a cancelled look-up: %v", err)
	}
}

// Nothing is kept: each look-up asks, and gets what is answered then.
func TestResolveKeepsNothing(t *testing.T) {
	var n atomic.Int32
	r := resolverAt(serveDNS(t, ipv4Only(func(q dnsmessage.Message) dnsmessage.Message {
		return dnsReply(q, fmt.Sprintf("www.example.com. A 192.0.2.%d", n.Add(1)))
	})))
	for _, want := range []string{"[192.0.2.1]", "[192.0.2.2]"} {
		found, err := r.Resolve(t.Context(), askedHost)
		if got := showAnswer(found); got != want || err != nil {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
	}
}

func TestResolveQuestion(t *testing.T) {
	seen := make(chan dnsmessage.Message, 8)
	r := resolverAt(serveDNS(t, func(q dnsmessage.Message, network string) []dnsmessage.Message {
		seen <- q
		return []dnsmessage.Message{dnsReply(q)}
	}))
	r.Resolve(t.Context(), askedHost)
	types := map[dnsmessage.Type]bool{}
	for range 2 {
		q := <-seen
		types[q.Questions[0].Type] = true
		if len(q.Questions) != 1 || q.Questions[0].Name.String() != "www.example.com." || !q.RecursionDesired || q.Response {
			t.Errorf("asked %v", q.Questions)
		}
		if len(q.Additionals) != 1 || q.Additionals[0].Header.Type != dnsmessage.TypeOPT || q.Additionals[0].Header.Class != 1232 {
			t.Errorf("without EDNS: %v", q.Additionals)
		}
	}
	if !types[dnsmessage.TypeA] || !types[dnsmessage.TypeAAAA] {
		t.Errorf("asked for %v", types)
	}
	for _, host := range []string{"", "127.1", "WWW.example.com", "www.example.com.", "a b"} {
		if _, err := r.Resolve(t.Context(), host); err == nil || len(seen) > 0 {
			t.Errorf("%q: %v", host, err)
		}
	}
}

func dnsFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestHostsFile(t *testing.T) {
	file := dnsFile(t, `# comment
127.0.0.1	localhost
192.0.2.1 www.example.com WWW2.Example.com # www3.example.com
192.0.2.2 other.example.com www.example.com
192.0.2.1 www.example.com
2001:db8::1 www.example.com
fe80::1%lo www.example.com
not-an-address www.example.com
192.0.2.9
`)
	for host, want := range map[string]string{
		"www.example.com":  "[192.0.2.1 192.0.2.2 2001:db8::1 fe80::1%lo]",
		"www2.example.com": "[192.0.2.1]",
		"www3.example.com": "[]",
		"example.com":      "[]",
		"localhost":        "[127.0.0.1]",
	} {
		found, err := inHosts(file, host)
		if got := fmt.Sprint(found); got != want || err != nil {
			t.Errorf("%s: %s, %v, want %s", host, got, err, want)
		}
	}
	if found, err := inHosts(filepath.Join(t.TempDir(), "none"), "localhost"); found != nil || err != nil {
		t.Errorf("no file: %v, %v", found, err)
	}
	if _, err := inHosts(t.TempDir(), "localhost"); err == nil {
		t.Error("a directory was read")
	}
}

// The hosts file answers first; what it does not have is asked for.
func TestResolveHostsFirst(t *testing.T) {
	r := resolverAt(serveDNS(t, zone("www.example.com. A 192.0.2.1")))
	file := dnsFile(t, "192.0.2.50 other.example.com\n")
	r.hosts = func(host string) ([]netip.Addr, error) { return inHosts(file, host) }
	for host, want := range map[string]string{"other.example.com": "[192.0.2.50]", askedHost: "[192.0.2.1]"} {
		found, err := r.Resolve(t.Context(), host)
		if got := showAnswer(found); got != want || err != nil {
			t.Errorf("%s: %s, %v, want %s", host, got, err, want)
		}
	}
	r.hosts = func(string) ([]netip.Addr, error) { return nil, errors.New("unreadable") }
	if _, err := r.Resolve(t.Context(), askedHost); err == nil {
		t.Error("a hosts file that cannot be read was passed over")
	}
}

func TestNameServers(t *testing.T) {
	file := dnsFile(t, "; comment\nsearch example.com\nnameserver 192.0.2.53\nnameserver nonsense\nnameserver 2001:db8::53\noptions ndots:5\nnameserver fe80::53%eth0 # the router\nnameserver 192.0.2.54\n")
	found, err := nameServers(file)
	if got := fmt.Sprint(found); got != "[192.0.2.53:53 [2001:db8::53]:53 [fe80::53%eth0]:53]" || err != nil {
		t.Errorf("%s, %v", got, err)
	}
	for _, file := range []string{dnsFile(t, "search example.com\n"), filepath.Join(t.TempDir(), "none")} {
		if _, err := nameServers(file); err == nil || !strings.Contains(err.Error(), "--resolver") {
			t.Errorf("%v", err)
		}
	}
}

func TestNewResolver(t *testing.T) {
	for addr, want := range map[string]string{
		"192.0.2.53":         "192.0.2.53:53",
		"192.0.2.53:5353":    "192.0.2.53:5353",
		"2001:db8::53":       "[2001:db8::53]:53",
		"[2001:db8::53]:530": "[2001:db8::53]:530",
	} {
		r, err := NewResolver(addr)
		if err != nil {
			t.Errorf("%s: %v", addr, err)
			continue
		}
		if servers, _ := r.(*resolver).servers(); len(servers) != 1 || servers[0].String() != want || r.(*resolver).hosts != nil {
			t.Errorf("%s asks %v", addr, servers)
		}
	}
	for _, addr := range []string{"", "dns.example.com", "dns.example.com:53", "192.0.2.53:", "192.0.2.53:0", "192.0.2.53:x", "127.1", "192.0.2.53:99999"} {
		if _, err := NewResolver(addr); err == nil {
			t.Errorf("%q was taken", addr)
		}
	}
}

// FuzzDNSAnswer: whatever a server sends ends in an error or in few addresses of
// the name that was asked.
func FuzzDNSAnswer(f *testing.F) {
	q, err := newQuery(7, askedHost, dnsmessage.TypeA)
	if err != nil {
		f.Fatal(err)
	}
	asking := dnsmessage.Message{Header: dnsmessage.Header{ID: 7}, Questions: []dnsmessage.Question{q.question}}
	for _, m := range []dnsmessage.Message{
		dnsReply(asking, "www.example.com. A 192.0.2.1"),
		dnsReply(asking, "www.example.com. CNAME b.example.net.", "b.example.net. AAAA 2001:db8::1"),
		dnsReply(asking, "www.example.com. CNAME www.example.com."),
		asking,
	} {
		packed, err := m.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(packed)
	}
	f.Fuzz(func(t *testing.T, msg []byte) {
		found, err := readAnswer(msg, q)
		if (err == nil) != (len(found.Addresses) > 0) || len(found.Addresses) > maxAddresses || len(found.Aliases) > maxAliases {
			t.Errorf("%v, %v", found, err)
		}
		if err == nil && (len(msg) < 12 || binary.BigEndian.Uint16(msg) != 7) {
			t.Errorf("% x was taken for an answer", msg)
		}
	})
}
