package contract

import (
	"fmt"
	"io"
	"strings"
	"time"
)

const (
	runPrefix = "run_"
	// crockford is Crockford's base32 alphabet in lower case: no i, l, o, u.
	crockford = "0123456789abcdefghjkmnpqrstvwxyz"
	ulidChars = 26
)

// NewRunID makes a run's id: "run_" and a ULID (48 bits of milliseconds since
// 1970, 80 random bits) in lower-case Crockford base32, so that ids sort by
// time and are safe as a file's, a container's and a label's name. It reads ten
// bytes of random, and refuses a time that 48 bits do not hold.
func NewRunID(now time.Time, random io.Reader) (string, error) {
	ms := now.UnixMilli()
	if ms < 0 || ms >= 1<<48 {
		return "", fmt.Errorf("making run id: %s is outside the time that an id can carry", now.UTC().Format(time.RFC3339))
	}
	var id [16]byte
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	if _, err := io.ReadFull(random, id[6:]); err != nil {
		return "", fmt.Errorf("making run id: reading randomness: %w", err)
	}
	return runPrefix + base32(id), nil
}

// base32 writes 128 bits in 26 digits, the first of which carries only three.
func base32(id [16]byte) string {
	var out [ulidChars]byte
	acc, bits, next := uint(0), 2, 0 // two leading zero bits make 130
	for _, b := range id {
		acc, bits = acc<<8|uint(b), bits+8
		for bits >= 5 {
			bits -= 5
			out[next] = crockford[acc>>bits&31]
			next++
		}
		acc &= 1<<bits - 1
	}
	return string(out[:])
}

// CheckRunID refuses what [NewRunID] cannot have made.
func CheckRunID(s string) error {
	rest, ok := strings.CutPrefix(s, runPrefix)
	valid := func(b byte) bool { return strings.IndexByte(crockford, b) >= 0 }
	if !ok || len(rest) != ulidChars || !only(rest, valid) || rest[0] > '7' {
		return fmt.Errorf("is %s, want run_ and 26 lower-case digits of Crockford base32", quote(s))
	}
	return nil
}
