package runner

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/runner/shim/protocol"
)

var update = flag.Bool("update", false, "write the golden files anew")

// The golden pair: a contract and what the engine and the shim are told.
func TestCompileGolden(t *testing.T) {
	spec, job, err := Compile(sealed(t, sample()), place())
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string]any{"spec": spec, "job": job} {
		got, err := contract.EncodeCanonical(v)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join("testdata", name+".json")
		if *update {
			if err := os.WriteFile(path, append(got, '\n'), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(strings.TrimSpace(string(want)), string(got)); diff != "" {
			t.Errorf("%s differs (-want +got):\n%s", name, diff)
		}
	}
}

// What a reader must be able to rely on, said apart from the golden file.
func TestCompileKeepsTheContract(t *testing.T) {
	c := sample()
	spec, job, err := Compile(sealed(t, c), place())
	if err != nil {
		t.Fatal(err)
	}
	if spec.MemoryBytes != 1024<<20 || spec.NanoCPUs != 1_500_000_000 || spec.Pids != 128 || spec.ShmBytes != 16<<20 {
		t.Errorf("limits: %d bytes, %d nanocpus, %d pids, %d shm", spec.MemoryBytes, spec.NanoCPUs, spec.Pids, spec.ShmBytes)
	}
	if spec.Image != digestOf("4") {
		t.Errorf("image %s: want it by id", spec.Image)
	}
	if !slices.Equal(spec.DropEnv, []string{"FOO", "LD_PRELOAD"}) {
		t.Errorf("image variables dropped: %v", spec.DropEnv)
	}
	for _, p := range []string{"/proc/kcore", "/var/run/secrets"} {
		if !slices.Contains(spec.MaskedPaths, p) {
			t.Errorf("%s is not masked", p)
		}
	}
	if got := DeniedInside(c.ReadDenied); !slices.Equal(got, []string{"deploy/keys"}) {
		t.Errorf("denied inside the workspace: %v", got)
	}
	if !slices.Contains(job.Env, "CI=1") || slices.ContainsFunc(job.Env, func(e string) bool { return strings.HasPrefix(e, "DOCKER_") }) {
		t.Errorf("environment: %v", job.Env)
	}
	if job.Stop.TimeoutSec != 60 {
		t.Errorf("the shim's own deadline is %d s", job.Stop.TimeoutSec)
	}
	for _, m := range spec.Mounts {
		if m.Kind == MountBind && !m.ReadOnly {
			t.Errorf("bind mount at %s is writable", m.Target)
		}
	}
	c.WritableRoots = []contract.Root{{Path: "/dev/shm"}, {Path: "/home/agent"}, {Path: "/tmp"}}
	c.Outputs.Kind = contract.OutputNone
	c.Level, _ = contract.LevelOf(c)
	spec, _, err = Compile(sealed(t, c), place())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range spec.Mounts {
		if m.Target == WorkspaceDir && !m.ReadOnly {
			t.Error("a workspace that is no writable root is mounted writable")
		}
	}
}

// Two runs of one contract on two placements differ in nothing but placement.
func TestCompileIsPure(t *testing.T) {
	s := sealed(t, sample())
	a, _, err := Compile(s, place())
	if err != nil {
		t.Fatal(err)
	}
	b, _, _ := Compile(s, place())
	if diff := cmp.Diff(a, b); diff != "" {
		t.Errorf("two compilations differ:\n%s", diff)
	}
}

func TestCompileRefusesAnotherImage(t *testing.T) {
	p := place()
	p.Image.ID = digestOf("f")
	if _, _, err := Compile(sealed(t, sample()), p); err == nil {
		t.Error("compiled for an image that the contract does not pin")
	}
	c := sample()
	c.Image = contract.Image{Ref: "example/ci@" + digestOf("7"), Digest: digestOf("7"), DigestKind: contract.DigestRepo}
	if _, _, err := Compile(sealed(t, c), p); err == nil {
		t.Error("compiled for an image without the pinned manifest digest")
	}
	p.Image.RepoDigests = []string{"example/ci@" + digestOf("7")}
	if _, _, err := Compile(sealed(t, c), p); err != nil {
		t.Errorf("the pinned manifest digest: %v", err)
	}
}

func TestCompileRefusesAnUnsealedContract(t *testing.T) {
	if _, _, err := Compile(contract.Sealed{}, place()); err == nil {
		t.Error("compiled a contract that nobody sealed")
	}
}

func TestHoldSpec(t *testing.T) {
	spec, _, err := Compile(sealed(t, sample()), place())
	if err != nil {
		t.Fatal(err)
	}
	hold := HoldSpec(spec, "/var/lib/countersign/run/h")
	if hold.Name == spec.Name || hold.Entrypoint[1] != "hold" || hold.Role != RoleHold {
		t.Errorf("name %s, entrypoint %v, role %s", hold.Name, hold.Entrypoint, hold.Role)
	}
	for _, m := range hold.Mounts {
		if !m.ReadOnly || m.Kind == MountVolume && !m.Existing {
			t.Errorf("mount of the holder: %+v", m)
		}
		if m.Source == place().SocketDir {
			t.Error("the holder's socket is where the workload can reach it")
		}
	}
	if spec.Mounts[2].ReadOnly || spec.Mounts[2].Existing {
		t.Error("making the holder's spec changed the sandbox's")
	}
}

// Each line takes one thing that has no executor yet; admission names it.
func TestAdmit(t *testing.T) {
	for _, tt := range []struct {
		want   string // "" is admitted
		change func(*contract.Contract)
	}{
		{"", func(c *contract.Contract) {}},
		{"", func(c *contract.Contract) { c.Runtime = RuntimeCommand }},
		{"", func(c *contract.Contract) {
			c.Outputs.Kind, c.Outputs.Push = contract.OutputPullRequest, contract.PushApproved
		}},
		{"api", func(c *contract.Contract) {
			c.Network.Allow = []contract.NetRule{{Host: "m.internal", Port: 80, API: "anthropic-messages"}}
		}},
		{"number of uses", func(c *contract.Contract) {
			c.Network.Allow = []contract.NetRule{{Host: "example.com", Port: 443, Grant: &contract.Grant{Uses: 1}}}
		}},
		{`runtime "claude-code"`, func(c *contract.Contract) { c.Runtime = "claude-code" }},
		{"prompt", func(c *contract.Contract) { c.PromptDigest = digestOf("1") }},
		{"argv", func(c *contract.Contract) { c.Argv = nil }},
		{"tools", func(c *contract.Contract) { c.Tools = []contract.Tool{{Name: "Bash"}} }},
		{"tools", func(c *contract.Contract) { c.HostedTools = []string{"web_search"} }},
		{"host execution", func(c *contract.Contract) { c.ExecutionClass = contract.ClassNode }},
		{"outputs", func(c *contract.Contract) { c.Outputs.Kind = contract.OutputComment }},
		{"outputs", func(c *contract.Contract) { c.Outputs.Push = contract.PushTrusted }},
		{"writable root /data", func(c *contract.Contract) { c.WritableRoots = append(c.WritableRoots, contract.Root{Path: "/data"}) }},
		{"writable root /workspace/build", func(c *contract.Contract) {
			c.WritableRoots = append(c.WritableRoots, contract.Root{Path: "/workspace/build"})
		}},
		{"without a writable /tmp", func(c *contract.Contract) {
			c.WritableRoots = slices.DeleteFunc(c.WritableRoots, func(r contract.Root) bool { return r.Path == "/tmp" })
		}},
		{"read_denied /proc/self", func(c *contract.Contract) { c.ReadDenied = []string{"/proc/self"} }},
		{"read_denied /run/countersign", func(c *contract.Contract) { c.ReadDenied = []string{"/run/countersign"} }},
		{"read_denied /countersign/shim", func(c *contract.Contract) { c.ReadDenied = []string{"/countersign/shim"} }},
		{"read_denied /run", func(c *contract.Contract) { c.ReadDenied = []string{"/run"} }},
		{"read_denied /workspace/.git", func(c *contract.Contract) { c.ReadDenied = []string{"/workspace/.git"} }},
		{"read_denied /workspace", func(c *contract.Contract) { c.ReadDenied = []string{"/workspace"} }},
		{"", func(c *contract.Contract) {
			c.ReadDenied = []string{"/workspace/deploy", "/etc/ssl/private", "/workspace/.github"}
		}},
		{"workdir /tmp", func(c *contract.Contract) { c.Workdir = "/tmp" }},
	} {
		c := sample()
		tt.change(&c)
		got := strings.Join(Admit(c), "; ")
		if (tt.want == "") != (got == "") || !strings.Contains(got, tt.want) {
			t.Errorf("want %q, got %q", tt.want, got)
		}
	}
}

func TestJobHasTheShimLast(t *testing.T) {
	if !strings.HasSuffix(defaultPath, ":"+protocol.ShimBinDir) {
		t.Errorf("PATH is %s: the image's own programs come first", defaultPath)
	}
}

// gVisor's own threads count against the limit of processes: a holder has room
// for them, and a contract without is refused by name.
func TestPidsUnderGVisor(t *testing.T) {
	c := sample()
	c.Isolation, c.ExecutionClass, c.Limits.Pids = contract.IsolationRunsc, contract.ClassHardenedSandbox, gvisorPids
	spec, _, err := Compile(sealed(t, c), place())
	if err != nil {
		t.Fatal(err)
	}
	if hold := HoldSpec(spec, "/var/lib/countersign/run/h"); hold.Pids != gvisorPids {
		t.Errorf("the holder has %d", hold.Pids)
	}
	c.Limits.Pids--
	if no := Admit(c); len(no) != 1 || !strings.Contains(no[0], "limits.pids") {
		t.Errorf("one fewer is refused with %q", no)
	}
}
