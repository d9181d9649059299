package docker

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	mobyseccomp "github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"

	"golang.org/x/sys/unix"

	"github.com/countersign-dev/countersign/policy/contract"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestProfileGolden: the profile is reviewed as a file; a newer moby/profiles
// that allows more shows here as a difference.
func TestProfileGolden(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64"} {
		text, digest, err := Profile(arch, contract.IsolationRunc)
		if err != nil {
			t.Fatal(err)
		}
		again, digest2, err := Profile(arch, contract.IsolationRunc)
		if err != nil || !bytes.Equal(text, again) || digest != digest2 {
			t.Errorf("%s: two calls differ", arch)
		}
		var readable bytes.Buffer
		if err := json.Indent(&readable, text, "", " "); err != nil {
			t.Fatal(err)
		}
		readable.WriteByte('\n')
		golden := filepath.Join("testdata", "seccomp-"+arch+".json")
		if *update {
			if err := os.WriteFile(golden, readable.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), readable.String()); diff != "" {
			t.Errorf("%s (-golden +now, go test -update writes it anew):\n%s", arch, diff)
		}
	}
}

func TestProfileOfAnotherArchitecture(t *testing.T) {
	if _, _, err := Profile("386", contract.IsolationRunc); err == nil {
		t.Error("there is a profile for 386")
	}
}

// TestProfileAsProved compares with the profile under which compilers, language
// runtimes and package managers were seen to work. Ours is that one,
// with socketpair(2) for local sockets only and without made-up signals.
func TestProfileAsProved(t *testing.T) {
	text, err := os.ReadFile("testdata/seccomp-proved-amd64.json")
	if err != nil {
		t.Fatal(err)
	}
	var proved profile
	if err := json.Unmarshal(text, &proved); err != nil {
		t.Fatal(err)
	}
	ours, err := buildProfile("amd64")
	if err != nil {
		t.Fatal(err)
	}
	if ours.DefaultAction != proved.DefaultAction || ours.DefaultErrnoRet != proved.DefaultErrnoRet {
		t.Errorf("default is %s %d", ours.DefaultAction, ours.DefaultErrnoRet)
	}
	if diff := cmp.Diff(proved.Architectures, ours.Architectures); diff != "" {
		t.Error(diff)
	}
	want, have := rulesByName(t, proved), rulesByName(t, ours)
	want["socketpair"] = []string{`{"action":"SCMP_ACT_ALLOW","args":[{"index":0,"value":1,"op":"SCMP_CMP_EQ"}]}`}
	for _, n := range []string{"rt_sigqueueinfo", "rt_tgsigqueueinfo"} {
		delete(want, n)
	}
	want["pidfd_send_signal"] = []string{`{"action":"SCMP_ACT_ALLOW","args":[{"index":2,"value":0,"op":"SCMP_CMP_EQ"}]}`}
	want["fcntl"] = have["fcntl"] // TestAllowAllBut
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("-proved +ours:\n%s", diff)
	}
}

// rulesByName are the rules of each call, sorted, each as JSON without names.
func rulesByName(t *testing.T, p profile) map[string][]string {
	t.Helper()
	rules := make(map[string][]string)
	for _, r := range p.Syscalls {
		text, err := json.Marshal(struct {
			Action   specs.LinuxSeccompAction `json:"action"`
			ErrnoRet *uint                    `json:"errnoRet,omitempty"`
			Args     []specs.LinuxSeccompArg  `json:"args,omitempty"`
		}{r.Action, r.ErrnoRet, r.Args})
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range r.Names {
			rules[n] = append(rules[n], string(text))
		}
	}
	for n := range rules {
		slices.Sort(rules[n])
	}
	return rules
}

// TestProfileAllowsNoMore: what is allowed is allowed by moby's default too, for
// a process without capabilities, and nothing that was withdrawn slips back in.
func TestProfileAllowsNoMore(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64"} {
		p, err := buildProfile(arch)
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Architectures) != 1 {
			t.Errorf("%s: architectures %v, want the native one only", arch, p.Architectures)
		}
		moby := make(map[string]bool)
		for _, s := range mobyseccomp.DefaultProfile().Syscalls {
			if s.Action == specs.ActAllow && applies(s, arch) {
				for _, n := range s.Names {
					moby[n] = true
				}
			}
		}
		conditional := []string{"clone", "socket", "socketpair", "personality", "prlimit64", "mknod", "mknodat", "pidfd_send_signal", "fcntl"}
		for i, r := range p.Syscalls {
			for _, n := range r.Names {
				if r.Action == specs.ActAllow && !moby[n] {
					t.Errorf("%s: %s is allowed, moby does not", arch, n)
				}
				if i == 0 && slices.Contains(conditional, n) {
					t.Errorf("%s: %s is allowed whatever its arguments", arch, n)
				}
				if i > 0 && r.Action == specs.ActAllow && (len(r.Args) == 0 || !slices.Contains(conditional, n)) {
					t.Errorf("%s: an unexpected rule allows %s", arch, n)
				}
			}
		}
		for _, w := range withdrawn() {
			for _, n := range w.names {
				if w.why == "" || slices.Contains(p.Syscalls[0].Names, n) {
					t.Errorf("%s: %s is withdrawn and yet allowed, or without a reason", arch, n)
				}
			}
		}
	}
}

// TestAllowAllBut: the kernel reads 32 bits of fcntl's command, so what stands in
// the other 32 must not matter.
func TestAllowAllBut(t *testing.T) {
	rules := allowAllBut("fcntl", 1, unix.F_SETSIG)
	allowed := func(v uint64) bool {
		return slices.ContainsFunc(rules, func(r rule) bool { return v&r.Args[0].Value == r.Args[0].ValueTwo })
	}
	for _, v := range []uint64{unix.F_SETSIG, unix.F_SETSIG | 1<<32, unix.F_SETSIG | 1<<63} {
		if allowed(v) {
			t.Errorf("fcntl command %#x is allowed", v)
		}
	}
	for _, v := range []uint64{unix.F_DUPFD, unix.F_GETFD, unix.F_SETFD, unix.F_GETFL, unix.F_SETFL, unix.F_SETLK, unix.F_SETLKW, unix.F_SETOWN, unix.F_GETSIG,
		unix.F_OFD_SETLK, unix.F_DUPFD_CLOEXEC, unix.F_SETPIPE_SZ, unix.F_ADD_SEALS, 0xffffffff} {
		if !allowed(v) {
			t.Errorf("fcntl command %#x is refused", v)
		}
	}
}

// TestProfileOfGVisor: gVisor gets the profile of runc but for three calls.
func TestProfileOfGVisor(t *testing.T) {
	ours, err := buildProfile("amd64")
	if err != nil {
		t.Fatal(err)
	}
	want, have := rulesByName(t, ours), rulesByName(t, leftToGVisor(ours))
	for _, n := range []string{"clone3", "splice", "tee"} {
		want[n] = []string{`{"action":"SCMP_ACT_ALLOW"}`}
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("-want +have:\n%s", diff)
	}
	_, plain, _ := Profile("amd64", contract.IsolationRunc)
	_, hardened, _ := Profile("amd64", contract.IsolationRunsc)
	if plain == hardened {
		t.Error("both isolations name one profile")
	}
}
