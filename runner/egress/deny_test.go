package egress

import (
	"fmt"
	"strings"
	"testing"
)

func TestSentence(t *testing.T) {
	long := strings.Repeat("a", 60) + "." + strings.Repeat("b", 60) + ".example"
	for _, c := range []struct {
		t      Target
		class  Class
		reason string
		want   string
	}{
		{Target{"a.example", 443}, ClassHost, "no rule names the host",
			`countersign: a.example:443 is not in this run's contract (no rule names the host); ask with: countersign request network a.example:443 --reason "...", or run again with --allow a.example:443`},
		{Target{"a.example", 443}, ClassPath, "the rule allows the path /a, not /b",
			`countersign: a.example:443 has a request that is not in this run's contract (the rule allows the path /a, not /b)`},
		{Target{"a.example", 443}, ClassAddress, "10.0.0.1 (private)", `countersign: a.example:443 is refused (10.0.0.1 (private))`},
		{Target{}, ClassMalformed, "the head \x1b[2J", `countersign: this connection is refused (the head \x1b[2J)`},
		{Target{"é", 0}, ClassName, "the name is odd", `countersign: \xc3\xa9 is refused (the name is odd)`},
		{Target{long, 443}, ClassHost, "no rule names the host",
			`countersign: ` + long + `:443 is not in this run's contract (no rule names the host); ask with: countersign request network HOST:PORT --reason "..."`},
		{Target{"a.example", 443}, ClassAddress, strings.Repeat("x", 999),
			`countersign: a.example:443 is refused (` + strings.Repeat("x", 300-len(`countersign: a.example:443 is refused (...`)) + `...`},
	} {
		got := sentence(c.t, c.class, c.reason)
		if got != c.want || len(got) > maxSentence {
			t.Errorf("%v %s:\n%s, want\n%s", c.t, c.class, got, c.want)
		}
	}
}

func TestASCII(t *testing.T) {
	for _, c := range []struct {
		s     string
		limit int
		want  string
	}{
		{"plain", 5, "plain"},
		{"plainer", 6, "pla..."},
		{"\xff\x00", 8, `\xff\x00`},
		{"\xff\xff\xff", 8, `\xff\...`},
	} {
		if got := ascii(c.s, c.limit); got != c.want {
			t.Errorf("%q in %d: %q, want %q", c.s, c.limit, got, c.want)
		}
	}
}

// A flood of denials costs bounded memory, bounded records and one event for
// each key, and every one is counted.
func TestDenialsAreBounded(t *testing.T) {
	b := newBench(t)
	const targets = maxDenialKeys + 500
	for i := range targets {
		b.proxy.deny(Target{fmt.Sprintf("h%d.example", i), 443}, ClassHost, "no rule names the host")
	}
	for range 2 * maxDenialsOfKey {
		b.proxy.deny(Target{"h0.example", 443}, ClassHost, "no rule names the host")
	}
	if n := len(b.proxy.denials.counts); n != maxDenialKeys+1 {
		t.Errorf("%d keys are kept", n)
	}
	if n := len(b.boundaries); n != maxDenialKeys+1 {
		t.Errorf("%d events were told", n)
	}
	if last := b.boundaries[maxDenialKeys]; last.Host != others.Host || last.Port != 0 {
		t.Errorf("the last event is %+v", last)
	}
	if n := len(b.of(TypeDenied)); n != maxDenialKeys+maxDenialsOfKey-1+maxDenialsOfKey {
		t.Errorf("%d records", n)
	}
	b.proxy.Close()
	more := int64(0)
	for _, m := range b.of(TypeMore) {
		more += m.(moreRecord).Count
	}
	if total := b.proxy.Totals().Denied; total != targets+2*maxDenialsOfKey || total != more+int64(len(b.of(TypeDenied))) {
		t.Errorf("%d denials, %d without a record", total, more)
	}
}

// What cannot be recorded is not done.
func TestFullLedger(t *testing.T) {
	b := newBench(t, allowOpaque("a.example", 22))
	b.listen(22, nil)
	b.proxy.recorder.left = 1
	res, _ := b.connect("a.example:22", false)
	if res.StatusCode != 503 || len(b.of(TypeConnected)) != 0 {
		t.Errorf("%s, %v", res.Status, b.records)
	}
	b.denied(ClassBounds) // took the last one
	if err := b.proxy.record(TypeRequest, nil); err == nil {
		t.Error("a record past the bound was promised")
	}
	if res, _ := b.connect("b.example:22", false); res.StatusCode != 403 {
		t.Error(res.Status)
	}
	b.proxy.Close()
	if more := b.of(TypeMore); len(more) != 1 || more[0].(moreRecord).Count != 1 || len(b.of(TypeTotals)) != 1 {
		t.Errorf("at the end: %v", b.records)
	}
}
