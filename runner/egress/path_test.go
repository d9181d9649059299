package egress

import (
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestNormalPath(t *testing.T) {
	for raw, want := range map[string]string{
		"":                    "/",
		"/":                   "/",
		"/a/":                 "/a/",
		"/a%2fb":              "/a%2Fb",
		"/a%2f":               "/a%2F",
		"/%7euser":            "/~user",
		"/%41%5a%30%2d%5F":    "/AZ0-_",
		"/a%2eb":              "/a.b",
		"/...":                "/...",
		"/.well-known/x":      "/.well-known/x",
		"/a;b=1/c;d":          "/a;b=1/c;d",
		"/100%25":             "/100%25",
		"/100%25/x":           "/100%25/x",
		"/%c3%a9":             "/%C3%A9",
		"/%20":                "/%20",
		"/%3f":                "/%3F",
		"/@a/b:c,d+e=f&g!$'*": "/@a/b:c,d+e=f&g!$'*",
	} {
		if got, err := NormalPath(raw); got != want || err != nil {
			t.Errorf("%q: %q %v, want %q", raw, got, err, want)
		}
	}
}

// Each refusal says what was found; the corpus of TestDecideCorpus has more.
func TestNormalPathRefuses(t *testing.T) {
	for raw, want := range map[string]string{
		"a":                             "does not start with a slash",
		"/" + strings.Repeat("a", 8192): "the bound is 8192",
		"/a b":                          "byte 0x20",
		"/\xc3\xa9":                     "byte 0xc3",
		"/a?b":                          "byte 0x3f",
		"/a#b":                          "byte 0x23",
		"/a\\b":                         "byte 0x5c",
		"/a%5cb":                        "encoded byte 0x5c",
		"/%7f":                          "encoded byte 0x7f",
		"/%1b":                          "encoded byte 0x1b",
		"/%":                            "percent sign",
		"/%2":                           "percent sign",
		"/%g0":                          "percent sign",
		"/%ff":                          "not UTF-8",
		"/%c0%ae":                       "not UTF-8",
		"/%252e":                        "encoded twice",
		"/%25%32%65":                    "encoded twice",
		"/a//b":                         "empty segment",
		"/a%2f/b":                       "empty segment",
		"/;a":                           "empty segment",
		"/.":                            "dot segment",
		"/..":                           "dot segment",
		"/a/%2e%2e":                     "dot segment",
		"/a%2f..":                       "dot segment",
		"/..%3ba":                       "dot segment",
	} {
		got, err := NormalPath(raw)
		if got != "" || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %q %v, want an error with %q", raw, got, err, want)
		}
	}
}

func TestNormalTarget(t *testing.T) {
	for _, c := range []struct{ raw, path, rest string }{
		{"/a", "/a", ""},
		{"/%61?", "/a", "?"},
		{"/a?b=%2e%2e/../c?d", "/a", "?b=%2e%2e/../c?d"},
		{"?a", "/", "?a"},
	} {
		if path, rest, err := NormalTarget(c.raw); path != c.path || rest != c.rest || err != nil {
			t.Errorf("%q: %q %q %v", c.raw, path, rest, err)
		}
	}
	for _, raw := range []string{"/a?b#c", "/a?b c", "/a?\x00", "/a?\x7f", "/a?\xc3\xa9", "/..?a", "*", "http://a.example.com/"} {
		if path, rest, err := NormalTarget(raw); path != "" || rest != "" || err == nil {
			t.Errorf("%q: %q %q", raw, path, rest)
		}
	}
}

func FuzzNormalPath(f *testing.F) {
	for _, s := range []string{"/", "/a/../b", "/%2e%2E/", "/a%2Fb;x/..;", "/%25%32%65", "/%c3%a9", "//", "/%00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		path, err := NormalPath(raw)
		if err != nil {
			if path != "" || !utf8.ValidString(err.Error()) {
				t.Errorf("%q: %q with %v", raw, path, err)
			}
			return
		}
		if again, err := NormalPath(path); again != path || err != nil {
			t.Errorf("%q is %q, and that is %q %v", raw, path, again, err)
		}
		want, err := url.PathUnescape(raw)
		got, err2 := url.PathUnescape(path)
		if raw != "" && (got != want || err != nil || err2 != nil) {
			t.Errorf("%q decodes to %q, its normal form %q to %q", raw, want, path, got)
		}
		for _, reading := range []string{path, got} {
			if clean := reading + "/"; strings.Contains(reading, "//") || strings.Contains(clean, "/../") || strings.Contains(clean, "/./") || strings.Contains(clean, "/..;") {
				t.Errorf("%q is let through as %q", raw, reading)
			}
		}
		if u, err := url.ParseRequestURI(path); err != nil || u.EscapedPath() != path || u.Host != "" {
			t.Errorf("%q is %q, which net/url reads as %v, %v", raw, path, u, err)
		}
	})
}
