package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// hostileRules are those that testdata/egress/hostile.py tries to get past.
func hostileRules(o *outside) []string {
	public := func(host string) string { return fmt.Sprintf("{host: %s, port: %d}", host, o.https) }
	rules := []string{
		o.opaqueRule("listed.example.com", ""), fmt.Sprintf("{host: listed.example.com, port: %d, private: true}", o.http),
		o.opaqueRule("small.example.com", ", upload: 64KiB"), o.opaqueRule("turns.example.com", ""), public("public.example.com"),
	}
	for _, host := range []string{"meta", "meta6", "embedded", "unspecified"} {
		rules = append(rules, o.opaqueRule(host+".example.com", ""))
	}
	return rules
}

// TestEgressHostile: whatever a workload tries ends in a refusal that is in the
// ledger, or has no route; and no look-up leaves for a name that is not listed.
func TestEgressHostile(t *testing.T) {
	needEgressImage(t)
	for _, isolation := range isolations(t) {
		t.Run(isolation, func(t *testing.T) { hostileUnder(t, isolation) })
	}
}

func hostileUnder(t *testing.T, isolation string) {
	o := newOutside(t)
	o.names.say("meta.example.com", answer{addresses: []string{"169.254.169.254"}})
	o.names.say("meta6.example.com", answer{addresses: []string{"fd00:ec2::254"}})
	o.names.say("embedded.example.com", answer{addresses: []string{"64:ff9b::a9fe:a9fe"}})
	o.names.say("unspecified.example.com", answer{addresses: []string{"0.0.0.0"}})
	o.names.say("turns.example.com", answer{addresses: []string{"127.0.0.1"}}, answer{addresses: []string{"169.254.169.254"}})
	c := o.checkout(t, map[string]string{"hostile.py": readTestdata(t, "hostile.py")})
	r := o.sealed(t, c, egressPolicy("", hostileRules(o)...), fmt.Sprintf("python3 hostile.py %d %d", o.https, o.http), "--isolation", isolation)
	if r.code != 0 {
		t.Fatalf("exit %d (%s)\n%s", r.code, r.outcome.Reason, r.stderr)
	}
	results := map[string]string{}
	for line := range strings.Lines(r.stderr) {
		if name, result, ok := strings.Cut(strings.TrimSpace(line), ": "); ok && name != "countersign" {
			results[name] = result
		}
	}
	for name, result := range results {
		if strings.Contains(result, "REACHED") {
			t.Errorf("%s: %s", name, result)
		}
	}
	if testing.Verbose() {
		for _, name := range slices.Sorted(maps.Keys(results)) {
			t.Logf("%s: %s", name, results[name])
		}
	}
	judgeHostile(t, results)
	for _, want := range []struct {
		class, host string
		port        int
	}{
		{"bad_name", "127.0.0.1", o.https}, {"port_not_listed", "listed.example.com", 22},
		{"address_refused", "public.example.com", o.https}, {"address_refused", "meta.example.com", o.https}, {"address_refused", "meta6.example.com", o.https},
		{"address_refused", "embedded.example.com", o.https}, {"address_refused", "unspecified.example.com", o.https}, {"address_refused", "turns.example.com", o.https},
		{"name_mismatch", "listed.example.com", o.https}, {"upload_budget", "small.example.com", o.https},
		{"name_mismatch", "listed.example.com", o.http}, {"malformed", "listed.example.com", o.http}, {"protocol", "listed.example.com", o.http},
	} {
		if !r.denied(t, want.class, want.host, want.port) {
			t.Errorf("the ledger has no %s of %s:%d: %s", want.class, want.host, want.port, deniedText(t, r))
		}
	}
	for _, rec := range r.records(t, "egress.connected") {
		if address := fmt.Sprint(rec.Data["address"]); !strings.HasPrefix(address, "127.0.0.1:") {
			t.Errorf("%s was dialled", address)
		}
	}
	listed := []string{"listed.example.com", "small.example.com", "turns.example.com", "public.example.com", "meta.example.com", "meta6.example.com", "embedded.example.com", "unspecified.example.com"}
	for _, name := range o.names.questions() {
		if !slices.Contains(listed, name) {
			t.Errorf("%q was looked up outside", name)
		}
	}
	for _, req := range o.requests() {
		if !strings.HasPrefix(req.Host, "listed.example.com:") && !strings.HasPrefix(req.Host, "small.example.com:") {
			t.Errorf("a request arrived for %s: %s %s", req.Host, req.Method, req.Path)
		}
	}
	if o.taken > 64<<10 {
		t.Errorf("%d bytes of bodies arrived by a rule that lets out 64 KiB", o.taken)
	}
	c.verifies(t, r)
}

// judgeHostile looks at what single attempts said.
func judgeHostile(t *testing.T, results map[string]string) {
	t.Helper()
	for name, want := range map[string]string{
		"turns first": "as it must, reached", "first request": "HTTP/1.1 200 OK then ", "sockets": "egress.sock", "look-up": "0 answers",
	} {
		if !strings.HasPrefix(results[name], want) {
			t.Errorf("%s: %q, want %q…", name, results[name], want)
		}
	}
	for name, result := range results {
		if strings.HasPrefix(name, "name ") || strings.HasPrefix(name, "bytes ") || name == "other port" {
			if !strings.Contains(result, "HTTP/1.1 40") && result != "closed" && !strings.Contains(result, "ConnectionReset") {
				t.Errorf("%s: %q, want a refusal", name, result)
			}
		}
	}
	if len(results) < 55 {
		t.Errorf("only %d attempts were made: %v", len(results), slices.Sorted(maps.Keys(results)))
	}
}

func deniedText(t *testing.T, r result) string {
	var all []string
	for _, rec := range r.records(t, "egress.denied") {
		all = append(all, fmt.Sprintf("%v %v:%v", rec.Data["class"], rec.Data["host"], rec.Data["port"]))
	}
	return strings.Join(all, ", ")
}
