package ledger

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"strings"
	"testing"

	intoto "github.com/in-toto/attestation/go/v1"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/countersign-dev/countersign/policy/contract"
)

func testKey(t *testing.T, fill byte) (ed25519.PrivateKey, ed25519.PublicKey) {
	t.Helper()
	key, err := GenerateKey(bytes.NewReader(bytes.Repeat([]byte{fill}, 32)))
	if err != nil {
		t.Fatal(err)
	}
	return key, key.Public().(ed25519.PublicKey)
}

func testStatement(t *testing.T) Statement {
	t.Helper()
	s, err := NewStatement(Predicate{
		RunID: "run_1",
		Exit:  Exit{State: contract.StateCompleted},
		Files: map[string]string{FilePatch: "sha256:" + strings.Repeat("ab", 32)},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func signed(t *testing.T, key ed25519.PrivateKey) []byte {
	t.Helper()
	out, err := Sign(testStatement(t), key)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestSignAndOpen(t *testing.T) {
	key, public := testKey(t, 1)
	_, other := testKey(t, 2)
	s, keyID, err := OpenEnvelope(signed(t, key), []ed25519.PublicKey{other, public})
	if err != nil {
		t.Fatal(err)
	}
	if want, _ := KeyID(public); keyID != want {
		t.Errorf("key id %s, want %s", keyID, want)
	}
	if s.Predicate.RunID != "run_1" || s.Subject[0].Digest["sha256"] != strings.Repeat("ab", 32) {
		t.Errorf("statement is %+v", s)
	}
}

func TestOpenRefusesForeignKeys(t *testing.T) {
	key, _ := testKey(t, 1)
	_, other := testKey(t, 2)
	for _, trusted := range [][]ed25519.PublicKey{nil, {other}} {
		if _, _, err := OpenEnvelope(signed(t, key), trusted); !errors.Is(err, ErrUntrusted) {
			t.Errorf("%d keys: %v, want ErrUntrusted", len(trusted), err)
		}
	}
}

func TestEveryFlippedBitOfTheEnvelopeIsFound(t *testing.T) {
	key, public := testKey(t, 1)
	good := signed(t, key)
	for i := 0; i < len(good)*8; i += 7 { // every byte, and every bit of it somewhere
		flipped := bytes.Clone(good)
		flipped[i/8] ^= 1 << (i % 8)
		if _, _, err := OpenEnvelope(flipped, []ed25519.PublicKey{public}); err == nil {
			t.Fatalf("bit %d of byte %d flipped unseen:\n%s", i%8, i/8, flipped)
		}
	}
}

func TestOpenRefusesOtherSpellings(t *testing.T) {
	key, public := testKey(t, 1)
	good := string(signed(t, key))
	var e dsse.Envelope
	if err := json.Unmarshal([]byte(good), &e); err != nil {
		t.Fatal(err)
	}
	remade := func(change func(*dsse.Envelope)) string {
		c := e
		c.Signatures = append([]dsse.Signature{}, e.Signatures...)
		change(&c)
		out, err := contract.EncodeCanonical(c)
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	payload := func(typ string, body []byte) string {
		keyID, _ := KeyID(public)
		out, err := encodeEnvelope(body, keyID, ed25519.Sign(key, dsse.PAE(typ, body)))
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	statement, _ := contract.EncodeCanonical(testStatement(t))
	for _, c := range []struct{ name, text, want string }{
		{"final newline", good + "\n", "not canonical"},
		{"white space", strings.Replace(good, "{", "{ ", 1), "not canonical"},
		{"second signature", remade(func(e *dsse.Envelope) { e.Signatures = append(e.Signatures, e.Signatures[0]) }), "2 signatures"},
		{"no signature", remade(func(e *dsse.Envelope) { e.Signatures = []dsse.Signature{} }), "0 signatures"},
		{"other payload type", remade(func(e *dsse.Envelope) { e.PayloadType = "text/plain" }), "payload type"},
		{"signature cut", remade(func(e *dsse.Envelope) { e.Signatures[0].Sig = "" }), "does not match"},
		{"signed under another type", payload("text/plain", statement), "does not match"},
		{"statement not canonical", payload(PayloadType, append([]byte(" "), statement...)), "not canonical"},
		{"statement with an unknown key", payload(PayloadType, bytes.Replace(statement, []byte(`{`), []byte(`{"A":1,`), 1)), "unknown key"},
		{"other predicate", payload(PayloadType, bytes.Replace(statement, []byte(`/run/v1`), []byte(`/run/v2`), 1)), "predicate type"},
		{"other statement type", payload(PayloadType, bytes.Replace(statement, []byte(`Statement/v1`), []byte(`Statement/v9`), 1)), "statement type"},
		{"other subject", payload(PayloadType, bytes.Replace(statement, []byte(`"name":"changes.patch"`), []byte(`"name":"other.patch"`), 1)), "subject"},
		{"empty", "", "not an envelope"},
	} {
		if _, _, err := OpenEnvelope([]byte(c.text), []ed25519.PublicKey{public}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want …%s…", c.name, err, c.want)
		}
	}
}

// TestOthersCanReadIt opens our envelope with the DSSE project's verifier and
// reads the statement with in-toto's own types.
func TestOthersCanReadIt(t *testing.T) {
	key, public := testKey(t, 1)
	keyID, _ := KeyID(public)
	verifier, err := dsse.NewEnvelopeVerifier(dsseVerifier{public, keyID})
	if err != nil {
		t.Fatal(err)
	}
	var e dsse.Envelope
	if err := json.Unmarshal(signed(t, key), &e); err != nil {
		t.Fatal(err)
	}
	_, payload, err := verifier.VerifyAndDecode(t.Context(), &e)
	if err != nil {
		t.Fatal(err)
	}
	var s intoto.Statement
	if err := protojson.Unmarshal(payload, &s); err != nil {
		t.Fatal(err)
	}
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
	if got := s.GetPredicate().GetFields()["run_id"].GetStringValue(); got != "run_1" {
		t.Errorf("in-toto reads run_id %q", got)
	}
}

func TestNewStatementNeedsThePatch(t *testing.T) {
	if _, err := NewStatement(Predicate{RunID: "r"}); err == nil {
		t.Error("a statement without its subject was made")
	}
}

func TestKeysAsPEM(t *testing.T) {
	key, public := testKey(t, 7)
	private, err := EncodePrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := ParsePrivateKey(private); err != nil || !got.Equal(key) {
		t.Errorf("private key does not come back: %v", err)
	}
	text, err := EncodePublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	_, other := testKey(t, 8)
	second, _ := EncodePublicKey(other)
	got, err := ParsePublicKeys(append(text, second...))
	if err != nil || len(got) != 2 || !got[0].Equal(public) || !got[1].Equal(other) {
		t.Errorf("public keys come back as %v, %v", got, err)
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	rsaDER, _ := x509.MarshalPKIXPublicKey(rsaKey.Public())
	for _, c := range []struct {
		name string
		text []byte
		want string
	}{
		{"empty", nil, "no PEM block"},
		{"a private key", private, "PRIVATE KEY"},
		{"RSA", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: rsaDER}), "not an Ed25519"},
		{"noise", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: []byte("x")}), "parsing"},
	} {
		if _, err := ParsePublicKeys(c.text); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want …%s…", c.name, err, c.want)
		}
	}
	for _, text := range [][]byte{nil, text, append(bytes.Clone(private), private...)} {
		if _, err := ParsePrivateKey(text); err == nil {
			t.Errorf("taken for a private key: %q", text)
		}
	}
	if _, err := GenerateKey(strings.NewReader("short")); err == nil {
		t.Error("a key was made of five bytes")
	}
}
