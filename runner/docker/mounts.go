package docker

import (
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/volume"

	"github.com/countersign-dev/countersign/runner"
)

// checkMounts refuses mounts that would open the sandbox. Pure; whether a bind
// would bring a socket of an engine in is a question to the disk and asked by
// checkBinds.
func checkMounts(s runner.Spec) (faults []error) {
	targets, volumes := make(map[string]bool), 0
	for _, m := range s.Mounts {
		for _, fault := range slices.Concat(checkTarget(m.Target), checkMount(m)) {
			faults = append(faults, fmt.Errorf("mount %s: %w", m.Target, fault))
		}
		if targets[m.Target] {
			faults = append(faults, fmt.Errorf("mount %s: it is there twice", m.Target))
		}
		targets[m.Target] = true
		if m.Kind == runner.MountVolume {
			volumes++
		}
	}
	if volumes > 1 {
		faults = append(faults, fmt.Errorf("%d volumes: a sandbox has one workspace", volumes))
	}
	return faults
}

func checkTarget(target string) (faults []error) {
	if !isCleanPath(target) || target == "/" || strings.ContainsAny(target, ":,") {
		return []error{fmt.Errorf("the target is not a clean absolute path")}
	}
	for _, kernels := range []string{"/proc", "/sys", "/dev"} {
		if within(target, kernels) {
			faults = append(faults, fmt.Errorf("nothing is mounted under %s (/dev/shm has its size from shm_bytes)", kernels))
		}
	}
	return faults
}

func checkMount(m runner.Mount) (faults []error) {
	sized := m.Bytes > 0 && m.Inodes > 0 && isMode(m.Mode)
	switch m.Kind {
	case runner.MountBind:
		if !isCleanPath(m.Source) || !m.ReadOnly {
			faults = append(faults, fmt.Errorf("a directory of the host (%q) is given by a clean absolute path, and read-only", m.Source))
		}
		if m.Bytes != 0 || m.Inodes != 0 || m.Mode != "" || m.Owned || m.Existing {
			faults = append(faults, fmt.Errorf("a directory of the host has no size, mode or owner of its own"))
		}
	case runner.MountTmpfs:
		if m.Source != "" || m.Existing || !sized {
			faults = append(faults, fmt.Errorf("a tmpfs has no source, and has bytes, inodes and an octal mode"))
		}
	case runner.MountVolume:
		if !isName(m.Source) || !sized {
			faults = append(faults, fmt.Errorf("a volume has a name, bytes, inodes and an octal mode"))
		}
	default:
		faults = append(faults, fmt.Errorf("kind %q is not known", m.Kind))
	}
	return faults
}

func isMode(s string) bool { return regexp.MustCompile(`^0?[01][0-7]{3}$|^[0-7]{3}$`).MatchString(s) }

// checkBinds refuses to bring an engine's socket in: neither it nor a directory
// above it, under whatever name. resolve follows symbolic links on the host.
func checkBinds(mounts []runner.Mount, sockets []string, resolve func(string) (string, error)) error {
	for _, m := range mounts {
		if m.Kind != runner.MountBind {
			continue
		}
		source, err := resolve(m.Source)
		if err != nil {
			return fmt.Errorf("checking mount %s: %v", m.Target, err)
		}
		for _, socket := range sockets {
			real, err := resolve(socket)
			if err != nil {
				real = socket // not there now; its place is still refused
			}
			if within(real, source) || within(socket, m.Source) {
				return fmt.Errorf("checking mount %s: %s holds %s, and an engine's socket is never in a sandbox", m.Target, m.Source, socket)
			}
		}
	}
	return nil
}

// engineSockets are the sockets of container engines that a machine may have:
// whoever can write to one is root on the host.
func engineSockets(own string) []string {
	return []string{own, "/var/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock", "/run/crio/crio.sock", "/run/buildkit/buildkitd.sock"}
}

// tmpfsOptions are the options of a HostConfig.Tmpfs entry. Docker's own
// default adds noexec; exec says otherwise.
func tmpfsOptions(m runner.Mount, uid int) string {
	options := []string{"rw"}
	if m.ReadOnly {
		options[0] = "ro"
	}
	return strings.Join(append(options, sizeOptions(m, uid)...), ",")
}

