package egress

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"sync"
	"time"
)

// maxLeaves bounds the certificates that are kept; a wildcard rule lets the
// sandbox think of any number of names. Past it they are made anew.
const maxLeaves = 256

// skew is how far the clock inside may be behind.
const skew = 5 * time.Minute

// Authority is one run's certificate authority, trusted inside its sandbox
// only. Its key never leaves the process and is never written. It has no name
// constraints (RFC 5280 §4.2.1.10): a later revision of the contract may inspect
// more hosts. Its methods may be used by many goroutines.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	leaf *ecdsa.PrivateKey // of every host's certificate

	mu     sync.Mutex
	leaves map[string]*tls.Certificate
}

// NewAuthority makes the authority of the run of that id, valid from now for
// life, which is the time that the run has at most.
func NewAuthority(runID string, now time.Time, life time.Duration) (*Authority, error) {
	if life <= 0 {
		return nil, fmt.Errorf("making the run's certificate authority: it would be valid for %v", life)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the run's certificate authority: %v", err)
	}
	leaf, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the run's certificate authority: %v", err)
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "countersign run " + runID},
		NotBefore:             now.Add(-skew),
		NotAfter:              now.Add(life + skew),
		KeyUsage:              x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	cert, err := sign(template, template, key, key)
	if err != nil {
		return nil, fmt.Errorf("making the run's certificate authority: %v", err)
	}
	return &Authority{cert: cert, key: key, leaf: leaf, leaves: make(map[string]*tls.Certificate)}, nil
}

// PEM is the certificate to be trusted inside the sandbox.
func (a *Authority) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// certificate is the one to show for host, a name as contract.ParseHost
// returned it.
func (a *Authority) certificate(host string) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.leaves[host]; c != nil {
		return c, nil
	}
	template := &x509.Certificate{
		// A common name has at most 64 characters (RFC 5280 appendix A.1), a host
		// name more; clients read the alternative name.
		Subject:               pkix.Name{CommonName: "countersign inspection"},
		DNSNames:              []string{host},
		NotBefore:             a.cert.NotBefore,
		NotAfter:              a.cert.NotAfter,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	cert, err := sign(template, a.cert, a.leaf, a.key)
	if err != nil {
		return nil, fmt.Errorf("making a certificate for %s: %v", host, err)
	}
	if len(a.leaves) >= maxLeaves {
		clear(a.leaves)
	}
	c := &tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: a.leaf, Leaf: cert}
	a.leaves[host] = c
	return c, nil
}

func sign(template, parent *x509.Certificate, subject, issuer *ecdsa.PrivateKey) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	point, err := subject.PublicKey.Bytes()
	if err != nil {
		return nil, err
	}
	id := sha256.Sum256(point)
	template.SerialNumber, template.SubjectKeyId = serial, id[:20]
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &subject.PublicKey, issuer)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}
