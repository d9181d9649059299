package egress

import (
	"bufio"
	"time"
)

const canaryBody = "countersign canary\n"

// serveCanary answers one request for the name that shows that the way out is
// there. It is no decision and leaves no record.
func (f *flow) serveCanary() {
	if f.establish() != nil {
		return
	}
	f.client.SetReadDeadline(time.Now().Add(firstHead))
	if _, err := readHead(bufio.NewReader(f.client), headBounds); err != nil {
		return
	}
	writeText(f.client, 200, canaryBody)
	linger(f.client)
}
