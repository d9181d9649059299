package shim

import (
	"errors"
	"net/netip"
	"strings"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/countersign-dev/countersign/policy/contract"
)

const (
	// nameTTL is how long a program may keep an answer, in seconds; an address
	// never changes its meaning.
	nameTTL = 600
	// udpSize is what is told of the longest datagram taken (RFC 6891 §6.2.3).
	// No answer is longer than the 512 bytes that everybody takes.
	udpSize = 1232
)

// directory is what an answer needs to know.
type directory interface {
	addressOf(name string) (netip.Addr, error)
	nameOf(at netip.Addr) (string, bool)
}

// nameReply is what becomes of one query before it is written.
type nameReply struct {
	header   dnsmessage.Header
	question *dnsmessage.Question
	edns     bool
	badVers  bool
	body     dnsmessage.ResourceBody // nil: none
}

// answerQuery answers one message of the domain name system (RFC 1035) as a
// resolver that knows every name and no address outside. It returns nil for what
// is not a query, which is left without an answer so that two servers cannot
// keep each other busy. own is the sandbox's own host name.
//
// A name that the contract's one parser refuses does not exist (NXDOMAIN), which
// every libc says in clear words and asks for once only. A name has an A record
// and no other: AAAA is answered with nothing, so that IPv4 is used.
func answerQuery(query []byte, own string, dir directory) []byte {
	var p dnsmessage.Parser
	asked, err := p.Start(query)
	if err != nil || asked.Response {
		return nil
	}
	r := nameReply{header: dnsmessage.Header{
		ID: asked.ID, Response: true, OpCode: asked.OpCode,
		RecursionDesired: asked.RecursionDesired, RecursionAvailable: true,
	}}
	if asked.OpCode != 0 {
		r.header.RCode = dnsmessage.RCodeNotImplemented
		return r.pack()
	}
	questions, err := p.AllQuestions()
	if err != nil || len(questions) != 1 {
		r.header.RCode = dnsmessage.RCodeFormatError
		return r.pack()
	}
	r.question = &questions[0]
	version, err := findEDNS(&p, &r.edns)
	switch {
	case err != nil:
		r.header.RCode = dnsmessage.RCodeFormatError
	case version != 0:
		r.badVers = true
	default:
		r.body, r.header.RCode = answerQuestion(questions[0], own, dir)
	}
	return r.pack()
}

// findEDNS reads on to the OPT record (RFC 6891 §6.1.1: one, of the root).
func findEDNS(p *dnsmessage.Parser, found *bool) (version byte, err error) {
	if err := errors.Join(p.SkipAllAnswers(), p.SkipAllAuthorities()); err != nil {
		return 0, err
	}
	for {
		h, err := p.AdditionalHeader()
		if err == dnsmessage.ErrSectionDone {
			return version, nil
		}
		if err != nil {
			return 0, err
		}
		if h.Type == dnsmessage.TypeOPT {
			if *found || h.Name.String() != "." {
				return 0, errors.New("more than one OPT record, or not the root's")
			}
			*found, version = true, byte(h.TTL>>16)
		}
		if err := p.SkipAdditional(); err != nil {
			return 0, err
		}
	}
}

func answerQuestion(q dnsmessage.Question, own string, dir directory) (dnsmessage.ResourceBody, dnsmessage.RCode) {
	if q.Class != dnsmessage.ClassINET {
		return nil, dnsmessage.RCodeRefused
	}
	if q.Name.String() == "." {
		return nil, dnsmessage.RCodeSuccess // it exists, and has nothing
	}
	name, err := contract.ParseHost(strings.TrimSuffix(q.Name.String(), "."))
	if err != nil {
		return nil, dnsmessage.RCodeNameError
	}
	if name == "arpa" || strings.HasSuffix(name, ".arpa") {
		return answerReverse(name, q.Type, dir)
	}
	if q.Type != dnsmessage.TypeA {
		return nil, dnsmessage.RCodeSuccess
	}
	if name == own || name == "localhost" || strings.HasSuffix(name, ".localhost") { // RFC 6761 §6.3
		return &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}}, dnsmessage.RCodeSuccess
	}
	at, err := dir.addressOf(name)
	if err != nil {
		return nil, dnsmessage.RCodeServerFailure
	}
	return &dnsmessage.AResource{A: at.As4()}, dnsmessage.RCodeSuccess
}

// answerReverse knows the addresses that were given out, and 127.0.0.1.
func answerReverse(name string, kind dnsmessage.Type, dir directory) (dnsmessage.ResourceBody, dnsmessage.RCode) {
	reversed, ok := strings.CutSuffix(name, ".in-addr.arpa")
	octets := strings.Split(reversed, ".")
	if !ok || len(octets) != 4 {
		return nil, dnsmessage.RCodeNameError
	}
	at, err := netip.ParseAddr(strings.Join([]string{octets[3], octets[2], octets[1], octets[0]}, "."))
	if err != nil {
		return nil, dnsmessage.RCodeNameError
	}
	host, known := dir.nameOf(at)
	if at == netip.AddrFrom4([4]byte{127, 0, 0, 1}) {
		host, known = "localhost", true
	}
	if !known {
		return nil, dnsmessage.RCodeNameError
	}
	if kind != dnsmessage.TypePTR {
		return nil, dnsmessage.RCodeSuccess
	}
	pointed, err := dnsmessage.NewName(host + ".")
	if err != nil {
		return nil, dnsmessage.RCodeServerFailure
	}
	return &dnsmessage.PTRResource{PTR: pointed}, dnsmessage.RCodeSuccess
}

// pack writes the reply; nil if it cannot be written.
func (r nameReply) pack() []byte {
	m := dnsmessage.Message{Header: r.header}
	if r.question != nil {
		m.Questions = []dnsmessage.Question{*r.question}
		if r.body != nil {
			h := dnsmessage.ResourceHeader{Name: r.question.Name, Class: dnsmessage.ClassINET, TTL: nameTTL}
			m.Answers = []dnsmessage.Resource{{Header: h, Body: r.body}}
		}
	}
	if r.edns {
		var h dnsmessage.ResourceHeader
		code := r.header.RCode
		if r.badVers {
			code = badVers
		}
		if err := h.SetEDNS0(udpSize, code, false); err != nil {
			return nil
		}
		m.Additionals = []dnsmessage.Resource{{Header: h, Body: &dnsmessage.OPTResource{}}}
	}
	packed, err := m.Pack()
	if err != nil {
		return nil
	}
	return packed
}

// badVers is the extended code for an unknown version (RFC 6891 §9).
const badVers dnsmessage.RCode = 16
