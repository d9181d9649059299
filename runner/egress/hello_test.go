package egress

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// bytesPeeker is a stream that is there already.
type bytesPeeker struct {
	b    []byte
	most int // that was asked for
}

func (p *bytesPeeker) Peek(n int) ([]byte, error) {
	p.most = max(p.most, n)
	if n > len(p.b) {
		return p.b, io.EOF
	}
	return p.b[:n], nil
}

// helloOf is what Go's client sends first.
func helloOf(t testing.TB, config *tls.Config) []byte {
	t.Helper()
	var sent bytes.Buffer
	c := tls.Client(onlyWrites{&sent}, config)
	if err := c.Handshake(); !errors.Is(err, io.EOF) {
		t.Fatalf("the client ended with %v", err)
	}
	return sent.Bytes()
}

// onlyWrites is a connection whose other side says nothing and has ended.
type onlyWrites struct{ io.Writer }

func (onlyWrites) Read([]byte) (int, error)         { return 0, io.EOF }
func (onlyWrites) Close() error                     { return nil }
func (onlyWrites) LocalAddr() net.Addr              { return nil }
func (onlyWrites) RemoteAddr() net.Addr             { return nil }
func (onlyWrites) SetDeadline(time.Time) error      { return nil }
func (onlyWrites) SetReadDeadline(time.Time) error  { return nil }
func (onlyWrites) SetWriteDeadline(time.Time) error { return nil }

// recordsOf puts a handshake message into records of at most size bytes.
func recordsOf(message []byte, size int) []byte {
	var out []byte
	for len(message) > 0 {
		n := min(size, len(message))
		out = append(out, recordHandshake, 3, 1)
		out = binary.BigEndian.AppendUint16(out, uint16(n))
		out = append(out, message[:n]...)
		message = message[n:]
	}
	return out
}

// extension and helloWith build a ClientHello by hand.
func extension(kind uint16, data []byte) []byte {
	out := binary.BigEndian.AppendUint16(nil, kind)
	out = binary.BigEndian.AppendUint16(out, uint16(len(data)))
	return append(out, data...)
}

type serverName struct {
	kind byte
	name string
}

func serverNames(names ...serverName) []byte {
	var list []byte
	for _, n := range names {
		list = append(list, n.kind)
		list = binary.BigEndian.AppendUint16(list, uint16(len(n.name)))
		list = append(list, n.name...)
	}
	return extension(extensionName, append(binary.BigEndian.AppendUint16(nil, uint16(len(list))), list...))
}

func helloWith(extensions ...[]byte) []byte {
	body := append([]byte{3, 3}, make([]byte, helloRandom)...)
	body = append(body, 0)                // session
	body = append(body, 0, 2, 0x13, 0x01) // suites
	body = append(body, 1, 0)             // compression
	all := bytes.Join(extensions, nil)
	body = binary.BigEndian.AppendUint16(body, uint16(len(all)))
	body = append(body, all...)
	return append([]byte{handshakeHello, byte(len(body) >> 16), byte(len(body) >> 8), byte(len(body))}, body...)
}

