package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/runner/redact"
)

// testSource leases the values it has and notes what comes back.
type testSource struct {
	values  map[string]string // by reference
	revoked []string
	fault   error // of Revoke
}

type testLease struct {
	source *testSource
	ref    string
	value  *redact.Secret
}

func (s *testSource) Lease(_ context.Context, ref string) (secretLease, error) {
	value, ok := s.values[ref]
	if !ok {
		return nil, errors.New("is not there")
	}
	return &testLease{s, ref, redact.NewSecret([]byte(value))}, nil
}

func (l *testLease) Value() *redact.Secret { return l.value }
func (l *testLease) Revoke(ctx context.Context) error {
	l.source.revoked = append(l.source.revoked, l.ref)
	return errors.Join(ctx.Err(), l.source.fault)
}

// withSecrets is a contract that names the references, as s0, s1 and so on; as
// says how a rule injects the first one, "" for not at all.
func withSecrets(as string, refs ...string) contract.Contract {
	var c contract.Contract
	for i, ref := range refs {
		c.SecretRefs = append(c.SecretRefs, contract.SecretRef{Name: "s" + string(rune('0'+i)), Ref: ref, Deliver: contract.DeliverFile})
	}
	if as != "" {
		c.Network.Allow = []contract.NetRule{{Inject: &contract.Inject{Secret: "s0", As: as}}}
	}
	return c
}

