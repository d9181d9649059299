package shim_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/runner"
	"github.com/countersign-dev/countersign/runner/docker"
	"github.com/countersign-dev/countersign/runner/shim/protocol"
)

// sandbox is the real shim in a real container of the real engine.
type sandbox struct {
	host
	spec runner.Spec
	box  runner.Sandbox
}

// setting is what a test wants changed of a sandbox.
type setting struct {
	isolation contract.Isolation   // by default runc
	image     string               // reference; by default one that holds one file
	spec      func(*runner.Spec)   // changes the spec
	beside    func(sockets string) // makes sockets beside the control socket
}

// enter starts a sandbox on an image that holds one file, and takes its Hello.
func enter(t *testing.T) *sandbox { return enterAs(t, setting{isolation: contract.IsolationRunc}) }

func enterAs(t *testing.T, as setting) *sandbox {
	t.Helper()
	ctx := t.Context()
	engine, err := docker.New(docker.Config{Host: os.Getenv("DOCKER_HOST")})
	need(t, err == nil, fmt.Sprintf("a Docker Engine (%v)", err))
	facts, err := engine.Preflight(ctx, as.isolation)
	need(t, err == nil, fmt.Sprintf("a Docker Engine (%v)", err))
	var imageID string
	if as.image == "" {
		imageID = oneFileImage(t)
	} else {
		fact, err := engine.Image(ctx, as.image)
		need(t, err == nil && fact != nil, fmt.Sprintf("the image %s (make sandbox-image; %v)", as.image, err))
		imageID = fact.ID
	}

	dir, err := os.MkdirTemp("", "cs-shim") // not t.TempDir: a socket's path has 108 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	bin, sockets := filepath.Join(dir, "shim"), filepath.Join(dir, "run")
	err = errors.Join(os.Chmod(dir, 0o755), os.MkdirAll(filepath.Join(bin, "bin"), 0o755), os.Mkdir(sockets, 0o755),
		copyFile(binary(t), filepath.Join(bin, "shim")), copyFile(binary(t), filepath.Join(bin, "bin", "countersign")))
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(sockets, "control.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.Chmod(socket, 0o666); err != nil {
		t.Fatal(err)
	}

	s := &sandbox{host: host{t: t, waited: true}, spec: spec(facts, imageID, bin, sockets)}
	s.spec.Isolation = as.isolation
	if as.spec != nil {
		as.spec(&s.spec)
	}
	if as.beside != nil {
		as.beside(sockets)
	}
	if s.box, err = engine.Create(ctx, s.spec); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.box.Remove(ctx); err != nil {
			t.Error(err)
		}
	})
	if _, err := s.box.Start(ctx); err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetDeadline(time.Now().Add(patience))
	raw, err := l.Accept()
	if err != nil {
		t.Fatalf("the shim did not dial: %v", err)
	}
	s.conn = protocol.NewConn(raw)
	t.Cleanup(func() { s.conn.Close() })
	var hello protocol.Hello
	s.expect(protocol.KindHello, &hello)
	if hello.UID != s.spec.UID || hello.PID != 1 {
		t.Fatalf("hello says %+v", hello)
	}
	return s
}

func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o755)
}

// oneFileImage imports an image with a file that any uid may read.
func oneFileImage(t *testing.T) string {
	t.Helper()
	api, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	if err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	const text = "in the image\n"
	err = errors.Join(
		w.WriteHeader(&tar.Header{Name: "etc/", Mode: 0o777, Typeflag: tar.TypeDir}),
		w.WriteHeader(&tar.Header{Name: "etc/plain", Mode: 0o644, Size: int64(len(text))}))
	if err == nil {
		_, err = io.WriteString(w, text)
	}
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	changes := []string{"ENV FROM_IMAGE=1", `ENTRYPOINT ["/no/such/program"]`}
	reply, err := api.ImageImport(t.Context(), image.ImportSource{Source: &archive, SourceName: "-"}, "", image.ImportOptions{Changes: changes})
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Close()
	var last struct{ Status, Error string }
	for d := json.NewDecoder(reply); ; {
		if err := d.Decode(&last); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if _, err := api.ImageRemove(context.Background(), last.Status, image.RemoveOptions{Force: true}); err != nil {
			t.Error(err)
		}
		api.Close()
	})
	return last.Status
}

