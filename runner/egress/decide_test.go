package egress

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/policy/contract"
)

func noon() time.Time { return time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC) }

// parseRuleLine reads MODE HOST:PORT [to=] [methods=] [paths=] [websocket] [until=].
func parseRuleLine(s string) (contract.NetRule, error) {
	fields := strings.Fields(s)
	if len(fields) < 2 {
		return contract.NetRule{}, fmt.Errorf("%q: want MODE HOST:PORT", s)
	}
	colon := strings.LastIndexByte(fields[1], ':')
	port, err := strconv.Atoi(fields[1][colon+1:])
	if err != nil {
		return contract.NetRule{}, err
	}
	rule := contract.NetRule{Mode: fields[0], Host: fields[1][:colon], Port: port, UploadBytes: 1 << 20}
	for _, f := range fields[2:] {
		key, value, _ := strings.Cut(f, "=")
		switch key {
		case "to":
			rule.Upstream = value
		case "methods":
			rule.Methods = strings.Split(value, ",")
		case "paths":
			rule.Paths = strings.Split(value, ",")
		case "websocket":
			rule.WebSocket = true
		case "until":
			rule.Grant = &contract.Grant{NotAfter: value}
		default:
			return contract.NetRule{}, fmt.Errorf("%q: unknown field %q", s, f)
		}
	}
	return rule, nil
}

