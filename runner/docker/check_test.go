package docker

import (
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/runner"
)

// planned is a Spec that nothing is wrong with, and the facts it was made for.
func planned(t *testing.T) (runner.Spec, runner.EngineFacts) {
	t.Helper()
	facts, err := judge(fit())
	if err != nil {
		t.Fatal(err)
	}
	b := bench{shim: "/opt/shim", image: "sha256:" + strings.Repeat("a", 64), dir: t.TempDir(), facts: facts}
	spec, _ := newSpec(t, b)
	return spec, facts
}

func TestCheckSpec(t *testing.T) {
	mount := func(i int, change func(*runner.Mount)) func(*runner.Spec) {
		return func(s *runner.Spec) { change(&s.Mounts[i]) }
	}
	for _, c := range []struct {
		says   string
		change func(*runner.Spec)
	}{
		{"schema", func(s *runner.Spec) { s.Schema = "countersign/spec/v2" }},
		{"container name", func(s *runner.Spec) { s.Name = "../x" }},
		{"role", func(s *runner.Spec) { s.Role = "" }},
		{"image id", func(s *runner.Spec) { s.Image = "debian:12" }},
		{"image id", func(s *runner.Spec) { s.Image = "debian@sha256:" + strings.Repeat("a", 64) }},
		{"image id", func(s *runner.Spec) { s.Image = "sha256:abc" }},
		{"isolation", func(s *runner.Spec) { s.Isolation = "" }},
		{"labels", func(s *runner.Spec) { delete(s.Labels, runner.LabelManaged) }},
		{"labels", func(s *runner.Spec) { delete(s.Labels, runner.LabelSandbox) }},
		{"uid 0", func(s *runner.Spec) { s.UID = 0 }},
		{"uid -1", func(s *runner.Spec) { s.UID = -1 }},
		{"uid 2147483648", func(s *runner.Spec) { s.UID = 1 << 31 }},
		{"hostname", func(s *runner.Spec) { s.Hostname = "" }},
		{"hostname", func(s *runner.Spec) { s.Hostname = "a b" }},
		{"working directory", func(s *runner.Spec) { s.Workdir = "workspace" }},
		{"working directory", func(s *runner.Spec) { s.Workdir = "/workspace/../etc" }},
		{"entrypoint", func(s *runner.Spec) { s.Entrypoint = nil }},
		{"entrypoint", func(s *runner.Spec) { s.Entrypoint = []string{"sh"} }},
		{"environment entry", func(s *runner.Spec) { s.Env = append(s.Env, "BARE") }},
		{"environment entry", func(s *runner.Spec) { s.Env = append(s.Env, "PATH=/evil") }},
		{"dropped variable", func(s *runner.Spec) { s.DropEnv = append(s.DropEnv, "PATH") }},
		{"dropped variable", func(s *runner.Spec) { s.DropEnv = append(s.DropEnv, "A=b") }},
		{"no name server", func(s *runner.Spec) { s.DNS = nil }},
		{"name server", func(s *runner.Spec) { s.DNS = []string{"127.0.0.1", "192.0.2.53"} }},
		{"name server", func(s *runner.Spec) { s.DNS = []string{"localhost"} }},
		{"search domains", func(s *runner.Spec) { s.DNSSearch = nil }},
		{"search domains", func(s *runner.Spec) { s.DNSSearch = []string{".", "corp.example"} }},
		{"lack the engine's own /proc/kcore", func(s *runner.Spec) {
			s.MaskedPaths = slices.DeleteFunc(s.MaskedPaths, func(p string) bool { return p == "/proc/kcore" })
		}},
		{"lack the engine's own /proc/sys", func(s *runner.Spec) { s.ReadonlyPaths = nil }},
		{"masked path", func(s *runner.Spec) { s.MaskedPaths = append(s.MaskedPaths, "secret") }},
		{"limit of memory", func(s *runner.Spec) { s.MemoryBytes = 0 }},
		{"limit of cpu", func(s *runner.Spec) { s.NanoCPUs = 0 }},
		{"limit of pids", func(s *runner.Spec) { s.Pids = -1 }},
		{"limit of shared memory", func(s *runner.Spec) { s.ShmBytes = 0 }},
		{"oom score", func(s *runner.Spec) { s.OOMScoreAdj = -1000 }},
		{"ulimit core", func(s *runner.Spec) { s.Ulimits = s.Ulimits[1:] }},
		{"ulimit core", func(s *runner.Spec) { s.Ulimits[0].Value = 1 }},
		{"ulimit msgqueue", func(s *runner.Spec) { s.Ulimits[4].Value = 819200 }},
		{"ulimit nofile", func(s *runner.Spec) { s.Ulimits = slices.Delete(s.Ulimits, 1, 2) }},
		{"ulimit fsize=-1", func(s *runner.Spec) { s.Ulimits[2].Value = -1 }},
		{"ulimit odd", func(s *runner.Spec) { s.Ulimits = append(s.Ulimits, runner.Ulimit{Name: "odd"}) }},
		{"seccomp profile", func(s *runner.Spec) { s.Seccomp = "unconfined" }},
		{"seccomp profile", func(s *runner.Spec) { s.Seccomp = "sha256:" + strings.Repeat("0", 64) }},
		{"sysctl kernel.msgmax", func(s *runner.Spec) { s.Sysctls["kernel.msgmax"] = "1" }},
		{"sysctl net", func(s *runner.Spec) { s.Sysctls["net.ipv4.ip_unprivileged_port_start"] = "x" }},
		{"read-only", mount(0, func(m *runner.Mount) { m.ReadOnly = false })},
		{"clean absolute path", mount(0, func(m *runner.Mount) { m.Source = "shim" })},
		{"no size", mount(0, func(m *runner.Mount) { m.Bytes = 1 })},
		{"volume has", mount(2, func(m *runner.Mount) { m.Bytes = 0 })},
		{"volume has", mount(2, func(m *runner.Mount) { m.Inodes = 0 })},
		{"volume has", mount(2, func(m *runner.Mount) { m.Source = "/etc" })},
		{"tmpfs has", mount(3, func(m *runner.Mount) { m.Inodes = 0 })},
		{"tmpfs has", mount(3, func(m *runner.Mount) { m.Mode = "4777" })},
		{"tmpfs has", mount(3, func(m *runner.Mount) { m.Mode = "0700,size=0" })},
		{"tmpfs has", mount(3, func(m *runner.Mount) { m.Source = "x" })},
		{"kind", mount(3, func(m *runner.Mount) { m.Kind = "image" })},
		{"twice", mount(3, func(m *runner.Mount) { m.Target = "/workspace" })},
		{"target", mount(3, func(m *runner.Mount) { m.Target = "/" })},
		{"target", mount(3, func(m *runner.Mount) { m.Target = "/tmp,exec" })},
		{"under /proc", mount(3, func(m *runner.Mount) { m.Target = "/proc/1" })},
		{"under /dev", mount(3, func(m *runner.Mount) { m.Target = "/dev/shm" })},
		{"under /sys", mount(3, func(m *runner.Mount) { m.Target = "/sys" })},
		{"2 volumes", func(s *runner.Spec) {
			s.Mounts = append(s.Mounts, runner.Mount{Kind: runner.MountVolume, Source: "other", Target: "/other", Bytes: 1, Inodes: 1, Mode: "0700"})
		}},
		{"CPUs", func(s *runner.Spec) { s.NanoCPUs = 5e9 }},
		{"MiB", func(s *runner.Spec) { s.MemoryBytes = 9 << 30 }},
	} {
		s, facts := planned(t)
		if err := checkSpec(s, facts); err != nil {
			t.Fatal("the good spec is refused: ", err)
		}
		c.change(&s)
		if err := checkSpec(s, facts); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("want a refusal that says %q, got %v", c.says, err)
		}
	}
}