func spec(facts runner.EngineFacts, imageID, bin, sockets string) runner.Spec {
	name := fmt.Sprintf("shimtest-%d", os.Getpid())
	return runner.Spec{
		Schema: runner.SchemaSpec, Name: name, Role: runner.RoleWork, Image: imageID, Isolation: contract.IsolationRunc,
		UID: 1234567, Hostname: "sandbox", Workdir: "/workspace",
		DNS: []string{"127.0.0.1"}, DNSSearch: []string{"."},
		Entrypoint: []string{protocol.ShimPath, "init"},
		Env:        []string{"PATH=" + protocol.ShimBinDir, "HOME=/home/agent"},
		DropEnv:    []string{"FROM_IMAGE"},
		Mounts: []runner.Mount{
			{Kind: runner.MountBind, Source: bin, Target: protocol.ShimDir, ReadOnly: true, Exec: true},
			{Kind: runner.MountBind, Source: sockets, Target: protocol.SocketDir, ReadOnly: true},
			{Kind: runner.MountVolume, Source: name + "-ws", Target: "/workspace", Bytes: 8 << 20, Inodes: 128, Mode: "0700", Exec: true, Owned: true},
			{Kind: runner.MountTmpfs, Target: "/tmp", Bytes: 4 << 20, Inodes: 64, Mode: "1777", Exec: true},
		},
		MaskedPaths: slices.Clone(facts.MaskedPaths), ReadonlyPaths: slices.Clone(facts.ReadonlyPaths),
		MemoryBytes: 128 << 20, NanoCPUs: 1e9, Pids: 40, ShmBytes: 1 << 20, OOMScoreAdj: 500,
		Ulimits: []runner.Ulimit{
			{Name: "core", Value: 0}, {Name: "fsize", Value: 8 << 20}, {Name: "memlock", Value: 65536},
			{Name: "msgqueue", Value: 0}, {Name: "nofile", Value: 256}, {Name: "sigpending", Value: 128},
		},
		Seccomp: facts.SeccompDigest,
		Sysctls: map[string]string{"net.ipv4.ip_unprivileged_port_start": "0"},
		Labels: runner.Labels{
			runner.LabelManaged: "1", runner.LabelSandbox: name, runner.LabelDeadline: "4102444800",
			runner.LabelRunDir: sockets, runner.LabelUID: "1234567",
		},
	}
}

