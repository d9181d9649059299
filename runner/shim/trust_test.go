package shim

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"software.sslmate.com/src/go-pkcs12"
)

// certificate makes one that signs itself.
func certificate(t *testing.T, name string, authority bool) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: authority, BasicConstraintsValid: true,
		NotBefore: time.Unix(1700000000, 0), NotAfter: time.Unix(2500000000, 0),
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: der}))
}

func TestPlaceTrust(t *testing.T) {
	ca, system := certificate(t, "run", true), certificate(t, "system", true)
	odd := string(pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: []byte("not DER")}))
	for name, c := range map[string]struct {
		roots string // of the image
		want  []string
	}{
		"beside the image's":      {"# a remark\n" + system, []string{"system", "run"}},
		"no newline at the end":   {strings.TrimRight(system, "\n"), []string{"system", "run"}},
		"an image without roots":  {"", []string{"run"}},
		"one that Go cannot read": {odd + system, []string{"system", "run"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			place := filepath.Join(dir, "roots.crt")
			if c.roots != "" {
				if err := os.WriteFile(place, []byte(c.roots), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			home := filepath.Join(dir, "home")
			if err := os.Mkdir(home, 0o700); err != nil {
				t.Fatal(err)
			}
			env, err := placeTrust(home, ca, []string{filepath.Join(dir, "none"), place})
			if err != nil {
				t.Fatal(err)
			}
			roots := fileOf(t, env["SSL_CERT_FILE"])
			if got := names509(parseRoots(roots)); !slices.Equal(got, c.want) {
				t.Errorf("roots are %q, want %q", got, c.want)
			}
			if c.roots != "" && !bytes.HasPrefix(roots, []byte(c.roots)) {
				t.Error("the image's own roots were changed")
			}
			if got := names509(parseRoots(fileOf(t, env["NODE_EXTRA_CA_CERTS"]))); !slices.Equal(got, []string{"run"}) {
				t.Errorf("what Node adds is %q", got)
			}
			store, err := pkcs12.DecodeTrustStore(fileOf(t, javaOption(t, env, "trustStore")), javaOption(t, env, "trustStorePassword"))
			if err != nil || !slices.Equal(names509(store), c.want) {
				t.Errorf("Java's store has %q, %v", names509(store), err)
			}
			if text := fileOf(t, env["WGETRC"]); string(text) != "ca_certificate = "+env["SSL_CERT_FILE"]+"\n" {
				t.Errorf("wget is told %q", text)
			}
			for name, value := range env {
				if name != "JAVA_TOOL_OPTIONS" {
					fileOf(t, value)
				}
			}
			if _, err := placeTrust(home, ca, nil); err == nil {
				t.Error("a second time what was there is replaced")
			}
		})
	}
}

func TestPlaceTrustRefuses(t *testing.T) {
	ca := certificate(t, "run", true)
	for name, c := range map[string]struct{ home, ca, want string }{
		"no certificate":   {t.TempDir(), "hello", "not one PEM"},
		"two certificates": {t.TempDir(), ca + ca, "not one PEM"},
		"a key":            {t.TempDir(), strings.ReplaceAll(ca, "CERTIFICATE", "PRIVATE KEY"), "not one PEM"},
		"no authority":     {t.TempDir(), certificate(t, "host", false), "not an authority's"},
		"no home":          {"", ca, "no HOME"},
		"a lost home":      {filepath.Join(t.TempDir(), "none"), ca, "no such file"},
	} {
		if env, err := placeTrust(c.home, c.ca, nil); err == nil || !strings.Contains(err.Error(), c.want) || env != nil {
			t.Errorf("%s: %v, %v, want %q", name, env, err, c.want)
		}
	}
}

// An image's file of roots is read within a bound.
func TestRootsAreBounded(t *testing.T) {
	place := filepath.Join(t.TempDir(), "roots.crt")
	if err := os.WriteFile(place, bytes.Repeat([]byte("x"), rootsBound+1), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := readRoots([]string{place}); got != nil {
		t.Errorf("%d bytes of a file over the bound are taken", len(got))
	}
}

func fileOf(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func javaOption(t *testing.T, env map[string]string, name string) string {
	t.Helper()
	for _, option := range strings.Fields(env["JAVA_TOOL_OPTIONS"]) {
		if v, ok := strings.CutPrefix(option, "-Djavax.net.ssl."+name+"="); ok {
			return v
		}
	}
	t.Fatalf("Java is not told its %s", name)
	return ""
}

func names509(certs []*x509.Certificate) (names []string) {
	for _, c := range certs {
		names = append(names, c.Subject.CommonName)
	}
	return names
}
