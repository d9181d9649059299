package docker

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/volume"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/runner"
)

// nothingLeft checks that neither container nor volume of a Spec exists.
func nothingLeft(t *testing.T, b bench, spec runner.Spec) {
	t.Helper()
	if left := b.leftovers(t.Context(), spec.Labels[runner.LabelSandbox]); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if _, err := b.engine.api.ContainerInspect(t.Context(), spec.Name); !cerrdefs.IsNotFound(err) {
		t.Errorf("container %s: %v", spec.Name, err)
	}
}

// imported makes an image for one test.
func imported(t *testing.T, b bench, changes ...string) string {
	t.Helper()
	id, err := importImage(t.Context(), b.engine, changes, []file{{"plain", 0o644, []byte("plain")}})
	if err != nil {
		t.Fatal(err)
	}
	imageRemoved(t, b, id)
	return id
}

// loaded makes an image of another platform: an import always has the engine's.
func loaded(t *testing.T, b bench, platform string) string {
	t.Helper()
	system, arch, _ := strings.Cut(platform, "/")
	layer, err := archive([]file{{"plain", 0o644, []byte("plain")}})
	if err != nil {
		t.Fatal(err)
	}
	config := fmt.Appendf(nil, `{"os":%q,"architecture":%q,"config":{},"rootfs":{"type":"layers","diff_ids":["sha256:%x"]}}`, system, arch, sha256.Sum256(layer))
	saved, err := archive([]file{
		{"layer.tar", 0o644, layer}, {"config.json", 0o644, config},
		{"manifest.json", 0o644, []byte(`[{"Config":"config.json","RepoTags":null,"Layers":["layer.tar"]}]`)},
	})
	if err != nil {
		t.Fatal(err)
	}
	reply, err := b.engine.api.ImageLoad(t.Context(), bytes.NewReader(saved))
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	said, err := io.ReadAll(reply.Body)
	id := regexp.MustCompile(`sha256:[0-9a-f]{64}`).Find(said)
	if err != nil || id == nil {
		t.Fatalf("loading an image: %s %v", said, err)
	}
	imageRemoved(t, b, string(id))
	return string(id)
}

func imageRemoved(t *testing.T, b bench, id string) {
	t.Helper()
	t.Cleanup(func() {
		if _, err := b.engine.api.ImageRemove(context.Background(), id, image.RemoveOptions{Force: true}); err != nil {
			t.Error(err)
		}
	})
}

func TestCreateRefuses(t *testing.T) {
	b := needEngine(t)
	other := "linux/arm64"
	if b.facts.Platform == other {
		other = "linux/amd64"
	}
	foreign, labelled := loaded(t, b, other), imported(t, b, "LABEL countersign.sandbox=mine")
	leaky, nested := imported(t, b, "ENV UNKNOWN=1"), imported(t, b, "VOLUME /workspace/cache")
	for _, c := range []struct {
		says        string
		unavailable bool // a missing sandbox rather than a bad Spec
		change      func(*runner.Spec)
	}{
		{"is not on this machine", true, func(s *runner.Spec) { s.Image = "sha256:" + strings.Repeat("0", 64) }},
		{"image id", false, func(s *runner.Spec) { s.Image = "countersign/sandbox:latest" }},
		{"this machine is", true, func(s *runner.Spec) { s.Image = foreign }},
		{"countersign.sandbox", true, func(s *runner.Spec) { s.Image = labelled }},
		{"UNKNOWN", false, func(s *runner.Spec) { s.Image = leaky }},
		{"/workspace/cache", true, func(s *runner.Spec) { s.Image = nested }},
		{"seccomp profile", false, func(s *runner.Spec) { s.Seccomp = "sha256:" + strings.Repeat("0", 64) }},
		{"CPUs", true, func(s *runner.Spec) { s.NanoCPUs = 1e12 }},
		{"no such file", false, func(s *runner.Spec) { s.Mounts[0].Source = "/nowhere/at/all" }},
		{"engine's socket", false, func(s *runner.Spec) { s.Mounts[0].Source = "/var/run" }},
		{"engine's socket", false, func(s *runner.Spec) { s.Mounts[0].Source = b.engine.socket }},
		{"does not exist", false, func(s *runner.Spec) { s.Mounts[2].Existing = true }},
		// The engine itself refuses less memory than it can start anything in,
		// after the volume was made.
		{"memory", false, func(s *runner.Spec) { s.MemoryBytes = 1 << 20 }},
	} {
		spec, _ := newSpec(t, b)
		c.change(&spec)
		_, err := b.engine.Create(t.Context(), spec)
		if err == nil || !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(c.says)) {
			t.Errorf("want %q, got %v", c.says, err)
		}
		var unfit *runner.Unavailable
		if errors.As(err, &unfit) != c.unavailable {
			t.Errorf("%q: unavailable should be %t: %v", c.says, c.unavailable, err)
		}
		nothingLeft(t, b, spec)
	}
}

