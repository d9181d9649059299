package egress

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/policy/contract"
)

// Events arrive one by one: each is sent only after the one before was read.
func TestServerSentEvents(t *testing.T) {
	masked := func(r *contract.NetRule) { injecting(contract.InjectBearer, "")(r) }
	for name, rule := range map[string]contract.NetRule{"plain": inspectRule(), "masked": inspectRule(masked)} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, http2 bool) {
				l := newLab(t, withSecrets(map[string]string{"model-key": modelKey}), rule)
				next := make(chan int)
				l.serveTLS(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Content-Type", "text/event-stream")
					w.(http.Flusher).Flush()
					for n := range next {
						fmt.Fprintf(w, "data: %d\n\n", n)
						w.(http.Flusher).Flush()
					}
				}))
				r, err := l.client(http2).Get("https://" + labHost + "/events")
				if err != nil {
					t.Fatal(err)
				}
				defer r.Body.Close()
				lines := bufio.NewScanner(r.Body)
				for n := range 20 {
					next <- n
					if !lines.Scan() || lines.Text() != fmt.Sprintf("data: %d", n) || !lines.Scan() {
						t.Fatalf("event %d: read %q, %v", n, lines.Text(), lines.Err())
					}
				}
				close(next)
			})
		})
	}
}

// A request's body streams while its answer does, both without an end in sight.
func TestDuplex(t *testing.T) {
	l := newLab(t, serverRoots, inspectRule())
	l.serveTLS(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Te") != "trailers" {
			t.Errorf("the server was sent TE: %q", r.Header.Get("Te"))
		}
		w.(http.Flusher).Flush()
		lines := bufio.NewScanner(r.Body)
		for lines.Scan() {
			fmt.Fprintln(w, strings.ToUpper(lines.Text()))
			w.(http.Flusher).Flush()
		}
		w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
	}))
	in, out := io.Pipe()
	q := newRequest(t, "POST", "https://"+labHost+"/", in)
	q.Header.Set("TE", "trailers")
	r, err := l.client(true).Do(q)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(r.Body)
	for _, word := range []string{"one", "two", "three"} {
		fmt.Fprintln(out, word)
		if !lines.Scan() || lines.Text() != strings.ToUpper(word) {
			t.Fatalf("read %q, %v", lines.Text(), lines.Err())
		}
	}
	out.Close()
	if lines.Scan() || r.Trailer.Get("Grpc-Status") != "0" {
		t.Errorf("after the end: %q, trailers %v", lines.Text(), r.Trailer)
	}
}

func TestContinue(t *testing.T) {
	for _, refuse := range []bool{false, true} {
		l := newLab(t, serverRoots, gatewayRule())
		l.serveTLS(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Expect") != "100-continue" {
				t.Errorf("the server was sent Expect: %q", r.Header.Get("Expect"))
			}
			if refuse {
				w.WriteHeader(http.StatusTeapot)
				return
			}
			io.Copy(w, r.Body)
		}))
		c := l.tunnel("api.internal:80", true)
		io.WriteString(c, "PUT /a HTTP/1.1\r\nHost: api.internal\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
		line, _ := c.r.ReadString('\n')
		if refuse {
			if line != "HTTP/1.1 418 I'm a teapot\r\n" {
				t.Errorf("answered %q", line)
			}
			continue
		}
		if line != "HTTP/1.1 100 Continue\r\n" {
			t.Fatalf("answered %q", line)
		}
		io.WriteString(c, "hello")
		c.r.ReadString('\n')
		r, err := http.ReadResponse(c.r, nil)
		if got := textOf(t, r, err); got != "hello" || r.Close {
			t.Errorf("answered %q, close %v", got, r.Close)
		}
	}
}

