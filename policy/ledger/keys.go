package ledger

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"

	"github.com/countersign-dev/countersign/policy/contract"
)

// PEM block types: PKCS #8 (RFC 5958) and SubjectPublicKeyInfo (RFC 5280), as
// RFC 8410 fills them for Ed25519.
const (
	pemPrivate = "PRIVATE KEY"
	pemPublic  = "PUBLIC KEY"
)

// maxTrusted bounds the public keys of one file.
const maxTrusted = 100

// GenerateKey makes an Ed25519 key from 32 bytes of random.
func GenerateKey(random io.Reader) (ed25519.PrivateKey, error) {
	seed := make([]byte, ed25519.SeedSize)
	if _, err := io.ReadFull(random, seed); err != nil {
		return nil, fmt.Errorf("generating key: %w", err)
	}
	return ed25519.NewKeyFromSeed(seed), nil
}

// KeyID names a public key: the SHA-256 digest of its SubjectPublicKeyInfo.
func KeyID(key ed25519.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil || len(key) != ed25519.PublicKeySize {
		return "", errors.New("naming key: not an Ed25519 public key")
	}
	return contract.DigestBytes(der), nil
}

// EncodePrivateKey writes a private key as PEM.
func EncodePrivateKey(key ed25519.PrivateKey) ([]byte, error) {
	if len(key) != ed25519.PrivateKeySize {
		return nil, errors.New("encoding key: not an Ed25519 private key")
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding key: %v", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemPrivate, Bytes: der}), nil
}

// ParsePrivateKey reads one private key from PEM. Its errors never hold any of
// the text.
func ParsePrivateKey(text []byte) (ed25519.PrivateKey, error) {
	block, rest := pem.Decode(text)
	if block == nil || block.Type != pemPrivate || len(rest) > 0 {
		return nil, errors.New("parsing private key: not one PEM block of type " + pemPrivate)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New("parsing private key: not PKCS #8")
	}
	private, ok := key.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("parsing private key: %T is not an Ed25519 key", key)
	}
	return private, nil
}

// EncodePublicKey writes a public key as PEM.
func EncodePublicKey(key ed25519.PublicKey) ([]byte, error) {
	if len(key) != ed25519.PublicKeySize {
		return nil, errors.New("encoding key: not an Ed25519 public key")
	}
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding key: %v", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemPublic, Bytes: der}), nil
}

// ParsePublicKeys reads one or more public keys from PEM blocks that follow one
// another. A private key among them is refused: it does not belong there.
func ParsePublicKeys(text []byte) ([]ed25519.PublicKey, error) {
	var keys []ed25519.PublicKey
	for {
		block, rest := pem.Decode(text)
		switch {
		case block == nil && len(keys) > 0:
			return keys, nil
		case block == nil:
			return nil, errors.New("parsing public key: no PEM block of type " + pemPublic)
		case block.Type != pemPublic:
			return nil, fmt.Errorf("parsing public key: found a PEM block of type %q, expected %s", contract.Escape(block.Type), pemPublic)
		case len(keys) == maxTrusted:
			return nil, fmt.Errorf("parsing public key: more than %d keys", maxTrusted)
		}
		key, err := x509.ParsePKIXPublicKey(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("parsing public key: %v", err)
		}
		public, ok := key.(ed25519.PublicKey)
		if !ok {
			return nil, fmt.Errorf("parsing public key: %T is not an Ed25519 key", key)
		}
		keys, text = append(keys, public), rest
	}
}