// What the probe says of a sandbox as it must be: everything is refused that is
// to be refused, and every reading could be taken.
func TestProbeInASandbox(t *testing.T) {
	s := enter(t)
	ask := protocol.Probe{
		Stage: "before", Names: []string{"unlisted.invalid"}, Addresses: []string{"169.254.169.254:80", "[fd00:ec2::254]:80", "127.0.0.1:2375"},
		Sockets: []string{"/var/run/docker.sock"}, Unwritable: []string{"/", "/etc", "/proc/sys/kernel"},
		Writable: []string{"/workspace", "/tmp", "/dev/shm"}, Unreadable: []string{"/proc/keys"},
		Mounts: []string{"/", "/workspace", "/tmp", "/dev/shm", "/countersign"},
	}
	s.send(protocol.KindProbe, ask)
	var got protocol.Probed
	s.expect(protocol.KindProbed, &got)

	result := map[string]string{}
	for _, a := range got.Attempts {
		result[a.Kind+" "+a.Target] = a.Result
	}
	for _, c := range protocol.Calls() {
		if r := result["syscall "+c.Name]; !slices.Contains(c.Refused, r) && r != protocol.Unsupported {
			t.Errorf("%s: %q, want one of %q", c.Name, r, c.Refused)
		}
	}
	for attempt, want := range map[string]string{
		"ptrace 1": "EPERM", "create /": "EROFS", "create /etc": "EROFS",
		"create /workspace": "ok", "create /tmp": "ok", "create /dev/shm": "ok",
		"create /countersign": "EROFS", "create /run/countersign": "EROFS", "create /dev": "EACCES",
		"read /proc/keys": "empty", "unix /var/run/docker.sock": "ENOENT",
		"dial 169.254.169.254:80": "ENETUNREACH", "dial udp/169.254.169.254:80": "ENETUNREACH",
		"dial 127.0.0.1:2375":  "ECONNREFUSED",
		"proc /proc/1/environ": "EACCES", "proc /proc/1/mem": "EACCES", "proc /proc/1/maps": "EACCES", "proc /proc/1/root": "EACCES",
		"proc /proc/1/fd": "EACCES", "proc /proc/1/cwd": "EACCES", "proc /proc/1/exe": "EACCES",
	} {
		if result[attempt] != want {
			t.Errorf("%s: %q, want %q", attempt, result[attempt], want)
		}
	}
	for _, attempt := range []string{"resolve unlisted.invalid", "dial unlisted.invalid:80", "dial unlisted.invalid:443", "dial [fd00:ec2::254]:80", "create /proc/sys/kernel"} {
		if r := result[attempt]; r == "" || r == "ok" {
			t.Errorf("%s: %q", attempt, r)
		}
	}
	for field, want := range map[string]string{
		"Uid": "1234567 1234567 1234567 1234567", "Gid": "1234567 1234567 1234567 1234567", "CapEff": "0000000000000000",
		"CapBnd": "0000000000000000", "CapAmb": "0000000000000000", "NoNewPrivs": "1", "Seccomp": "2", "Umask": "0022", "TracerPid": "0",
	} {
		if got.Status[field] != want {
			t.Errorf("status %s is %q, want %q", field, got.Status[field], want)
		}
	}
	for limit, want := range map[string]int64{
		"memory": 128 << 20, "pids": 40, "cpu_milli": 1000, "nofile": 256, "core": 0, "fsize": 8 << 20, "memlock": 65536, "msgqueue": 0, "sigpending": 128,
	} {
		if n, ok := got.Limits[limit]; !ok || n != want {
			t.Errorf("limit %s is %d, %v, want %d", limit, n, ok, want)
		}
	}
	if !slices.Equal(got.Links, []string{"lo"}) || len(got.Routes) != 0 {
		t.Errorf("links %q, routes %q", got.Links, got.Routes)
	}
	if m := got.Mounts["/workspace"]; m.Type != "tmpfs" || m.Bytes != 8<<20 || m.Inodes != 128 || m.Flags != "nodev,nosuid,relatime,rw" {
		t.Errorf("/workspace is %+v", m)
	}
	if slices.Sort(got.Env); !slices.Equal(got.Env, []string{"HOME", "HOSTNAME", "PATH"}) {
		t.Errorf("environment names are %q", got.Env)
	}
	if !slices.Equal(got.Proc, []string{"shim", "shim"}) {
		t.Errorf("processes are %q", got.Proc)
	}
	if t.Failed() {
		text, _ := json.MarshalIndent(got, "", " ")
		t.Logf("all readings: %s", text)
	}
}

// A whole run in a container: the engine sees the workload's status.
func TestRunInASandbox(t *testing.T) {
	s := enter(t)
	s.send(protocol.KindLoad, protocol.Load{Dir: "/workspace"})
	s.expect(protocol.KindLoaded, &protocol.Loaded{})
	j := job("countersign", "request")
	j.Cwd, j.Env = "/workspace", []string{"PATH=" + protocol.ShimBinDir}
	r := s.run(j, nil)
	if r.Code != 125 || r.NotStarted != "" || r.MemoryFailures != 0 || r.PidsFailures != 0 || r.WorkspaceFull {
		t.Errorf("exited %+v", r.Exited)
	}
	if !bytes.Contains([]byte(r.stderr()), []byte("not built yet")) {
		t.Errorf("the sandbox's own countersign says %q", r.stderr())
	}
	s.alone()
	s.send(protocol.KindBye, nil)
	exit, err := s.box.Wait(t.Context())
	if err != nil || exit.Code != 125 || exit.OOMKilled {
		t.Errorf("the engine says %+v, %v", exit, err)
	}
}
