package egress

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/runner/redact"
)

// credentialFields are where clients put credentials. Where the proxy injects
// one, what the sandbox sent in any of them stays behind.
var credentialFields = []string{"Authorization", "Proxy-Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key", "Cookie"}

// inject sets the rule's credential. It leaves the sandbox no way to have the
// answer encoded, or cut in pieces, so that an echo could not be found in it.
func (g *reading) inject(header http.Header, i *contract.Inject, scheme string) error {
	if i == nil {
		return nil
	}
	if scheme != "https" {
		return &Refused{ClassProtocol, "a credential is injected here, and that is done over TLS only"}
	}
	secret, ok := g.credentials[i.Secret]
	if !ok {
		return &Refused{ClassProtocol, "the credential " + i.Secret + " that is injected here was not given to the run"}
	}
	name, value, err := credentialField(*i, bytes.TrimSpace(secret.Reveal()))
	if err != nil {
		return &Refused{ClassProtocol, err.Error()}
	}
	removeFields(header, append(slices.Clone(credentialFields), "Accept-Encoding", "Range", "If-Range", name))
	header["Accept-Encoding"] = []string{"identity"}
	header[name] = []string{value}
	return nil
}

// overrideFields have servers, and frameworks behind them, take a request for
// another than its first line says.
var overrideFields = []string{
	"X-Http-Method-Override", "X-Http-Method", "X-Method-Override", "X-Original-Method", "X-Original-Url", "X-Rewrite-Url", "X-Original-Uri",
	"X-Forwarded-Host", "X-Forwarded-Prefix", "X-Forwarded-Uri", "X-Forwarded-Method", "X-Host", "Forwarded",
}

// removeFields takes fields of those names out, also where an underscore stands
// for a hyphen: servers that make variables of fields (RFC 3875 §4.1.18) read
// the two as one.
func removeFields(header http.Header, names []string) {
	for n := range header {
		if slices.ContainsFunc(names, func(name string) bool { return hyphened(name) == hyphened(n) }) {
			delete(header, n)
		}
	}
}

func hyphened(name string) string {
	return textproto.CanonicalMIMEHeaderKey(strings.ReplaceAll(name, "_", "-"))
}

// credentialField is the header field that carries a credential.
func credentialField(i contract.Inject, secret []byte) (name, value string, err error) {
	switch i.As {
	case contract.InjectHeader:
		return textproto.CanonicalMIMEHeaderKey(i.Name), string(secret), nil
	case contract.InjectBearer:
		return "Authorization", "Bearer " + string(secret), nil
	case contract.InjectBasic:
		return "Authorization", "Basic " + base64.StdEncoding.EncodeToString(secret), nil
	}
	return "", "", fmt.Errorf("its rule injects a credential as %q, which is not known", i.As)
}

// checkCredential wants what a header field can carry (RFC 9110 §5.5).
func checkCredential(s redact.Secret) error {
	value := bytes.TrimSpace(s.Reveal())
	if len(value) == 0 {
		return errors.New("it is empty")
	}
	if slices.ContainsFunc(value, func(b byte) bool { return b < ' ' || b == 0x7f }) {
		return errors.New("it holds a control character, also a line end: no header can carry it")
	}
	return nil
}
