package redact

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
)

// shown is what a secret prints as, everywhere.
const shown = "[secret]"

// Secret is a value that prints nothing: with every verb of fmt, in JSON and
// text encodings, in slog, and as a field of a struct that is printed. Only
// [Secret.Reveal] gives it out. The zero value is an empty secret.
type Secret struct {
	// A function, because fmt prints unexported fields without asking their
	// methods, follows pointers for a verb that does not suit them, and prints
	// no more of a function than its address.
	open func() *[]byte
}

// NewSecret takes a copy; the caller may clear its own.
func NewSecret(value []byte) *Secret {
	kept := bytes.Clone(value)
	return &Secret{func() *[]byte { return &kept }}
}

// Reveal returns the value itself, not a copy. The caller must not keep it
// beyond the use it was asked for.
func (s Secret) Reveal() []byte {
	if s.open == nil {
		return nil
	}
	return *s.open()
}

// Zero overwrites the value in memory, for all copies of this Secret.
func (s Secret) Zero() {
	if s.open != nil {
		value := s.open()
		clear(*value)
		*value = nil
	}
}

// String prints nothing of the value.
func (s Secret) String() string { return shown }

// GoString prints nothing of the value.
func (s Secret) GoString() string { return shown }

// Format prints nothing of the value, whatever the verb.
func (s Secret) Format(f fmt.State, _ rune) { io.WriteString(f, shown) }

// MarshalJSON prints nothing of the value.
func (s Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + shown + `"`), nil }

// MarshalText prints nothing of the value.
func (s Secret) MarshalText() ([]byte, error) { return []byte(shown), nil }

// LogValue prints nothing of the value.
func (s Secret) LogValue() slog.Value { return slog.StringValue(shown) }

// GobEncode refuses: a secret is not stored.
func (s Secret) GobEncode() ([]byte, error) { return nil, errors.New("encoding secret: refused") }