func TestReadHello(t *testing.T) {
	name := serverName{nameTypeHost, "a.example"}
	whole := recordsOf(helloWith(serverNames(name)), maxRecord)
	big := extension(0x4a4a, make([]byte, 40<<10))
	for _, c := range []struct {
		what, want string
		sent       []byte
	}{
		{"one record", "a.example", whole},
		{"a record for each byte", "a.example", recordsOf(helloWith(serverNames(name)), 1)},
		{"upper case", "a.example", recordsOf(helloWith(serverNames(serverName{0, "A.Example"})), 99)},
		{"GREASE around it", "a.example", recordsOf(helloWith(extension(0x1a1a, nil), serverNames(name), extension(0xfafa, []byte{0})), 99)},
		{"40 KiB of it", "a.example", recordsOf(helloWith(big, serverNames(name)), maxRecord)},
		{"data of another kind behind it", "a.example", append(bytes.Clone(whole), 23, 3, 3, 0, 1, 7)},
		{"more than 64 KiB", "bounds", recordsOf(helloWith(big, extension(0x5a5a, make([]byte, 24<<10)), serverNames(name)), maxRecord)},
		{"more than 64 KiB in headers", "bounds", recordsOf(helloWith(extension(0x4a4a, make([]byte, 12<<10)), serverNames(name)), 1)},
		{"a length past the bound", "bounds", []byte{22, 3, 1, 0, 4, 1, 255, 255, 255}},
		{"no name", "name_mismatch", recordsOf(helloWith(extension(0x1a1a, nil)), 99)},
		{"no extensions", "name_mismatch", recordsOf(helloWith(), 99)},
		{"an empty name", "name_mismatch", recordsOf(helloWith(serverNames(serverName{0, ""})), 99)},
		{"an address for a name", "name_mismatch", recordsOf(helloWith(serverNames(serverName{0, "127.0.0.1"})), 99)},
		{"a trailing dot", "name_mismatch", recordsOf(helloWith(serverNames(serverName{0, "a.example."})), 99)},
		{"NUL in the name", "name_mismatch", recordsOf(helloWith(serverNames(serverName{0, "a.example\x00.b.example"})), 99)},
		{"two names", "malformed", recordsOf(helloWith(serverNames(name, name)), 99)},
		{"another kind of name", "malformed", recordsOf(helloWith(serverNames(serverName{1, "a.example"})), 99)},
		{"a name of each kind", "malformed", recordsOf(helloWith(serverNames(name, serverName{1, "b.example"})), 99)},
		{"an empty list", "malformed", recordsOf(helloWith(serverNames()), 99)},
		{"the extension twice", "malformed", recordsOf(helloWith(serverNames(name), serverNames(name)), 99)},
		{"another extension twice", "malformed", recordsOf(helloWith(serverNames(name), extension(5, nil), extension(5, nil)), 99)},
		{"bytes behind the list", "malformed", recordsOf(helloWith(extension(0, append(serverNames(name)[4:], 0))), 99)},
		{"bytes behind the extensions", "malformed", recordsOf(helloAndMore(helloWith(serverNames(name)), 3), 99)},
		{"a list that is cut", "malformed", recordsOf(helloWith(serverNames(name)[:8]), 99)},
		{"another message in the record", "malformed", recordsOf(append(helloWith(serverNames(name)), 1, 0, 0, 0), 999)},
		{"another message first", "malformed", recordsOf([]byte{2, 0, 0, 1, 0}, 99)},
		{"an empty record", "malformed", append([]byte{22, 3, 1, 0, 0}, whole...)},
		{"a record that is too long", "malformed", []byte{22, 3, 1, 0x40, 1}},
		{"an alert between the records", "malformed", append(recordsOf(helloWith(serverNames(name)), 20)[:25], 21, 3, 1, 0, 2, 1, 0)},
		{"SSL 2", "malformed", []byte{0x80, 0x2e, 1, 3, 1, 0, 0}},
		{"another version", "malformed", []byte{22, 4, 1, 0, 5}},
		{"cut in a header", "malformed", whole[:3]},
		{"cut in a record", "malformed", whole[:20]},
	} {
		hello, err := readHello(&bytesPeeker{b: c.sent})
		got := ""
		if err != nil {
			got = verdictOf(err)
		} else {
			got = hello.serverName
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s (%v)", c.what, got, c.want, err)
		}
	}
}

// What comes behind the hello in its record is refused at once, not waited past.
func TestReadHelloAsksForNoMore(t *testing.T) {
	sent := recordsOf(append(helloWith(serverNames(serverName{0, "a.example"})), 1, 0, 0, 0), 999)
	p := &bytesPeeker{b: append(bytes.Clone(sent), sent...)}
	if _, err := readHello(p); err == nil || p.most > len(sent) {
		t.Errorf("byte %d of %d was asked for: %v", p.most, len(sent), err)
	}
}

