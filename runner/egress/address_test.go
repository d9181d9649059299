package egress

import (
	"bufio"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
)

// The table has the first and last address of every block and their neighbours.
func TestClassifyTable(t *testing.T) {
	f, err := os.Open("testdata/addresses.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	seen := map[Kind]bool{}
	for in, n := bufio.NewScanner(f), 1; in.Scan(); n++ {
		line, _, _ := strings.Cut(in.Text(), "#")
		if strings.TrimSpace(line) == "" {
			continue
		}
		addrs, want, ok := strings.Cut(line, "->")
		kind := Kind(strings.TrimSpace(want))
		if !ok || kind == "" {
			t.Fatalf("addresses.txt:%d: %q is no case", n, line)
		}
		seen[kind] = true
		for _, s := range strings.Fields(addrs) {
			if _, got := Classify(netip.MustParseAddr(s)); got != kind {
				t.Errorf("addresses.txt:%d: %s is %s, want %s", n, s, got, kind)
			}
		}
	}
	for _, k := range []Kind{KindGlobal, KindPrivate, KindLoopback, KindShared, KindUniqueLocal, KindBenchmarking, KindUnspecified, KindLinkLocal,
		KindMetadata, KindMulticast, KindBroadcast, KindDocumentation, KindReserved, KindTransition, KindZoned} {
		if !seen[k] {
			t.Errorf("the table has no %s address", k)
		}
	}
}

func TestClassifyUnwraps(t *testing.T) {
	for addr, want := range map[string]string{
		"::ffff:10.1.2.3":                   "10.1.2.3",
		"64:ff9b::10.1.2.3":                 "10.1.2.3",
		"64:ff9b:1::10.1.2.3":               "10.1.2.3",
		"::10.1.2.3":                        "10.1.2.3",
		"::ffff:0:10.1.2.3":                 "10.1.2.3",
		"2002:a01:203::5":                   "10.1.2.3",
		"2001:0:cb00:7101:0:f227:f5fe:fdfc": "10.1.2.3", // the client, inverted
		"2001:db8::5efe:10.1.2.3":           "10.1.2.3",
		"2001:db8::200:5efe:10.1.2.3":       "10.1.2.3",
		"2606:4700::1111":                   "2606:4700::1111",
		"2606:4700:0:0:100:5efe:a01:203":    "2606:4700::100:5efe:a01:203",
		"10.1.2.3":                          "10.1.2.3",
		"::1":                               "::1",
		"::":                                "::",
	} {
		if got, _ := Classify(netip.MustParseAddr(addr)); got.String() != want {
			t.Errorf("%s holds %s, want %s", addr, got, want)
		}
	}
	if _, kind := Classify(netip.Addr{}); kind != KindInvalid {
		t.Errorf("the zero address is %s", kind)
	}
}

func addrs(list ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func TestCheck(t *testing.T) {
	own := addrs("192.0.2.10", "203.0.114.7", "192.168.7.1", "2606:4700::77", "fe80::1")
	for _, c := range []struct {
		addr, open, private string // what is dialled, or a part of the refusal
	}{
		{"1.1.1.1", "1.1.1.1", "1.1.1.1"},
		{"::ffff:1.1.1.1", "1.1.1.1", "1.1.1.1"},
		{"64:ff9b::1.1.1.1", "64:ff9b::101:101", "64:ff9b::101:101"},
		{"2606:4700::1111", "2606:4700::1111", "2606:4700::1111"},
		{"10.1.2.3", "10.1.2.3 (private) needs a rule with private: true", "10.1.2.3"},
		{"::ffff:10.1.2.3", "::ffff:10.1.2.3 (10.1.2.3, private) needs", "10.1.2.3"},
		{"64:ff9b::10.1.2.3", "64:ff9b::a01:203 (10.1.2.3, private) needs", "64:ff9b::a01:203"},
		{"127.0.0.1", "loopback", "127.0.0.1"},
		{"::1", "loopback", "::1"},
		{"100.64.0.1", "shared", "100.64.0.1"},
		{"fd12::1", "unique-local", "fd12::1"},
		{"198.18.0.1", "benchmarking", "198.18.0.1"},
		{"203.0.114.7", "203.0.114.7 (this machine) needs a rule", "203.0.114.7"},
		{"::ffff:203.0.114.7", "this machine", "203.0.114.7"},
		{"64:ff9b::203.0.114.7", "this machine", "64:ff9b::cb00:7207"},
		{"2606:4700::77", "this machine", "2606:4700::77"},
		{"192.168.7.1", "this machine", "192.168.7.1"},
		{"192.0.2.10", "192.0.2.10 (documentation) is allowed by no rule", "documentation"},
		{"169.254.169.254", "169.254.169.254 (cloud metadata) is allowed by no rule", "cloud metadata"},
		{"64:ff9b::169.254.169.254", "cloud metadata", "cloud metadata"},
		{"fd00:ec2::254", "cloud metadata", "cloud metadata"},
		{"0.0.0.0", "unspecified", "unspecified"},
		{"::", "unspecified", "unspecified"},
		{"fe80::1", "link-local", "link-local"},
		{"fe80::1%eth0", "fe80::1 (zoned) is allowed by no rule", "zoned"},
		{"2002:a01:203::1", "2002:a01:203::1 (10.1.2.3, transition) is", "transition"},
		{"fd12::5efe:169.254.169.254", "transition", "transition"},
	} {
		for private, want := range map[bool]string{false: c.open, true: c.private} {
			got, err := Check(netip.MustParseAddr(c.addr), private, own)
			text := got.String()
			if err != nil {
				text = err.Error()
			}
			_, notAddr := netip.ParseAddr(want)
			if ok := text == want || err != nil && notAddr != nil && strings.Contains(text, want); !ok {
				t.Errorf("%s (private %v): %s, want %s", c.addr, private, text, want)
			}
		}
	}
	if got, err := Check(netip.Addr{}, true, nil); err == nil {
		t.Errorf("the zero address: %v", got)
	}
}

func TestOwnAddresses(t *testing.T) {
	own, err := OwnAddresses()
	if err != nil || len(own) == 0 {
		t.Fatalf("%v, %v", own, err)
	}
	for _, a := range own {
		if _, err := Check(a, false, own); err == nil || a.Zone() != "" || a.Is4In6() {
			t.Errorf("%s: %v", a, err)
		}
	}
	if !slices.Contains(own, netip.MustParseAddr("127.0.0.1")) {
		t.Errorf("no loopback among %v", own)
	}
}

// FuzzClassify: an address is dialled without private: true only when it is
// global by the standard library's own predicates, and so is every IPv4 address
// that a known embedding could put into it.
func FuzzClassify(f *testing.F) {
	for _, s := range []string{"10.0.0.1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::a9fe:a9fe", "2002:7f00:1::1", "2001::1", "fe80::5efe:7f00:1", "2606:4700::1"} {
		f.Add(netip.MustParseAddr(s).AsSlice(), false)
	}
	f.Fuzz(func(t *testing.T, b []byte, private bool) {
		addr, ok := netip.AddrFromSlice(b)
		if !ok {
			return
		}
		unwrapped, kind := Classify(addr)
		if !unwrapped.IsValid() || kind == "" || kind == KindInvalid {
			t.Fatalf("%s is %q %q", addr, unwrapped, kind)
		}
		got, err := Check(addr, private, nil)
		if err != nil {
			if strings.ContainsFunc(err.Error(), func(r rune) bool { return r < ' ' || r > '~' }) {
				t.Errorf("%s: %q", addr, err)
			}
			return
		}
		if got != addr.Unmap() {
			t.Errorf("%s was checked and %s is dialled", addr, got)
		}
		forms := append(embeddedForms(addr), addr)
		for _, form := range forms {
			if form.IsUnspecified() || form.IsMulticast() || form.IsLinkLocalUnicast() || !private && (form.IsPrivate() || form.IsLoopback()) {
				t.Errorf("%s (%s) is dialled, private %v", addr, form, private)
			}
		}
	})
}

// embeddedForms are the IPv4 addresses that addr holds where its prefix says so,
// worked out on its text.
func embeddedForms(addr netip.Addr) []netip.Addr {
	if addr.Is4() {
		return nil
	}
	hex := strings.ReplaceAll(addr.StringExpanded(), ":", "")
	if addr.Is4In6() {
		return []netip.Addr{addr.Unmap()}
	}
	at := -1
	switch {
	case strings.HasPrefix(hex, "2002"):
		at = 4
	case strings.HasPrefix(hex, "0064ff9b"), strings.HasPrefix(hex, strings.Repeat("0", 16)):
		at = 24
	case strings.HasPrefix(hex[16:], "00005efe"), strings.HasPrefix(hex[16:], "02005efe"):
		at = 24
	}
	if at < 0 || addr.IsLoopback() || addr.IsUnspecified() {
		return nil
	}
	return []netip.Addr{netip.MustParseAddr("::ffff:" + hex[at:at+4] + ":" + hex[at+4:at+8]).Unmap()}
}
