package docker

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"

	"github.com/countersign-dev/countersign/runner"
)

func waited(t *testing.T, box *sandbox) runner.Exit {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	exit, err := box.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return exit
}

func TestWait(t *testing.T) {
	b := needEngine(t)
	for _, c := range []struct {
		name string
		end  func(*testing.T, *inside)
		want runner.Exit
	}{
		{"zero", func(_ *testing.T, in *inside) { in.tell("exit", "0") }, runner.Exit{}},
		{"own status", func(_ *testing.T, in *inside) { in.tell("exit", "7") }, runner.Exit{Code: 7}},
		{"killed", func(t *testing.T, in *inside) {
			if err := in.box.Kill(t.Context()); err != nil {
				t.Error(err)
			}
		}, runner.Exit{Code: 137}},
		{"out of memory", func(_ *testing.T, in *inside) { in.tell("eat") }, runner.Exit{Code: 137, OOMKilled: true}},
		{"a child out of memory", func(t *testing.T, in *inside) {
			if got := in.try("exec", "/countersign/shim", "eat"); got != "signal: killed" {
				t.Errorf("the child ended with %q", got)
			}
			in.tell("exit", "0")
		}, runner.Exit{OOMKilled: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			spec, dir := newSpec(t, b)
			in := enter(t, b, spec, dir)
			c.end(t, in)
			if got := waited(t, in.box); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
			if err := in.box.Kill(t.Context()); err != nil {
				t.Errorf("killing what has ended: %v", err)
			}
		})
	}
}

// TestWaitSurvivesTheEngine: the connection is lost while waiting, as when
// dockerd restarts; the exit is the engine's record all the same.
func TestWaitSurvivesTheEngine(t *testing.T) {
	b := needEngine(t)
	m := &meddler{path: "/wait", cut: 1}
	b.engine = m.through(t, b)
	spec, dir := newSpec(t, b)
	in := enter(t, b, spec, dir)
	in.tell("exit", "5")
	if got := waited(t, in.box); got != (runner.Exit{Code: 5}) {
		t.Errorf("got %+v", got)
	}
	if m.cut != 0 {
		t.Error("the connection was never cut")
	}
}

