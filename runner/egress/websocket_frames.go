package egress

import (
	"encoding/binary"

	"github.com/countersign-dev/countersign/runner/redact"
)

// frames follows a client's WebSocket frames (RFC 6455 §5.2), which are masked,
// and looks into what they carry.
type frames struct {
	head    []byte // of the frame that begins, not whole yet
	left    uint64 // bytes of its payload to come
	key     [4]byte
	at      int // in the key
	control bool
	// A control frame may stand between two parts of one message.
	messages, controls *scan
	plain              [512]byte
}

// newFrames returns nil when there is nothing to look for.
func newFrames(texts []string, secrets *redact.Matcher) *frames {
	if s := newScan(texts, secrets); s != nil {
		return &frames{messages: s, controls: newScan(texts, secrets)}
	}
	return nil
}

// check follows the stream's next bytes. What it refuses must not be sent.
func (f *frames) check(p []byte) error {
	for len(p) > 0 {
		if f.left == 0 {
			n, err := f.begin(p)
			if err != nil {
				return err
			}
			p = p[n:]
			continue
		}
		part := p[:min(uint64(len(p)), f.left, uint64(len(f.plain)))]
		for i, b := range part {
			f.plain[i] = b ^ f.key[f.at%4]
			f.at++
		}
		look := f.messages
		if f.control {
			look = f.controls
		}
		if err := look.check(f.plain[:len(part)]); err != nil {
			return err
		}
		f.left -= uint64(len(part))
		p = p[len(part):]
	}
	return nil
}

// begin takes bytes of a frame's head, and says how many.
func (f *frames) begin(p []byte) (n int, err error) {
	for _, b := range p {
		f.head = append(f.head, b)
		n++
		if len(f.head) < 2 {
			continue
		}
		if f.head[0]&reservedBits != 0 || f.head[1]&maskBit == 0 {
			return n, malformed("a WebSocket frame is not masked, or uses an extension that was not agreed on")
		}
		if len(f.head) == frameHead(f.head[1]) {
			f.parse()
			f.head = f.head[:0]
			return n, nil
		}
	}
	return n, nil
}

// Bits of a frame's first two bytes.
const (
	reservedBits = 0x70
	maskBit      = 0x80
)

// frameHead is the size of a masked frame's head by its second byte.
func frameHead(b byte) int {
	switch b & 0x7f {
	case 126:
		return 2 + 2 + 4
	case 127:
		return 2 + 8 + 4
	}
	return 2 + 4
}

func (f *frames) parse() {
	f.control = f.head[0]&8 != 0
	switch rest := f.head[2:]; f.head[1] &^ maskBit {
	case 126:
		f.left = uint64(binary.BigEndian.Uint16(rest))
	case 127:
		f.left = binary.BigEndian.Uint64(rest)
	default:
		f.left = uint64(f.head[1] &^ maskBit)
	}
	copy(f.key[:], f.head[len(f.head)-4:])
	f.at = 0
}
