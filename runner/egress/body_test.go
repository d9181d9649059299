package egress

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"

	"github.com/countersign-dev/countersign/policy/contract"
)

func TestChunked(t *testing.T) {
	for _, c := range []struct{ in, out string }{
		{"0\r\n\r\n", ""},
		{"3\r\nabc\r\n0\r\n\r\n", "abc"},
		{"003\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n", "abc0123456789"},
		{"3;name=value\r\nabc\r\n0;last\r\n\r\n", "abc"},
		{"3\r\nabc\r\n0\r\nTrailer: dropped\r\nX: y\r\n\r\n", "abc"},
	} {
		for _, one := range []bool{false, true} {
			var src io.Reader = strings.NewReader(c.in + "NEXT")
			if one {
				src = iotest.OneByteReader(src)
			}
			r := bufio.NewReader(src)
			got, err := io.ReadAll(&chunked{r: r})
			rest, _ := io.ReadAll(r)
			if string(got) != c.out || err != nil || string(rest) != "NEXT" {
				t.Errorf("%q: read %q, %v, and left %q", c.in, got, err, rest)
			}
		}
	}
	for _, in := range []string{
		"\r\n", "g\r\n", "-1\r\n", "+1\r\na\r\n0\r\n\r\n", "0x1\r\na\r\n0\r\n\r\n", " 1\r\na\r\n0\r\n\r\n", "1 \r\na\r\n0\r\n\r\n", "1\na\r\n0\r\n\r\n",
		"1\r\nab\r\n0\r\n\r\n", "1\r\na\n0\r\n\r\n", "1\r\na0\r\n\r\n", "1\r\na\r\n0\r\n\n", "1_0\r\n", "1000000000000000\r\n", "ffffffffffffffff1\r\n",
		"1;" + strings.Repeat("x", 300) + "\r\na\r\n0\r\n\r\n", "1;\x00\r\na\r\n0\r\n\r\n", "1;\rx\r\na\r\n0\r\n\r\n", "0\r\nno trailer\r\n\r\n", "0\r\n: x\r\n\r\n",
		"0\r\nX: " + strings.Repeat("x", maxTrailers) + "\r\n\r\n",
	} {
		_, err := io.ReadAll(&chunked{r: bufio.NewReader(strings.NewReader(in))})
		if refused := (*Refused)(nil); !errors.As(err, &refused) || refused.Class != ClassMalformed {
			t.Errorf("%.60q: %v", in, err)
		}
	}
	for _, in := range []string{"", "1", "1\r\n", "2\r\na", "1\r\na", "1\r\na\r\n", "1\r\na\r\n0\r\n", "1\r\na\r\n0\r\nX: y\r\n"} {
		if _, err := io.ReadAll(&chunked{r: bufio.NewReader(strings.NewReader(in))}); err != io.ErrUnexpectedEOF {
			t.Errorf("%q, which is not whole: %v", in, err)
		}
	}
}

func TestScan(t *testing.T) {
	find := []string{"needle", "nee", "x"}
	for _, c := range []struct {
		parts []string
		found bool
	}{
		{[]string{"a needle"}, true},
		{[]string{"a ne", "edle"}, true},
		{[]string{"n", "e", "e"}, true},
		{[]string{"n", "e", "", "e"}, true},
		{[]string{"ne", "de", "ne", "ed"}, true}, // "ne"+"ed" holds "nee"
		{[]string{"ne", "a", "e"}, false},
		{[]string{strings.Repeat("ne", 100), "d"}, false},
		{[]string{"", "", ""}, false},
		{[]string{"x"}, true},
	} {
		s := newScan(find, nil)
		found := false
		for _, p := range c.parts {
			found = found || s.check([]byte(p)) != nil
		}
		if found != c.found {
			t.Errorf("%q: found %v, want %v", c.parts, found, c.found)
		}
	}
}

// Wherever a stream is cut, in three parts.
func TestScanAcross(t *testing.T) {
	const text = "-abcdef-"
	for i := range text {
		for j := i; j < len(text); j++ {
			s := newScan([]string{"abcdef", "xy"}, nil)
			found := s.check([]byte(text[:i])) != nil || s.check([]byte(text[i:j])) != nil
			if before := strings.Contains(text[:j], "abcdef"); found != before {
				t.Errorf("%q %q: found %v", text[:i], text[i:j], found)
			}
			if !found && s.check([]byte(text[j:])) == nil {
				t.Errorf("%q %q %q: not found", text[:i], text[i:j], text[j:])
			}
		}
	}
}

