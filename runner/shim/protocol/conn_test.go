package protocol

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// duplex reads from one buffer and writes to another.
type duplex struct {
	io.Reader
	io.Writer
	closed bool
}

func (d *duplex) Close() error { d.closed = true; return nil }

func reading(b []byte) *Conn {
	return NewConn(&duplex{Reader: bytes.NewReader(b), Writer: io.Discard})
}

func pair(t *testing.T) (a, b *Conn) {
	t.Helper()
	x, y := net.Pipe()
	a, b = NewConn(x), NewConn(y)
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

func frame(kind byte, length uint32, body string) []byte {
	return append([]byte{kind, byte(length >> 24), byte(length >> 16), byte(length >> 8), byte(length)}, body...)
}

func TestFrameOnTheWire(t *testing.T) {
	var out bytes.Buffer
	c := NewConn(&duplex{Reader: strings.NewReader(""), Writer: &out})
	if err := c.Send(KindStop, Stop{GraceSec: 7}); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), "t\x00\x00\x00\x0f{\"grace_sec\":7}"; got != want {
		t.Errorf("frame is %q, want %q", got, want)
	}
}

func TestReceiveRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		in   []byte
		want string
	}{
		"nothing":            {nil, "EOF"},
		"half a header":      {[]byte{'H', 0}, "unexpected EOF"},
		"no body":            {frame('H', 2, ""), "unexpected EOF"},
		"half a body":        {frame('H', 2, "{"), "unexpected EOF"},
		"unknown kind":       {frame('?', 0, ""), "kind 0x3f is unknown"},
		"zero kind":          {frame(0, 0, ""), "kind 0x00 is unknown"},
		"one over the bound": {frame('d', MaxFrame+1, ""), "frame is over the bound"},
		"largest length":     {frame('d', 1<<32-1, ""), "frame is over the bound"},
	} {
		_, _, err := reading(c.in).Receive()
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
}

func TestReceiveStaysBroken(t *testing.T) {
	c := reading(append(frame('?', 0, ""), frame('b', 0, "")...))
	_, _, first := c.Receive()
	_, _, second := c.Receive()
	if first == nil || first != second {
		t.Errorf("after %v came %v; framing that was lost must stay lost", first, second)
	}
}

