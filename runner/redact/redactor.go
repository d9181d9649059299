package redact

import "io"

// Redactor masks secrets in what passes through it. It holds back only bytes
// that may be the beginning of a secret; no more than the longest spelling. It
// is used by one goroutine at a time.
type Redactor struct {
	m      *Matcher
	w      io.Writer
	masked int64
	err    error

	// buf is what is not settled yet. Bytes before at have been looked at, and
	// state is the automaton's after them; the automaton stays in charge until
	// no pattern that begins before until can still match.
	buf   []byte
	at    int
	state int32
	until int
	found []span // what to mask, ascending, none touching another
	done  int    // bytes of buf that are in out, masked where they must be
	out   []byte
}

// span is a range of bytes of buf.
type span struct{ from, to int }

// shallow is the depth of the automaton, in bytes, up to which the filter may
// take over again: those bytes are looked at twice.
const shallow = 8

// chunk is how many bytes are looked at at a time, so that they stay in the
// processor's cache.
const chunk = 64 << 10

// Write masks and passes on p. It returns the error of the writer behind it,
// and again at every later call.
func (r *Redactor) Write(p []byte) (int, error) {
	if r.m.auto == nil && r.err == nil {
		return r.w.Write(p)
	}
	for rest := p; len(rest) > 0 && r.err == nil; {
		n := min(len(rest), chunk)
		r.buf = append(r.buf, rest[:n]...)
		rest = rest[n:]
		r.scan()
		r.settle(r.start())
		r.flush()
	}
	if r.err != nil {
		return 0, r.err
	}
	return len(p), nil
}

// Close writes what was held back: it turned out to be no secret. It does not
// close the writer behind it; nothing may be written afterwards.
func (r *Redactor) Close() error {
	if r.err == nil && len(r.buf) > 0 {
		r.settle(len(r.buf))
		r.flush()
	}
	return r.err
}

// Masked is how many masks were written so far.
func (r *Redactor) Masked() int64 { return r.masked }

// Found says whether what was written so far holds a secret, masked or about to
// be.
func (r *Redactor) Found() bool { return r.masked > 0 || len(r.found) > 0 }

// start is where the longest pattern that may still match begins.
func (r *Redactor) start() int { return r.at - int(r.m.auto.depth[r.state]) }

// scan looks at everything in buf.
func (r *Redactor) scan() {
	a := r.m.auto
	for r.at < len(r.buf) {
		if s := r.start(); r.at-s <= shallow && s >= r.until {
			p, hit := r.m.skip.pass(r.buf, s)
			r.at, r.state, r.until = p, 0, p+1
			if hit {
				r.until = p + r.m.skip.stride
			}
			if r.at == len(r.buf) {
				return
			}
		}
		r.state = a.step(r.state, r.buf[r.at])
		r.at++
		if n := int(a.longest[r.state]); n > 0 {
			r.match(span{r.at - n, r.at})
		}
	}
}

// match joins a match with those that it overlaps.
func (r *Redactor) match(s span) {
	for n := len(r.found); n > 0 && r.found[n-1].to > s.from; n = len(r.found) {
		s.from = min(s.from, r.found[n-1].from)
		r.found = r.found[:n-1]
	}
	r.found = append(r.found, s)
}

// settle moves what lies before limit to out. No pattern that begins before
// limit can match any more.
func (r *Redactor) settle(limit int) {
	for len(r.found) > 0 && r.found[0].to <= limit {
		r.out = append(r.out, r.buf[r.done:r.found[0].from]...)
		r.out = append(r.out, r.m.mask...)
		r.done = r.found[0].to
		r.found = r.found[1:]
		r.masked++
	}
	if len(r.found) > 0 {
		limit = min(limit, r.found[0].from)
	}
	if limit > r.done {
		r.out = append(r.out, r.buf[r.done:limit]...)
		r.done = limit
	}
}

// flush writes out and forgets what is settled.
func (r *Redactor) flush() {
	if len(r.out) > 0 {
		_, r.err = r.w.Write(r.out)
		r.out = r.out[:0]
	}
	r.buf = r.buf[:copy(r.buf, r.buf[r.done:])]
	r.at -= r.done
	r.until -= r.done
	for i := range r.found {
		r.found[i].from -= r.done
		r.found[i].to -= r.done
	}
	r.done = 0
}
