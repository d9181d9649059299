package egress

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// headCase is one file of testdata/heads: verdicts, an empty line, and the head
// as Go writes it in a string literal, a line of it on each line.
type headCase struct {
	name, verdict string
	bytes         string
}

func headCases(t testing.TB) []headCase {
	t.Helper()
	files, err := filepath.Glob("testdata/heads/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no head is in testdata/heads: %v", err)
	}
	var out []headCase
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for block := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
			title, body, _ := strings.Cut(block, "\n")
			verdict, what, ok := strings.Cut(strings.TrimPrefix(title, "# "), ": ")
			if !ok {
				t.Fatalf("%s: %q is not \"# VERDICT: what\"", file, title)
			}
			c := headCase{name: filepath.Base(file) + ": " + what, verdict: verdict}
			for line := range strings.SplitSeq(body, "\n") {
				c.bytes += unescaped(t, line)
			}
			out = append(out, c)
		}
	}
	return out
}

// unescaped reads \r \n \t \0 \xNN.
func unescaped(t testing.TB, s string) string {
	t.Helper()
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			b.WriteByte(s[i])
			continue
		}
		i++
		switch s[i] {
		case 'r':
			b.WriteByte('\r')
		case 'n':
			b.WriteByte('\n')
		case 't':
			b.WriteByte('\t')
		case 'x':
			var n byte
			if _, err := fmt.Sscanf(s[i+1:i+3], "%02x", &n); err != nil {
				t.Fatalf("%q: %v", s, err)
			}
			b.WriteByte(n)
			i += 2
		default:
			t.Fatalf("%q: unknown escape", s)
		}
	}
	return b.String()
}

// judged is what the proxy would make of a head: "METHOD HOST:PORT TARGET body",
// or the class that refuses it.
func judged(raw string) string {
	h, err := readHead(bufio.NewReaderSize(strings.NewReader(raw), 16), headBounds)
	if err != nil {
		return verdictOf(err)
	}
	kind, length, err := h.framing()
	if err != nil {
		return verdictOf(err)
	}
	var t Target
	origin := h.target
	switch {
	case h.method == "CONNECT":
		t, err = h.authority()
		origin = ""
	case strings.HasPrefix(h.target, "/"):
		t.Host, t.Port, err = h.host()
	default:
		t, origin, err = h.absolute()
	}
	if err != nil {
		return verdictOf(err)
	}
	body := [...]string{"none", fmt.Sprint(length), "chunked"}[kind]
	return fmt.Sprintf("%s %s %s %s", h.method, t, origin, body)
}

func verdictOf(err error) string {
	refused := (*Refused)(nil)
	if errors.As(err, &refused) {
		return string(refused.Class)
	}
	return err.Error()
}

func TestHeads(t *testing.T) {
	for _, c := range headCases(t) {
		if got := strings.Join(strings.Fields(judged(c.bytes)), " "); got != c.verdict {
			t.Errorf("%s: %s, want %s\n%q", c.name, got, c.verdict, c.bytes)
		}
	}
}

func TestHeadBounds(t *testing.T) {
	small := bounds{bytes: 64, fields: 2}
	for _, c := range []struct{ raw, want string }{
		{"GET / HTTP/1.1\r\na: b\r\nc: d\r\n\r\n", "<nil>"},
		{"GET / HTTP/1.1\r\na: b\r\nc: d\r\ne: f\r\n\r\n", "bounds"},
		{"GET / HTTP/1.1\r\na: " + strings.Repeat("b", 41) + "\r\n\r\n", "<nil>"},
		{"GET / HTTP/1.1\r\na: " + strings.Repeat("b", 42) + "\r\n\r\n", "bounds"},
		{"GET /" + strings.Repeat("a", 100), "bounds"},
		{"", "EOF"},
		{"GET / HTTP/1.1", "unexpected EOF"},
		{"GET / HTTP/1.1\r\n", "unexpected EOF"},
		{"GET / HTTP/1.1\r\na: b\r\n", "unexpected EOF"},
	} {
		_, err := readHead(bufio.NewReaderSize(strings.NewReader(c.raw), 16), small)
		got := "<nil>"
		if err != nil {
			got = verdictOf(err)
		}
		if got != c.want {
			t.Errorf("%q: %s, want %s", c.raw, got, c.want)
		}
	}
}

func TestHeadLeavesTheBody(t *testing.T) {
	r := bufio.NewReader(strings.NewReader("POST / HTTP/1.1\r\nHost: a.example\r\n\r\nbody"))
	if _, err := readHead(r, headBounds); err != nil {
		t.Fatal(err)
	}
	if rest, _ := io.ReadAll(r); string(rest) != "body" {
		t.Errorf("behind the head is %q", rest)
	}
}

func TestHeadTokens(t *testing.T) {
	h := &head{fields: []field{{"connection", "close, ,X-Foo"}, {"other", "no"}, {"connection", "\tUpgrade"}}}
	if got := strings.Join(h.tokens("connection"), "|"); got != "close|x-foo|upgrade" {
		t.Error(got)
	}
}

// FuzzHead: what is accepted, Go's own parser reads as the same method, host,
// path and body.
func FuzzHead(f *testing.F) {
	for _, c := range headCases(f) {
		f.Add(c.bytes)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		ours := judged(raw)
		fields := strings.Split(ours, " ")
		if len(fields) != 4 {
			return
		}
		method, target, origin, body := fields[0], fields[1], fields[2], fields[3]
		if method != "CONNECT" {
			// The layer above forwards only what has a normal form.
			if _, _, err := NormalTarget(origin); err != nil {
				return
			}
		}
		req, err := http.ReadRequest(bufio.NewReader(strings.NewReader(raw)))
		if err != nil {
			t.Fatalf("%q is accepted as %s, and Go says %v", raw, ours, err)
		}
		theirs, err := goReads(req)
		if err != nil {
			t.Fatalf("%q: %v", raw, err)
		}
		want := [...]string{method, strings.TrimSuffix(target, ":0"), origin, body}
		if method != "CONNECT" && strings.HasPrefix(req.RequestURI, "http:") && req.URL.Port() == "" {
			want[1] = strings.TrimSuffix(target, ":80")
		}
		if theirs != want {
			t.Fatalf("%q: we read %q, Go %q", raw, want, theirs)
		}
	})
}

// goReads is method, host, origin form and body as Go has them.
func goReads(req *http.Request) ([4]string, error) {
	host := req.Host
	origin := ""
	if req.Method != "CONNECT" {
		u, err := url.ParseRequestURI(req.RequestURI)
		if err != nil {
			return [4]string{}, err
		}
		origin = u.RequestURI()
	}
	body := "none"
	switch {
	case len(req.TransferEncoding) > 0:
		body = strings.Join(req.TransferEncoding, ",")
	case req.Header.Get("Content-Length") != "":
		body = fmt.Sprint(req.ContentLength)
	}
	return [4]string{req.Method, strings.ToLower(host), origin, body}, nil
}
