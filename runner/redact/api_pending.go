// Package redact keeps secrets out of what is written: a value that prints
// nothing, and writers that mask and bound a stream.
package redact

import (
	"errors"
	"io"
)

var errPending = errors.New("not landed yet")

// Secret is a value that prints nothing, however it is printed.
type Secret struct{ value []byte }

func NewSecret(value []byte) *Secret { return &Secret{append([]byte(nil), value...)} }
func (s *Secret) Reveal() []byte     { return s.value }
func (s *Secret) Zero()              { clear(s.value) }
func (s *Secret) String() string     { return "[secret]" }

// MinSecret is the shortest secret, in bytes, that can be masked.
const MinSecret = 6

// Named is a secret with the name that replaces it in output.
type Named struct {
	Name   string
	Secret *Secret
}

// Matcher is compiled once and may make any number of Redactors.
type Matcher struct{}

func Compile(secrets ...Named) (*Matcher, error) { return nil, errPending }
func (m *Matcher) Writer(w io.Writer) *Redactor  { return nil }
func (m *Matcher) Mask(b []byte) []byte          { return b }

type Redactor struct{}

func (r *Redactor) Write(p []byte) (int, error) { return 0, errPending }
func (r *Redactor) Flush() error                { return errPending }
func (r *Redactor) Close() error                { return errPending } // flushes, does not close w
func (r *Redactor) Masked() int64               { return 0 }

type Bounded struct{}

func NewBounded(w io.Writer, n int64) *Bounded { return nil }
func (b *Bounded) Write(p []byte) (int, error) { return 0, errPending }
func (b *Bounded) Close() error                { return errPending } // writes the line that says how much was cut
func (b *Bounded) Cut() int64                  { return 0 }