// TestCheckBinds: no way to the engine's socket, by whatever name.
func TestCheckBinds(t *testing.T) {
	links := map[string]string{"/var/run/docker.sock": "/run/docker.sock", "/var/run": "/run", "/home/u/link": "/run/docker.sock", "/home/u/up": "/"}
	resolve := func(p string) (string, error) {
		if p == "/missing" {
			return "", fs.ErrNotExist
		}
		if real, ok := links[p]; ok {
			return real, nil
		}
		return p, nil
	}
	for _, c := range []struct {
		source  string
		refused bool
	}{
		{"/opt/shim", false}, {"/run/countersign/r1", false}, {"/run/docker", false},
		{"/", true}, {"/run", true}, {"/var/run", true}, {"/var", true}, {"/run/docker.sock", true}, {"/var/run/docker.sock", true},
		{"/home/u/link", true}, {"/home/u/up", true}, {"/run/containerd", true}, {"/run/containerd/containerd.sock", true}, {"/custom", true}, {"/missing", true},
	} {
		err := checkBinds([]runner.Mount{{Kind: runner.MountBind, Source: c.source, Target: "/x", ReadOnly: true}}, engineSockets("/custom/engine.sock"), resolve)
		if (err != nil) != c.refused {
			t.Errorf("%s: got %v, refused should be %t", c.source, err, c.refused)
		}
	}
}

