package egress

import "net"

// peeked is a connection whose next bytes can be looked at. One goroutine at a
// time may peek and read; another may write.
type peeked struct {
	net.Conn
	ahead []byte // read, and not given out
}

// Peek returns the next n bytes, which are read again, or those that came before
// an error. They are valid until the next call.
func (c *peeked) Peek(n int) ([]byte, error) {
	for len(c.ahead) < n {
		if cap(c.ahead) == len(c.ahead) {
			c.ahead = append(c.ahead, make([]byte, max(2048, len(c.ahead)))...)[:len(c.ahead)]
		}
		got, err := c.Conn.Read(c.ahead[len(c.ahead):cap(c.ahead)])
		c.ahead = c.ahead[:len(c.ahead)+got]
		if err != nil && len(c.ahead) < n {
			return c.ahead, err
		}
	}
	return c.ahead[:n], nil
}

// Read gives out what was looked at first.
func (c *peeked) Read(b []byte) (int, error) {
	if len(c.ahead) == 0 {
		c.ahead = nil
		return c.Conn.Read(b)
	}
	n := copy(b, c.ahead)
	c.ahead = c.ahead[n:]
	return n, nil
}

// unread puts bytes in front of what is read next.
func (c *peeked) unread(b []byte) {
	if len(b) > 0 {
		c.ahead = append(append([]byte(nil), b...), c.ahead...)
	}
}

// CloseWrite says that no more bytes come, where the connection can.
func (c *peeked) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Conn.Close()
}
