package egress

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countersign-dev/countersign/policy/contract"
)

// A held connection goes on when the next revision allows it, and the person
// who decides is told when the wait begins.
func TestHeldConnectionIsLetOut(t *testing.T) {
	held := allowOpaque("a.example", 443)
	held.HoldSec = 3600
	b := newBench(t, held)
	b.listen(22, func(c net.Conn) { io.WriteString(c, "hello") })
	told := make(chan Boundary, 1)
	b.proxy.cfg.Notify = func(e Boundary) { told <- e }
	c := b.dial()
	io.WriteString(c, "CONNECT a.example:22 HTTP/1.1\r\n\r\n")
	if e := <-told; e.Host != "a.example" || e.Port != 22 || e.Class != ClassPort {
		t.Errorf("told of %+v", e)
	}
	b.proxy.Replace(compiled(t, held, allowOpaque("b.example", 22)))
	b.proxy.Replace(compiled(t, held, allowOpaque("b.example", 22), allowOpaque("a.example", 22)))
	r := bufio.NewReader(c)
	res, err := http.ReadResponse(r, &http.Request{Method: "CONNECT"})
	if err != nil || res.StatusCode != 200 {
		t.Fatal(res, err)
	}
	if got, _ := io.ReadAll(r); string(got) != "hello" {
		t.Errorf("the client heard %q", got)
	}
	if d := b.of(TypeDenied); len(d) != 0 {
		t.Errorf("denied: %v", d)
	}
}

func TestHoldEnds(t *testing.T) {
	held, other := allowOpaque("a.example", 443), allowOpaque("b.example", 443)
	held.HoldSec = 30
	for _, c := range []struct {
		what  string
		q     Question
		want  time.Duration
		leave time.Duration // when the client goes; 0 for never
	}{
		{"at its time", Question{Target: Target{"a.example", 22}}, 30 * time.Second, 0},
		{"when the client goes", Question{Target: Target{"a.example", 22}}, 5 * time.Second, 5 * time.Second},
		{"at once without a hold", Question{Target: Target{"b.example", 22}}, 0, 0},
		{"at once for a host that no rule names", Question{Target: Target{"c.example", 443}}, 0, 0},
		{"at once when it is allowed", Question{Target: Target{"a.example", 443}}, 0, 0},
	} {
		b := &bench{t: t, grown: make(chan struct{})}
		synctest.Test(t, func(t *testing.T) {
			p, err := New(b.config(compiled(t, held, other)))
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if c.leave > 0 {
				time.AfterFunc(c.leave, cancel)
			}
			start := time.Now()
			v, _, release := p.admit(ctx, c.q)
			release()
			if took := time.Since(start); took != c.want || v.Allow != (c.q.Target == Target{"a.example", 443}) {
				t.Errorf("%s: after %v, %+v", c.what, took, v)
			}
		})
	}
}

func granted(r contract.NetRule, until time.Time) contract.NetRule {
	r.Grant = &contract.Grant{Promotion: "p", NotAfter: contract.FormatTime(until)}
	return r
}

// What a grant let in ends with it, unless the grant was renewed; what the
// policy lets in stays.
func TestGrantEnds(t *testing.T) {
	for _, c := range []struct {
		renew bool
		want  time.Duration
	}{{false, time.Minute}, {true, 2 * time.Minute}} {
		b := &bench{t: t, grown: make(chan struct{})}
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			policy, rule := allowOpaque("b.example", 22), allowOpaque("a.example", 22)
			q := Question{Target: Target{"a.example", 22}}
			p, err := New(b.config(compiled(t, policy, granted(rule, start.Add(time.Minute)))))
			if err != nil {
				t.Fatal(err)
			}
			_, forever, releaseForever := p.admit(t.Context(), Question{Target: Target{"b.example", 22}})
			_, under, release := p.admit(t.Context(), q)
			time.Sleep(30 * time.Second)
			if c.renew {
				p.Replace(compiled(t, policy, granted(rule, start.Add(c.want))))
			}
			<-under.Done()
			if after := time.Since(start); after < c.want || after > c.want+time.Second {
				t.Errorf("it ended after %v, want %v", after, c.want)
			}
			refused := (*Refused)(nil)
			if !errors.As(context.Cause(under), &refused) || refused.Class != ClassExpired {
				t.Errorf("the cause is %v", context.Cause(under))
			}
			if v, _, _ := p.admit(t.Context(), q); v.Class != ClassExpired {
				t.Errorf("it is decided as %+v", v)
			}
			if forever.Err() != nil {
				t.Error("what the policy lets in ended, too")
			}
			release()
			releaseForever()
			if len(p.leases) != 0 {
				t.Errorf("%d leases are left", len(p.leases))
			}
		})
	}
}

// A revision cuts what it no longer allows and nothing else, and no budget
// begins anew.
func TestReplaceCuts(t *testing.T) {
	kept, gone, expiring := allowOpaque("kept.example", 22), allowOpaque("gone.example", 22), allowOpaque("expiring.example", 22)
	now := noon()
	b := newBench(t, kept, granted(expiring, now.Add(time.Minute)), gone)
	b.proxy.cfg.Now = func() time.Time { return now }
	b.listen(22, func(c net.Conn) { io.Copy(c, c) })
	open := map[string]*tunnelled{}
	for _, host := range []string{"kept.example", "gone.example", "expiring.example"} {
		open[host] = b.tunnel(host+":22", true)
		io.WriteString(open[host], "\x00ping")
		io.ReadFull(open[host], make([]byte, 5))
	}
	b.proxy.mu.Lock()
	now = now.Add(2 * time.Minute)
	b.proxy.mu.Unlock()
	b.proxy.Replace(compiled(t, kept, granted(expiring, noon().Add(time.Minute))))
	for host, class := range map[string]Class{"gone.example": ClassHost, "expiring.example": ClassExpired} {
		if rest := open[host].all(); rest != "" {
			t.Errorf("%s: %q", host, rest)
		}
		wait(b, TypeClosed, func(c closedRecord) bool { return c.Host == host && c.Reason == string(class) })
	}
	io.WriteString(open["kept.example"], "again")
	if _, err := io.ReadFull(open["kept.example"], make([]byte, 5)); err != nil {
		t.Errorf("what is still allowed: %v", err)
	}
	if used := b.proxy.meter(0).charged(); used != 10 {
		t.Errorf("%d bytes are charged, want 10", used)
	}
	for _, host := range []string{"gone.example", "expiring.example"} {
		if res, _ := b.connect(host+":22", false); res.StatusCode != 403 {
			t.Errorf("%s: %s", host, res.Status)
		}
	}
	if res, err := b.proxy.connect(t.Context(), Target{"gone.example", 22}, 2, Target{"gone.example", 22}); err == nil {
		t.Errorf("a rule that is gone was dialled: %v", res)
	}
	if err := b.proxy.charge(2, 1); err == nil {
		t.Error("a rule that is gone was charged")
	}
}
