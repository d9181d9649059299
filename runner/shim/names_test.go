package shim

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// book is a directory of the test: names it has, and names that fail.
type book struct{ full bool }

func (b book) addressOf(name string) (netip.Addr, error) {
	if b.full {
		return netip.Addr{}, errNamesFull
	}
	return netip.AddrFrom4([4]byte{127, 64, 0, byte(len(name))}), nil
}

func (b book) nameOf(at netip.Addr) (string, bool) {
	return "git.example.com", at == netip.AddrFrom4([4]byte{127, 64, 0, 15})
}

// query packs a question as programs do.
func query(t testing.TB, name string, kind dnsmessage.Type, change ...func(*dnsmessage.Message)) []byte {
	t.Helper()
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: 7, RecursionDesired: true}, Questions: []dnsmessage.Question{{
		Name: dnsmessage.MustNewName(name), Type: kind, Class: dnsmessage.ClassINET,
	}}}
	for _, c := range change {
		c(&m)
	}
	packed, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return packed
}

// say is an answer in one line: status, then the record.
func say(t testing.TB, answer []byte) string {
	t.Helper()
	if answer == nil {
		return "nothing"
	}
	var m dnsmessage.Message
	if err := m.Unpack(answer); err != nil {
		t.Fatalf("an answer that cannot be read: %v", err)
	}
	if m.ID != 7 || !m.Response || !m.RecursionAvailable || m.Truncated {
		t.Errorf("the answer's head is %+v", m.Header)
	}
	out := strings.TrimPrefix(m.RCode.String(), "RCode")
	for _, a := range m.Answers {
		switch body := a.Body.(type) {
		case *dnsmessage.AResource:
			out += fmt.Sprintf(" %s A %v", a.Header.Name, netip.AddrFrom4(body.A))
		case *dnsmessage.PTRResource:
			out += " PTR " + body.PTR.String()
		}
	}
	for _, a := range m.Additionals {
		out += fmt.Sprintf(" OPT %d", a.Header.ExtendedRCode(m.RCode))
	}
	return out
}

