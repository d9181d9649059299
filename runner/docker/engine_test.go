package docker

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/volume"
	"golang.org/x/sys/unix"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/runner"
)

// bench is what the tests on the real engine share: made once, removed at the
// end, when nothing may be left of any test.
type bench struct {
	engine *Engine
	facts  runner.EngineFacts
	shim   string // directory that holds the test's own PID 1, as "shim"
	image  string // id of the hostile image
	dir    string
	lock   *os.File // held while the tests run
	skip   string   // why there is no engine to test on
	broken string   // why there is one but no bench
}

// theBench is set by TestMain before any test runs.
var theBench bench

// counter numbers runs, so that names and uids are used once.
var counter atomic.Int64

func TestMain(m *testing.M) {
	theBench = setUp()
	code := m.Run()
	if left := theBench.tearDown(); left != "" {
		fmt.Fprintln(os.Stderr, "FAIL: left behind:", left)
		code = 1
	}
	os.Exit(code)
}

func setUp() (b bench) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	engine, err := New(Config{Host: os.Getenv("DOCKER_HOST")})
	if err != nil {
		return bench{skip: err.Error()}
	}
	if b.facts, err = engine.Preflight(ctx, contract.IsolationRunc); err != nil {
		return bench{skip: err.Error()}
	}
	b.engine = engine
	if b.dir, err = os.MkdirTemp("", "cs-docker"); err != nil {
		return bench{broken: err.Error()}
	}
	// The lock by which a run is known to be alive: other packages' tests reap.
	lock, err := os.Create(filepath.Join(b.dir, "lock"))
	if err != nil {
		return bench{broken: err.Error()}
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return bench{broken: err.Error()}
	}
	b.lock = lock
	b.shim = filepath.Join(b.dir, "shim")
	build := exec.Command("go", "build", "-o", filepath.Join(b.shim, "shim"), "./testdata/inside")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		b.broken = fmt.Sprintf("building the test's PID 1: %v\n%s", err, out)
		return b
	}
	b.image, err = importImage(ctx, engine, hostileChanges(), hostileFiles(filepath.Join(b.shim, "shim")))
	if err != nil {
		b.broken = "importing the test's image: " + err.Error()
	}
	return b
}

// tearDown removes the bench and says what the tests have left of their own.
func (b bench) tearDown() string {
	if b.engine == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	left := b.leftovers(ctx, runPrefix())
	if b.image != "" {
		if _, err := b.engine.api.ImageRemove(ctx, b.image, image.RemoveOptions{Force: true}); err != nil {
			left = append(left, err.Error())
		}
	}
	os.RemoveAll(b.dir)
	return strings.Join(left, ", ")
}

// leftovers lists containers and volumes whose run begins with prefix. Other
// packages' tests use the same engine at the same time: theirs do not count.
func (b bench) leftovers(ctx context.Context, prefix string) (left []string) {
	ours := filters.NewArgs(filters.Arg("label", runner.LabelSandbox))
	containers, err := b.engine.api.ContainerList(ctx, container.ListOptions{All: true, Filters: ours})
	if err != nil {
		return []string{err.Error()}
	}
	for _, c := range containers {
		if strings.HasPrefix(c.Labels[runner.LabelSandbox], prefix) {
			left = append(left, "container "+c.Names[0])
		}
	}
	volumes, err := b.engine.api.VolumeList(ctx, volume.ListOptions{Filters: ours})
	if err != nil {
		return append(left, err.Error())
	}
	for _, v := range volumes.Volumes {
		if strings.HasPrefix(v.Labels[runner.LabelSandbox], prefix) {
			left = append(left, "volume "+v.Name)
		}
	}
	return left
}

func runPrefix() string { return fmt.Sprintf("dockertest-%d-", os.Getpid()) }

