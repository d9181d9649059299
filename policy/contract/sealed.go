package contract

import (
	"bytes"
	"fmt"
)

// Sealed is a contract that keeps every rule of this package, with its bytes
// and its digest. Only [Seal], [Open] and [Revise] make one, and nothing
// changes it afterwards. The zero Sealed holds no contract: its digest is "" and
// no code may run it (see IsZero).
type Sealed struct {
	contract Contract
	bytes    string
	digest   string
}

// Seal validates c and fixes it. The level that c claims must be what [LevelOf]
// computes. Rules that c breaks come as an [*InvalidError]; c is not kept.
func Seal(c Contract) (Sealed, error) {
	c = clone(c)
	b, err := Encode(c)
	if err != nil {
		return Sealed{}, fmt.Errorf("sealing contract: %w", err)
	}
	return Sealed{contract: c, bytes: string(b), digest: DigestBytes(b)}, nil
}

// Open reads a sealed contract from exactly the bytes that Seal wrote. The same
// contract in another layout is refused: it would have another digest.
func Open(data []byte) (Sealed, error) {
	c, err := Decode[Contract](data)
	if err != nil {
		return Sealed{}, fmt.Errorf("opening contract: %w", err)
	}
	s, err := Seal(c)
	if err != nil {
		return Sealed{}, fmt.Errorf("opening contract: %w", err)
	}
	if at := firstDifference(data, []byte(s.bytes)); at >= 0 {
		return Sealed{}, fmt.Errorf("opening contract: %w", Fault{"", fmt.Sprintf(
			"is a contract, but not in its canonical bytes (RFC 8785), which differ from byte %d", at)})
	}
	return s, nil
}

// firstDifference is the first byte where a and b differ, -1 if none.
func firstDifference(a, b []byte) int {
	if bytes.Equal(a, b) {
		return -1
	}
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// IsZero says that s holds no contract.
func (s Sealed) IsZero() bool { return s.digest == "" }

// Contract is a copy of what was sealed; changing it changes nothing in s.
func (s Sealed) Contract() Contract { return clone(s.contract) }

// Digest names the contract: the SHA-256 of Bytes, "sha256:…".
func (s Sealed) Digest() string { return s.digest }

// Bytes is a copy of the canonical encoding.
func (s Sealed) Bytes() []byte { return []byte(s.bytes) }
