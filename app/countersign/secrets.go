package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/runner/redact"
)

// secretSource hands out the value behind a reference for the time of one run.
type secretSource interface {
	Lease(ctx context.Context, ref string) (secretLease, error)
}

// secretLease is one value while it may be used. Revoke ends that, at the source
// where the source can; the value is gone afterwards. It is called once.
type secretLease interface {
	Value() *redact.Secret
	Revoke(ctx context.Context) error
}

// Bounds of what one run is given. What is masked in its output costs some
// hundred times its bytes in memory.
const (
	maxSecrets     = 64
	maxSecretBytes = 64 << 10 // of one secret, and of all together
)

// revokeTime is how long sources have to take everything back.
const revokeTime = 30 * time.Second

// leases are what one run holds.
type leases struct {
	held []heldLease
}

type heldLease struct {
	name  string
	lease secretLease
}

// takeLeases leases every secret that a contract names, or none. sources are by
// the scheme of a reference. No error holds a value.
func takeLeases(ctx context.Context, c contract.Contract, sources map[string]secretSource) (*leases, error) {
	l := &leases{}
	err := l.take(ctx, c, sources)
	if err != nil {
		return nil, errors.Join(err, l.revoke(ctx))
	}
	return l, nil
}

func (l *leases) take(ctx context.Context, c contract.Contract, sources map[string]secretSource) error {
	if n := len(c.SecretRefs); n > maxSecrets {
		return fmt.Errorf("the contract has %d secrets, a run is given %d at most", n, maxSecrets)
	}
	total := 0
	var named []redact.Named
	for _, s := range c.SecretRefs {
		scheme, _, _ := strings.Cut(s.Ref, "://")
		source, ok := sources[scheme]
		if !ok {
			return fmt.Errorf("secret %s: there is no source for %s:// here, only file:// and env://", s.Name, scheme)
		}
		lease, err := source.Lease(ctx, s.Ref)
		if err != nil {
			return fmt.Errorf("secret %s: %w", s.Name, err)
		}
		l.held = append(l.held, heldLease{s.Name, lease})
		value := lease.Value().Reveal()
		if err := checkValue(value, injections(c, s.Name)); err != nil {
			return fmt.Errorf("secret %s (%s) %w", s.Name, s.Ref, err)
		}
		if total += len(value); total > maxSecretBytes {
			return fmt.Errorf("the contract's secrets have more than %d bytes together, which is what a run is given at most", maxSecretBytes)
		}
		named = append(named, redact.Named{Name: s.Name, Secret: lease.Value()})
	}
	// What cannot be masked in output is not given to what makes the output.
	_, err := redact.Compile(named...)
	return err
}

// injections are the ways in which a contract's rules inject a secret.
func injections(c contract.Contract, name string) []string {
	var as []string
	for _, r := range c.Network.Allow {
		if r.Inject != nil && r.Inject.Secret == name {
			as = append(as, r.Inject.As)
		}
	}
	return as
}

// checkValue refuses a value that could not arrive whole: an order is text, and a
// header's value has no line break, no other control character and no space
// around it (RFC 9110 §5.5).
func checkValue(value []byte, injectedAs []string) error {
	if !utf8.Valid(value) {
		return errors.New("is not UTF-8 text: store it encoded, in base64 for instance, and decode it inside")
	}
	for _, as := range injectedAs {
		if as == contract.InjectBasic {
			if !bytes.Contains(value, []byte(":")) {
				return errors.New("is injected as basic, so it must be USER:PASSWORD, and it has no colon")
			}
			continue // it goes out in base64
		}
		if bytes.ContainsFunc(value, func(r rune) bool { return r < 0x20 || r >= 0x7f }) || len(bytes.TrimSpace(value)) != len(value) {
			return errors.New("is injected as a header, which takes one line of printable ASCII without space around it")
		}
	}
	return nil
}

// values are what an order carries.
func (l *leases) values() map[string]string {
	out := map[string]string{}
	for _, h := range l.held {
		out[h.name] = string(h.lease.Value().Reveal())
	}
	return out
}

// revoke gives everything back, also when ctx is over.
func (l *leases) revoke(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), revokeTime)
	defer cancel()
	var errs []error
	for _, h := range l.held {
		if err := h.lease.Revoke(ctx); err != nil {
			errs = append(errs, fmt.Errorf("revoking the secret %s: %w; revoke it at its source", h.name, err))
		}
	}
	l.held = nil
	return errors.Join(errs...)
}
