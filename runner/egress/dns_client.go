package egress

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// Bounds of a look-up of one type.
const (
	exchangeTimeout = 3 * time.Second // one question to one server
	rounds          = 2               // how often every server is asked
	maxForeign      = 64              // datagrams that answer something else, for one question
	maxDatagram     = 4096            // bytes; some servers exceed what was asked for
)

// lookUp asks the servers in turn until one knows: an answer, or that there is
// none.
func lookUp(ctx context.Context, servers []netip.AddrPort, timeout time.Duration, host string, typ dnsmessage.Type) (Answer, error) {
	err := errors.New("there is no name server")
	for range rounds {
		for _, server := range servers {
			var found Answer
			found, err = exchange(ctx, server, timeout, host, typ)
			switch {
			case err == nil || errors.Is(err, errNoName) || errors.Is(err, errNoData):
				return found, err
			case ctx.Err() != nil:
				return Answer{}, context.Cause(ctx)
			}
			err = fmt.Errorf("name server %s: %w", server, err)
		}
	}
	return Answer{}, err
}

// exchange asks one server over UDP, and over TCP what does not fit. Each
// question has a random number and, by the kernel, a port of its own.
func exchange(ctx context.Context, server netip.AddrPort, timeout time.Duration, host string, typ dnsmessage.Type) (Answer, error) {
	var id [2]byte
	rand.Read(id[:]) // never fails
	q, err := newQuery(binary.BigEndian.Uint16(id[:]), host, typ)
	if err != nil {
		return Answer{}, err
	}
	msg, err := q.pack()
	if err != nil {
		return Answer{}, err
	}
	found, err := ask(ctx, "udp", server, timeout, func(c net.Conn) (Answer, error) { return overUDP(c, msg, q) })
	if errors.Is(err, errTruncated) {
		found, err = ask(ctx, "tcp", server, timeout, func(c net.Conn) (Answer, error) { return overTCP(c, msg, q) })
	}
	if timedOut := net.Error(nil); errors.As(err, &timedOut) && timedOut.Timeout() {
		return Answer{}, fmt.Errorf("no answer within %v", timeout)
	}
	return found, err
}

// ask connects, which makes the kernel drop what others send, and talks until
// the time is over or ctx ends.
func ask(ctx context.Context, network string, server netip.AddrPort, timeout time.Duration, talk func(net.Conn) (Answer, error)) (Answer, error) {
	deadline := time.Now().Add(timeout)
	dialer := net.Dialer{Deadline: deadline}
	c, err := dialer.DialContext(ctx, network, server.String())
	if err != nil {
		return Answer{}, err
	}
	defer c.Close()
	if err := c.SetDeadline(deadline); err != nil {
		return Answer{}, err
	}
	defer context.AfterFunc(ctx, func() { c.Close() })()
	return talk(c)
}

func overUDP(c net.Conn, msg []byte, q dnsQuery) (Answer, error) {
	if _, err := c.Write(msg); err != nil {
		return Answer{}, err
	}
	buf := make([]byte, maxDatagram)
	for range maxForeign {
		n, err := c.Read(buf)
		if err != nil {
			return Answer{}, err
		}
		if found, err := readAnswer(buf[:n], q); !errors.Is(err, errForeign) {
			return found, err
		}
	}
	return Answer{}, errForeign
}

// overTCP frames messages by their length (RFC 1035 §4.2.2).
func overTCP(c net.Conn, msg []byte, q dnsQuery) (Answer, error) {
	if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(msg))), msg...)); err != nil {
		return Answer{}, err
	}
	var size [2]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return Answer{}, err
	}
	buf := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(c, buf); err != nil {
		return Answer{}, err
	}
	return readAnswer(buf, q)
}