const runSecret = "hunter2/hunter2+hunter2"

// What holds a secret of the run, or a text that the rule names, does not leave.
func TestBodyRefused(t *testing.T) {
	padding := strings.Repeat("0123456789abcdef", 300)
	for name, text := range map[string]string{
		"plain":      "password is " + runSecret + " keep it",
		"base64":     base64.StdEncoding.EncodeToString([]byte("x" + runSecret)),
		"hex":        hex.EncodeToString([]byte(runSecret)),
		"percent":    "hunter2%2Fhunter2%2Bhunter2",
		"json":       `{"a":"hunter2\/hunter2+hunter2"}`,
		"deep":       padding + runSecret + padding,
		"deny_body":  padding + "CONFIDENTIAL" + padding,
		"at the end": padding + "CONFIDENTIAL",
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, http2 bool) {
				l := newLab(t, withSecrets(nil, runSecret), inspectRule(func(r *contract.NetRule) { r.DenyBody = []string{"CONFIDENTIAL"} }))
				var whole atomic.Bool
				l.serveTLS(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					_, err := io.Copy(io.Discard, r.Body)
					whole.Store(err == nil)
				}))
				// Pieces of a size that divides nothing, and an end that is not known.
				r, err := l.client(http2).Post("https://"+labHost+"/", "text/plain", pieceReader{strings.NewReader(text)})
				if sentence := textOf(t, r, err); r.StatusCode != 403 || !strings.HasPrefix(sentence, "countersign: ") || strings.Contains(sentence, "hunter2") {
					t.Errorf("answered %d %q", r.StatusCode, sentence)
				}
				if whole.Load() || !slices.Equal(l.classes(), []Class{ClassBody}) {
					t.Errorf("the server had it whole: %v; denied %v", whole.Load(), l.classes())
				}
			})
		})
	}
}

// pieceReader reads seven bytes at a time.
type pieceReader struct{ r io.Reader }

func (p pieceReader) Read(b []byte) (int, error) { return p.r.Read(b[:min(7, len(b))]) }

func TestSecretBesideTheBody(t *testing.T) {
	for name, edit := range map[string]func(*http.Request){
		"query":  func(r *http.Request) { r.URL.RawQuery = "q=hunter2%2fhunter2%2bhunter2" },
		"path":   func(r *http.Request) { r.URL.Opaque = "/hunter2/hunter2+hunter2" },
		"header": func(r *http.Request) { r.Header.Set("X-Note", runSecret) },
		"name":   func(r *http.Request) { r.Header["X-"+hex.EncodeToString([]byte(runSecret))] = []string{"v"} },
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, http2 bool) {
				l := newLab(t, withSecrets(nil, runSecret), inspectRule())
				l.serveTLS(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the server saw it") }))
				q := newRequest(t, "GET", "https://"+labHost+"/", nil)
				edit(q)
				r, err := l.client(http2).Do(q)
				if text := textOf(t, r, err); r.StatusCode != 403 || !slices.Equal(l.classes(), []Class{ClassBody}) {
					t.Errorf("answered %d %q, denied %v", r.StatusCode, text, l.classes())
				}
			})
		})
	}
}

// A secret that the sandbox was given is there to be used as a credential; one
// that is injected cannot be known inside.
func TestGivenCredential(t *testing.T) {
	l := newLab(t, withSecrets(map[string]string{"model-key": modelKey}, runSecret), inspectRule())
	var seen atomic.Int64
	l.serveTLS(counting(&seen))
	for value, status := range map[string]int{"Bearer " + runSecret: 200, "Bearer " + modelKey: 403} {
		q := newRequest(t, "GET", "https://"+labHost+"/", nil)
		q.Header.Set("Authorization", value)
		r, err := l.client(false).Do(q)
		if textOf(t, r, err); r.StatusCode != status {
			t.Errorf("%s: answered %d, want %d", value, r.StatusCode, status)
		}
	}
}