// needEngine skips without an engine, and fails when the machine promised one.
func needEngine(t *testing.T) bench {
	t.Helper()
	if theBench.broken != "" {
		t.Fatal(theBench.broken)
	}
	if theBench.skip == "" {
		return theBench
	}
	if os.Getenv("COUNTERSIGN_TEST_REQUIRE_DOCKER") == "1" {
		t.Fatal("no usable Docker Engine: ", theBench.skip)
	}
	t.Skip("no usable Docker Engine: ", theBench.skip)
	return bench{}
}

// hostileChanges is a configuration that tries everything an image can.
func hostileChanges() []string {
	return []string{
		`ENTRYPOINT ["/evil","entry"]`, `CMD ["evil-argument"]`, `USER root`, `WORKDIR /evil`, `VOLUME /data`, `VOLUME /home`,
		`ENV LD_PRELOAD=/evil.so`, `ENV HTTP_PROXY=http://evil.example:1`, `ENV HOME=/evil`, `ENV IMAGE_ONLY=1`,
		`HEALTHCHECK --interval=1s CMD ["/evil","healthy"]`, `EXPOSE 80`, `LABEL image.own=1`,
	}
}

type file struct {
	name string
	mode int64
	body []byte
}

// hostileFiles are files that try to change who runs, and a setuid program.
func hostileFiles(program string) []file {
	binary, err := os.ReadFile(program)
	if err != nil {
		return nil
	}
	return []file{
		{"etc/passwd", 0o644, []byte(fmt.Sprintf("%d:x:0:0:evil:/evil:/evil\nuser:x:%d:0:evil:/evil:/evil\n", firstUID, firstUID))},
		{"etc/group", 0o644, []byte(fmt.Sprintf("evil:x:0:user,%d\nroot:x:0:user\n", firstUID))},
		{"evil.so", 0o755, []byte("not a library")},
		{"setuid", 0o6755, binary},
		{"evil", 0o755, binary},
		{"data/planted", 0o666, []byte("planted")},
		{"tmp/planted", 0o666, []byte("planted")},
		{"workspace/planted", 0o666, []byte("planted")},
		{"secret/key", 0o644, []byte("a key")},
		{"plain", 0o666, []byte("plain")},
		{"open/", 0o777, nil},
	}
}

// archive is a tar of files; a name that ends in a slash is a directory.
func archive(files []file) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.body)), Typeflag: tar.TypeReg}
		if strings.HasSuffix(f.name, "/") {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.body); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// importImage makes an image without a registry.
func importImage(ctx context.Context, e *Engine, changes []string, files []file) (string, error) {
	root, err := archive(files)
	if err != nil {
		return "", err
	}
	reply, err := e.api.ImageImport(ctx, image.ImportSource{Source: bytes.NewReader(root), SourceName: "-"}, "", image.ImportOptions{Changes: changes})
	if err != nil {
		return "", err
	}
	defer reply.Close()
	var last struct{ Status, Error string }
	for d := json.NewDecoder(reply); ; {
		if err := d.Decode(&last); err == io.EOF {
			break
		} else if err != nil {
			return "", err
		}
	}
	if !isImageID(last.Status) {
		return "", fmt.Errorf("importing: %s%s", last.Status, last.Error)
	}
	return last.Status, nil
}

// firstUID is the uid of the first sandbox; the hostile image claims it.
const firstUID = 231072

