package contract

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// table checks that rule takes every word of allow and none of deny.
func table(t *testing.T, rule func(string) error, allow, deny []string) {
	t.Helper()
	for _, s := range allow {
		if err := rule(s); err != nil {
			t.Errorf("%.80q refused: %v", s, err)
		}
	}
	for _, s := range deny {
		err := rule(s)
		if err == nil {
			t.Errorf("%.80q allowed", s)
		} else if strings.ContainsAny(err.Error(), "\x00\x1b\n\r\x7f") {
			t.Errorf("%.80q: the error carries control characters", s)
		}
	}
}

func TestHosts(t *testing.T) {
	table(t, func(s string) error { _, err := ParseHost(s); return err }, []string{
		"example.com",
		"EXAMPLE.com",
		"a",
		"_dmarc.example.com",
		"r3---sn-ab.example.com",
		"xn--bcher-kva.example",
		"1.example.com",
		"0x7f.example.com",
		"3com",
		"dead.beef",
		"e1",
		strings.Repeat("a", 63) + ".com",
		strings.Repeat("a.", 126) + "b", // 253 bytes
	}, []string{
		"",
		".",
		"example.com.",
		".example.com",
		"a..b",
		"-a.example.com",
		"a-.example.com",
		"exa mple.com",
		"example.com\n",
		"example.com\x00.evil.com",
		"example。com",
		"bücher.example",
		"ｅxample.com",
		"\u212aexample.com", // the Kelvin sign folds to k
		"example.com%00",
		"user@example.com",
		"example.com:443",
		"example.com/x",
		`example.com\x`,
		"*.example.com",
		"[::1]",
		"::1",
		"fe80::1%eth0",
		"127.0.0.1",
		"127.1",
		"2130706433",
		"017700000001",
		"0177.0.0.1",
		"0x7f000001",
		"0X7F.1",
		"0x7f.0x1",
		"0x",
		"127.0.0.0x1",
		"1.2.3.4.5",
		"example.1",
		"example.0x1f",
		strings.Repeat("a", 64) + ".com",
		strings.Repeat("a.", 127), // 254 bytes
		strings.Repeat("a.", 126) + "bc",
	})
	if h, err := ParseHost("ExAmPle.COM"); h != "example.com" || err != nil {
		t.Errorf("ParseHost gave %q, %v; want lower case", h, err)
	}
}

func TestHostPatterns(t *testing.T) {
	table(t, func(s string) error { _, err := ParseHostPattern(s); return err }, []string{
		"example.com",
		"*.example.com",
		"*.Example.COM",
		"*.a.example.co.uk",
		"*.me.github.io",
		"github.io", // one host, whoever owns names below it
		"localhost",
		"*.models.internal",
	}, []string{
		"*",
		"*.",
		"*.com",
		"*.COM",
		"*.co.uk",
		"*.github.io",
		"*.internal",
		"*.localhost",
		"*.kawasaki.jp", // *.kawasaki.jp is itself a rule of the list
		"**.example.com",
		"*.*.example.com",
		"a*.example.com",
		"www.*.com",
		"*example.com",
		"*.127.0.0.1",
		"*.0x7f",
	})
	for _, c := range []struct {
		pattern, host string
		want          bool
	}{
		{"example.com", "example.com", true},
		{"example.com", "a.example.com", false},
		{"example.com", "badexample.com", false},
		{"*.example.com", "a.example.com", true},
		{"*.example.com", "example.com", false},
		{"*.example.com", "a.b.example.com", false},
		{"*.example.com", "badexample.com", false},
		{"*.example.com", ".example.com", false},
		{"*.example.com", "a.example.com.evil.com", false},
		{"*.EXAMPLE.com", "a.example.com", true},
	} {
		p, err := ParseHostPattern(c.pattern)
		if err != nil || p.Match(c.host) != c.want {
			t.Errorf("%s matches %s: %v, %v; want %v", c.pattern, c.host, p.Match(c.host), err, c.want)
		}
	}
	if (HostPattern{}).Match("") || (HostPattern{}).Match("example.com") {
		t.Error("the zero pattern matches")
	}
}

