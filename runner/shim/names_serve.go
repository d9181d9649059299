package shim

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"time"
)

// Bounds of the name server's streams (RFC 7766 §6). Datagrams are answered one
// by one, so they need none.
const (
	mostQueryStreams = 16
	queryBound       = 10 * time.Second // for the next query of a stream
	mostQueries      = 1000             // of one stream
	longestQuery     = 4 << 10          // bytes; a longer message has nothing to ask us
)

// serveDatagrams answers queries until the socket is closed.
func (n *network) serveDatagrams(c *net.UDPConn) {
	buf := make([]byte, longestQuery)
	for {
		size, from, err := c.ReadFromUDPAddrPort(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // the sandbox lacks memory now
			time.Sleep(busyPause)
			continue
		}
		if answer := answerQuery(buf[:size], n.own, n.names); answer != nil {
			_, _ = c.WriteToUDPAddrPort(answer, from) // whoever asked is gone; it would ask again
		}
	}
}

// serveQueries answers queries over streams until l is closed.
func (n *network) serveQueries(l *socket) {
	slots := make(chan struct{}, mostQueryStreams)
	for {
		slots <- struct{}{}
		fd, err := l.accept()
		var fault *os.SyscallError
		switch {
		case errors.As(err, &fault):
			<-slots
			time.Sleep(busyPause)
		case err != nil:
			return
		default:
			go func() {
				defer func() { <-slots }()
				n.serveStream(fd)
			}()
		}
	}
}

func (n *network) serveStream(fd int) {
	var s *socket
	var err error
	n.relay.call(func() { s, err = newSocket(fd) })
	if err != nil {
		return
	}
	defer n.relay.call(s.close)
	for range mostQueries {
		if err := s.file.SetDeadline(time.Now().Add(queryBound)); err != nil {
			return
		}
		query, err := readQuery(s)
		if err != nil {
			return
		}
		answer := answerQuery(query, n.own, n.names)
		if answer == nil {
			return
		}
		framed := binary.BigEndian.AppendUint16(nil, uint16(len(answer)))
		if _, err := s.Write(append(framed, answer...)); err != nil {
			return
		}
	}
}

// readQuery reads one message with its length in front (RFC 1035 §4.2.2).
func readQuery(r io.Reader) ([]byte, error) {
	var size [2]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	length := binary.BigEndian.Uint16(size[:])
	if length > longestQuery {
		return nil, errors.New("the query is too long")
	}
	query := make([]byte, length)
	_, err := io.ReadFull(r, query)
	return query, err
}