func TestLargestFrame(t *testing.T) {
	a, b := pair(t)
	body := bytes.Repeat([]byte{7}, MaxFrame)
	sent := make(chan error, 1)
	go func() { sent <- a.SendBytes(KindData, body) }()
	kind, got, err := b.Receive()
	if err != nil || kind != KindData || !bytes.Equal(got, body) {
		t.Fatalf("received %s of %d bytes, %v", kind, len(got), err)
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	if err := a.SendBytes(KindData, body, []byte{1}); !errors.Is(err, ErrFrameSize) {
		t.Errorf("one byte more: %v, want ErrFrameSize", err)
	}
}

func TestExpect(t *testing.T) {
	hello := `{"version":1,"pid":1,"uid":7}`
	for name, c := range map[string]struct {
		kind byte
		body string
		want string
	}{
		"right":         {'H', hello, ""},
		"other kind":    {'b', "", "bye came where hello belongs"},
		"unknown key":   {'H', `{"version":1,"pid":1,"uid":7,"extra":1}`, "unknown field"},
		"text after":    {'H', hello + "{}", "text after its end"},
		"not an object": {'H', `[]`, "decoding"},
		"failed":        {'F', `{"op":"load","message":"no\u001b[2J"}`, `could not load: "no\x1b[2J"`},
	} {
		var h Hello
		err := reading(frame(c.kind, uint32(len(c.body)), c.body)).Expect(KindHello, &h)
		switch {
		case c.want == "" && (err != nil || h.UID != 7):
			t.Errorf("%s: %+v, %v", name, h, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
	if err := reading(frame('S', 1, "x")).Expect(KindStarted, nil); err == nil {
		t.Error("a body where none belongs was taken")
	}
}

func TestStreams(t *testing.T) {
	for _, size := range []int{0, 1, chunk - 1, chunk, chunk + 1, 3*chunk + 5} {
		a, b := pair(t)
		data := bytes.Repeat([]byte("0123456789abcdef"), size/16+1)[:size]
		sent := make(chan error, 1)
		go func() {
			w := a.WriteStream()
			_, err := w.Write(data)
			sent <- errors.Join(err, w.Close(), w.Close(), a.Send(KindBye, nil))
		}()
		got, err := io.ReadAll(b.ReadStream())
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes: got %d, %v", size, len(got), err)
		}
		if err := b.Expect(KindBye, nil); err != nil {
			t.Errorf("%d bytes: after the stream: %v", size, err)
		}
		if err := <-sent; err != nil {
			t.Error(err)
		}
	}
}

func TestStreamEndsOnlyWhenClosed(t *testing.T) {
	_, err := io.ReadAll(reading(frame('d', 1, "x")).ReadStream())
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a connection that ended in a stream: %v, want unexpected EOF", err)
	}
	body := `{"op":"capture","message":"gone"}`
	_, err = io.ReadAll(reading(append(frame('d', 1, "x"), frame('F', uint32(len(body)), body)...)).ReadStream())
	var remote *RemoteError
	if !errors.As(err, &remote) || remote.Failed.Op != "capture" {
		t.Errorf("a Failed in a stream: %v", err)
	}
	if _, err = io.ReadAll(reading(frame('X', 0, "")).ReadStream()); err == nil {
		t.Error("another message passed as the end of a stream")
	}
}

func TestNothingIsReceivedWithinAStream(t *testing.T) {
	c := reading(append(frame('d', 2, "xb"), frame('b', 0, "")...))
	if n, err := c.ReadStream().Read(make([]byte, 1)); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	for range 2 {
		if kind, _, err := c.Receive(); err == nil {
			t.Errorf("received %s from within a frame", kind)
		}
	}
}

func TestDrainIsBounded(t *testing.T) {
	in := append(frame('d', 4, "four"), frame('d', 0, "")...)
	if err := Drain(reading(in).ReadStream(), 4); err != nil {
		t.Error(err)
	}
	if err := Drain(reading(in).ReadStream(), 3); err == nil {
		t.Error("more than the bound was drained")
	}
}

func TestManyWritersKeepFramesWhole(t *testing.T) {
	a, b := pair(t)
	const writers, each = 8, 50
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for range each {
				if err := a.SendOutput(Stdout, bytes.Repeat([]byte{byte('a' + w)}, 100+w)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	seen := map[byte]int{}
	for range writers * each {
		_, payload, err := b.Receive()
		if err != nil {
			t.Fatal(err)
		}
		_, data, err := ParseOutput(payload)
		if err != nil {
			t.Fatal(err)
		}
		if want := 100 + int(data[0]-'a'); len(data) != want || len(bytes.Trim(data, string(data[:1]))) != 0 {
			t.Fatalf("frames ran into each other: %q", data)
		}
		seen[data[0]]++
	}
	all.Wait()
	for w := range writers {
		if seen[byte('a'+w)] != each {
			t.Errorf("writer %d: %d frames", w, seen[byte('a'+w)])
		}
	}
}

func TestContextEndsABlockedReceive(t *testing.T) {
	a, _ := pair(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer a.CloseWhenDone(ctx)()
	cancel()
	if _, _, err := a.Receive(); err == nil {
		t.Error("received from a connection that was given up")
	}
}

func TestDeadline(t *testing.T) {
	a, _ := pair(t)
	if err := a.SetReadDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := a.Receive(); err == nil {
		t.Error("received after the deadline")
	}
	if err := reading(nil).SetDeadline(time.Time{}); !errors.Is(err, ErrNoDeadline) {
		t.Errorf("a connection without deadlines says %v", err)
	}
}

func TestParseOutput(t *testing.T) {
	for in, ok := range map[string]bool{"": false, "\x00x": false, "\x03x": false, "\x01": true, "\x02x": true} {
		if _, _, err := ParseOutput([]byte(in)); (err == nil) != ok {
			t.Errorf("%q: %v", in, err)
		}
	}
}

func TestJobValidate(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Job)
		want   string
	}{
		"fine":              {func(*Job) {}, ""},
		"no grace is fine":  {func(j *Job) { j.Stop.GraceSec = 0 }, ""},
		"empty value":       {func(j *Job) { j.Env = []string{"A="} }, ""},
		"no argv":           {func(j *Job) { j.Argv = nil }, "argv is empty"},
		"empty program":     {func(j *Job) { j.Argv = []string{"", "x"} }, "argv is empty"},
		"NUL in argument":   {func(j *Job) { j.Argv = []string{"a", "b\x00c"} }, "argument 1 holds a NUL"},
		"bytes in argument": {func(j *Job) { j.Argv = []string{"a", "\xff"} }, "argument 1 is not UTF-8"},
		"no equals sign":    {func(j *Job) { j.Env = []string{"A"} }, "not NAME=VALUE"},
		"no name":           {func(j *Job) { j.Env = []string{"=v"} }, "not NAME=VALUE"},
		"set twice":         {func(j *Job) { j.Env = []string{"A=1", "B=", "A=2"} }, `"A" is set twice`},
		"relative cwd":      {func(j *Job) { j.Cwd = "workspace" }, "not an absolute path"},
		"no timeout":        {func(j *Job) { j.Stop.TimeoutSec = 0 }, "no timeout"},
		"negative grace":    {func(j *Job) { j.Stop.GraceSec = -1 }, "negative"},
		"secret":            {func(j *Job) { j.Secrets = []SecretFile{{Name: "npm.token"}, {Name: "key"}} }, ""},
		"secret elsewhere":  {func(j *Job) { j.Secrets = []SecretFile{{Name: "../key"}} }, "name of a secret file"},
		"secret twice":      {func(j *Job) { j.Secrets = []SecretFile{{Name: "key"}, {Name: "key"}} }, `"key" is there twice`},
	} {
		j := Job{Argv: []string{"true"}, Env: []string{"A=1"}, Cwd: "/", Stop: StopRule{TimeoutSec: 1, GraceSec: 1}}
		c.change(&j)
		err := j.Validate()
		if (c.want == "") != (err == nil) || (err != nil && !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	secret := Job{Argv: []string{"true"}, Env: []string{"KEY=hunter2\x00"}, Cwd: "/", Stop: StopRule{TimeoutSec: 1}}
	if err := secret.Validate(); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a value stands in the error: %v", err)
	}
}

// A job can be printed, by mistake, without its secrets.
func TestSecretsAreNotPrinted(t *testing.T) {
	j := Job{Argv: []string{"true"}, Secrets: []SecretFile{{Name: "key", Data: []byte("hunter2")}}}
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
		text := fmt.Sprintf(format, j)
		if strings.Contains(text, "hunter2") || strings.Contains(text, "68756e74657232") || strings.Contains(text, "104 117") {
			t.Errorf("%s prints %s", format, text)
		}
	}
}

func TestNetworkValidate(t *testing.T) {
	for _, port := range []int{-1, 0, 65536} {
		if err := (Network{Ports: []int{443, port}}).Validate(); err == nil {
			t.Errorf("port %d passes", port)
		}
	}
	if err := (Network{Ports: []int{1, 65535}}).Validate(); err != nil {
		t.Error(err)
	}
}

// Whatever bytes come, a Conn yields frames whose sizes add up to no more than
// what came, or an error, and never panics; and what it yields frames again to
// the same bytes.
func FuzzReceive(f *testing.F) {
	f.Add(frame('H', 29, `{"version":1,"pid":1,"uid":7}`))
	f.Add(append(frame('d', 3, "abc"), frame('d', 0, "")...))
	f.Add(frame('O', 2, "\x01x"))
	f.Add(frame('X', 1<<31, ""))
	f.Add([]byte{'F', 0, 0})
	f.Fuzz(func(t *testing.T, in []byte) {
		c := reading(in)
		var again bytes.Buffer
		out := NewConn(&duplex{Reader: strings.NewReader(""), Writer: &again})
		for {
			kind, payload, err := c.Receive()
			if err != nil {
				break
			}
			if err := out.SendBytes(kind, payload); err != nil {
				t.Fatal(err)
			}
			var x Exited
			_ = Decode(payload, &x)
		}
		if !bytes.HasPrefix(in, again.Bytes()) {
			t.Errorf("%q was read as %q", in, again.Bytes())
		}
		_, _ = io.Copy(io.Discard, reading(in).ReadStream())
	})
}

func TestCallsAreDistinct(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range Calls() {
		if seen[c.Name] || len(c.Refused) == 0 {
			t.Errorf("%q stands twice or is never refused", c.Name)
		}
		seen[c.Name] = true
	}
}

func ExampleKind_String() {
	fmt.Println(KindStop, Kind('?'))
	// Output: stop unknown (0x3f)
}
