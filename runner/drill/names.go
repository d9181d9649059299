package drill

import (
	"fmt"
	"net"
	"net/netip"
	"sync"

	"golang.org/x/net/dns/dnsmessage"
)

// nameServer is the one that the proxies of a drill ask, over UDP on loopback.
// It notes every question.
type nameServer struct {
	conn *net.UDPConn
	// zone has the answers of each name: the first question for an A record gets
	// the first of them, the next one the next, and the last one stays.
	zone map[string][][]netip.Addr

	mu    sync.Mutex
	asked map[string]int // questions for an A record, by name
}

func newNameServer(zone map[string][][]netip.Addr) (*nameServer, error) {
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, fmt.Errorf("opening the drill's name server: %v", err)
	}
	n := &nameServer{conn: conn, zone: zone, asked: map[string]int{}}
	go n.serve()
	return n, nil
}

func (n *nameServer) address() string { return n.conn.LocalAddr().String() }

func (n *nameServer) Close() error { return n.conn.Close() }

// questions are those that came, by name.
func (n *nameServer) questions() map[string]int {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := make(map[string]int, len(n.asked))
	for name, count := range n.asked {
		out[name] = count
	}
	return out
}

func (n *nameServer) serve() {
	buffer := make([]byte, 4096)
	for {
		size, from, err := n.conn.ReadFromUDPAddrPort(buffer)
		if err != nil {
			return // closed
		}
		var m dnsmessage.Message
		if m.Unpack(buffer[:size]) != nil || len(m.Questions) != 1 {
			continue
		}
		if packed, err := n.answer(m); err == nil {
			n.conn.WriteToUDPAddrPort(packed, from) // whoever asked asks again
		}
	}
}

func (n *nameServer) answer(m dnsmessage.Message) ([]byte, error) {
	q := m.Questions[0]
	addresses, known := n.addresses(q)
	reply := dnsmessage.Message{Header: dnsmessage.Header{ID: m.ID, Response: true, RecursionDesired: m.RecursionDesired, RecursionAvailable: true}, Questions: m.Questions}
	if !known {
		reply.RCode = dnsmessage.RCodeNameError
	}
	h := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET}
	for _, a := range addresses {
		switch {
		case q.Type == dnsmessage.TypeA && a.Is4():
			reply.Answers = append(reply.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AResource{A: a.As4()}})
		case q.Type == dnsmessage.TypeAAAA && !a.Is4():
			reply.Answers = append(reply.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AAAAResource{AAAA: a.As16()}})
		}
	}
	return reply.Pack()
}

// addresses notes a question and returns what answers it.
func (n *nameServer) addresses(q dnsmessage.Question) (answer []netip.Addr, known bool) {
	name := q.Name.String()
	name = name[:len(name)-1] // the root's dot
	n.mu.Lock()
	defer n.mu.Unlock()
	turn := n.asked[name]
	if q.Type == dnsmessage.TypeA {
		n.asked[name]++
	} else if turn == 0 {
		n.asked[name] = 0 // asked for, if only so
	}
	answers := n.zone[name]
	if len(answers) == 0 {
		return nil, false
	}
	return answers[min(turn, len(answers)-1)], true
}