// TestCreateRefusesMissingRuntime: there is no falling back to runc.
func TestCreateRefusesMissingRuntime(t *testing.T) {
	b := needEngine(t)
	// The engine may have runsc; what it says of it is taken away.
	m := &meddler{path: "/info", answered: func(info map[string]any) { delete(info["Runtimes"].(map[string]any), "runsc") }}
	spec, _ := newSpec(t, b)
	spec.Isolation = contract.IsolationRunsc
	_, err := m.through(t, b).Create(t.Context(), spec)
	var unfit *runner.Unavailable
	if !errors.As(err, &unfit) || !strings.Contains(unfit.Hint, "--oci-seccomp") {
		t.Errorf("got %v", err)
	}
	nothingLeft(t, b, spec)
}

// TestCreateLeavesOthersAlone: a name that is taken is an error, and what had it
// stays.
func TestCreateLeavesOthersAlone(t *testing.T) {
	b := needEngine(t)
	spec, _ := newSpec(t, b)
	first := create(t, b.engine, spec)
	if _, err := b.engine.Create(t.Context(), spec); err == nil || !strings.Contains(err.Error(), "of that name already") {
		t.Errorf("the same volume again: %v", err)
	}
	again := spec
	again.Mounts = append([]runner.Mount(nil), spec.Mounts...)
	again.Mounts[2].Source += "2"
	if _, err := b.engine.Create(t.Context(), again); err == nil || !strings.Contains(err.Error(), "of that name already") {
		t.Errorf("the same container again: %v", err)
	}
	if _, err := b.engine.api.ContainerInspect(t.Context(), first.id); err != nil {
		t.Errorf("the first container: %v", err)
	}
	if _, err := b.engine.api.VolumeInspect(t.Context(), spec.Mounts[2].Source); err != nil {
		t.Errorf("the first volume: %v", err)
	}
	if _, err := b.engine.api.VolumeInspect(t.Context(), again.Mounts[2].Source); !cerrdefs.IsNotFound(err) {
		t.Errorf("the second volume: %v", err)
	}
}

// TestCreateReadsBack has the engine really make something weaker.
func TestCreateReadsBack(t *testing.T) {
	b := needEngine(t)
	host := func(key string, value any) func(map[string]any) {
		return func(m map[string]any) { m["HostConfig"].(map[string]any)[key] = value }
	}
	for _, c := range []struct {
		says string
		told func(map[string]any)
	}{
		{"HostConfig.CapDrop", host("CapDrop", nil)},
		{"HostConfig.CapAdd", host("CapAdd", []string{"CAP_NET_RAW"})},
		{"HostConfig.Privileged", host("Privileged", true)},
		{"HostConfig.ReadonlyRootfs", host("ReadonlyRootfs", false)},
		{"HostConfig.NetworkMode", host("NetworkMode", "host")},
		{"HostConfig.PidMode", host("PidMode", "host")},
		{"HostConfig.SecurityOpt", host("SecurityOpt", []string{"no-new-privileges:true"})},
		{"HostConfig.MaskedPaths", host("MaskedPaths", []string{})},
		{"HostConfig.MemorySwap", host("MemorySwap", -1)},
		{"HostConfig.PidsLimit", host("PidsLimit", nil)},
		{"HostConfig.Binds", host("Binds", []string{"/etc:/host-etc"})},
		{"HostConfig.Devices", host("Devices", []any{map[string]any{"PathOnHost": "/dev/null", "PathInContainer": "/dev/x", "CgroupPermissions": "r"}})},
		{"HostConfig.Ulimits", host("Ulimits", nil)},
		{"HostConfig.Tmpfs", host("Tmpfs", map[string]string{"/tmp": ""})},
		{"on /data that nobody asked for", host("Tmpfs", map[string]string{"/tmp": ""})}, // the image's VOLUME comes through
		{"Config.User", func(m map[string]any) { m["User"] = "0" }},
		{"Config.Env", func(m map[string]any) { m["Env"] = []string{"PATH=/bin"} }}, // so the image's comes through
		{"Config.Healthcheck", func(m map[string]any) { delete(m, "Healthcheck") }},
		{"Config.Entrypoint", func(m map[string]any) { delete(m, "Entrypoint") }},
	} {
		spec, _ := newSpec(t, b)
		m := &meddler{path: "/containers/create", told: c.told}
		_, err := m.through(t, b).Create(t.Context(), spec)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("want %q, got %v", c.says, err)
		}
		nothingLeft(t, b, spec)
	}
}