// An answer that comes before the body's end reaches the client, which still
// sends.
func TestEarlyAnswer(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		l := newLab(t, serverRoots, inspectRule())
		l.serveTLS(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.NewResponseController(w).EnableFullDuplex() // else it reads the body first
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			io.WriteString(w, "enough")
		}))
		in, out := io.Pipe()
		defer out.Close()
		go io.WriteString(out, "begin")
		r, err := l.client(http2).Post("https://"+labHost+"/", "text/plain", in)
		if got := textOf(t, r, err); r.StatusCode != http.StatusRequestEntityTooLarge || got != "enough" {
			t.Errorf("answered %d %q", r.StatusCode, got)
		}
	})
}

// A server that goes away is told to a client that rests in the middle of its
// body.
func TestServerGoesAway(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		l := newLab(t, serverRoots, inspectRule())
		l.serveTLS(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.ReadFull(r.Body, make([]byte, 5))
			if r.ProtoMajor == 1 { // net/http would read the body first
				c, _, _ := w.(http.Hijacker).Hijack()
				c.Close()
				return
			}
			panic(http.ErrAbortHandler)
		}))
		in, out := io.Pipe()
		defer out.Close()
		go io.WriteString(out, "begin")
		r, err := l.client(http2).Post("https://"+labHost+"/", "text/plain", in)
		if text := textOf(t, r, err); r.StatusCode != http.StatusBadGateway || !strings.Contains(text, "did not answer") {
			t.Errorf("answered %d %q", r.StatusCode, text)
		}
	})
}

// Framing comes from what the proxy does, not from what a server said it would.
func TestReplyFraming(t *testing.T) {
	for _, c := range []struct {
		length, proto, method string
		status                int
		want                  string
	}{
		{"3", "HTTP/1.1", "GET", 200, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"},
		{"", "HTTP/1.1", "GET", 200, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"},
		{"x", "HTTP/1.1", "GET", 200, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"},
		{"-3", "HTTP/1.1", "GET", 200, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"},
		{"", "HTTP/1.0", "GET", 200, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nabc"},
		{"3", "HTTP/1.1", "HEAD", 200, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n"},
		{"3", "HTTP/1.1", "GET", 204, "HTTP/1.1 204 No Content\r\n\r\n"},
		{"3", "HTTP/1.1", "GET", 304, "HTTP/1.1 304 Not Modified\r\nContent-Length: 3\r\n\r\n"},
	} {
		var out bytes.Buffer
		r := newReply(bufio.NewWriter(&out), &head{method: c.method, proto: c.proto})
		if c.length != "" {
			r.Header().Set("Content-Length", c.length)
		}
		r.WriteHeader(c.status)
		io.WriteString(r, "abc")
		if err := r.finish(); err != nil && err != errLast || out.String() != c.want {
			t.Errorf("%+v: wrote %q, %v", c, out.String(), err)
		}
	}
}

func TestReplyOfAnotherLength(t *testing.T) {
	for _, text := range []string{"", "ab", "abcd"} {
		var out bytes.Buffer
		r := newReply(bufio.NewWriter(&out), &head{method: "GET", proto: "HTTP/1.1"})
		r.Header().Set("Content-Length", "3")
		_, writing := io.WriteString(r, text)
		if err := r.finish(); writing == nil && (err == nil || err == errLast) || strings.Contains(out.String(), "abcd") {
			t.Errorf("%q: wrote %q, %v", text, out.String(), err)
		}
	}
}

func TestAnswerFields(t *testing.T) {
	out := http.Header{}
	answerFields(out, http.Header{
		"Connection": {"keep-alive, X-hop"}, "X-Hop": {"1"}, "X-Kept": {"1", "2"}, "Keep-Alive": {"1"}, "Proxy-Connection": {"1"}, "Proxy-Authenticate": {"1"},
		"Te": {"1"}, "Trailer": {"1"}, "Transfer-Encoding": {"1"}, "Upgrade": {"h3"}, "Alt-Svc": {"1"}, "Content-Length": {"3"},
	})
	if got := fmt.Sprint(out); got != "map[Content-Length:[3] X-Kept:[1 2]]" {
		t.Errorf("%s goes on", got)
	}
}

// An answer that breaks off does not look whole.
func TestBrokenAnswer(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		for _, length := range []string{"", "100"} {
			l := newLab(t, serverRoots, inspectRule())
			l.serveTLS(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if length != "" {
					w.Header().Set("Content-Length", length)
				}
				io.WriteString(w, "half of it")
				w.(http.Flusher).Flush()
				panic(http.ErrAbortHandler)
			}))
			r, err := l.client(http2).Get("https://" + labHost + "/")
			if err != nil {
				t.Fatal(err)
			}
			if b, err := io.ReadAll(r.Body); err == nil {
				t.Errorf("read %q without an error", b)
			}
			r.Body.Close()
		}
	})
}

func TestAnswersWithoutBody(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		l := newLab(t, serverRoots, inspectRule())
		l.serveTLS(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/204":
				w.WriteHeader(204)
			case "/304":
				w.Header().Set("Etag", `"x"`)
				w.WriteHeader(304)
			default:
				w.Header().Set("Content-Length", "12")
				io.WriteString(w, "twelve bytes")
			}
		}))
		c := l.client(http2)
		for _, q := range []struct {
			method, path string
			status       int
			length       int64
		}{{"GET", "/204", 204, 0}, {"GET", "/304", 304, 0}, {"HEAD", "/", 200, 12}, {"GET", "/", 200, 12}} {
			r, err := c.Do(newRequest(t, q.method, "https://"+labHost+q.path, nil))
			textOf(t, r, err)
			if r.StatusCode != q.status || max(r.ContentLength, 0) != q.length || r.Header.Get("Connection") != "" {
				t.Errorf("%v: answered %d, length %d", q, r.StatusCode, r.ContentLength)
			}
		}
		if n := len(l.of(TypeConnected)); n != 1 {
			t.Errorf("%d connections were made, want one", n)
		}
	})
}

