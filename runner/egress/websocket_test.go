package egress

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/policy/contract"
)

// The key and the accept of RFC 6455 §1.3.
const (
	wsKey    = "dGhlIHNhbXBsZSBub25jZQ=="
	wsAccept = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
)

func withWebSocket(r *contract.NetRule) { r.WebSocket = true }

// wsServer agrees to WebSocket with the answer given, and echoes bytes.
func wsServer(t *testing.T, answer string, seen chan<- *http.Request) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		seen <- r
		io.WriteString(c, answer)
		io.Copy(c, rw)
	})
}

const wsAgreed = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " + wsAccept + "\r\nSec-WebSocket-Protocol: chat\r\n\r\n"

// wsDial asks for WebSocket in an inspected tunnel.
func wsDial(l *lab) (net.Conn, *bufio.Reader, *http.Response) {
	l.t.Helper()
	c, err := l.dialTunnel(labHost + ":443")
	if err != nil {
		l.t.Fatal(err)
	}
	conn := tls.Client(c, &tls.Config{RootCAs: l.roots, ServerName: labHost})
	l.t.Cleanup(func() { conn.Close() })
	fmt.Fprintf(conn, "GET /chat HTTP/1.1\r\nHost: %s\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\nSec-WebSocket-Version: 13\r\n"+
		"Sec-WebSocket-Key: %s\r\nSec-WebSocket-Protocol: chat\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n", labHost, wsKey)
	r := bufio.NewReader(conn)
	res, err := http.ReadResponse(r, nil)
	if err != nil {
		l.t.Fatal(err)
	}
	return conn, r, res
}

// frame masks a payload as clients do.
func frame(opcode byte, payload string) []byte {
	b := []byte{0x80 | opcode}
	switch n := len(payload); {
	case n < 126:
		b = append(b, 0x80|byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, 0x80|126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 0x80|127), uint64(n))
	}
	key := []byte{1, 0x80, 3, 0xff}
	b = append(b, key...)
	for i := range len(payload) {
		b = append(b, payload[i]^key[i%4])
	}
	return b
}

func TestWebSocket(t *testing.T) {
	l := newLab(t, withSecrets(map[string]string{"model-key": modelKey}, runSecret), inspectRule(withWebSocket, injecting(contract.InjectBearer, "")))
	seen := make(chan *http.Request, 1)
	l.serveTLS(wsServer(t, wsAgreed, seen))
	conn, r, res := wsDial(l)
	if res.StatusCode != 101 || res.Header.Get("Sec-WebSocket-Accept") != wsAccept || res.Header.Get("Sec-WebSocket-Protocol") != "chat" ||
		!strings.EqualFold(res.Header.Get("Upgrade"), "websocket") || res.Header.Get("Connection") != "Upgrade" {
		t.Fatalf("answered %d %v", res.StatusCode, res.Header)
	}
	q := <-seen
	if q.Header.Get("Sec-WebSocket-Extensions") != "" || q.Header.Get("Authorization") != "Bearer "+modelKey || q.Header.Get("Sec-WebSocket-Protocol") != "chat" {
		t.Errorf("the server was sent %v", q.Header)
	}
	for _, text := range []string{"hello", "", strings.Repeat("long ", 50), strings.Repeat("longer ", 20_000)} {
		sent := frame(1, text)
		go conn.Write(sent)
		got := make([]byte, len(sent))
		if _, err := io.ReadFull(r, got); err != nil || !bytes.Equal(got, sent) {
			t.Fatalf("%d bytes came back changed, %v", len(sent), err)
		}
	}
	conn.Close()
	closed := wait(l.bench, TypeRequest, func(*requestRecord) bool { return true })
	if closed.Status != 101 || closed.BytesIn < 140_000 || closed.BytesOut < closed.BytesIn {
		t.Errorf("recorded %+v", closed)
	}
}