func TestCreateRefusesWarnings(t *testing.T) {
	b := needEngine(t)
	warn := func(text string) *meddler {
		return &meddler{path: "/containers/create", answered: func(m map[string]any) { m["Warnings"] = []string{text} }}
	}
	spec, _ := newSpec(t, b)
	_, err := warn("Your kernel does not support swap limit capabilities. Memory limited without swap.").through(t, b).Create(t.Context(), spec)
	var unfit *runner.Unavailable
	if !errors.As(err, &unfit) || !strings.Contains(unfit.What, "swap limit") {
		t.Errorf("got %v", err)
	}
	nothingLeft(t, b, spec)

	spec, _ = newSpec(t, b)
	create(t, warn("IPv4 forwarding is disabled. Networking will not work.").through(t, b), spec)
}

// TestCreateCutOff: the engine has acted, the answer never came.
func TestCreateCutOff(t *testing.T) {
	b := needEngine(t)
	for _, path := range []string{"/containers/create", "/volumes/create"} {
		spec, _ := newSpec(t, b)
		m := &meddler{path: path, cut: 1}
		if _, err := m.through(t, b).Create(t.Context(), spec); err == nil {
			t.Errorf("%s: no error", path)
		}
		nothingLeft(t, b, spec)
	}
}

func TestCreateRefusesAnotherVolume(t *testing.T) {
	b := needEngine(t)
	spec, _ := newSpec(t, b)
	m := &meddler{path: "/volumes/create", told: func(m map[string]any) {
		m["DriverOpts"].(map[string]any)["o"] = "size=1g"
	}}
	if _, err := m.through(t, b).Create(t.Context(), spec); err == nil || !strings.Contains(err.Error(), "reading volume") {
		t.Errorf("got %v", err)
	}
	nothingLeft(t, b, spec)
}

// TestCreateRefusesVolumeOfAnotherRun: a holder shares its own run's volume only.
func TestCreateRefusesVolumeOfAnotherRun(t *testing.T) {
	b := needEngine(t)
	mine, _ := newSpec(t, b)
	theirs, _ := newSpec(t, b)
	create(t, b.engine, theirs)
	mine.Mounts[2].Source, mine.Mounts[2].Existing = theirs.Mounts[2].Source, true
	if _, err := b.engine.Create(t.Context(), mine); err == nil || !strings.Contains(err.Error(), "another run") {
		t.Errorf("got %v", err)
	}
	nothingLeft(t, b, mine)
	if _, err := b.engine.api.VolumeInspect(t.Context(), theirs.Mounts[2].Source); err != nil {
		t.Errorf("their volume: %v", err)
	}
}

func TestCreateCancelled(t *testing.T) {
	b := needEngine(t)
	spec, _ := newSpec(t, b)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.engine.Create(ctx, spec); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	nothingLeft(t, b, spec)
}

func TestImage(t *testing.T) {
	b := needEngine(t)
	if got, err := b.engine.Image(t.Context(), "countersign-test/never-there:latest"); got != nil || err != nil {
		t.Errorf("a missing image: %v, %v", got, err)
	}
	if _, err := b.engine.Image(t.Context(), ""); err == nil {
		t.Error("an empty reference passes")
	}
	got, err := b.engine.Image(t.Context(), b.image)
	if err != nil {
		t.Fatal(err)
	}
	if got.ID != b.image || got.Platform != b.facts.Platform || !got.Entrypoint || got.User != "root" || len(got.RepoDigests) != 0 ||
		strings.Join(got.Volumes, " ") != "/data /home" || strings.Join(got.EnvKeys, " ") != "HOME HTTP_PROXY IMAGE_ONLY LD_PRELOAD" {
		t.Errorf("got %+v", got)
	}
}

// strangersVolume makes a volume that is not ours.
func strangersVolume(t *testing.T, b bench, name string) {
	t.Helper()
	if _, err := b.engine.api.VolumeCreate(t.Context(), volume.CreateOptions{Name: name}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.engine.api.VolumeRemove(context.Background(), name, true); err != nil {
			t.Error(err)
		}
	})
}