// sizeOptions are what bounds a tmpfs, as mount(8) takes them.
func sizeOptions(m runner.Mount, uid int) []string {
	run := "noexec"
	if m.Exec {
		run = "exec"
	}
	owner := 0
	if m.Owned {
		owner = uid
	}
	return []string{
		run, "nosuid", "nodev",
		fmt.Sprintf("size=%d", m.Bytes), fmt.Sprintf("nr_inodes=%d", m.Inodes), "mode=" + m.Mode,
		fmt.Sprintf("uid=%d", owner), fmt.Sprintf("gid=%d", owner),
	}
}

// volumeOf is the create request of a workspace volume: a tmpfs of the local
// driver, the one kind that bounds bytes and inodes on every file system.
func volumeOf(m runner.Mount, uid int, labels runner.Labels) volume.CreateOptions {
	return volume.CreateOptions{
		Name:   m.Source,
		Driver: "local",
		DriverOpts: map[string]string{
			"type":   "tmpfs",
			"device": "tmpfs",
			"o":      strings.Join(sizeOptions(m, uid), ","),
		},
		Labels: maps.Clone(labels),
	}
}

// bindOf mounts a host directory. Non-recursive: on older engines a read-only
// bind leaves the mounts below its source writable, so they stay outside.
func bindOf(m runner.Mount) mount.Mount {
	return mount.Mount{
		Type: mount.TypeBind, Source: m.Source, Target: m.Target, ReadOnly: true,
		BindOptions: &mount.BindOptions{Propagation: mount.PropagationRPrivate, NonRecursive: true},
	}
}

// volumeMountOf mounts the workspace; NoCopy keeps the image's files out of it.
func volumeMountOf(m runner.Mount) mount.Mount {
	return mount.Mount{
		Type: mount.TypeVolume, Source: m.Source, Target: m.Target, ReadOnly: m.ReadOnly,
		VolumeOptions: &mount.VolumeOptions{NoCopy: true},
	}
}

// covers gives each VOLUME of an image an empty read-only tmpfs, which is the
// only way to keep the engine from making a writable directory on the host's
// disk for it, without any quota. What the image has at that path is hidden.
// A path at which the Spec mounts something is covered already. Pure.
//
// A volume inside one of the Spec's mounts is refused: its mount point would
// have to be made in there, as root.
func covers(volumes []string, mounts []runner.Mount) (map[string]string, error) {
	made := make(map[string]string)
	for _, declared := range volumes {
		target := path.Clean(declared)
		if faults := checkTarget(target); len(faults) > 0 {
			return nil, &runner.Unavailable{What: fmt.Sprintf("the image's volume %q cannot be covered: %v", declared, faults[0]), Hint: "rebuild the image without that VOLUME"}
		}
		inside := func(m runner.Mount) bool { return target != m.Target && within(target, m.Target) }
		if i := slices.IndexFunc(mounts, inside); i >= 0 {
			return nil, &runner.Unavailable{
				What: fmt.Sprintf("the image's volume %s lies inside the mount %s", target, mounts[i].Target), Hint: "rebuild the image without that VOLUME",
			}
		}
		if slices.ContainsFunc(mounts, func(m runner.Mount) bool { return m.Target == target }) {
			continue
		}
		made[target] = coverOptions(target, append(targetsOf(mounts), volumes...))
	}
	return made, nil
}

// coverOptions leaves room for the mount points that must be made below target
// and for nothing else. A size of 0 would mean no bound.
func coverOptions(target string, others []string) string {
	inodes := 1
	for _, o := range others {
		if o = path.Clean(o); o != target && within(o, target) {
			inodes += strings.Count(strings.TrimPrefix(o, target), "/")
		}
	}
	return "ro,noexec,nosuid,nodev,size=4096,mode=0555,uid=0,gid=0,nr_inodes=" + strconv.Itoa(inodes)
}

func targetsOf(mounts []runner.Mount) []string {
	targets := make([]string, 0, len(mounts))
	for _, m := range mounts {
		targets = append(targets, m.Target)
	}
	return targets
}

// realPath follows symbolic links on the host.
func realPath(p string) (string, error) { return filepath.EvalSymlinks(p) }