// What the proxy keeps does not grow with what it passes.
func TestMemoryIsFlat(t *testing.T) {
	const most = 24 << 20 // a body is several times that
	both(t, func(t *testing.T, http2 bool) {
		up, down := int64(64<<20), int64(300<<20)
		if http2 { // which the race detector slows down
			up, down = up/2, down/3
		}
		l := newLab(t, withSecrets(nil, runSecret), inspectRule())
		l.serveTLS(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n, _ := io.Copy(io.Discard, r.Body)
			w.Header().Set("X-Read", fmt.Sprint(n))
			io.Copy(w, io.LimitReader(zeros{}, down))
		}))
		var peak heapPeak
		q := newRequest(t, "POST", "https://"+labHost+"/", io.TeeReader(io.LimitReader(zeros{}, up), &peak))
		q.ContentLength = up
		r, err := l.client(http2).Do(q)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		n, err := io.Copy(&peak, r.Body)
		if err != nil || n != down || r.Header.Get("X-Read") != fmt.Sprint(up) {
			t.Errorf("sent %s, read %d bytes, %v", r.Header.Get("X-Read"), n, err)
		}
		if peak.most > most {
			t.Errorf("the heap grew to %d MiB", peak.most>>20)
		}
	})
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// heapPeak looks at the heap after every 8 MiB.
type heapPeak struct {
	seen, next int64
	most       uint64
}

func (h *heapPeak) Write(p []byte) (int, error) {
	if h.seen += int64(len(p)); h.seen >= h.next {
		h.next = h.seen + 8<<20
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		h.most = max(h.most, m.HeapAlloc)
	}
	return len(p), nil
}