func TestAnswerQuery(t *testing.T) {
	type m = *dnsmessage.Message
	opt := func(code dnsmessage.RCode) func(m) {
		return func(m m) {
			var h dnsmessage.ResourceHeader
			h.SetEDNS0(4096, 0, true)
			h.TTL |= uint32(code) << 16
			m.Additionals = append(m.Additionals, dnsmessage.Resource{Header: h, Body: &dnsmessage.OPTResource{Options: []dnsmessage.Option{{Code: 10, Data: []byte("cookie..")}}}})
		}
	}
	long := strings.Repeat(strings.Repeat("a", 49)+".", 5)
	for name, c := range map[string]struct {
		query []byte
		want  string
	}{
		"a name":               {query(t, "git.example.com.", dnsmessage.TypeA), "Success git.example.com. A 127.64.0.15"},
		"case is kept":         {query(t, "GIT.Example.com.", dnsmessage.TypeA), "Success GIT.Example.com. A 127.64.0.15"},
		"one label":            {query(t, "database.", dnsmessage.TypeA), "Success database. A 127.64.0.8"},
		"underscore":           {query(t, "_dmarc.example.com.", dnsmessage.TypeA), "Success _dmarc.example.com. A 127.64.0.18"},
		"a long name":          {query(t, long, dnsmessage.TypeA), "Success " + long + " A 127.64.0.249"},
		"no IPv6":              {query(t, "git.example.com.", dnsmessage.TypeAAAA), "Success"},
		"no HTTPS record":      {query(t, "git.example.com.", 65), "Success"},
		"no mail":              {query(t, "git.example.com.", dnsmessage.TypeMX), "Success"},
		"no text":              {query(t, "git.example.com.", dnsmessage.TypeTXT), "Success"},
		"everything":           {query(t, "git.example.com.", dnsmessage.TypeALL), "Success"},
		"the root":             {query(t, ".", dnsmessage.TypeNS), "Success"},
		"EDNS":                 {query(t, "git.example.com.", dnsmessage.TypeA, opt(0)), "Success git.example.com. A 127.64.0.15 OPT 0"},
		"EDNS of tomorrow":     {query(t, "git.example.com.", dnsmessage.TypeA, opt(1)), "Success OPT 16"},
		"EDNS twice":           {query(t, "git.example.com.", dnsmessage.TypeA, opt(0), opt(0)), "FormatError OPT 1"},
		"localhost":            {query(t, "localhost.", dnsmessage.TypeA), "Success localhost. A 127.0.0.1"},
		"below localhost":      {query(t, "app.LOCALHOST.", dnsmessage.TypeA), "Success app.LOCALHOST. A 127.0.0.1"},
		"itself":               {query(t, "sandbox.", dnsmessage.TypeA), "Success sandbox. A 127.0.0.1"},
		"an address":           {query(t, "10.0.0.1.", dnsmessage.TypeA), "NameError"},
		"a number":             {query(t, "2130706433.", dnsmessage.TypeA), "NameError"},
		"hexadecimal":          {query(t, "0x7f.1.", dnsmessage.TypeA), "NameError"},
		"a foreign byte":       {query(t, "exa mple.com.", dnsmessage.TypeA), "NameError"},
		"a slash":              {query(t, "example.com/x.", dnsmessage.TypeA), "NameError"},
		"a byte above ASCII":   {query(t, "ex\xc3\xa4mple.com.", dnsmessage.TypeA), "NameError"},
		"a hyphen in front":    {query(t, "-x.example.com.", dnsmessage.TypeA), "NameError"},
		"a foreign AAAA":       {query(t, "a b.", dnsmessage.TypeAAAA), "NameError"},
		"reverse":              {query(t, "15.0.64.127.in-addr.arpa.", dnsmessage.TypePTR), "Success PTR git.example.com."},
		"reverse of 127.0.0.1": {query(t, "1.0.0.127.in-addr.arpa.", dnsmessage.TypePTR), "Success PTR localhost."},
		"reverse, no text":     {query(t, "15.0.64.127.IN-ADDR.ARPA.", dnsmessage.TypeTXT), "Success"},
		"reverse, not given":   {query(t, "16.0.64.127.in-addr.arpa.", dnsmessage.TypePTR), "NameError"},
		"reverse, outside":     {query(t, "1.2.0.192.in-addr.arpa.", dnsmessage.TypePTR), "NameError"},
		"reverse, too short":   {query(t, "64.127.in-addr.arpa.", dnsmessage.TypePTR), "NameError"},
		"reverse, no numbers":  {query(t, "a.b.c.d.in-addr.arpa.", dnsmessage.TypePTR), "NameError"},
		"reverse of IPv6":      {query(t, "1.0.0.0.ip6.arpa.", dnsmessage.TypePTR), "NameError"},
		"arpa as a host":       {query(t, "15.0.64.127.in-addr.arpa.", dnsmessage.TypeA), "Success"},
		"another class":        {query(t, "version.bind.", dnsmessage.TypeTXT, func(m m) { m.Questions[0].Class = dnsmessage.ClassCHAOS }), "Refused"},
		"an update":            {query(t, "git.example.com.", dnsmessage.TypeA, func(m m) { m.OpCode = 5 }), "NotImplemented"},
		"two questions":        {query(t, "git.example.com.", dnsmessage.TypeA, func(m m) { m.Questions = append(m.Questions, m.Questions[0]) }), "FormatError"},
		"no question":          {query(t, "git.example.com.", dnsmessage.TypeA, func(m m) { m.Questions = nil }), "FormatError"},
		"an answer":            {query(t, "git.example.com.", dnsmessage.TypeA, func(m m) { m.Response = true }), "nothing"},
		"cut in the question":  {query(t, "git.example.com.", dnsmessage.TypeA)[:20], "FormatError"},
		"cut in the head":      {query(t, "git.example.com.", dnsmessage.TypeA)[:11], "nothing"},
		"no bytes":             {nil, "nothing"},
		"a dot in a label":     {append(append([]byte{0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 3}, "a.b"...), 0, 0, 1, 0, 1), "FormatError"},
		"a loop of pointers":   {[]byte{0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0xc0, 12, 0, 1, 0, 1}, "FormatError"},
	} {
		if got := say(t, answerQuery(c.query, "sandbox", book{})); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if got := say(t, answerQuery(query(t, "one.more.", dnsmessage.TypeA), "sandbox", book{full: true})); got != "ServerFailure" {
		t.Errorf("a name over the bound: %q", got)
	}
	if got := say(t, answerQuery(query(t, "one.more.", dnsmessage.TypeAAAA), "sandbox", book{full: true})); got != "Success" {
		t.Errorf("what needs no address, over the bound: %q", got)
	}
}

// Names of one sandbox: one address each, never another, listened on before it
// is told, and bounded.
func TestNames(t *testing.T) {
	opened := map[netip.Addr]string{}
	broken := errors.New("no descriptor")
	fail := false
	n := newNames(300, func(name string, at netip.Addr) error {
		if fail {
			return broken
		}
		if was, ok := opened[at]; ok {
			t.Errorf("%v is opened for %s and for %s", at, was, name)
		}
		if !netip.MustParsePrefix("127.64.0.0/10").Contains(at) {
			t.Errorf("%v is no address of ours", at)
		}
		opened[at] = name
		return nil
	})
	fail = true
	if at, err := n.addressOf("first.example"); err != broken || at.IsValid() {
		t.Errorf("a name without a listener: %v, %v", at, err)
	}
	fail = false
	for i := range 300 {
		name := fmt.Sprintf("n%d.example", i)
		at, err := n.addressOf(name)
		if err != nil || opened[at] != name {
			t.Fatalf("%s: %v, %v, which is %q's", name, at, err, opened[at])
		}
		if back, ok := n.nameOf(at); !ok || back != name {
			t.Errorf("%v is %q, want %s", at, back, name)
		}
	}
	if at, err := n.addressOf("over.example"); err != errNamesFull {
		t.Errorf("one over the bound: %v, %v", at, err)
	}
	if at, err := n.addressOf("n7.example"); err != nil || opened[at] != "n7.example" || len(opened) != 300 {
		t.Errorf("an earlier name, over the bound: %v, %v", at, err)
	}
	if _, ok := n.nameOf(netip.MustParseAddr("127.64.9.9")); ok {
		t.Error("an address that was never given has a name")
	}
}

// Whatever is asked, the answer can be read, is short, belongs to the question,
// and leads nowhere but to this sandbox's own loopback.
func FuzzAnswerQuery(f *testing.F) {
	f.Add(query(f, "git.example.com.", dnsmessage.TypeA))
	f.Add(query(f, "15.0.64.127.in-addr.arpa.", dnsmessage.TypePTR))
	f.Add(query(f, "GIT.example.com.", dnsmessage.TypeAAAA, func(m *dnsmessage.Message) {
		var h dnsmessage.ResourceHeader
		h.SetEDNS0(4096, 0, true)
		m.Additionals = []dnsmessage.Resource{{Header: h, Body: &dnsmessage.OPTResource{}}}
	}))
	f.Fuzz(func(t *testing.T, asked []byte) {
		answer := answerQuery(asked, "sandbox", book{})
		if answer == nil {
			return
		}
		var m dnsmessage.Message
		if err := m.Unpack(answer); err != nil {
			t.Fatalf("the answer cannot be read: %v", err)
		}
		if len(answer) > 512 || !m.Response || answer[0] != asked[0] || answer[1] != asked[1] || len(m.Answers) > 1 {
			t.Fatalf("the answer is %d bytes, %+v", len(answer), m)
		}
		for _, a := range m.Answers {
			if body, ok := a.Body.(*dnsmessage.AResource); ok && !netip.AddrFrom4(body.A).IsLoopback() {
				t.Fatalf("the answer leads to %v", body.A)
			}
		}
	})
}