func TestHostPorts(t *testing.T) {
	table(t, func(s string) error { _, _, err := ParseHostPort(s); return err },
		[]string{"example.com:443", "*.example.com:8443", "a:1", "a:65535"},
		[]string{"", "example.com", "example.com:", ":443", "a:0", "a:65536", "a:-1", "a:+1", "a:0443", "a:https", "a:44 3", "a:443:1", "[::1]:443", "https://a:443", "1.2.3.4:443", "a:443/x"})
	table(t, checkUpstream,
		[]string{"https://api.example.com:443", "https://api.example.com:8443"},
		[]string{"", "https://", "http://api.example.com:80", "https://api.example.com", "https://api.example.com:443/", "https://u@api.example.com:443", "https://*.example.com:443", "https://API.example.com:443", "https://127.0.0.1:443"})
}

func TestMethods(t *testing.T) {
	table(t, CheckMethod, []string{"GET", "POST", "M-SEARCH"}, []string{"", "get", "CONNECT", "TRACE", "GET ", "GE T", "GET\r\n", "*", "-GET", strings.Repeat("A", 33)})
}

func TestPathPatterns(t *testing.T) {
	table(t, checkPathPattern, []string{
		"/", "/v1/messages", "/v1/", "/**", "/v1/**", "/repos/*/issues", "/a:b@c;d=e,f", "/~u/.well-known/x", "/...",
	}, []string{
		"", "v1", "*", "**", "//", "/a//b", "/.", "/..", "/a/../b", "/a/./b", "/a/..", "/%2e%2e/b", "/a%2fb", "/a%", "/a b", "/a\\b", "/a?b", "/a#b",
		"/ü", "/a\x00", "/a\n", "/**/a", "/a*", "/a/b**", "/***", "https://a/b", strings.Repeat("/a", 600),
	})
	for _, c := range []struct {
		pattern, path string
		want          bool
	}{
		{"/v1/messages", "/v1/messages", true},
		{"/v1/messages", "/v1/messages/", false},
		{"/v1/messages", "/v1/messages/batches", false},
		{"/v1/messages", "/v1", false},
		{"/v1/messages", "v1/messages", false},
		{"/", "/", true},
		{"/", "/a", false},
		{"/**", "/", true},
		{"/**", "/a/b", true},
		{"/v1/**", "/v1/a", true},
		{"/v1/**", "/v1/a/b", true},
		{"/v1/**", "/v1/", true},
		{"/v1/**", "/v1", false},
		{"/v1/**", "/v10/a", false},
		{"/repos/*/issues", "/repos/x/issues", true},
		{"/repos/*/issues", "/repos/x/y/issues", false},
		{"/repos/*/issues", "/repos//issues", false},
		{"/repos/*/issues", "/repos/x", false},
	} {
		p, err := ParsePathPattern(c.pattern)
		if err != nil || p.Match(c.path) != c.want {
			t.Errorf("%s matches %s: %v, %v; want %v", c.pattern, c.path, p.Match(c.path), err, c.want)
		}
	}
	if (PathPattern{}).Match("/") || (PathPattern{}).Match("") {
		t.Error("the zero pattern matches")
	}
}

func TestHeaderNames(t *testing.T) {
	table(t, checkHeaderName, []string{"x-api-key", "Authorization"},
		[]string{"", "Host", "content-length", "Transfer-Encoding", "Connection", "x key", "x:", "x\r\ny", "ü"})
}

func TestDigestsAndObjects(t *testing.T) {
	h := strings.Repeat("0a", 32)
	table(t, CheckDigest, []string{"sha256:" + h},
		[]string{"", h, "sha256:", "sha256:" + h[1:], "sha256:" + h + "0", "SHA256:" + h, "sha256:" + strings.ToUpper(h), "sha512:" + h, "sha256:" + h[:63] + "g", " sha256:" + h})
	table(t, CheckObjectID, []string{h, h[:40]},
		[]string{"", h[:39], h[:41], strings.ToUpper(h[:40]), h[:39] + "g", "HEAD", strings.Repeat("0", 40), strings.Repeat("0", 64), h[:7]})
	if got := DigestBytes(nil); got != "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" {
		t.Errorf("the digest of nothing is %s", got)
	}
}