// What holds a secret is not let out in frames either, nor let in.
func TestWebSocketScanned(t *testing.T) {
	half := len(runSecret) / 2
	for name, sent := range map[string][]byte{
		"one frame":     frame(1, "a "+runSecret),
		"two parts":     append(frame(1, runSecret[:half]), frame(0, runSecret[half:])...),
		"around a ping": slices.Concat(frame(1, runSecret[:half]), frame(9, "ping"), frame(0, runSecret[half:])),
		"in a ping":     frame(9, runSecret),
		"long":          frame(2, strings.Repeat("x", 70_000)+runSecret),
		"not masked":    append([]byte{0x81, byte(len("hi"))}, "hi"...),
		"compressed":    append([]byte{0xc1}, frame(1, "hi")[1:]...),
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, withSecrets(nil, runSecret), inspectRule(withWebSocket))
			seen := make(chan *http.Request, 1)
			l.serveTLS(wsServer(t, wsAgreed, seen))
			conn, r, _ := wsDial(l)
			go conn.Write(sent)
			got, _ := io.ReadAll(r)
			if len(got) >= len(sent) {
				t.Errorf("all %d bytes passed", len(sent))
			}
			if want := []Class{ClassBody}; !slices.Equal(l.classes(), want) && (name != "not masked" && name != "compressed") {
				t.Errorf("denied %v, want %v", l.classes(), want)
			}
			if len(l.classes()) != 1 {
				t.Errorf("denied %v", l.classes())
			}
		})
	}
	t.Run("echo", func(t *testing.T) {
		l := newLab(t, withSecrets(map[string]string{"model-key": modelKey}), inspectRule(withWebSocket, injecting(contract.InjectBearer, "")))
		seen := make(chan *http.Request, 1)
		l.serveTLS(wsServer(t, wsAgreed+"\x81\x20you sent "+modelKey, seen))
		_, r, _ := wsDial(l)
		if got, _ := io.ReadAll(r); strings.Contains(string(got), modelKey) {
			t.Errorf("read %q", got)
		}
	})
}

func TestWebSocketNotAgreed(t *testing.T) {
	for name, c := range map[string]struct {
		answer string
		status int
	}{
		"refused":       {"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno", 403},
		"wrong accept":  {strings.Replace(wsAgreed, wsAccept, wsKey, 1), 403},
		"other":         {strings.Replace(wsAgreed, "websocket", "h2c", 1), 403},
		"extension":     {strings.Replace(wsAgreed, "\r\n\r\n", "\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n", 1), 403},
		"plain success": {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno", 200},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, serverRoots, inspectRule(withWebSocket))
			l.serveTLS(wsServer(t, c.answer, make(chan *http.Request, 1)))
			if _, _, res := wsDial(l); res.StatusCode != c.status {
				t.Errorf("answered %d, want %d", res.StatusCode, c.status)
			}
		})
	}
}

// The end of a rule cuts a WebSocket as it cuts everything else.
func TestWebSocketCut(t *testing.T) {
	l := newLab(t, serverRoots, inspectRule(withWebSocket))
	seen := make(chan *http.Request, 1)
	l.serveTLS(wsServer(t, wsAgreed, seen))
	_, r, _ := wsDial(l)
	l.proxy.Replace(compiled(t))
	if got, _ := io.ReadAll(r); len(got) != 0 {
		t.Errorf("read %q", got)
	}
}

func TestWebSocketBudget(t *testing.T) {
	l := newLab(t, serverRoots, inspectRule(withWebSocket, func(r *contract.NetRule) { r.UploadBytes = 1000 }))
	l.serveTLS(wsServer(t, wsAgreed, make(chan *http.Request, 1)))
	conn, r, _ := wsDial(l)
	conn.Write(frame(1, strings.Repeat("x", 900)))
	if got, _ := io.ReadAll(r); len(got) != 0 {
		t.Errorf("%d bytes passed", len(got))
	}
	if !slices.Equal(l.classes(), []Class{ClassBudget}) {
		t.Errorf("denied %v", l.classes())
	}
}
