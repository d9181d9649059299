package docker

import (
	"fmt"
	"maps"
	"slices"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/volume"
	"github.com/docker/go-units"

	"github.com/countersign-dev/countersign/runner"
)

// order is what the engine is told, whole: it is also what is expected back.
type order struct {
	config  *container.Config
	host    *container.HostConfig
	network *network.NetworkingConfig
	// volume is nil when the Spec has none, or an existing one.
	volume *volume.CreateOptions
}

// compile writes a checked Spec in the engine's words. Pure.
func compile(s runner.Spec, img image.InspectResponse, profile []byte) (order, error) {
	covered, err := covers(imageFact(img).Volumes, s.Mounts)
	if err != nil {
		return order{}, err
	}
	o := order{config: configOf(s), host: hostConfigOf(s, profile), network: &network.NetworkingConfig{}}
	maps.Copy(o.host.Tmpfs, covered)
	for _, m := range s.Mounts {
		switch m.Kind {
		case runner.MountBind:
			o.host.Mounts = append(o.host.Mounts, bindOf(m))
		case runner.MountTmpfs:
			o.host.Tmpfs[m.Target] = tmpfsOptions(m, s.UID)
		case runner.MountVolume:
			o.host.Mounts = append(o.host.Mounts, volumeMountOf(m))
			if !m.Existing {
				v := volumeOf(m, s.UID, s.Labels)
				o.volume = &v
			}
		}
	}
	return o, nil
}

// configOf is the half that an image's configuration would otherwise fill in.
func configOf(s runner.Spec) *container.Config {
	grace := 5
	return &container.Config{
		Image:      s.Image,
		User:       fmt.Sprintf("%d:%d", s.UID, s.UID), // with a group named, none of the image's /etc/group is joined
		Entrypoint: slices.Clone(s.Entrypoint),         // being set, it drops the image's CMD too
		Env:        slices.Concat(s.Env, s.DropEnv),    // a bare KEY deletes the image's
		WorkingDir: s.Workdir,
		Hostname:   s.Hostname,
		// No terminal: TIOCSTI cannot be filtered, and nobody types.
		Tty:       false,
		OpenStdin: false,
		// Not NetworkDisabled: that also drops localhost from /etc/hosts.
		NetworkDisabled: false,
		Healthcheck:     &container.HealthConfig{Test: []string{"NONE"}},
		StopSignal:      "SIGTERM",
		StopTimeout:     &grace,
		Labels:          maps.Clone(s.Labels),
	}
}

// hostConfigOf is the half that makes the sandbox.
func hostConfigOf(s runner.Spec, profile []byte) *container.HostConfig {
	return &container.HostConfig{
		Runtime: string(s.Isolation),

		// No interface but loopback. Of each DNS setting that is empty the engine
		// would copy the host's into resolv.conf; the option is libc's default.
		NetworkMode: "none",
		DNS:         slices.Clone(s.DNS),
		DNSSearch:   slices.Clone(s.DNSSearch),
		DNSOptions:  []string{"timeout:5"},

		IpcMode:      container.IPCModePrivate, // "none" has no /dev/shm, which Python needs
		CgroupnsMode: container.CgroupnsModePrivate,
		PidMode:      "", // private
		UTSMode:      "", // private
		UsernsMode:   "", // the engine's; "host" would override a remap

		Privileged:     false,
		ReadonlyRootfs: true,
		CapDrop:        []string{"ALL"},
		// Both this and the empty capability sets: without it a setuid file of
		// the image still gives uid 0.
		SecurityOpt:   []string{"no-new-privileges:true", "seccomp=" + string(profile)},
		MaskedPaths:   slices.Clone(s.MaskedPaths),
		ReadonlyPaths: slices.Clone(s.ReadonlyPaths),
		Sysctls:       maps.Clone(s.Sysctls),

		Tmpfs:       make(map[string]string),
		ShmSize:     s.ShmBytes,
		OomScoreAdj: s.OOMScoreAdj,
		Init:        new(bool), // the shim is PID 1, whatever the engine's default
		AutoRemove:  false,     // the exit status has to be there to be read

		RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyDisabled},
		// Output flows over the control connection. What a workload might get
		// onto PID 1's own stdout would be read by nobody, and must not be on
		// the host's disk, unredacted and (json-file: six bytes for a NUL) grown.
		LogConfig: container.LogConfig{Type: "none"},
		Resources: resourcesOf(s),
		Mounts:    []mount.Mount{},
	}
}

func resourcesOf(s runner.Spec) container.Resources {
	return container.Resources{
		Memory:     s.MemoryBytes,
		MemorySwap: s.MemoryBytes, // memory and swap together: so no swap
		NanoCPUs:   s.NanoCPUs,
		PidsLimit:  &s.Pids,
		Ulimits:    ulimitsOf(s.Ulimits),
	}
}

func ulimitsOf(limits []runner.Ulimit) []*container.Ulimit {
	out := make([]*container.Ulimit, 0, len(limits))
	for _, l := range limits {
		out = append(out, &units.Ulimit{Name: l.Name, Soft: l.Value, Hard: l.Value})
	}
	return out
}
