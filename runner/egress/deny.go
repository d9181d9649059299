package egress

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Refused is why something was not let out. Reason is a clause about the target;
// it may hold what the sandbox sent, and is escaped where it is shown.
type Refused struct {
	Class  Class
	Reason string
}

func (r *Refused) Error() string { return string(r.Class) + ": " + r.Reason }

// Bounds of what denials cost: a sandbox can make any number of them.
const (
	maxDenialKeys   = 4096 // targets and classes that are told apart
	maxDenialsOfKey = 64   // records of each
	maxDenials      = maxRunRecords / 2
)

// others stands for every target beyond the bound.
var others = Target{Host: "(others)"}

type denialKey struct {
	Target
	class Class
}

// denialCount is what became of the denials of one key.
type denialCount struct {
	seen, recorded int64
	told           bool
}

// denials counts refusals by target and class.
type denials struct {
	mu       sync.Mutex
	counts   map[denialKey]*denialCount
	total    int64
	recorded int64
}

// of returns the count for k, or the one that all beyond the bound share.
func (d *denials) of(k denialKey) (denialKey, *denialCount) {
	if c, ok := d.counts[k]; ok {
		return k, c
	}
	if len(d.counts) >= maxDenialKeys {
		k.Target = others
		if c, ok := d.counts[k]; ok {
			return k, c
		}
	}
	c := new(denialCount)
	d.counts[k] = c
	return k, c
}

// tell says whether the key is new to whoever is notified.
func (d *denials) tell(k denialKey) (denialKey, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	k, c := d.of(k)
	first := !c.told
	c.told = true
	return k, first
}

// count adds a denial and says whether it is to be recorded by itself.
func (d *denials) count(k denialKey) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, c := d.of(k)
	c.seen++
	d.total++
	if c.recorded >= maxDenialsOfKey || d.recorded >= maxDenials {
		return false
	}
	c.recorded++
	d.recorded++
	return true
}

func (d *denials) sum() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.total
}

// more is what has no record of its own, in order.
func (d *denials) more() []moreRecord {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []moreRecord
	for k, c := range d.counts {
		if c.seen > c.recorded {
			all = append(all, moreRecord{k.Host, k.Port, k.class, c.seen - c.recorded})
		}
	}
	slices.SortFunc(all, func(a, b moreRecord) int {
		return cmp.Or(strings.Compare(a.Host, b.Host), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Class, b.Class))
	})
	return all
}

// notRecorded takes back what count promised: the ledger had no room.
func (d *denials) notRecorded(k denialKey) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, c := d.of(k)
	c.recorded--
	d.recorded--
}

// deny records, counts and once for each target and class notifies a refusal,
// and returns the sentence for the client: at most 300 bytes of printable ASCII.
// The name that a canary asks for leaves no trace.
func (p *Proxy) deny(t Target, class Class, reason string) string {
	shown := Target{ascii(t.Host, maxShownHost), t.Port}
	if t.Host == UnlistedHost || t.Host == CanaryHost {
		return sentence(shown, class, reason)
	}
	k := denialKey{shown, class}
	if p.denials.count(k) && p.record(TypeDenied, deniedRecord{shown.Host, shown.Port, class, ascii(reason, maxSentence)}) != nil {
		p.denials.notRecorded(k)
	}
	return p.notify(shown, class, reason)
}

// notify tells of a boundary event, once for each target and class, and returns
// its sentence.
func (p *Proxy) notify(t Target, class Class, reason string) string {
	text := sentence(t, class, reason)
	if k, first := p.denials.tell(denialKey{t, class}); first {
		p.cfg.Notify(Boundary{Host: k.Host, Port: k.Port, Class: class, Reason: text})
	}
	return text
}

// Bounds of what is shown, in bytes.
const (
	maxSentence  = 300
	maxShownHost = 253 // of any host name
)

// sentence says what was refused and, where a person can allow it, how to ask.
// What does not fit loses its hint first, then its end.
func sentence(t Target, class Class, reason string) string {
	name := "this connection"
	if t.Host != "" {
		name = ascii(t.Host, maxShownHost)
		if t.Port != 0 {
			name = net.JoinHostPort(name, strconv.Itoa(t.Port))
		}
	}
	what, hint := " is refused", ""
	switch class {
	case ClassHost, ClassPort, ClassExpired:
		what = " is not in this run's contract"
		hint = `; ask with: countersign request network ` + name + ` --reason "...", or run again with --allow ` + name
	case ClassMethod, ClassPath, ClassWebSocket:
		what = " has a request that is not in this run's contract"
	}
	text := "countersign: " + name + what + " (" + ascii(reason, maxSentence) + ")"
	for _, more := range []string{hint, `; ask with: countersign request network HOST:PORT --reason "..."`} {
		if hint != "" && len(text)+len(more) <= maxSentence {
			return text + more
		}
	}
	return ascii(text, maxSentence)
}

// ascii writes every byte that is not printable ASCII as \xNN and cuts the
// result to limit bytes, with dots for what is cut.
func ascii(s string, limit int) string {
	var b strings.Builder
	for i := 0; i < len(s) && b.Len() <= limit; i++ {
		if ' ' <= s[i] && s[i] <= '~' {
			b.WriteByte(s[i])
		} else {
			fmt.Fprintf(&b, `\x%02x`, s[i])
		}
	}
	if b.Len() > limit {
		return b.String()[:limit-3] + "..."
	}
	return b.String()
}