func TestRepoNames(t *testing.T) {
	table(t, CheckRepoName, []string{"acme/api", "api", "a.b/c_d-e", "acme/.github", "Acme/API"},
		[]string{"", "/", "a/", "/a", "a/b/c", "..", "a/..", "./a", "a b/c", "a/b\n", "-a/b", "ü/a", "https://h/a", strings.Repeat("a", 257)})
	for dir, want := range map[string]string{"/src/my project": "my-project", "/": "local", "..": "local", "/x/-a": "a", "/x/bücher": "b--cher", "/x/api": "api"} {
		got := LocalRepoName(dir)
		if got != want || CheckRepoName(got) != nil {
			t.Errorf("LocalRepoName(%q) = %q, want %q", dir, got, want)
		}
	}
}

func TestRefs(t *testing.T) {
	table(t, CheckRef, []string{"main", "feature/x", "release-1.2", "builtin", "ünï"},
		[]string{"", "@", "-x", "/a", "a/", "a//b", "a..b", "a@{1}", "a b", "a~1", "a^", "a:b", "a?", "a*", "a[", `a\b`, "a.", "a.lock", "a/.b", "a\x00", "a\nb", "a\u202eb", "a\xff"})
}

func TestEnvNames(t *testing.T) {
	table(t, CheckEnvName, []string{"CI", "_x", "a1", "LD_PRELOAD"}, []string{"", "1A", "A=B", "A B", "A-B", "A.B", "A\x00", "Ü", strings.Repeat("A", 257)})
	table(t, CheckArg, []string{"", "a b", "ü\n\x1b[0m", strings.Repeat("a", 131071)}, []string{"a\x00", "\xff", strings.Repeat("a", 131072)})
}

func TestSecrets(t *testing.T) {
	table(t, CheckName, []string{"model-key", "NPM_TOKEN", "a.b", "9"}, []string{"", ".", "..", ".a", "-a", "a/b", "a b", "a\n", "ü", strings.Repeat("a", 65)})
	table(t, CheckSecretRef, []string{"vault://ci/model-key@v7", "env://TOKEN", "file:///run/key", "github://acme/TOKEN"},
		[]string{"", "token", "sk-1234567890", "vault:", "vault://", "://x", "Vault://x", "1v://x", "va-ult://x", "vault://a b", "vault://a\nb", "vault://ü", "vault://" + strings.Repeat("a", 1024)})
	if err := CheckSecretRef("hunter2"); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("the error repeats what may be a secret's value: %v", err)
	}
}

func TestDirectories(t *testing.T) {
	table(t, CheckDir, []string{"/a", "/a/b.c", "/a b", "/ü", "/..a", "/" + strings.Repeat("a", 4094)},
		[]string{"", "/", ".", "a", "a/b", "/a/", "//a", "/a//b", "/a/.", "/a/..", "/../a", "/a/../b", "/a\x00", "/a\nb", "/a\x7f", "/a\u202eb", "/\xff", "/" + strings.Repeat("a", 4095)})
	table(t, CheckWritableRoot, []string{"/workspace", "/tmp", "/dev/shm", "/var/cache", "/home/agent", "/devel", "/system", "/run/secretary"},
		[]string{"/", "/dev", "/dev/shm/x", "/dev/sda", "/proc", "/proc/self", "/sys/fs/cgroup", "/run", "/run/countersign", "/run/countersign/ask", "/countersign/bin", "/run/secret", "/var/run", "/var/run/docker.sock", "/srv/docker.sock", "tmp"})
	table(t, CheckProtected, []string{".github/**", "**/CODEOWNERS", "a", "**/.claude/**"}, []string{"", "/a", "a/", "a//b", "../a", "a/./b", "a/..", "a\n"})
}

