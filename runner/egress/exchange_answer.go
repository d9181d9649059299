package egress

import (
	"io"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"sync"
)

// piece is how much of a body is on its way at a time: with what frames it in
// HTTP/1 it makes 32 KiB.
const piece = 32<<10 - 16

var pieces = sync.Pool{New: func() any { return new([piece]byte) }}

// relay gives the server's answer to the client as it comes.
func (o *origin) relay(w http.ResponseWriter, q *request, by passage, answer *http.Response, record *requestRecord) (answered bool, err error) {
	g := o.flow.proxy.reading
	if answer.StatusCode < 200 || answer.StatusCode > 599 {
		return false, &Refused{ClassProtocol, "it answered with a status that HTTP does not have"}
	}
	var echo *echo
	if by.entry.Inject != nil {
		if echo, err = newEcho(g.all, answer); err != nil {
			return false, err
		}
	}
	header := w.Header()
	answerFields(header, answer.Header)
	echo.maskFields(header)
	// net/http's HTTP/2 would add these where the server sent none.
	for _, name := range []string{"Content-Type", "Date"} {
		if _, ok := header[name]; !ok {
			header[name] = nil
		}
	}
	w.WriteHeader(answer.StatusCode)
	if answer.ContentLength < 0 {
		w.(http.Flusher).Flush() // the body may take its time
	}
	record.BytesIn, err = copyAnswer(w, answer.Body, echo)
	if err != nil {
		return true, err
	}
	for name, values := range answer.Trailer {
		header[http.TrailerPrefix+name] = values
	}
	echo.maskFields(header)
	return true, nil
}

// answerFields copies the fields of an answer that go on to the client. Alt-Svc
// (RFC 7838) would lead it past the proxy.
func answerFields(to, from http.Header) {
	stay := []string{"Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Alt-Svc"}
	for _, v := range from["Connection"] {
		for token := range strings.SplitSeq(v, ",") {
			stay = append(stay, textproto.CanonicalMIMEHeaderKey(textproto.TrimString(token)))
		}
	}
	for name, values := range from {
		if !slices.Contains(stay, name) {
			to[name] = values
		}
	}
}

// copyAnswer passes each piece on at once, so that server-sent events arrive
// as they are sent. It counts what the server sent.
func copyAnswer(w http.ResponseWriter, body io.Reader, echo *echo) (n int64, err error) {
	buf := pieces.Get().(*[piece]byte)
	defer pieces.Put(buf)
	out := echo.writer(w)
	flusher := w.(http.Flusher)
	for {
		read, err := body.Read(buf[:])
		n += int64(read)
		if read > 0 {
			if _, e := out.Write(buf[:read]); e != nil {
				return n, e
			}
			flusher.Flush()
		}
		if err == io.EOF {
			return n, out.Close()
		}
		if err != nil {
			return n, err
		}
	}
}
