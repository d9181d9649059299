package shim

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"software.sslmate.com/src/go-pkcs12"
)

// trustDir is where the run's authority is placed, below the workload's home.
// The workload may change it: it is the workload's own trust.
const trustDir = ".countersign"

// rootsBound is the longest file of roots that is read of an image, in bytes.
const rootsBound = 4 << 20

// systemRoots are where distributions keep the roots of the web in one file, in
// the order of crypto/x509 (root_linux.go).
func systemRoots() []string {
	return []string{
		"/etc/ssl/certs/ca-certificates.crt",                // Debian, Ubuntu, Arch
		"/etc/pki/tls/certs/ca-bundle.crt",                  // Fedora, RHEL
		"/etc/ssl/ca-bundle.pem",                            // openSUSE
		"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", // RHEL
		"/etc/ssl/cert.pem",                                 // Alpine
	}
}

// placeTrust writes files below home by which programs trust ca, one PEM
// certificate, beside the roots in the first of places that can be read. It
// returns the variables that name those files. Names are each program's own:
// OpenSSL's and Go's SSL_CERT_FILE is read by most, the others are for programs
// that bring roots of their own. The JVM says on stderr that it picked its
// variable up.
func placeTrust(home, ca string, places []string) (map[string]string, error) {
	authority, err := parseAuthority(ca)
	if err != nil {
		return nil, err
	}
	roots := readRoots(places)
	store, err := javaStore(append(parseRoots(roots), authority))
	if err != nil {
		return nil, err
	}
	if home == "" {
		return nil, errors.New("placing the run's authority: the sandbox has no HOME")
	}
	dir := filepath.Join(home, trustDir)
	at := func(name string) string { return filepath.Join(dir, name) }
	own := pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: authority.Raw})
	err = os.Mkdir(dir, 0o755)
	for name, data := range map[string][]byte{
		"ca.pem":    own,
		"roots.pem": append(roots, own...),
		"java.p12":  store,
		"wgetrc":    []byte("ca_certificate = " + at("roots.pem") + "\n"),
	} {
		if err == nil {
			err = writeNew(at(name), data, 0o644)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("placing the run's authority: %v", err)
	}
	return trustVariables(at("ca.pem"), at("roots.pem"), at("java.p12"), at("wgetrc")), nil
}

func trustVariables(ca, roots, java, wgetrc string) map[string]string {
	env := map[string]string{
		"NODE_EXTRA_CA_CERTS": ca, // added to the built-in roots
		"DENO_CERT":           ca, // likewise
		"WGETRC":              wgetrc,
		"JAVA_TOOL_OPTIONS":   "-Djavax.net.ssl.trustStore=" + java + " -Djavax.net.ssl.trustStoreType=PKCS12 -Djavax.net.ssl.trustStorePassword=" + pkcs12.DefaultPassword,
	}
	for _, name := range []string{
		"SSL_CERT_FILE", "NIX_SSL_CERT_FILE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "REQUESTS_CA_BUNDLE", "PIP_CERT", "AWS_CA_BUNDLE",
		"CARGO_HTTP_CAINFO", "NPM_CONFIG_CAFILE", "BUNDLE_SSL_CA_CERT", "PERL_LWP_SSL_CA_FILE", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
		"CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE",
	} {
		env[name] = roots
	}
	return env
}

const certificateBlock = "CERTIFICATE"

func parseAuthority(ca string) (*x509.Certificate, error) {
	block, rest := pem.Decode([]byte(ca))
	if block == nil || block.Type != certificateBlock || len(bytes.TrimSpace(rest)) > 0 {
		return nil, errors.New("reading the run's authority: it is not one PEM certificate")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("reading the run's authority: %v", err)
	}
	if !cert.IsCA {
		return nil, errors.New("reading the run's authority: the certificate is not an authority's")
	}
	return cert, nil
}

// readRoots reads the image's roots; an image may have none. They end in a newline.
func readRoots(places []string) []byte {
	for _, place := range places {
		f, err := os.Open(place)
		if err != nil {
			continue
		}
		data, err := io.ReadAll(io.LimitReader(f, rootsBound+1))
		f.Close()
		if err == nil && len(data) > 0 && len(data) <= rootsBound {
			return append(bytes.TrimRight(data, "\n"), '\n')
		}
	}
	return nil
}

// parseRoots passes over what is not a certificate that Go reads.
func parseRoots(data []byte) (certs []*x509.Certificate) {
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			return certs
		}
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil && block.Type == certificateBlock {
			certs = append(certs, cert)
		}
	}
}

// javaStore is a trust store in the form that every JVM reads. Its encryption
// is of no use and its password known to all: nothing in it is secret.
func javaStore(certs []*x509.Certificate) ([]byte, error) {
	entries := make([]pkcs12.TrustStoreEntry, 0, len(certs))
	for i, c := range certs {
		entries = append(entries, pkcs12.TrustStoreEntry{Cert: c, FriendlyName: fmt.Sprintf("root-%d", i)})
	}
	store, err := pkcs12.LegacyDES.EncodeTrustStoreEntries(entries, pkcs12.DefaultPassword)
	if err != nil {
		return nil, fmt.Errorf("encoding a trust store for Java: %v", err)
	}
	return store, nil
}

// writeNew makes a file that must not be there, and follows no link.
func writeNew(path string, data []byte, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}