// newSpec is a Spec as Compile would make one, small.
func newSpec(t *testing.T, b bench) (runner.Spec, string) {
	t.Helper()
	n := counter.Add(1)
	// Not t.TempDir: a Unix socket's path has 108 bytes.
	dir, err := os.MkdirTemp(b.dir, "run")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	run := fmt.Sprintf("%s%d", runPrefix(), n)
	return runner.Spec{
		Schema: runner.SchemaSpec, Name: run, Role: runner.RoleWork, Image: b.image, Isolation: contract.IsolationRunc,
		UID: firstUID, Hostname: "sandbox", Workdir: "/workspace",
		DNS: []string{"127.0.0.1"}, DNSSearch: []string{"."},
		Entrypoint: []string{"/countersign/shim", "serve"},
		Env:        []string{"PATH=/usr/bin:/bin", "HOME=/home/agent"},
		DropEnv:    []string{"HTTP_PROXY", "IMAGE_ONLY", "LD_PRELOAD"},
		Mounts: []runner.Mount{
			{Kind: runner.MountBind, Source: b.shim, Target: "/countersign", ReadOnly: true, Exec: true},
			{Kind: runner.MountBind, Source: dir, Target: "/run/countersign", ReadOnly: true},
			{Kind: runner.MountVolume, Source: run + "-ws", Target: "/workspace", Bytes: 8 << 20, Inodes: 128, Mode: "0700", Exec: true, Owned: true},
			{Kind: runner.MountTmpfs, Target: "/tmp", Bytes: 4 << 20, Inodes: 64, Mode: "1777", Exec: true, Owned: true},
			{Kind: runner.MountTmpfs, Target: "/home/agent", Bytes: 2 << 20, Inodes: 32, Mode: "0700", Owned: true},
		},
		MaskedPaths: append(MaskedPaths(), "/secret"), ReadonlyPaths: ReadonlyPaths(),
		MemoryBytes: 128 << 20, NanoCPUs: 1e9, Pids: 24, ShmBytes: 1 << 20, OOMScoreAdj: 500,
		Ulimits: []runner.Ulimit{
			{Name: "core", Value: 0}, {Name: "nofile", Value: 256}, {Name: "fsize", Value: 6 << 20},
			{Name: "memlock", Value: 65536}, {Name: "msgqueue", Value: 0}, {Name: "sigpending", Value: 128},
		},
		Seccomp: b.facts.SeccompDigest,
		Sysctls: map[string]string{"net.ipv4.ip_unprivileged_port_start": "0"},
		Labels: runner.Labels{
			runner.LabelManaged: "1", runner.LabelSandbox: run, runner.LabelDeadline: "4102444800",
			runner.LabelRunDir: b.dir, runner.LabelUID: fmt.Sprint(firstUID),
		},
	}, dir
}

// create makes a sandbox that is removed at the end of the test.
func create(t *testing.T, e *Engine, spec runner.Spec) *sandbox {
	t.Helper()
	made, err := e.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removed(t, made) })
	return made.(*sandbox)
}

func removed(t *testing.T, s runner.Sandbox) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := s.Remove(ctx); err != nil {
		t.Error(err)
	}
}

// inside is a running sandbox that tries what it is told.
type inside struct {
	t       *testing.T
	box     *sandbox
	started runner.Started
	conn    net.Conn
	answers *bufio.Scanner
}

// enter starts a sandbox and waits for it to dial out.
func enter(t *testing.T, b bench, spec runner.Spec, dir string) *inside {
	t.Helper()
	socket := filepath.Join(dir, "test.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.Chmod(socket, 0o666); err != nil {
		t.Fatal(err)
	}
	box := create(t, b.engine, spec)
	started, err := box.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := l.(*net.UnixListener).SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	conn, err := l.Accept()
	if err != nil {
		t.Fatal("the sandbox did not dial out: ", err)
	}
	t.Cleanup(func() { conn.Close() })
	answers := bufio.NewScanner(conn)
	answers.Buffer(nil, 1<<22)
	return &inside{t: t, box: box, started: started, conn: conn, answers: answers}
}

// try has the sandbox try something and returns what came of it.
func (i *inside) try(op string, args ...string) string {
	i.t.Helper()
	i.tell(op, args...)
	if !i.answers.Scan() {
		i.t.Fatalf("%s %q: the sandbox ended", op, args)
	}
	var answer string
	if err := json.Unmarshal(i.answers.Bytes(), &answer); err != nil {
		i.t.Fatal(err)
	}
	return answer
}

// tell is try without waiting for an answer.
func (i *inside) tell(op string, args ...string) {
	i.t.Helper()
	line, err := json.Marshal(map[string]any{"Op": op, "Args": args})
	if err != nil {
		i.t.Fatal(err)
	}
	if _, err := i.conn.Write(append(line, '\n')); err != nil {
		i.t.Fatal(err)
	}
}
