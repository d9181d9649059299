package egress

import (
	"context"
	"crypto/sha1"
	"encoding/base64"
	"io"
	"net/http"
	"strings"
	"time"
)

// upgrade is the client's half of a WebSocket handshake (RFC 6455 §4.1).
type upgrade struct{ key string }

// readUpgrade refuses every upgrade but one to WebSocket: what would be spoken
// afterwards is read by nobody here. It is nil when none is asked for.
func readUpgrade(h *head) (*upgrade, error) {
	to := h.values("upgrade")
	if len(to) == 0 {
		return nil, nil
	}
	if len(to) != 1 || !strings.EqualFold(to[0], "websocket") {
		return nil, &Refused{ClassProtocol, "it asks for an upgrade, and only one to WebSocket is known"}
	}
	key, version := h.values("sec-websocket-key"), h.values("sec-websocket-version")
	raw, err := base64.StdEncoding.DecodeString(strings.Join(key, ","))
	kind, length, _ := h.framing()
	if err != nil || len(raw) != 16 || len(version) != 1 || version[0] != "13" || h.method != http.MethodGet ||
		h.proto != "HTTP/1.1" || !lists(h.values("connection"), "upgrade") || kind == bodyChunked || length > 0 {
		return nil, malformed("its WebSocket handshake is malformed")
	}
	return &upgrade{key[0]}, nil
}

// accept is the server's half of the handshake (RFC 6455 §4.2.2).
func (u *upgrade) accept() string {
	sum := sha1.Sum([]byte(u.key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// switchProtocols passes a server's 101 on, if it is what was asked for, and
// then bytes both ways until one side ends.
func (o *origin) switchProtocols(ctx context.Context, w http.ResponseWriter, q *request, by passage, answer *http.Response, record *requestRecord) (answered bool, err error) {
	server, writable := answer.Body.(io.ReadWriteCloser)
	client, ours := w.(*reply)
	if q.socket == nil || !writable || !ours || !q.socket.agreed(answer.Header) {
		return false, &Refused{ClassProtocol, "it switched to a protocol that was not asked for"}
	}
	p := o.flow.proxy
	up := &socketUp{to: server, charge: func(n int) error { return p.charge(by.rule, n) }}
	if by.reads() {
		up.frames = newFrames(by.entry.DenyBody, p.reading.all)
	}
	down := io.Writer(client.conn())
	if by.entry.Inject != nil {
		down = &scanned{down, newScan(nil, p.reading.all)}
	}
	if err := client.switchTo("websocket", answer.Header); err != nil {
		return true, err
	}
	cut := func() { server.Close(); client.conn().SetDeadline(longAgo) }
	stop := context.AfterFunc(ctx, cut)
	defer stop()
	ended := make(chan error, 2)
	go func() { ended <- copyPieces(up, client.watch.s.r, &up.n) }()
	go func() { ended <- copyPieces(down, server, &record.BytesIn) }()
	err = <-ended
	cut()
	<-ended
	record.BytesOut += up.n
	client.conn().SetDeadline(time.Time{})
	return true, err
}

// agreed says whether the server switched to what was asked for: WebSocket,
// without an extension, which was not offered.
func (u *upgrade) agreed(h http.Header) bool {
	return strings.EqualFold(h.Get("Upgrade"), "websocket") && h.Get("Sec-Websocket-Accept") == u.accept() &&
		len(h["Sec-Websocket-Extensions"]) == 0
}

// socketUp is the way of a WebSocket's bytes to the server.
type socketUp struct {
	to     io.Writer
	frames *frames // nil: not looked into
	charge func(n int) error
	n      int64
}

func (u *socketUp) Write(p []byte) (int, error) {
	if u.frames != nil {
		if err := u.frames.check(p); err != nil {
			return 0, err
		}
	}
	if err := u.charge(len(p)); err != nil {
		return 0, err
	}
	return u.to.Write(p)
}

// scanned writes only what holds nothing that it looks for.
type scanned struct {
	to   io.Writer
	look *scan
}

func (s *scanned) Write(p []byte) (int, error) {
	if err := s.look.check(p); err != nil {
		return 0, err
	}
	return s.to.Write(p)
}

// copyPieces passes on what it reads until the end, and adds to n.
func copyPieces(to io.Writer, from io.Reader, n *int64) error {
	buf := pieces.Get().(*[piece]byte)
	defer pieces.Put(buf)
	for {
		read, err := from.Read(buf[:])
		if read > 0 {
			if _, err := to.Write(buf[:read]); err != nil {
				return err
			}
			*n += int64(read)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
