package egress

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
	"sync"
)

// reply is the answer to one HTTP/1 request. It is an http.ResponseWriter that
// adds nothing to what it is given but what frames the message.
type reply struct {
	w      *bufio.Writer
	http10 bool
	isHead bool   // the method is HEAD
	last   bool   // the connection ends after this answer
	body   *body  // of the request; nil: none
	watch  *watch // of the client, while the server has the word

	mu      sync.Mutex // of w, until the head is written: proceed comes from elsewhere
	header  http.Header
	status  int // 0: nothing was answered yet
	framing answerFraming
	left    int64 // of a known length
}

type answerFraming int

const (
	framedByNone answerFraming = iota // the answer can have no body
	framedByLength
	framedByChunks
	framedByEnd // of the connection
)

func newReply(w *bufio.Writer, h *head) *reply {
	old := h.proto != "HTTP/1.1"
	return &reply{w: w, http10: old, isHead: h.method == http.MethodHead, last: old || lists(h.values("connection"), "close"), header: make(http.Header)}
}

func (r *reply) Header() http.Header { return r.header }

// proceed writes 100 (Continue), unless the answer was faster.
func (r *reply) proceed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.status == 0 {
		r.w.WriteString("HTTP/1.1 100 Continue\r\n\r\n")
		r.w.Flush()
	}
}

// WriteHeader writes the head. When bytes of the request are unread by now, the
// connection cannot be used again.
func (r *reply) WriteHeader(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.status != 0 {
		return
	}
	r.status = status
	r.frame()
	if r.body != nil && !r.body.whole.Load() {
		r.last = true
	}
	if r.last {
		r.header["Connection"] = []string{"close"}
	}
	fmt.Fprintf(r.w, "HTTP/1.1 %03d %s\r\n", status, http.StatusText(status))
	r.header.Write(r.w)
	r.w.WriteString("\r\n")
}

// frame chooses how the body is delimited (RFC 9112 §6.3).
func (r *reply) frame() {
	length, err := strconv.ParseInt(r.header.Get("Content-Length"), 10, 64)
	if err != nil || length < 0 || r.status == http.StatusNoContent {
		r.header.Del("Content-Length")
	}
	switch {
	case r.status == http.StatusNoContent:
	case r.isHead || r.status == http.StatusNotModified:
	case r.header["Content-Length"] != nil:
		r.framing, r.left = framedByLength, length
	case r.http10:
		r.framing = framedByEnd
	default:
		r.framing = framedByChunks
		r.header["Transfer-Encoding"] = []string{"chunked"}
	}
}

// Write sends a piece of the body with the next Flush.
func (r *reply) Write(p []byte) (int, error) {
	if r.status == 0 {
		r.WriteHeader(http.StatusOK)
	}
	switch r.framing {
	case framedByNone:
		return len(p), nil
	case framedByLength:
		if r.left -= int64(len(p)); r.left < 0 {
			return 0, errors.New("the answer is longer than its Content-Length")
		}
	case framedByChunks:
		if len(p) == 0 {
			return 0, nil
		}
		fmt.Fprintf(r.w, "%x\r\n", len(p))
		defer r.w.WriteString("\r\n")
	}
	return r.w.Write(p)
}

// Flush sends what was written; an error comes with the next Write.
func (r *reply) Flush() { r.w.Flush() }

// finish ends the answer; errLast when the connection must end with it.
func (r *reply) finish() error {
	switch {
	case r.status == 0:
		return errors.New("nothing was answered")
	case r.framing == framedByLength && r.left > 0:
		return errors.New("the answer is shorter than its Content-Length")
	case r.framing == framedByChunks:
		r.w.WriteString("0\r\n\r\n")
	}
	if err := r.w.Flush(); err != nil {
		return err
	}
	if r.last {
		return errLast
	}
	return nil
}

// lists says whether fields that hold comma-separated tokens hold this one.
func lists(values []string, token string) bool {
	for _, v := range values {
		for t := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(textproto.TrimString(t), token) {
				return true
			}
		}
	}
	return false
}

// conn is the connection that the answer goes to.
func (r *reply) conn() net.Conn { return r.watch.s.conn }

// switchTo answers 101 (Switching Protocols). What is read and written then is
// the caller's, past this answer.
func (r *reply) switchTo(protocol string, from http.Header) error {
	r.watch.stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status, r.last = http.StatusSwitchingProtocols, true
	r.header["Connection"], r.header["Upgrade"] = []string{"Upgrade"}, []string{protocol}
	for _, name := range []string{"Sec-Websocket-Accept", "Sec-Websocket-Protocol"} {
		if v := from[name]; v != nil {
			r.header[name] = v
		}
	}
	r.w.WriteString("HTTP/1.1 101 Switching Protocols\r\n")
	r.header.Write(r.w)
	r.w.WriteString("\r\n")
	return r.w.Flush()
}
