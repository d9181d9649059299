package redact

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
)

// MinSecret is the shortest secret, in bytes, that can be masked: a shorter one
// would mask half of any text, or not be one.
const MinSecret = 6

// Named is a secret with its name, which only errors mention.
type Named struct {
	Name   string
	Secret *Secret
}

// TooShort says that a secret cannot be masked.
type TooShort struct {
	Name  string
	Bytes int
}

func (e *TooShort) Error() string {
	return fmt.Sprintf("secret %q has %d bytes without the space around it, fewer than %d: it cannot be masked in output; use a longer one", e.Name, e.Bytes, MinSecret)
}

// Matcher finds secrets. It holds their spellings in memory; it never changes
// and may be used by many goroutines.
type Matcher struct {
	auto *automaton // nil without secrets
	skip filter
	mask []byte
}

// Compile makes a matcher of the secrets, each without the white space around
// it. Masked are: the bytes themselves; lines of at least 16 bytes of one that
// has several; hexadecimal in both cases; base64 and base64url, padded or not,
// at each alignment, also broken at 64 or 76 characters; the usual
// percent-encodings; the usual JSON escapes. A secret under [MinSecret] bytes is
// a [*TooShort].
func Compile(secrets ...Named) (*Matcher, error) {
	var patterns [][]byte
	for _, s := range secrets {
		if s.Secret == nil {
			return nil, &TooShort{s.Name, 0}
		}
		value := bytes.TrimSpace(s.Secret.Reveal())
		if len(value) < MinSecret {
			return nil, &TooShort{s.Name, len(value)}
		}
		patterns = append(patterns, forms(value)...)
	}
	m := &Matcher{}
	if len(patterns) == 0 {
		return m, nil
	}
	mask, err := chooseMask(patterns)
	if err != nil {
		return nil, err
	}
	m.auto, m.skip, m.mask = newAutomaton(patterns), newFilter(patterns), mask
	return m, nil
}

// chooseMask takes a mask that can be no part of a secret: text next to it must
// never make up one together with it.
func chooseMask(patterns [][]byte) ([]byte, error) {
	for _, mask := range []string{"***", "[redacted]", "###", "•••", "\x1a\x1a", "{{masked}}"} {
		if clean([]byte(mask), patterns) {
			return []byte(mask), nil
		}
	}
	return nil, fmt.Errorf("compiling secrets: together they contain every mask there is; use secrets without *, #, [ and {")
}

func clean(mask []byte, patterns [][]byte) bool {
	for _, p := range patterns {
		if bytes.Contains(p, mask) || bytes.Contains(mask, p) {
			return false
		}
		for i := 1; i < len(mask); i++ {
			if bytes.HasSuffix(p, mask[:i]) || bytes.HasPrefix(p, mask[i:]) {
				return false
			}
		}
	}
	return true
}

// filter says quickly that no pattern starts at any of the next few bytes: it
// looks at the four bytes that each of those patterns would have to contain.
// Wu, Manber: A fast algorithm for multi-pattern searching, 1994, in spirit.
type filter struct {
	bits   []uint64
	stride int // how many starts one look covers
}

const (
	gram       = 4
	filterBits = 18
	maxStride  = 12
)

func newFilter(patterns [][]byte) filter {
	shortest := len(patterns[0])
	for _, p := range patterns {
		shortest = min(shortest, len(p))
	}
	f := filter{make([]uint64, 1<<filterBits/64), min(shortest-gram+1, maxStride)}
	for _, p := range patterns {
		for i := range f.stride {
			h := hashGram(p[i:])
			f.bits[h/64] |= 1 << (h % 64)
		}
	}
	return f
}

func hashGram(b []byte) uint32 {
	return binary.LittleEndian.Uint32(b) * 0x9e3779b1 >> (32 - filterBits)
}

// pass returns the first place from p on where a pattern may start within the
// stride, or where fewer bytes are left than a look needs; ok tells which.
func (f *filter) pass(b []byte, p int) (at int, ok bool) {
	s := f.stride
	for ; p+s-1+gram <= len(b); p += s {
		h := hashGram(b[p+s-1:])
		if f.bits[h/64]&(1<<(h%64)) != 0 {
			return p, true
		}
	}
	return p, false
}

// Writer makes a redactor in front of w.
func (m *Matcher) Writer(w io.Writer) *Redactor { return &Redactor{m: m, w: w} }

// Mask returns b with every secret masked.
func (m *Matcher) Mask(b []byte) []byte {
	var out bytes.Buffer
	r := m.Writer(&out)
	r.Write(b) // a bytes.Buffer takes everything
	r.Close()
	return out.Bytes()
}