func TestImageRefs(t *testing.T) {
	d := "sha256:" + strings.Repeat("0a", 32)
	table(t, CheckImageRef, []string{
		"debian", "debian:12", "library/debian:12-slim", "countersign/sandbox:latest", "ci.example.com/a/b:v1", "ci.example.com:5000/a@" + d,
		"localhost/a", "localhost:5000/a", "a/b:T.a_g-1@" + d, d, "a__b/c", "a--b", "127.0.0.1:5000/a", "CI/a",
	}, []string{
		"", ":", "a:", "a@", "a@" + d[:70], "a@sha1:00", "A", "A:latest", "a/B", "a//b", "/a", "a/", "a b", "a:.x", "a:-x", "a:" + strings.Repeat("t", 129), "a..b", "a___b", "a._b", "-a", "a-",
		"https://ci.example.com/a", "a\n", "../a", "ci.example.com:port/a", "ci.example.com:/a", "ü", strings.Repeat("a", 256), "a@" + d + "@" + d,
	})
	for ref, want := range map[string]string{"debian:12": "", "a@" + d: d, d: d} {
		if got := RefDigest(ref); got != want {
			t.Errorf("RefDigest(%s) = %q, want %q", ref, got, want)
		}
	}
}

func TestTimes(t *testing.T) {
	table(t, checkTime, []string{"2026-11-29T13:00:00Z", "2024-02-29T00:00:00Z"},
		[]string{"", "2026-11-29", "2026-11-29T13:00:00", "2026-11-29T13:00:00z", "2026-11-29 13:00:00Z", "2026-11-29T13:00:00.5Z", "2026-11-29T13:00:00.000Z", "2026-11-29T13:00:00+00:00", "2026-02-29T13:00:00Z", "2026-11-29T24:00:00Z", "2026-11-29T23:59:60Z"})
	zone := time.FixedZone("x", 3600)
	if got := FormatTime(time.Date(2026, 11, 29, 14, 0, 0, 999, zone)); got != "2026-11-29T13:00:00Z" {
		t.Errorf("FormatTime gave %s", got)
	}
}

func TestRunIDs(t *testing.T) {
	// Time and digits are the ULID specification's own example.
	at := time.UnixMilli(1469918176385)
	for _, c := range []struct {
		random byte
		want   string
	}{{0, "run_01aryz6s410000000000000000"}, {0xff, "run_01aryz6s41zzzzzzzzzzzzzzzz"}} {
		if id, err := NewRunID(at, bytes.NewReader(bytes.Repeat([]byte{c.random}, 10))); id != c.want || err != nil {
			t.Errorf("NewRunID gave %s, %v; want %s", id, err, c.want)
		}
	}
	table(t, CheckRunID, []string{runID, "run_" + strings.Repeat("0", 26), "run_7" + strings.Repeat("z", 25)},
		[]string{"", "run_", runID[4:], strings.ToUpper(runID), runID + "0", runID[:29], "run_8" + strings.Repeat("0", 25), "run_" + strings.Repeat("i", 26), "run_0" + strings.Repeat("u", 25), "run-" + runID[4:], runID[:29] + "/"})
	if _, err := NewRunID(time.UnixMilli(-1), bytes.NewReader(make([]byte, 10))); err == nil {
		t.Error("an id was made for a time before 1970")
	}
	if _, err := NewRunID(time.UnixMilli(1<<48), bytes.NewReader(make([]byte, 10))); err == nil {
		t.Error("an id was made for a time beyond 48 bits")
	}
	if _, err := NewRunID(noon(), bytes.NewReader(make([]byte, 9))); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("too little randomness gave %v", err)
	}
}

func TestRunIDsSortByTime(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		times := rapid.SliceOfN(rapid.Int64Range(0, 1<<48-1), 2, 8).Draw(r, "ms")
		slices.Sort(times)
		var ids []string
		for _, ms := range slices.Compact(times) {
			random := rapid.SliceOfN(rapid.Byte(), 10, 10).Draw(r, "random")
			id, err := NewRunID(time.UnixMilli(ms), bytes.NewReader(random))
			if err != nil || CheckRunID(id) != nil {
				r.Fatalf("%q: %v", id, err)
			}
			ids = append(ids, id)
		}
		if !slices.IsSorted(ids) {
			r.Fatalf("ids are not in the order of their times: %v", ids)
		}
	})
}

func TestTextRefusesWhatMovesTheCursor(t *testing.T) {
	table(t, func(s string) error { return filled(s, 16) }, []string{"a", "ü", "a b", "日本"},
		[]string{"", "a\n", "a\x1b[2J", "\x00", "\x7f", "\u0085", "\u202e", "\u2066", "\u200f", "\u2028", "\xff", strings.Repeat("a", 17)})
}
