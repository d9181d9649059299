package egress

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/net/dns/dnsmessage"
)

// Bounds of one message. The size is the one of DNS Flag Day 2020: it passes
// every network in one piece.
const (
	ednsSize         = 1232 // bytes
	maxAnswerRecords = 256
	maxAddresses     = 64 // more are not used
	maxAliases       = 8
)

// Answers that no other server will better.
var (
	errNoName = errors.New("the name does not exist (NXDOMAIN)")
	errNoData = errors.New("the name has no address")
)

// errForeign marks a message that does not answer the question that was asked:
// a late one, or a forged one.
var errForeign = errors.New("the message does not answer the question")

// errTruncated asks for the answer over TCP.
var errTruncated = errors.New("the answer is truncated")

// dnsQuery is one question with the random number of its message.
type dnsQuery struct {
	id       uint16
	question dnsmessage.Question
}

func newQuery(id uint16, host string, typ dnsmessage.Type) (dnsQuery, error) {
	name, err := dnsmessage.NewName(host + ".")
	if err != nil {
		return dnsQuery{}, fmt.Errorf("writing the question: %v", err)
	}
	return dnsQuery{id, dnsmessage.Question{Name: name, Type: typ, Class: dnsmessage.ClassINET}}, nil
}

// pack writes the query with the OPT record of RFC 6891.
func (q dnsQuery) pack() ([]byte, error) {
	var opt dnsmessage.ResourceHeader
	if err := opt.SetEDNS0(ednsSize, dnsmessage.RCodeSuccess, false); err != nil {
		return nil, fmt.Errorf("writing the question: %v", err)
	}
	msg := dnsmessage.Message{
		Header:      dnsmessage.Header{ID: q.id, RecursionDesired: true},
		Questions:   []dnsmessage.Question{q.question},
		Additionals: []dnsmessage.Resource{{Header: opt, Body: &dnsmessage.OPTResource{}}},
	}
	packed, err := msg.Pack()
	if err != nil {
		return nil, fmt.Errorf("writing the question: %v", err)
	}
	return packed, nil
}

// readAnswer reads a server's message: the addresses at the end of the chain of
// aliases that starts at the question, and the chain. The question must come
// back byte for byte. Errors other than the named ones are the server's.
func readAnswer(msg []byte, q dnsQuery) (Answer, error) {
	var p dnsmessage.Parser
	header, err := p.Start(msg)
	if err != nil || !header.Response || header.ID != q.id || header.OpCode != 0 {
		return Answer{}, errForeign
	}
	if questions, err := p.AllQuestions(); err != nil || len(questions) != 1 || questions[0] != q.question {
		return Answer{}, errForeign
	}
	switch {
	case header.Truncated:
		return Answer{}, errTruncated
	case header.RCode == dnsmessage.RCodeNameError:
		return Answer{}, errNoName
	case header.RCode != dnsmessage.RCodeSuccess:
		return Answer{}, fmt.Errorf("the server failed (%s)", rcodeText(header.RCode))
	}
	section, err := readSection(&p)
	if err != nil {
		return Answer{}, err
	}
	return section.follow(q.question.Name.String())
}

func rcodeText(c dnsmessage.RCode) string {
	switch c {
	case dnsmessage.RCodeServerFailure:
		return "SERVFAIL"
	case dnsmessage.RCodeRefused:
		return "REFUSED"
	case dnsmessage.RCodeFormatError:
		return "FORMERR"
	}
	return fmt.Sprintf("code %d", c)
}

// answerSection has the records of an answer by owner, in ASCII lower case.
type answerSection struct {
	alias     map[string]string // to the target as it was written
	addresses map[string][]netip.Addr
}

func readSection(p *dnsmessage.Parser) (answerSection, error) {
	r := answerSection{map[string]string{}, map[string][]netip.Addr{}}
	for range maxAnswerRecords {
		h, err := p.AnswerHeader()
		switch {
		case errors.Is(err, dnsmessage.ErrSectionDone):
			return r, nil
		case err != nil:
			return answerSection{}, fmt.Errorf("the answer is malformed: %v", err)
		}
		if err := r.read(p, h); err != nil {
			return answerSection{}, err
		}
	}
	return answerSection{}, fmt.Errorf("the answer has more than %d records", maxAnswerRecords)
}

// read takes the record that h heads, or passes over it.
func (r answerSection) read(p *dnsmessage.Parser, h dnsmessage.ResourceHeader) (err error) {
	owner := asciiLower(h.Name.String())
	switch {
	case h.Class != dnsmessage.ClassINET:
		err = p.SkipAnswer()
	case h.Type == dnsmessage.TypeA:
		var a dnsmessage.AResource
		a, err = p.AResource()
		r.addresses[owner] = append(r.addresses[owner], netip.AddrFrom4(a.A))
	case h.Type == dnsmessage.TypeAAAA:
		var a dnsmessage.AAAAResource
		a, err = p.AAAAResource()
		r.addresses[owner] = append(r.addresses[owner], netip.AddrFrom16(a.AAAA))
	case h.Type == dnsmessage.TypeCNAME:
		var c dnsmessage.CNAMEResource
		c, err = p.CNAMEResource()
		if old, ok := r.alias[owner]; err == nil && ok && asciiLower(old) != asciiLower(c.CNAME.String()) {
			return errors.New("the answer has two aliases for one name")
		}
		r.alias[owner] = c.CNAME.String()
	default:
		err = p.SkipAnswer()
	}
	if err != nil {
		return fmt.Errorf("the answer is malformed: %v", err)
	}
	return nil
}

// follow goes from name along its aliases. A chain that comes back to itself is
// too long, as well.
func (r answerSection) follow(name string) (Answer, error) {
	var found Answer
	owner := asciiLower(name)
	for target, ok := r.alias[owner]; ok; target, ok = r.alias[owner] {
		if len(found.Aliases) == maxAliases {
			return Answer{}, fmt.Errorf("the answer has a chain of more than %d aliases", maxAliases)
		}
		found.Aliases = append(found.Aliases, target[:max(len(target)-1, 0)])
		owner = asciiLower(target)
	}
	addresses := r.addresses[owner]
	if len(addresses) == 0 {
		return Answer{}, errNoData
	}
	found.Addresses = slices.Clone(addresses[:min(len(addresses), maxAddresses)])
	return found, nil
}

// asciiLower lowers A to Z only (RFC 4343 §3): what Unicode folds to a letter is
// another name.
func asciiLower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}
