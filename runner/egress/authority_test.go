package egress

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestAuthority(t *testing.T) {
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	a, err := NewAuthority("run_01j1x2", now, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	block, rest := pem.Decode(a.PEM())
	if block == nil || block.Type != "CERTIFICATE" || len(rest) != 0 || bytes.Contains(a.PEM(), []byte("KEY")) {
		t.Fatalf("the file to trust is %s", a.PEM())
	}
	root, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if !root.IsCA || !root.MaxPathLenZero || root.Subject.CommonName != "countersign run run_01j1x2" || root.KeyUsage != x509.KeyUsageCertSign {
		t.Errorf("the authority is %+v", root)
	}
	roots := x509.NewCertPool()
	roots.AddCert(root)
	long := strings.Repeat("a.", 120) + "example"
	for _, host := range []string{"api.example.com", "under_score.example.com", long} {
		c, err := a.certificate(host)
		if err != nil {
			t.Fatal(err)
		}
		for at, ok := range map[time.Duration]bool{0: true, time.Hour: true, -time.Hour: false, 2 * time.Hour: false} {
			_, err := c.Leaf.Verify(x509.VerifyOptions{DNSName: host, Roots: roots, CurrentTime: now.Add(at)})
			if (err == nil) != ok {
				t.Errorf("%s, %v from the start: %v", host, at, err)
			}
		}
		if c.Leaf.VerifyHostname("other.example.com") == nil || c.Leaf.IsCA {
			t.Errorf("%s has a certificate for more than that", host)
		}
		again, _ := a.certificate(host)
		if again != c {
			t.Errorf("%s got a second certificate", host)
		}
	}
	other, _ := NewAuthority("run_01j1x2", now, time.Hour)
	c, _ := other.certificate("api.example.com")
	if _, err := c.Leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now}); err == nil {
		t.Error("another run's certificate was trusted")
	}
	if a.key.Equal(c.PrivateKey.(*ecdsa.PrivateKey)) || a.key.Equal(a.leaf) {
		t.Error("a key is used twice")
	}
}

func TestAuthorityKeepsFewCertificates(t *testing.T) {
	a := newAuthority(t, "run_test")
	for i := range maxLeaves + 10 {
		if _, err := a.certificate(fmt.Sprintf("h%d.example.com", i)); err != nil {
			t.Fatal(err)
		}
	}
	if len(a.leaves) > maxLeaves {
		t.Errorf("%d certificates are kept", len(a.leaves))
	}
}

func TestAuthorityWithoutLife(t *testing.T) {
	if _, err := NewAuthority("run_test", time.Now(), 0); err == nil {
		t.Error("an authority was made that is never valid")
	}
}