func TestCovers(t *testing.T) {
	mounts := []runner.Mount{{Target: "/workspace"}, {Target: "/home/agent"}, {Target: "/run/countersign"}}
	for _, c := range []struct {
		volume string
		inodes string // of the cover; "" for none, "refused" for an error
	}{
		{"/data", "1"}, {"/data/", "1"}, {"/home", "2"}, {"/run", "2"}, {"/run/countersign", ""}, {"/workspace", ""}, {"/workspace/", ""}, {"/home/agent", ""},
		{"/workspace/cache", "refused"}, {"/home/agent/.npm", "refused"}, {"/", "refused"}, {"/proc/x", "refused"}, {"/dev/shm", "refused"}, {"data", "refused"}, {"/a:b", "refused"},
	} {
		got, err := covers([]string{c.volume}, mounts)
		switch options := got[strings.TrimSuffix(c.volume, "/")]; {
		case c.inodes == "refused" && err == nil:
			t.Errorf("%s is not refused: %v", c.volume, got)
		case c.inodes == "" && (err != nil || len(got) != 0):
			t.Errorf("%s is covered: %v, %v", c.volume, got, err)
		case c.inodes != "" && c.inodes != "refused" && (err != nil || !strings.HasSuffix(options, "nr_inodes="+c.inodes) || !strings.HasPrefix(options, "ro,noexec,nosuid,nodev,size=4096,")):
			t.Errorf("%s: got %q, %v", c.volume, options, err)
		}
	}
	nested, err := covers([]string{"/data", "/data/a/b"}, nil)
	if err != nil || !strings.HasSuffix(nested["/data"], "nr_inodes=3") || !strings.HasSuffix(nested["/data/a/b"], "nr_inodes=1") {
		t.Errorf("nested volumes: %v, %v", nested, err)
	}
}

func TestOptions(t *testing.T) {
	m := runner.Mount{Kind: runner.MountTmpfs, Target: "/tmp", Bytes: 4096, Inodes: 7, Mode: "1777", Exec: true}
	if got, want := tmpfsOptions(m, 9), "rw,exec,nosuid,nodev,size=4096,nr_inodes=7,mode=1777,uid=0,gid=0"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	m.Exec, m.Owned, m.ReadOnly = false, true, true
	if got, want := tmpfsOptions(m, 9), "ro,noexec,nosuid,nodev,size=4096,nr_inodes=7,mode=1777,uid=9,gid=9"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestMountedAt(t *testing.T) {
	const table = `22 1 8:1 / / rw - ext4 /dev/sda1 rw
30 22 0:41 / /workspace rw,nosuid - tmpfs tmpfs rw
31 22 0:42 / /a\040b rw - tmpfs tmpfs rw
32 22 0:43 / /workspace rw - tmpfs tmpfs rw
`
	for _, c := range []struct{ target, device string }{
		{"/", "8:1"}, {"/workspace", "0:43"}, {"/a b", "0:42"}, {"/work", ""},
	} {
		got, err := mountedAt(strings.NewReader(table), c.target)
		if got != c.device || (err == nil) != (c.device != "") {
			t.Errorf("%s: got %q, %v", c.target, got, err)
		}
	}
}

// TestIsWorkspaceRefuses: a directory that is not the container's tmpfs is no
// workspace, even when it is a directory.
func TestIsWorkspaceRefuses(t *testing.T) {
	m := runner.Mount{Target: "/", Bytes: 4096, Inodes: 1}
	if err := isWorkspace(t.TempDir(), m, "self", "/"); err == nil {
		t.Error("an ordinary directory passes")
	}
	if err := isWorkspace("/nowhere", m, "self", "/"); err == nil {
		t.Error("a missing directory passes")
	}
	if err := isWorkspace("/dev/null", m, "self", "/"); err == nil {
		t.Error("a file passes")
	}
}