// A server that never answers holds no more than its client does.
func TestClientGoesAway(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		l := newLab(t, serverRoots, inspectRule())
		asked, left := make(chan struct{}, 1), make(chan struct{}, 1)
		l.serveTLS(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			asked <- struct{}{}
			<-r.Context().Done()
			left <- struct{}{}
		}))
		c := l.client(http2)
		q := newRequest(t, "POST", "https://"+labHost+"/", strings.NewReader("x"))
		var conn io.Closer
		q = q.WithContext(httptrace.WithClientTrace(q.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { conn = i.Conn }}))
		done := make(chan error, 1)
		go func() { _, err := c.Do(q); done <- err }()
		<-asked
		conn.Close()
		if err := <-done; err == nil {
			t.Error("the client was answered")
		}
		<-left
		wait(l.bench, TypeClosed, func(closedRecord) bool { return true })
	})
}

// The end of the run ends what is under way, and leaves nothing.
func TestCloseEndsExchanges(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		goroutines, descriptors := runtime.NumGoroutine(), openDescriptors(t)
		func() {
			l := newLab(t, serverRoots, inspectRule())
			asked := make(chan struct{}, 30)
			s := l.serveTLS(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				fmt.Fprint(w, "begin")
				w.(http.Flusher).Flush()
				asked <- struct{}{}
				<-r.Context().Done()
			}))
			c := l.client(http2)
			ended := make(chan error, cap(asked))
			for range cap(asked) {
				go func() {
					r, err := c.Get("https://" + labHost + "/")
					if err == nil {
						_, err = io.ReadAll(r.Body)
						r.Body.Close()
					}
					ended <- err
				}()
			}
			for range cap(asked) {
				<-asked
			}
			l.proxy.Close()
			for range cap(asked) {
				if <-ended == nil {
					t.Error("an answer was whole")
				}
			}
			if a, b := len(l.of(TypeConnected)), len(l.of(TypeClosed)); a != b {
				t.Errorf("%d connections were recorded, and %d ends", a, b)
			}
			c.CloseIdleConnections()
			s.Close()
		}()
		settle(t, goroutines, descriptors)
	})
}

// A grant that ends cuts what was let in under it.
func TestReplaceCutsExchange(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		l := newLab(t, serverRoots, inspectRule())
		l.serveTLS(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}))
		r, err := l.client(http2).Get("https://" + labHost + "/")
		if err != nil {
			t.Fatal(err)
		}
		l.proxy.Replace(compiled(t))
		if b, err := io.ReadAll(r.Body); err == nil {
			t.Errorf("read %q without an error", b)
		}
		r.Body.Close()
	})
}

func TestManyRequestsAtOnce(t *testing.T) {
	g, err := newReading(Config{})
	if err != nil {
		t.Fatal(err)
	}
	var leave func()
	for range maxExchanges {
		if leave, err = g.enter(); err != nil {
			t.Fatal(err)
		}
	}
	var refused *Refused
	if _, err := g.enter(); !errors.As(err, &refused) || refused.Class != ClassBounds {
		t.Errorf("one too many: %v", err)
	}
	leave()
	if _, err := g.enter(); err != nil {
		t.Errorf("after one left: %v", err)
	}
}

func TestPipelining(t *testing.T) {
	l := newLab(t, serverRoots, gatewayRule())
	l.serveTLS(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body); fmt.Fprint(w, r.URL.Path) }))
	c := l.tunnel("api.internal:80", true)
	var in bytes.Buffer
	for i := range 5 {
		fmt.Fprintf(&in, "POST /%d HTTP/1.1\r\nHost: api.internal\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n", i)
	}
	fmt.Fprint(&in, "GET /last HTTP/1.0\r\nHost: api.internal\r\n\r\n")
	c.Write(in.Bytes())
	var got []string
	for range 6 {
		r, err := http.ReadResponse(c.r, nil)
		got = append(got, textOf(t, r, err))
	}
	if want := []string{"ab/0", "ab/1", "ab/2", "ab/3", "ab/4", "/last"}; !slices.Equal(got, want) {
		t.Errorf("answered %q", got)
	}
	if rest := c.all(); rest != "" {
		t.Errorf("after HTTP/1.0: %q", rest)
	}
}