func TestWaitBounded(t *testing.T) {
	b := needEngine(t)
	spec, dir := newSpec(t, b)
	in := enter(t, b, spec, dir)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := in.box.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestWaitNeverStarted(t *testing.T) {
	b := needEngine(t)
	spec, _ := newSpec(t, b)
	box := create(t, b.engine, spec)
	if _, err := box.Wait(t.Context()); err == nil || !strings.Contains(err.Error(), "never started") {
		t.Errorf("got %v", err)
	}
	if err := box.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := box.Wait(t.Context()); err == nil || !strings.Contains(err.Error(), "removed by somebody else") {
		t.Errorf("got %v", err)
	}
}

func TestRemove(t *testing.T) {
	b := needEngine(t)
	spec, dir := newSpec(t, b)
	in := enter(t, b, spec, dir)
	for range 2 { // running, then gone
		if err := in.box.Remove(t.Context()); err != nil {
			t.Error(err)
		}
		nothingLeft(t, b, spec)
	}
	if err := in.box.Kill(t.Context()); err != nil {
		t.Errorf("killing what is gone: %v", err)
	}
}

// TestStartUnseenPaths: what the engine does not find is told from other faults.
func TestStartUnseenPaths(t *testing.T) {
	b := needEngine(t)
	for _, c := range []struct {
		name   string
		change func(*runner.Spec)
		then   func(dir string) error
	}{
		{"directory", func(*runner.Spec) {}, os.Remove},
		{"shim", func(s *runner.Spec) { s.Entrypoint[0] = "/countersign/elsewhere" }, func(string) error { return nil }},
	} {
		spec, dir := newSpec(t, b)
		c.change(&spec)
		box := create(t, b.engine, spec)
		if err := c.then(dir); err != nil {
			t.Fatal(err)
		}
		_, err := box.Start(t.Context())
		var unfit *runner.Unavailable
		if !errors.As(err, &unfit) || !strings.Contains(unfit.What, "does not see") {
			t.Errorf("%s: got %v", c.name, err)
		}
	}
}

// TestHolder: the workspace outlives the sandbox while another container of the
// run holds it, and the holder cannot write it.
func TestHolder(t *testing.T) {
	b := needEngine(t)
	spec, dir := newSpec(t, b)
	work := enter(t, b, spec, dir)
	if got := work.try("write", "/workspace/result"); got != "ok" {
		t.Fatal(got)
	}
	hold := spec
	hold.Name, hold.Role = spec.Name+"-hold", runner.RoleHold
	hold.Mounts = append([]runner.Mount(nil), spec.Mounts...)
	hold.Mounts[2].Existing, hold.Mounts[2].ReadOnly = true, true
	second, err := os.MkdirTemp(b.dir, "run")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(second, 0o755); err != nil {
		t.Fatal(err)
	}
	hold.Mounts[1].Source = second
	in := enter(t, b, hold, second)
	work.tell("exit", "0")
	waited(t, work.box)
	if got := in.try("read", "/workspace/result"); got != "x" {
		t.Errorf("the holder reads %q", got)
	}
	if got := in.try("write", "/workspace/more"); got != "EROFS" {
		t.Errorf("the holder writes: %q", got)
	}
	if os.Geteuid() == 0 {
		got, err := os.ReadFile(filepath.Join(in.started.WorkspaceDir, "result"))
		if in.started.WorkspaceDir == "" || err != nil || string(got) != "x" {
			t.Errorf("the host reads %q, %v in %q", got, err, in.started.WorkspaceDir)
		}
	}
	// The volume goes with the sandbox that it was made for, not the holder.
	removed(t, in.box)
	if _, err := b.engine.api.VolumeInspect(t.Context(), spec.Mounts[2].Source); err != nil {
		t.Errorf("the volume went with the holder: %v", err)
	}
}

// TestWorkspaceDirIsChecked: size, inodes and the file system itself.
func TestWorkspaceDirIsChecked(t *testing.T) {
	b := needEngine(t)
	if os.Geteuid() != 0 {
		t.Skip("only root gets a workspace directory")
	}
	spec, dir := newSpec(t, b)
	in := enter(t, b, spec, dir)
	m, where := spec.Mounts[2], in.started.WorkspaceDir
	if where == "" {
		t.Fatal("no workspace directory")
	}
	bigger, crowded := m, m
	bigger.Bytes += 4096
	crowded.Inodes++
	for _, c := range []struct {
		name   string
		dir    string
		mount  runner.Mount
		target string
		fits   bool
	}{
		{"itself", where, m, where, true},
		{"another size", where, bigger, where, false},
		{"another number of inodes", where, crowded, where, false},
		{"another file system", where, m, "/", false},
		{"a directory beside it", filepath.Dir(where), m, where, false},
	} {
		if err := isWorkspace(c.dir, c.mount, "self", c.target); (err == nil) != c.fits {
			t.Errorf("%s: got %v", c.name, err)
		}
	}
}

// TestReap: dead runs go; live ones and strangers stay, also a stranger whose
// image carries our label.
func TestReap(t *testing.T) {
	b := needEngine(t)
	deadSpec, deadDir := newSpec(t, b)
	aliveSpec, aliveDir := newSpec(t, b)
	dead, alive := enter(t, b, deadSpec, deadDir), enter(t, b, aliveSpec, aliveDir)
	strangersVolume(t, b, deadSpec.Name+"-stranger")
	strangers := []string{
		stranger(t, b, &container.Config{Image: b.image, WorkingDir: "/", Labels: map[string]string{"countersign.managed": "0"}}),
		stranger(t, b, &container.Config{Image: imported(t, b, "LABEL countersign.managed=1", "LABEL countersign.sandbox="+deadSpec.Labels[runner.LabelSandbox]), Entrypoint: []string{"/x"}}),
	}
	reaped, err := b.engine.Reap(t.Context(), func(l runner.Labels) bool {
		if l[runner.LabelManaged] != "1" {
			t.Errorf("asked about %v", l)
		}
		return l[runner.LabelSandbox] != deadSpec.Labels[runner.LabelSandbox]
	})
	if err != nil || reaped.Containers != 1 || reaped.Volumes != 1 || len(reaped.Failed) != 0 {
		t.Errorf("reaped %+v, %v", reaped, err)
	}
	if _, err := b.engine.api.ContainerInspect(t.Context(), dead.box.id); !cerrdefs.IsNotFound(err) {
		t.Errorf("the dead run's container: %v", err)
	}
	if _, err := b.engine.api.VolumeInspect(t.Context(), deadSpec.Mounts[2].Source); !cerrdefs.IsNotFound(err) {
		t.Errorf("the dead run's volume: %v", err)
	}
	if got := alive.try("hostname"); got != "sandbox" {
		t.Errorf("the live run answers %q", got)
	}
	for _, id := range strangers {
		if _, err := b.engine.api.ContainerInspect(t.Context(), id); err != nil {
			t.Errorf("a stranger's container: %v", err)
		}
	}
	if _, err := b.engine.api.VolumeInspect(t.Context(), deadSpec.Name+"-stranger"); err != nil {
		t.Errorf("a stranger's volume: %v", err)
	}
}

func TestReapEngineGone(t *testing.T) {
	e, err := New(Config{Host: "unix://" + t.TempDir() + "/none.sock"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = e.Reap(t.Context(), func(runner.Labels) bool { return true })
	var unfit *runner.Unavailable
	if !errors.As(err, &unfit) {
		t.Errorf("got %v", err)
	}
}

// stranger makes a container by hand, as a person would.
func stranger(t *testing.T, b bench, config *container.Config) string {
	t.Helper()
	made, err := b.engine.api.ContainerCreate(t.Context(), config, nil, nil, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.engine.api.ContainerRemove(context.Background(), made.ID, container.RemoveOptions{Force: true, RemoveVolumes: true}); err != nil {
			t.Error(err)
		}
	})
	return made.ID
}
