package egress

import (
	"crypto/x509"
	"fmt"
	"strconv"

	"github.com/countersign-dev/countersign/runner/redact"
)

// maxExchanges is how many requests of a run may be under way at once: HTTP/2
// puts many on one connection, and each may hold streamWindow of an answer.
const maxExchanges = 512

// reading is what the reading of requests needs for the whole run.
type reading struct {
	roots       *x509.CertPool // nil: the system's
	credentials map[string]redact.Secret
	// all finds every secret of the run, injected those that are never inside
	// the sandbox. Without secrets they are nil.
	all, injected *redact.Matcher
	places        chan struct{}
}

// newReading refuses what could not be kept: a secret too short to be found, a
// credential that no header can carry.
func newReading(cfg Config) (*reading, error) {
	g := &reading{roots: cfg.Roots, credentials: cfg.Credentials, places: make(chan struct{}, maxExchanges)}
	var injected []redact.Named
	for name, s := range cfg.Credentials {
		if err := checkCredential(s); err != nil {
			return nil, fmt.Errorf("taking the credential %q: %v", name, err)
		}
		injected = append(injected, redact.Named{Name: name, Secret: &s})
	}
	all := injected
	for i, s := range cfg.Secrets {
		all = append(all, redact.Named{Name: "number " + strconv.Itoa(i+1), Secret: &s})
	}
	var err error
	if g.injected, err = compileSecrets(injected); err != nil {
		return nil, err
	}
	g.all, err = compileSecrets(all)
	return g, err
}

func compileSecrets(secrets []redact.Named) (*redact.Matcher, error) {
	if len(secrets) == 0 {
		return nil, nil
	}
	return redact.Compile(secrets...)
}

// enter takes one of the places of requests under way; leave gives it back.
func (g *reading) enter() (leave func(), err error) {
	select {
	case g.places <- struct{}{}:
		return func() { <-g.places }, nil
	default:
		return nil, &Refused{ClassBounds, fmt.Sprintf("%d requests are under way, which is the bound", maxExchanges)}
	}
}
