package egress

import (
	"bytes"
	"io"
	"net/textproto"
	"slices"

	"github.com/countersign-dev/countersign/runner/redact"
)

// scan looks for what must not leave in a stream, however it is cut: texts of
// the rule, byte by byte, and secrets in the spellings of [redact.Compile]. It
// keeps no more than the longest of them.
type scan struct {
	texts   [][]byte
	longest int
	tail    []byte // the stream's last bytes, fewer than the longest text has
	secrets *redact.Redactor
}

// newScan returns nil when there is nothing to look for. A nil matcher finds
// nothing.
func newScan(texts []string, secrets *redact.Matcher) *scan {
	if len(texts) == 0 && secrets == nil {
		return nil
	}
	s := &scan{}
	for _, t := range texts {
		s.texts = append(s.texts, []byte(t))
		s.longest = max(s.longest, len(t))
	}
	if secrets != nil {
		s.secrets = secrets.Writer(io.Discard)
	}
	return s
}

// check looks at the stream's next bytes. What it refuses must not be sent.
func (s *scan) check(p []byte) error {
	if s.secrets != nil {
		s.secrets.Write(p) // to io.Discard, which takes everything
		if s.secrets.Found() {
			return &Refused{ClassBody, "what is sent holds a secret of this run"}
		}
	}
	if s.findsText(p) {
		return &Refused{ClassBody, "what is sent holds a text that the rule's deny_body names"}
	}
	return nil
}

func (s *scan) findsText(p []byte) bool {
	if s.longest == 0 {
		return false
	}
	across := append(s.tail, p[:min(len(p), s.longest-1)]...)
	for _, t := range s.texts {
		if bytes.Contains(across, t) || bytes.Contains(p, t) {
			return true
		}
	}
	if len(p) >= s.longest-1 {
		across = p
	}
	s.tail = append(s.tail[:0:0], across[max(0, len(across)-s.longest+1):]...)
	return false
}

// checkHead looks for secrets in what leaves beside the body. A field that is
// there for a credential may carry one that the sandbox was given.
func (g *reading) checkHead(q *request) error {
	if g.all == nil {
		return nil
	}
	text, given := []byte(q.path+q.query+"\n"), []byte(nil)
	for _, f := range q.fields {
		if slices.Contains(credentialFields, textproto.CanonicalMIMEHeaderKey(f.name)) {
			given = append(given, f.value+"\n"...)
		} else {
			text = append(text, f.name+":"+f.value+"\n"...)
		}
	}
	if err := newScan(nil, g.all).check(text); err != nil || g.injected == nil {
		return err
	}
	return newScan(nil, g.injected).check(given)
}