// helloAndMore lengthens a hello by n bytes that no field claims.
func helloAndMore(hello []byte, n int) []byte {
	out := append(bytes.Clone(hello), make([]byte, n)...)
	length := len(out) - handshakeHeader
	out[1], out[2], out[3] = byte(length>>16), byte(length>>8), byte(length)
	return out
}

func TestReadHelloOfGo(t *testing.T) {
	for _, config := range []*tls.Config{
		{ServerName: "a.example", NextProtos: []string{"h2", "http/1.1"}},
		{ServerName: "a.example", MaxVersion: tls.VersionTLS12},
	} {
		sent := helloOf(t, config)
		p := &bytesPeeker{b: append(bytes.Clone(sent), "early data"...)}
		hello, err := readHello(p)
		if err != nil || hello.serverName != "a.example" {
			t.Errorf("%v, %v", hello, err)
		}
		if p.most > len(sent) {
			t.Errorf("byte %d was asked for, the hello has %d", p.most, len(sent))
		}
	}
}

// A hello that comes a byte at a time is read, and read again by who comes next.
func TestPeekedReadsAgain(t *testing.T) {
	sent := helloOf(t, &tls.Config{ServerName: "a.example"})
	c := &peeked{Conn: readsFrom{onlyWrites{}, iotest.OneByteReader(bytes.NewReader(append(bytes.Clone(sent), "rest"...)))}}
	if hello, err := readHello(c); err != nil || hello.serverName != "a.example" {
		t.Fatalf("%v, %v", hello, err)
	}
	if again, err := io.ReadAll(c); err != nil || string(again) != string(sent)+"rest" {
		t.Errorf("%d bytes were read again, want %d (%v)", len(again), len(sent)+4, err)
	}
}

type readsFrom struct {
	onlyWrites
	io.Reader
}

func (r readsFrom) Read(b []byte) (int, error) { return r.Reader.Read(b) }

// goName is the server name that crypto/tls reads from the same bytes; ok says
// that it read a hello at all.
func goName(sent []byte) (name string, ok bool) {
	stop := errors.New("read")
	server := tls.Server(readsFrom{onlyWrites{io.Discard}, bytes.NewReader(sent)}, &tls.Config{
		MinVersion: tls.VersionTLS10,
		GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			name, ok = h.ServerName, true
			return nil, stop
		},
	})
	server.HandshakeContext(context.Background())
	return name, ok
}

// FuzzClientHello: a name that is read is the one that crypto/tls reads, and no
// byte behind the hello's records is asked for.
func FuzzClientHello(f *testing.F) {
	for _, sent := range [][]byte{
		helloOf(f, &tls.Config{ServerName: "a.example", NextProtos: []string{"h2"}}),
		helloOf(f, &tls.Config{ServerName: "a.example", MaxVersion: tls.VersionTLS12}),
		recordsOf(helloWith(serverNames(serverName{0, "a.example"})), 7),
		recordsOf(helloWith(serverNames(serverName{0, "a.example"}, serverName{0, "b.example"})), 99),
		{0x80, 0x2e, 1, 3, 1},
	} {
		f.Add(sent)
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		p := &bytesPeeker{b: sent}
		hello, err := readHello(p)
		if p.most > maxHello+recordHeader {
			t.Fatalf("byte %d was asked for", p.most)
		}
		if err != nil {
			return
		}
		if p.most > len(sent) {
			t.Fatalf("byte %d was asked for, there are %d", p.most, len(sent))
		}
		if theirs, ok := goName(sent); ok && strings.ToLower(theirs) != hello.serverName {
			t.Fatalf("we read %q, crypto/tls %q", hello.serverName, theirs)
		}
	})
}
