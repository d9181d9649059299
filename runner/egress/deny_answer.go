package egress

import (
	"fmt"
	"io"
	"net/http"
	"time"
)

// statusOf is how a refusal of that class is answered in HTTP.
func statusOf(c Class) int {
	switch c {
	case ClassMalformed:
		return http.StatusBadRequest
	case ClassUnresolved, ClassUnreachable:
		return http.StatusBadGateway
	case ClassBounds:
		return http.StatusServiceUnavailable
	}
	return http.StatusForbidden
}

// writeRefusal answers in HTTP/1.1 with the sentence, and says that the
// connection ends.
func writeRefusal(w io.Writer, c Class, sentence string) error {
	return writeText(w, statusOf(c), sentence+"\n")
}

func writeText(w io.Writer, status int, text string) error {
	_, err := fmt.Fprintf(w, "HTTP/1.1 %d %s\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
		status, http.StatusText(status), len(text), text)
	return err
}

// refuseInside ends a tunnel with what its client can read: a TLS alert, an
// HTTP answer, or, for other protocols and a client that says nothing, just the
// end.
func refuseInside(client *peeked, c Class, sentence string) {
	client.SetReadDeadline(time.Now().Add(refusalWait))
	kind, err := classify(client)
	switch {
	case err != nil:
	case kind == protocolTLS:
		io.WriteString(client, alertAccessDenied)
	case kind == protocolHTTP:
		writeRefusal(client, c, sentence)
	}
	linger(client)
}

// linger lets the client take what was written: closing with bytes unread would
// reset the connection and could take the answer with it.
func linger(client *peeked) {
	if client.CloseWrite() != nil {
		return
	}
	client.SetReadDeadline(time.Now().Add(lingerTime))
	io.CopyN(io.Discard, client, lingerBytes)
}