func TestEncodedBody(t *testing.T) {
	pack := func(s string) string {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		io.WriteString(z, s)
		z.Close()
		return b.String()
	}
	long := strings.Repeat("want 0123456789abcdef\n", 5000)
	for _, c := range []struct {
		name, encoding, body string
		status               int
		seen                 string // by the server; "" for nothing whole
		class                Class
	}{
		{"gzip is decoded", "gzip", pack(long), 200, long, ""},
		{"gzip in two members", "gzip", pack("one ") + pack("two"), 200, "one two", ""},
		{"secret in gzip", "gzip", pack(long + runSecret), 403, "", ClassBody},
		{"no gzip", "gzip", "what", 400, "", ClassMalformed},
		{"broken gzip", "gzip", pack(long)[:100] + "xxxx" + pack(long)[104:], 400, "", ClassMalformed},
		{"brotli", "br", "what", 403, "", ClassBody},
		{"twice", "gzip, gzip", pack(pack("what")), 403, "", ClassBody},
		{"identity", "identity", "what", 200, "what", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			both(t, func(t *testing.T, http2 bool) {
				l := newLab(t, withSecrets(nil, runSecret), inspectRule())
				got := make(chan string, 1)
				l.serveTLS(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					b, err := io.ReadAll(r.Body)
					if err == nil {
						got <- r.Header.Get("Content-Encoding") + string(b)
					}
				}))
				q := newRequest(t, "POST", "https://"+labHost+"/", strings.NewReader(c.body))
				q.Header.Set("Content-Encoding", c.encoding)
				r, err := l.client(http2).Do(q)
				if text := textOf(t, r, err); r.StatusCode != c.status {
					t.Fatalf("answered %d %q, want %d", r.StatusCode, text, c.status)
				}
				if c.class != "" {
					if !slices.Equal(l.classes(), []Class{c.class}) || len(got) != 0 {
						t.Errorf("denied %v, %d bodies seen", l.classes(), len(got))
					}
				} else if seen := <-got; strings.TrimPrefix(seen, "identity") != c.seen {
					t.Errorf("the server saw %.80q", seen)
				}
			})
		})
	}
}

func TestUploadBudgetOfRequests(t *testing.T) {
	const budget = 100_000
	for _, c := range []struct {
		name string
		size int
		ok   bool
	}{{"within", budget / 2, true}, {"over", budget + 1, false}, {"over by the head", budget - 10, false}} {
		t.Run(c.name, func(t *testing.T) {
			both(t, func(t *testing.T, http2 bool) {
				l := newLab(t, serverRoots, inspectRule(func(r *contract.NetRule) { r.UploadBytes = budget }))
				var arrived atomic.Int64
				l.serveTLS(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					n, _ := io.Copy(io.Discard, r.Body)
					arrived.Add(n)
				}))
				r, err := l.client(http2).Post("https://"+labHost+"/", "text/plain", strings.NewReader(strings.Repeat("x", c.size)))
				if text := textOf(t, r, err); (r.StatusCode == 200) != c.ok {
					t.Errorf("answered %d %q", r.StatusCode, text)
				}
				if !c.ok && !slices.Equal(l.classes(), []Class{ClassBudget}) {
					t.Errorf("denied %v", l.classes())
				}
				if arrived.Load() > budget || c.ok && arrived.Load() != int64(c.size) {
					t.Errorf("%d bytes arrived", arrived.Load())
				}
			})
		})
	}
}

func TestHeadIsCharged(t *testing.T) {
	l := newLab(t, serverRoots, gatewayRule(func(r *contract.NetRule) { r.UploadBytes = 50 }))
	l.serveTLS(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the server saw it") }))
	r, err := l.client(false).Get("http://" + gatewayHost + "/" + strings.Repeat("a", 50))
	if text := textOf(t, r, err); r.StatusCode != 403 || !slices.Equal(l.classes(), []Class{ClassBudget}) {
		t.Errorf("answered %d %q, denied %v", r.StatusCode, text, l.classes())
	}
}

func TestHeadSize(t *testing.T) {
	l := newLab(t, serverRoots, gatewayRule())
	l.serveTLS(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}))
	q := newRequest(t, "GET", "http://"+gatewayHost+"/a/b?c", nil)
	q.Header = http.Header{"User-Agent": {"u"}, "X": {"1", "22"}}
	r, err := l.client(false).Do(q)
	textOf(t, r, err)
	want := len("GET /a/b?c HTTP/1.1\r\nHost: api.example.com\r\nUser-Agent: u\r\nAccept-Encoding: gzip\r\nX: 1\r\nX: 22\r\n\r\n")
	if got := l.requests()[0].BytesOut; got != int64(want) {
		t.Errorf("counted %d bytes, want %d", got, want)
	}
}