func TestTakeLeases(t *testing.T) {
	values := map[string]string{
		"t://a": "value-of-a", "t://b": "value-of-b", "t://short": "12345", "t://binary": "value-\xff\xfe", "t://lines": "value\nof lines",
		"t://pair": "user:password", "t://padded": "value-padded ", "t://half": strings.Repeat("ab", maxSecretBytes/4), "t://umlaut": "välue-of-ü",
	}
	for _, c := range []struct {
		name, as string
		refs     []string
		want     string // part of the error, "" for none
	}{
		{"none", "", nil, ""},
		{"two", "", []string{"t://a", "t://b"}, ""},
		{"one twice", "", []string{"t://a", "t://a"}, ""},
		{"a missing one after another", "", []string{"t://a", "t://missing"}, "secret s1: is not there"},
		{"no such source", "", []string{"t://a", "vault://ci/a"}, "secret s1: there is no source for vault://"},
		{"too short to be masked", "", []string{"t://a", "t://short"}, `secret "s1" has 5 bytes`},
		{"bytes that no order can carry", "", []string{"t://binary"}, "is not UTF-8 text"},
		{"lines in a file", "", []string{"t://lines"}, ""},
		{"lines in a header", contract.InjectHeader, []string{"t://lines"}, "one line of printable ASCII"},
		{"lines in a bearer", contract.InjectBearer, []string{"t://lines"}, "one line of printable ASCII"},
		{"lines in a basic", contract.InjectBasic, []string{"t://lines"}, "has no colon"},
		{"space at the end of a header", contract.InjectHeader, []string{"t://padded"}, "without space around it"},
		{"foreign letters in a header", contract.InjectHeader, []string{"t://umlaut"}, "printable ASCII"},
		{"foreign letters in a file", "", []string{"t://umlaut"}, ""},
		{"a pair", contract.InjectBasic, []string{"t://pair"}, ""},
		{"no pair", contract.InjectBasic, []string{"t://a"}, "has no colon"},
		{"bearer", contract.InjectBearer, []string{"t://a"}, ""},
		{"as much as a run is given", "", []string{"t://half", "t://half"}, ""},
		{"more than a run is given", "", []string{"t://half", "t://half", "t://a"}, "bytes together"},
		{"more secrets than a run is given", "", slices.Repeat([]string{"t://a"}, maxSecrets+1), "a run is given 64 at most"},
	} {
		source := &testSource{values: values}
		held, err := takeLeases(t.Context(), withSecrets(c.as, c.refs...), map[string]secretSource{"t": source})
		if c.want != "" {
			if err == nil || held != nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want …%s…", c.name, err, c.want)
			}
			for _, v := range values {
				if err != nil && strings.Contains(err.Error(), v) {
					t.Errorf("%s: the error tells a value", c.name)
				}
			}
			for i, ref := range c.refs {
				if _, leased := values[ref]; leased && i == 0 && len(c.refs) <= maxSecrets && !slices.Contains(source.revoked, ref) {
					t.Errorf("%s: %s was not given back: %v", c.name, ref, source.revoked)
				}
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		for i, ref := range c.refs {
			if got := held.values()["s"+string(rune('0'+i))]; got != values[ref] {
				t.Errorf("%s: secret %d is not the value of %s", c.name, i, ref)
			}
		}
		if err := held.revoke(t.Context()); err != nil || !slices.Equal(source.revoked, c.refs) {
			t.Errorf("%s: given back %v, error %v; want %v", c.name, source.revoked, err, c.refs)
		}
	}
}

// TestRevokeAfterTheEnd: a cancelled run gives its leases back all the same, and
// one that cannot be given back does not keep the others.
func TestRevokeAfterTheEnd(t *testing.T) {
	source := &testSource{values: map[string]string{"t://a": "value-of-a", "t://b": "value-of-b"}}
	held, err := takeLeases(t.Context(), withSecrets("", "t://a", "t://b"), map[string]secretSource{"t": source})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	source.fault = errors.New("the source is gone")
	err = held.revoke(ctx)
	if !slices.Equal(source.revoked, []string{"t://a", "t://b"}) {
		t.Errorf("given back %v", source.revoked)
	}
	if err == nil || errors.Is(err, context.Canceled) || strings.Count(err.Error(), "revoke it at its source") != 2 {
		t.Errorf("error %v, want one for each secret, and none of the context", err)
	}
}

func TestLocalSources(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	key := write("key", "value-of-key\n", 0o600)
	link, pipe := filepath.Join(dir, "link"), filepath.Join(dir, "pipe")
	if err := errors.Join(os.Symlink(key, link), syscall.Mkfifo(pipe, 0o600)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("COUNTERSIGN_TEST_SECRET", "value-of-variable\n")
	t.Setenv("COUNTERSIGN_TEST_EMPTY", "\n")
	for _, c := range []struct {
		name, ref string
		value     string
		fault     string
		warning   bool
	}{
		{"a file", "file://" + key, "value-of-key", "", false},
		{"a link", "file://" + link, "value-of-key", "", false},
		{"everybody's file", "file://" + write("open", "value-of-open", 0o644), "value-of-open", "", true},
		{"the group's file", "file://" + write("group", "value-of-group", 0o640), "value-of-group", "", false},
		{"one line break is cut", "file://" + write("two", "value\n\n", 0o600), "value\n", "", false},
		{"a line break of DOS", "file://" + write("dos", "value-dos\r\n", 0o600), "value-dos", "", false},
		{"a carriage return of its own", "file://" + write("cr", "value-cr\r", 0o600), "value-cr\r", "", false},
		{"a name that looks encoded", "file://" + write("a%20b", "value-of-name", 0o600), "value-of-name", "", false},
		{"an empty file", "file://" + write("empty", "\n", 0o600), "", "is empty", false},
		{"the largest file", "file://" + write("large", strings.Repeat("x", maxSecretBytes), 0o600), strings.Repeat("x", maxSecretBytes), "", false},
		{"a larger file", "file://" + write("larger", strings.Repeat("x", maxSecretBytes+1), 0o600), "", "has more than 65536 bytes", false},
		{"no file", "file://" + dir + "/none", "", "no such file", false},
		{"a directory", "file://" + dir, "", "is not a regular file", false},
		{"a pipe that nobody writes", "file://" + pipe, "", "is not a regular file", false},
		{"a device", "file:///dev/null", "", "is not a regular file", false},
		{"a host", "file://localhost/etc/hostname", "", "absolute path in its one spelling", false},
		{"a path that climbs", "file://" + dir + "/../key", "", "absolute path in its one spelling", false},
		{"a variable", "env://COUNTERSIGN_TEST_SECRET", "value-of-variable", "", false},
		{"an empty variable", "env://COUNTERSIGN_TEST_EMPTY", "", "is empty", false},
		{"no variable", "env://COUNTERSIGN_TEST_NONE", "", "the environment has no COUNTERSIGN_TEST_NONE", false},
	} {
		warned := false
		sources := localSecrets(func(string, ...any) { warned = true })
		scheme, _, _ := strings.Cut(c.ref, "://")
		lease, err := sources[scheme].Lease(t.Context(), c.ref)
		switch {
		case c.fault != "":
			if err == nil || !strings.Contains(err.Error(), c.fault) {
				t.Errorf("%s: %v, want …%s…", c.name, err, c.fault)
			}
		case err != nil:
			t.Errorf("%s: %v", c.name, err)
		case string(lease.Value().Reveal()) != c.value:
			t.Errorf("%s: another value of %d bytes", c.name, len(lease.Value().Reveal()))
		case lease.Revoke(t.Context()) != nil || len(lease.Value().Reveal()) != 0:
			t.Errorf("%s: the value outlives the lease", c.name)
		}
		if warned != c.warning {
			t.Errorf("%s: warned %v, want %v", c.name, warned, c.warning)
		}
	}
}

// TestFlagSpellings: what has several spellings is put into one, or refused.
func TestFlagSpellings(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"192.0.2.1", "192.0.2.1:53"}, {"192.0.2.1:5353", "192.0.2.1:5353"}, {"2001:db8::1", "[2001:db8::1]:53"},
		{"[2001:db8::1]", "[2001:db8::1]:53"}, {"[2001:DB8::1]:54", "[2001:db8::1]:54"}, {"127.0.0.1:1", "127.0.0.1:1"},
		{"dns.example.com", ""}, {"dns.example.com:53", ""}, {"192.0.2.1:0", ""}, {"192.0.2.1:", ""}, {"fe80::1%eth0", ""},
		{"0.0.0.0", ""}, {"[::]:53", ""}, {"192.0.2.256", ""}, {"0x7f.1", ""}, {" 192.0.2.1", ""}, {"192.0.2.1:70000", ""},
	} {
		f := runFlags{resolver: c.in, approve: "deny"}
		err := f.check()
		if c.want == "" && (err == nil || !strings.Contains(err.Error(), "--resolver")) || c.want != "" && (err != nil || f.resolver != c.want) {
			t.Errorf("--resolver %s: %q, %v; want %q", c.in, f.resolver, err, c.want)
		}
	}
	for _, c := range []struct{ in, want string }{
		{"a.example.com:443", "a.example.com:443"}, {"A.Example.com:443", "a.example.com:443"}, {"a.example.com:443 A.example.com:443 b.example.com:1", "a.example.com:443 b.example.com:1"},
		{"*.example.com:443", "*.example.com:443"}, {"a.example.com", ""}, {"a.example.com:0", ""}, {"10.0.0.1:443", ""}, {"*.com:443", ""}, {"https://a.example.com:443", ""},
	} {
		f := runFlags{allow: strings.Fields(c.in), approve: "deny"}
		err := f.check()
		if c.want == "" && (err == nil || !strings.Contains(err.Error(), "--allow")) || c.want != "" && (err != nil || strings.Join(f.allow, " ") != c.want) {
			t.Errorf("--allow %s: %q, %v; want %q", c.in, f.allow, err, c.want)
		}
	}
}
