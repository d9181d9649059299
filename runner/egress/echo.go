package egress

import (
	"bytes"
	"io"
	"net/http"
	"slices"

	"github.com/countersign-dev/countersign/runner/redact"
)

// echo masks the run's secrets in an answer to a request that carried one. Nil
// masks nothing.
type echo struct{ find *redact.Matcher }

// newEcho takes away what would be wrong of a masked answer. An encoded body
// cannot be looked into; none was asked for (see inject), so a server that sends
// one is refused.
func newEcho(find *redact.Matcher, answer *http.Response) (*echo, error) {
	for _, v := range answer.Header["Content-Encoding"] {
		if v != "" && v != "identity" {
			return nil, &Refused{ClassProtocol, "it sent an encoded body where the injected credential must be masked"}
		}
	}
	answer.Header.Del("Content-Length")
	// What a server lets its user be known by is a credential, too.
	answer.Header.Del("Set-Cookie")
	return &echo{find}, nil
}

// maskFields drops what shows a secret: no mask suits a field. A name is not left
// without values: net/http would wait with the end of an HTTP/2 stream for a
// trailer that does not come.
func (e *echo) maskFields(header http.Header) {
	if e == nil {
		return
	}
	for name, values := range header {
		kept := slices.DeleteFunc(slices.Clone(values), func(v string) bool {
			return !bytes.Equal(e.find.Mask([]byte(v)), []byte(v))
		})
		if header[name] = kept; len(kept) == 0 {
			delete(header, name)
		}
	}
}

// writer masks what is written to w. Close writes what was held back, and not
// closes w.
func (e *echo) writer(w io.Writer) io.WriteCloser {
	if e == nil {
		return unmasked{w}
	}
	return e.find.Writer(w)
}

type unmasked struct{ io.Writer }

func (unmasked) Close() error { return nil }