// rulesOf compiles rules that are written as in the corpus.
func rulesOf(t testing.TB, lines ...string) *Rules {
	t.Helper()
	n := contract.Network{Mode: contract.NetworkAllowlist}
	for _, l := range lines {
		rule, err := parseRuleLine(l)
		if err != nil {
			t.Fatal(err)
		}
		n.Allow = append(n.Allow, rule)
	}
	r, err := Compile(n)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// parseCase reads HOST:PORT [METHOD TARGET [websocket]]; malformed says that
// the target has no normal form.
func parseCase(s string) (q Question, malformed bool, err error) {
	host, rest := "", s
	if strings.HasPrefix(s, `"`) {
		quoted, err := strconv.QuotedPrefix(s)
		if err != nil {
			return q, false, err
		}
		if host, err = strconv.Unquote(quoted); err != nil {
			return q, false, err
		}
		rest = strings.TrimPrefix(s[len(quoted):], ":")
	} else {
		host, rest, _ = strings.Cut(s, ":")
	}
	fields := strings.Fields(rest)
	q.Host = host
	if q.Port, err = strconv.Atoi(fields[0]); err != nil || len(fields) == 1 {
		return q, false, err
	}
	q.Method, q.WebSocket = fields[1], len(fields) == 4
	q.Path, _, err = NormalTarget(fields[2])
	return q, err != nil, nil
}

func TestDecideCorpus(t *testing.T) {
	f, err := os.Open("testdata/decide.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var group string
	var lines []string
	cases := 0
	for in, n := bufio.NewScanner(f), 1; in.Scan(); n++ {
		line := strings.TrimSpace(in.Text())
		word, rest, _ := strings.Cut(line, " ")
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case word == "group":
			group, lines = rest, nil
		case word == "rule":
			lines = append(lines, rest)
		default:
			cases++
			decideLine(t, fmt.Sprintf("decide.txt:%d (%s)", n, group), rulesOf(t, lines...), line)
		}
	}
	if cases < 100 {
		t.Errorf("the corpus has %d cases; was it read to its end?", cases)
	}
}

func decideLine(t *testing.T, where string, rules *Rules, line string) {
	t.Helper()
	input, want, ok := strings.Cut(line, "->")
	q, malformed, err := parseCase(strings.TrimSpace(input))
	if !ok || err != nil {
		t.Fatalf("%s: %q is no case: %v", where, line, err)
	}
	v := Decide(rules, q, noon())
	got := string(v.Class) + " -"
	switch {
	case malformed:
		got = "malformed -"
	case v.Rule >= 0:
		got = fmt.Sprintf("%s %d", v.Class, v.Rule)
	}
	if want = strings.TrimSpace(want); got != want {
		t.Errorf("%s: %s: %s, want %s", where, strings.TrimSpace(input), got, want)
	}
	if v.Allow != (v.Class == ClassAllowed) {
		t.Errorf("%s: allow is %v in class %s", where, v.Allow, v.Class)
	}
	checkReason(t, where, v)
}

// checkReason wants a bounded clause of printable ASCII with every denial.
func checkReason(t testing.TB, where string, v Verdict) {
	t.Helper()
	if (v.Reason == "") != v.Allow {
		t.Errorf("%s: allow is %v with the reason %q", where, v.Allow, v.Reason)
	}
	unsafe := func(r rune) bool { return r < ' ' || r > '~' }
	if len(v.Reason) > maxReason || strings.ContainsFunc(v.Reason, unsafe) {
		t.Errorf("%s: the reason is %d bytes: %q", where, len(v.Reason), v.Reason)
	}
}

func TestDecideReasons(t *testing.T) {
	rules := rulesOf(t,
		"inspect api.example.com:443 methods=GET,HEAD paths=/a,/b,/c,/d,/e,/f",
		"opaque api.example.com:22",
		"inspect api.example.com:443 methods=PUT paths=/up",
		"opaque api.example.com:8080 until=2026-11-29T11:00:00Z",
	)
	ask := func(port int, method, path string, webSocket bool) Question {
		return Question{Target{"api.example.com", port}, method, path, webSocket}
	}
	for _, c := range []struct {
		q    Question
		want string
	}{
		{Question{Target: Target{"other.example.com", 443}}, "no rule names the host"},
		{Question{Target: Target{"127.1", 443}}, `the host is "127.1", an address in some spelling; name the host instead`},
		{Question{Target: Target{strings.Repeat("\x00", 90), 443}}, `the host is "` + strings.Repeat(`\x00`, 46) + `...`},
		{Question{Target: Target{strings.Repeat("a", 81), 443}}, `the host is "` + strings.Repeat("a", 80) + `"... (81 bytes), which has a label of 81 bytes, the bound is 63`},
		{Question{Target: Target{"API.example.com", 443}}, "the host is not in lower case"},
		{ask(80, "", "", false), "the host is listed for port 22, 443, 8080, not for 80"},
		{ask(8080, "", "", false), "the grant of its rule ended at 2026-11-29T11:00:00Z"},
		{ask(443, "PATCH", "/a", false), "the rule allows GET, HEAD, not PATCH"},
		{ask(443, "TRACE", "/a", false), "the method is TRACE, which no rule can allow"},
		{ask(443, "G\nET", "/a", false), `the method is "G\nET", want an HTTP method in upper case`},
		{ask(443, "GET", "/x", false), "the rule allows the path /a, /b, /c, /d and 2 more, not /x"},
		{ask(443, "GET", "/a", true), "the rule does not allow WebSocket"},
	} {
		if v := Decide(rules, c.q, noon()); v.Reason != c.want || v.Allow {
			t.Errorf("%+v: %q, want %q", c.q, v.Reason, c.want)
		}
	}
}

// A path that was not brought into normal form matches nothing, whoever asks.
func TestDecideWantsNormalPaths(t *testing.T) {
	rules := rulesOf(t, "inspect api.example.com:443 methods=GET paths=/**")
	for _, path := range []string{"", "/a/../b", "/%61", "/a%2fb", "//a", "/a\n", "a"} {
		q := Question{Target{"api.example.com", 443}, "GET", path, false}
		if v := Decide(rules, q, noon()); v.Class != ClassPath {
			t.Errorf("%q: %s", path, v.Class)
		}
	}
}

func TestCompileRefuses(t *testing.T) {
	valid := func() contract.NetRule {
		r, err := parseRuleLine("gateway model.internal:80 to=https://api.example.net:443 methods=POST paths=/v1")
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for name, edit := range map[string]func(*contract.Network){
		"rules in mode none":     func(n *contract.Network) { n.Mode = contract.NetworkNone },
		"rules in no mode":       func(n *contract.Network) { n.Mode = "" },
		"a host of two spelling": func(n *contract.Network) { n.Allow[0].Host = "127.1" },
		"a public suffix":        func(n *contract.Network) { n.Allow[0].Host = "*.com" },
		"an encoded path":        func(n *contract.Network) { n.Allow[0].Paths[0] = "/%76" },
		"an unknown mode":        func(n *contract.Network) { n.Allow[0].Mode = "" },
		"a plain upstream":       func(n *contract.Network) { n.Allow[0].Upstream = "http://api.example.net:80" },
		"a wildcard upstream":    func(n *contract.Network) { n.Allow[0].Upstream = "https://*.example.net:443" },
		"an upstream path":       func(n *contract.Network) { n.Allow[0].Upstream = "https://api.example.net:443/x" },
	} {
		n := contract.Network{Mode: contract.NetworkAllowlist, Allow: []contract.NetRule{valid()}}
		if _, err := Compile(n); err != nil {
			t.Fatal(err)
		}
		edit(&n)
		if _, err := Compile(n); err == nil {
			t.Errorf("%s: compiled", name)
		}
	}
	r, err := Compile(contract.Network{Mode: contract.NetworkNone})
	if err != nil || Decide(r, Question{Target: Target{"a.example.com", 443}}, noon()).Allow {
		t.Errorf("mode none: %v", err)
	}
}

func TestDial(t *testing.T) {
	rules := rulesOf(t, "gateway model.internal:80 to=https://api.example.net:8443 methods=POST paths=/v1", "opaque *.example.com:443")
	if got := rules.Dial(0, Target{"model.internal", 80}); got != (Target{"api.example.net", 8443}) {
		t.Errorf("a gateway dials %v", got)
	}
	if got := rules.Dial(1, Target{"a.example.com", 443}); got != (Target{"a.example.com", 443}) {
		t.Errorf("a tunnel dials %v", got)
	}
	if rules.Len() != 2 || rules.Rule(1).Host != "*.example.com" {
		t.Errorf("%d rules", rules.Len())
	}
}

// FuzzDecide: what Decide allows satisfies the rule that it names, judged here by
// other means than Decide's own.
func FuzzDecide(f *testing.F) {
	f.Add("api.example.com", 443, "GET", "/v1/x", false, "*.example.com", 443, "/v1/**", true)
	f.Add("api.example.com", 443, "", "", false, "api.example.com", 443, "/", false)
	f.Add("a.api.example.com", 443, "POST", "/v1/%2e%2e/x", true, "*.example.com", 80, "/*/x", true)
	f.Add("api.example.com", 443, "GET", "/a%2Fb", true, "api.example.com", 443, "/*", true)
	f.Fuzz(func(t *testing.T, host string, port int, method, target string, webSocket bool, ruleHost string, rulePort int, rulePath string, inspected bool) {
		rule := contract.NetRule{Host: ruleHost, Port: rulePort, Mode: contract.RuleOpaque}
		if inspected {
			rule.Mode, rule.Methods, rule.Paths = contract.RuleInspect, []string{"GET"}, []string{rulePath}
		}
		other := contract.NetRule{Host: "fixed.example.org", Port: 443, Mode: contract.RuleOpaque}
		rules, err := Compile(contract.Network{Mode: contract.NetworkAllowlist, Allow: []contract.NetRule{other, rule}})
		if err != nil {
			return
		}
		path, _, err := NormalTarget(target)
		if err != nil {
			path = target // as a caller would that forgot
		}
		v := Decide(rules, Question{Target{host, port}, method, path, webSocket}, noon())
		checkReason(t, "fuzz", v)
		if v.Allow {
			satisfies(t, rules.Rule(v.Rule), host, port, method, path, webSocket)
		}
	})
}

func satisfies(t *testing.T, rule contract.NetRule, host string, port int, method, path string, webSocket bool) {
	t.Helper()
	pattern := strings.ToLower(rule.Host)
	label, below, _ := strings.Cut(host, ".")
	if host != pattern && (label == "" || "*."+below != pattern) {
		t.Errorf("%q allowed by %q", host, rule.Host)
	}
	if strings.Trim(host, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" || port != rule.Port {
		t.Errorf("%q:%d allowed by port %d", host, port, rule.Port)
	}
	if method == "CONNECT" || method == "TRACE" {
		t.Errorf("%s allowed", method)
	}
	if method == "" || rule.Mode == contract.RuleOpaque {
		return
	}
	if !slices.Contains(rule.Methods, method) || webSocket {
		t.Errorf("%s (WebSocket %v) allowed by %v", method, webSocket, rule.Methods)
	}
	for _, reading := range []string{path, strings.ReplaceAll(path, "%2F", "/")} {
		if !globs(strings.Split(rule.Paths[0], "/"), strings.Split(reading, "/")) {
			t.Errorf("%q allowed by %q", path, rule.Paths[0])
		}
	}
}

// globs matches a path's segments by recursion.
func globs(pattern, path []string) bool {
	switch {
	case len(pattern) == 0 || len(path) == 0:
		return len(pattern) == len(path)
	case pattern[0] == "**":
		return true
	case pattern[0] == "*":
		return path[0] != "" && globs(pattern[1:], path[1:])
	}
	return pattern[0] == path[0] && globs(pattern[1:], path[1:])
}

func BenchmarkDecide(b *testing.B) {
	rules := rulesOf(b, "opaque registry.example.com:443", "inspect api.example.com:443 methods=GET,POST paths=/v1/**")
	for name, q := range map[string]Question{
		"connection": {Target: Target{"registry.example.com", 443}},
		"request":    {Target{"api.example.com", 443}, "GET", "/v1/a/b", false},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Decide(rules, q, noon())
			}
		})
	}
}
