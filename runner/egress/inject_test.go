package egress

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/policy/contract"
)

const modelKey = "sk-test/8Jh2+Lq0zWm4"

func injecting(as, name string) func(*contract.NetRule) {
	return func(r *contract.NetRule) {
		r.Inject = &contract.Inject{Secret: "model-key", As: as, Name: name}
	}
}

func TestInject(t *testing.T) {
	for _, c := range []struct{ as, name, field, want string }{
		{contract.InjectHeader, "x-api-key", "X-Api-Key", modelKey},
		{contract.InjectHeader, "x-own-key", "X-Own-Key", modelKey},
		{contract.InjectHeader, "own_key", "Own_key", modelKey},
		{contract.InjectBearer, "", "Authorization", "Bearer " + modelKey},
		{contract.InjectBasic, "", "Authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte(modelKey))},
	} {
		both(t, func(t *testing.T, http2 bool) {
			l := newLab(t, withSecrets(map[string]string{"model-key": modelKey + "\n"}), inspectRule(injecting(c.as, c.name)))
			got := make(chan http.Header, 1)
			l.serveTLS(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				got <- r.Header
				w.Header().Set("Set-Cookie", "session=1")
			}))
			q := newRequest(t, "GET", "https://"+labHost+"/", nil)
			for _, name := range []string{"Authorization", "Proxy-Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key", "Cookie", "X_Api_Key", "X-Http-Method-Override", "X_Original_Url", "Forwarded", strings.ReplaceAll(c.field, "_", "-"), c.field} {
				q.Header.Set(name, "placeholder")
			}
			q.Header.Set("Accept-Encoding", "gzip, br")
			q.Header.Set("Range", "bytes=0-1")
			q.Header.Set("X-Kept", "kept")
			r, err := l.client(http2).Do(q)
			if textOf(t, r, err); r.StatusCode != 200 || r.Header.Get("Set-Cookie") != "" {
				t.Fatalf("answered %d, %v", r.StatusCode, r.Header)
			}
			seen := <-got
			want := http.Header{c.field: {c.want}, "Accept-Encoding": {"identity"}, "X-Kept": {"kept"}, "User-Agent": {"Go-http-client/" + map[bool]string{true: "2.0", false: "1.1"}[http2]}}
			if fmt.Sprint(seen) != fmt.Sprint(want) {
				t.Errorf("%s: the server saw %v, want %v", c.as, seen, want)
			}
		})
	}
}

// A credential goes nowhere but to a server that proved its name.
func TestInjectNeedsTLS(t *testing.T) {
	rule := inspectRule(injecting(contract.InjectBearer, ""), func(r *contract.NetRule) { r.Port = 80 })
	l := newLab(t, withSecrets(map[string]string{"model-key": modelKey}), rule)
	l.servePlain(80, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the server saw it") }))
	r, err := l.client(false).Get("http://" + labHost + "/")
	if text := textOf(t, r, err); r.StatusCode != 403 || !strings.Contains(text, "over TLS only") {
		t.Errorf("answered %d %q", r.StatusCode, text)
	}
}

func TestInjectWithoutCredential(t *testing.T) {
	l := newLab(t, serverRoots, gatewayRule(injecting(contract.InjectBearer, "")))
	l.serveTLS(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the server saw it") }))
	r, err := l.client(false).Get("http://" + gatewayHost + "/")
	if text := textOf(t, r, err); r.StatusCode != 403 || !strings.Contains(text, "model-key") {
		t.Errorf("answered %d %q", r.StatusCode, text)
	}
}

func TestCredentialThatNoHeaderCarries(t *testing.T) {
	for _, value := range []string{"", " \n", "abcdef\nghijkl", "abcdef\x00ghi", "short"} {
		l := &lab{bench: &bench{t: t}}
		cfg := l.config(compiled(t))
		withSecrets(map[string]string{"model-key": value})(&cfg)
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), "model-key") || len(value) > 5 && strings.Contains(err.Error(), value) {
			t.Errorf("%q: %v", value, err)
		}
	}
}

// A server that says what it was sent does not say the credential.
func TestEchoIsMasked(t *testing.T) {
	const basic = "robot:" + modelKey
	plain := []byte(basic)
	for name, spelled := range map[string]string{
		"plain":  basic,
		"base64": base64.StdEncoding.EncodeToString(plain),
		"hex":    hex.EncodeToString(plain),
		"url":    url.QueryEscape(basic),
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, http2 bool) {
				l := newLab(t, withSecrets(map[string]string{"model-key": basic}), inspectRule(injecting(contract.InjectBasic, "")))
				l.serveTLS(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.Header.Get("Authorization") != "Basic "+base64.StdEncoding.EncodeToString(plain) {
						t.Errorf("the server was sent %q", r.Header.Get("Authorization"))
					}
					w.Header().Set("X-Echo", "you sent "+spelled)
					w.Header().Set("Content-Length", fmt.Sprint(len("before  after")+len(spelled)))
					io.WriteString(w, "before "+spelled[:5])
					w.(http.Flusher).Flush()
					io.WriteString(w, spelled[5:]+" after")
				}))
				r, err := l.client(http2).Get("https://" + labHost + "/")
				if got := textOf(t, r, err); got != "before *** after" {
					t.Errorf("answered %q", got)
				}
				if r.Header.Get("X-Echo") != "" {
					t.Errorf("answered X-Echo: %s", r.Header.Get("X-Echo"))
				}
			})
		})
	}
}

func TestEncodedEchoIsRefused(t *testing.T) {
	l := newLab(t, withSecrets(map[string]string{"model-key": modelKey}), inspectRule(injecting(contract.InjectBearer, "")))
	l.serveTLS(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		io.WriteString(w, "whatever")
	}))
	r, err := l.client(true).Get("https://" + labHost + "/")
	if text := textOf(t, r, err); r.StatusCode != 403 || strings.Contains(text, "whatever") || !slices.Equal(l.classes(), []Class{ClassProtocol}) {
		t.Errorf("answered %d %q, denied %v", r.StatusCode, text, l.classes())
	}
}
