package ledger

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	"github.com/countersign-dev/countersign/policy/contract"
)

// MaxEnvelope bounds evidence.json, in bytes; its statement has three quarters.
const MaxEnvelope = contract.MaxDocument

// ErrUntrusted says that an envelope is signed by a key that was not given.
// Whether that signature is good is not known.
var ErrUntrusted = errors.New("signed by another key")

// Sign makes a DSSE envelope (secure-systems-lab/dsse, protocol.md and
// envelope.md, version 1) with one Ed25519 signature over the statement's
// canonical bytes. The result is canonical JSON without a final newline; it is
// the contents of evidence.json.
func Sign(s Statement, key ed25519.PrivateKey) ([]byte, error) {
	if len(key) != ed25519.PrivateKeySize {
		return nil, errors.New("signing statement: not an Ed25519 private key")
	}
	s.Predicate = s.Predicate.withoutNil()
	if err := s.check(); err != nil {
		return nil, fmt.Errorf("signing statement: %w", err)
	}
	payload, err := contract.EncodeCanonical(s)
	if err != nil {
		return nil, fmt.Errorf("signing statement: %w", err)
	}
	keyID, err := KeyID(key.Public().(ed25519.PublicKey))
	if err != nil {
		return nil, fmt.Errorf("signing statement: %w", err)
	}
	out, err := encodeEnvelope(payload, keyID, ed25519.Sign(key, dsse.PAE(PayloadType, payload)))
	if err != nil {
		return nil, fmt.Errorf("signing statement: %w", err)
	}
	if len(out) > MaxEnvelope {
		return nil, fmt.Errorf("signing statement: the envelope has %d bytes, at most %d are allowed", len(out), MaxEnvelope)
	}
	return out, nil
}

// OpenEnvelope checks an envelope against the keys that are trusted and returns
// its statement and the id of the key that signed it. An envelope has one
// spelling: another order of keys, another base64 alphabet, white space, a
// second signature, an unknown field are refused, so that no bit of it can be
// changed unseen. An envelope that names none of the keys is [ErrUntrusted].
func OpenEnvelope(envelope []byte, trusted []ed25519.PublicKey) (Statement, string, error) {
	s, keyID, err := openEnvelope(envelope, trusted)
	if err != nil {
		return Statement{}, keyID, fmt.Errorf("opening envelope: %w", err)
	}
	return s, keyID, nil
}

func openEnvelope(envelope []byte, trusted []ed25519.PublicKey) (Statement, string, error) {
	payload, keyID, sig, err := decodeEnvelope(envelope)
	if err != nil {
		return Statement{}, "", err
	}
	key, err := keyNamed(keyID, trusted)
	if err != nil {
		return Statement{}, keyID, err
	}
	if !ed25519.Verify(key, dsse.PAE(PayloadType, payload), sig) {
		return Statement{}, keyID, errors.New("the signature does not match")
	}
	var s Statement
	if err := contract.DecodeStrict(payload, &s); err != nil {
		return Statement{}, keyID, fmt.Errorf("reading statement: %v", err)
	}
	if again, err := contract.EncodeCanonical(s); err != nil || !bytes.Equal(again, payload) {
		return Statement{}, keyID, errors.New("the statement is not canonical JSON")
	}
	return s, keyID, s.check()
}

func keyNamed(keyID string, trusted []ed25519.PublicKey) (ed25519.PublicKey, error) {
	for _, key := range trusted {
		id, err := KeyID(key)
		if err != nil {
			return nil, err
		}
		if id == keyID {
			return key, nil
		}
	}
	return nil, fmt.Errorf("%w, %s", ErrUntrusted, contract.Escape(keyID))
}

func encodeEnvelope(payload []byte, keyID string, sig []byte) ([]byte, error) {
	return contract.EncodeCanonical(dsse.Envelope{
		PayloadType: PayloadType,
		Payload:     base64.StdEncoding.EncodeToString(payload),
		Signatures:  []dsse.Signature{{KeyID: keyID, Sig: base64.StdEncoding.EncodeToString(sig)}},
	})
}

// decodeEnvelope takes an envelope apart and compares it, put together again,
// with what was given.
func decodeEnvelope(envelope []byte) (payload []byte, keyID string, sig []byte, err error) {
	if len(envelope) > MaxEnvelope {
		return nil, "", nil, fmt.Errorf("larger than %d bytes", MaxEnvelope)
	}
	var e dsse.Envelope
	if err := contract.DecodeStrict(envelope, &e); err != nil {
		return nil, "", nil, fmt.Errorf("not an envelope: %v", err)
	}
	if e.PayloadType != PayloadType {
		return nil, "", nil, fmt.Errorf("payload type %q is not %s", contract.Escape(e.PayloadType), PayloadType)
	}
	if len(e.Signatures) != 1 {
		return nil, "", nil, fmt.Errorf("%d signatures, expected one", len(e.Signatures))
	}
	payload, err = e.DecodeB64Payload()
	if err != nil {
		return nil, "", nil, errors.New("the payload is not base64")
	}
	sig, err = base64.StdEncoding.DecodeString(e.Signatures[0].Sig)
	if err != nil {
		return nil, "", nil, errors.New("the signature is not base64")
	}
	again, err := encodeEnvelope(payload, e.Signatures[0].KeyID, sig)
	if err != nil || !bytes.Equal(again, envelope) {
		return nil, "", nil, errors.New("the envelope is not canonical JSON")
	}
	return payload, e.Signatures[0].KeyID, sig, nil
}
