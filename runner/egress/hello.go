package egress

import (
	"errors"
	"io"

	"github.com/countersign-dev/countersign/policy/contract"
)

// clientHello is what was read of a TLS ClientHello. Its bytes are still to be
// read from the connection.
type clientHello struct {
	serverName string // as contract.ParseHost returned it
}

// Of TLS (RFC 8446 §5.1, §4 and appendix B).
const (
	recordHandshake   = 22
	recordHeader      = 5 // bytes
	maxRecord         = 1 << 14
	handshakeHello    = 1
	handshakeHeader   = 4 // bytes
	extensionName     = 0 // server_name, RFC 6066 §3
	nameTypeHost      = 0
	helloRandom       = 32 // bytes
	maxHello          = 64 << 10
	alertAccessDenied = "\x15\x03\x03\x00\x02\x02\x31" // fatal(2), access_denied(49), RFC 8446 §6
)

// peeker shows the next n bytes of a stream without taking them.
type peeker interface {
	Peek(n int) ([]byte, error)
}

// readHello looks at a ClientHello that may lie in any number of records and
// segments, at most 64 KiB as it came. It never asks for a byte behind the
// record that ends it. An error is a *Refused (ClassMalformed, ClassBounds,
// ClassMismatch without a usable server name), or the connection's.
func readHello(c peeker) (*clientHello, error) {
	message, err := gatherHello(c)
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = malformed("the connection ended inside the TLS ClientHello")
		}
		return nil, err
	}
	return parseHello(message)
}

// gatherHello returns the one handshake message that the first records hold,
// without its header.
func gatherHello(c peeker) ([]byte, error) {
	var message []byte
	for seen := 0; ; {
		b, err := c.Peek(seen + recordHeader)
		if err != nil {
			return nil, err
		}
		b = b[seen:]
		length := int(b[3])<<8 | int(b[4])
		if b[0] != recordHandshake || b[1] != 3 || length == 0 || length > maxRecord {
			return nil, malformed("what begins like TLS is no ClientHello")
		}
		if seen += recordHeader + length; seen > maxHello {
			return nil, &Refused{ClassBounds, "the TLS ClientHello is larger than 64 KiB"}
		}
		if b, err = c.Peek(seen); err != nil {
			return nil, err
		}
		message = append(message, b[seen-length:seen]...)
		if whole, err := helloWhole(message); err != nil || whole {
			return message[min(handshakeHeader, len(message)):], err
		}
	}
}

func helloWhole(message []byte) (bool, error) {
	if message[0] != handshakeHello {
		return false, malformed("the first TLS message is no ClientHello")
	}
	if len(message) < handshakeHeader {
		return false, nil
	}
	want := handshakeHeader + (int(message[1])<<16 | int(message[2])<<8 | int(message[3]))
	if want > maxHello {
		return false, &Refused{ClassBounds, "the TLS ClientHello is larger than 64 KiB"}
	}
	if len(message) > want {
		return false, malformed("another TLS message comes with the ClientHello")
	}
	return len(message) == want, nil
}

// parseHello reads RFC 8446 §4.1.2. Values that it does not know (GREASE, an
// encrypted inner hello) are passed over; the name is the outer one.
func parseHello(message []byte) (*clientHello, error) {
	r := wire{rest: message}
	r.take(2 + helloRandom) // legacy_version, random
	r.vector(1)             // legacy_session_id
	r.vector(2)             // cipher_suites
	r.vector(1)             // legacy_compression_methods
	extensions := wire{rest: r.vector(2)}
	if !r.ended() {
		return nil, malformed("the TLS ClientHello cannot be read")
	}
	seen := make(map[int]bool)
	name := ""
	for len(extensions.rest) > 0 {
		kind, data := extensions.number(2), extensions.vector(2)
		if extensions.short || seen[kind] {
			return nil, malformed("the extensions of the TLS ClientHello cannot be read, or one comes twice")
		}
		seen[kind] = true
		if kind != extensionName {
			continue
		}
		var err error
		if name, err = parseServerName(data); err != nil {
			return nil, err
		}
	}
	if name == "" {
		return nil, &Refused{ClassMismatch, "the TLS ClientHello names no server (SNI)"}
	}
	return &clientHello{serverName: name}, nil
}

// parseServerName wants a list of one name, of type host_name.
func parseServerName(data []byte) (string, error) {
	r := wire{rest: data}
	list := wire{rest: r.vector(2)}
	kind, name := list.number(1), list.vector(2)
	if !r.ended() || !list.ended() || kind != nameTypeHost {
		return "", malformed("the TLS ClientHello does not name exactly one server")
	}
	host, err := contract.ParseHost(string(name))
	if err != nil {
		return "", &Refused{ClassMismatch, "the server name in the TLS ClientHello " + err.Error()}
	}
	return host, nil
}

// wire reads the presentation language of RFC 8446 §3. A read past the end
// yields nothing and is remembered.
type wire struct {
	rest  []byte
	short bool
}

func (w *wire) take(n int) []byte {
	if n > len(w.rest) {
		w.rest, w.short = nil, true
		return nil
	}
	b := w.rest[:n]
	w.rest = w.rest[n:]
	return b
}

// number is an unsigned one of that many bytes.
func (w *wire) number(width int) int {
	n := 0
	for _, b := range w.take(width) {
		n = n<<8 | int(b)
	}
	return n
}

// vector is what a length of that many bytes is in front of.
func (w *wire) vector(width int) []byte { return w.take(w.number(width)) }

// ended says that everything was read, and that nothing was missing.
func (w *wire) ended() bool { return !w.short && len(w.rest) == 0 }
