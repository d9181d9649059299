package docker

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/volume"

	"github.com/countersign-dev/countersign/runner"
)

// excuse says of one field whether what the engine holds is as good as what it
// was told. Fields without an excuse must be equal, an absent list counting as
// an empty one; so a field that a newer engine adds, or that its configuration
// fills in, is a difference until somebody has thought about it.
type excuse func(told, holds any) bool

// readBack compares a created container with the order, field by field, and
// returns what differs. Pure.
func readBack(o order, img image.InspectResponse, got container.InspectResponse) error {
	if got.ContainerJSONBase == nil || got.Config == nil || got.HostConfig == nil || got.NetworkSettings == nil {
		return fmt.Errorf("reading the container back: the engine's answer is not whole")
	}
	faults := slices.Concat(
		differences("Config", *o.config, *got.Config, configExcuses(img)),
		differences("HostConfig", *o.host, *got.HostConfig, hostExcuses()),
		checkBase(o, got),
		checkMountPoints(o, got.Mounts),
	)
	for name := range got.NetworkSettings.Networks {
		if name != "none" {
			faults = append(faults, fmt.Sprintf("NetworkSettings.Networks has %q", name))
		}
	}
	if len(faults) > 0 {
		return fmt.Errorf("reading the container back: it is not what was asked for: %s", strings.Join(faults, "; "))
	}
	return nil
}

// differences names the fields of a struct in which two values differ. Embedded
// structs count as part of their holder.
func differences(prefix string, told, holds any, excuses map[string]excuse) (names []string) {
	a, b := reflect.ValueOf(told), reflect.ValueOf(holds)
	for i := range a.NumField() {
		field := a.Type().Field(i)
		x, y := a.Field(i).Interface(), b.Field(i).Interface()
		if field.Anonymous {
			names = append(names, differences(prefix, x, y, excuses)...)
			continue
		}
		same := equalOrEmpty
		if e, ok := excuses[field.Name]; ok {
			same = e
		}
		if !same(x, y) {
			names = append(names, fmt.Sprintf("%s.%s is %s, not %s", prefix, field.Name, brief(y), brief(x)))
		}
	}
	return names
}

// equalOrEmpty compares by value; nil and empty lists and maps are the same.
func equalOrEmpty(x, y any) bool {
	if isEmpty(x) && isEmpty(y) {
		return true
	}
	return reflect.DeepEqual(x, y)
}

func isEmpty(x any) bool {
	v := reflect.ValueOf(x)
	switch v.Kind() {
	case reflect.Slice, reflect.Map:
		return v.Len() == 0
	case reflect.Pointer:
		return v.IsNil()
	}
	return v.IsZero()
}

// brief prints a value for a message: pointers by what they point to, and no
// more than a line of it (a seccomp profile is 20 KB).
func brief(x any) string {
	v := reflect.ValueOf(x)
	if v.Kind() == reflect.Pointer && !v.IsNil() {
		x = v.Elem().Interface()
	}
	text := fmt.Sprintf("%v", x)
	if len(text) > 120 {
		text = text[:120] + "…"
	}
	return fmt.Sprintf("%q", text)
}

func anything(any, any) bool { return true }

// configExcuses: the engine merges the image's configuration in.
func configExcuses(img image.InspectResponse) map[string]excuse {
	return map[string]excuse{
		// Covered one by one; that no anonymous volume came of them is seen in
		// the mount points.
		"Volumes": func(_, holds any) bool {
			declared := imageFact(img).Volumes
			for v := range holds.(map[string]struct{}) {
				if !slices.Contains(declared, v) {
					return false
				}
			}
			return true
		},
		// Without a network a port is a remark.
		"ExposedPorts": anything,
		// For building on the image; a run builds nothing.
		"OnBuild": anything, "Shell": anything,
		// The intervals of the image's check are kept beside NONE.
		"Healthcheck": func(_, holds any) bool {
			h := holds.(*container.HealthConfig)
			return h != nil && slices.Equal(h.Test, []string{"NONE"})
		},
		// The image's labels are added; none of ours may be among them.
		"Labels": func(told, holds any) bool {
			want, have := told.(map[string]string), holds.(map[string]string)
			for k, v := range want {
				if have[k] != v {
					return false
				}
			}
			return !slices.ContainsFunc(ourLabels(), func(k string) bool { return have[k] != want[k] })
		},
	}
}

// hostExcuses: what engines of any version write into fields that were left
// empty, without meaning.
func hostExcuses() map[string]excuse {
	return map[string]excuse{
		// nil becomes false; true would keep the kernel from ending a sandbox.
		"OomKillDisable": func(_, holds any) bool {
			disabled := holds.(*bool)
			return disabled == nil || !*disabled
		},
		// The size of a terminal that is not there.
		"ConsoleSize": anything,
		// Some engines spell the default mode out.
		"Isolation": func(_, holds any) bool { i := holds.(container.Isolation); return i == "" || i == "default" },
		"LogConfig": func(told, holds any) bool {
			return told.(container.LogConfig).Type == holds.(container.LogConfig).Type
		},
		"Ulimits": func(told, holds any) bool {
			return slices.EqualFunc(told.([]*container.Ulimit), holds.([]*container.Ulimit), func(a, b *container.Ulimit) bool {
				return a != nil && b != nil && *a == *b
			})
		},
	}
}

func checkBase(o order, got container.InspectResponse) (faults []string) {
	if got.Image != o.config.Image {
		faults = append(faults, fmt.Sprintf("Image is %s, not %s", got.Image, o.config.Image))
	}
	if argv := append([]string{got.Path}, got.Args...); !slices.Equal(argv, o.config.Entrypoint) {
		faults = append(faults, fmt.Sprintf("Path and Args are %q, not %q", argv, []string(o.config.Entrypoint)))
	}
	return faults
}

// checkMountPoints compares what is really going to be mounted: exactly the
// binds and the volume of the order (tmpfs are not listed by the engine before
// a start), and so no anonymous volume of the image's.
func checkMountPoints(o order, got []container.MountPoint) (faults []string) {
	wanted := make(map[string]mount.Mount)
	for _, m := range o.host.Mounts {
		wanted[m.Target] = m
	}
	for _, p := range got {
		if _, tmpfs := o.host.Tmpfs[p.Destination]; tmpfs && p.Type == mount.TypeTmpfs {
			continue
		}
		m, ok := wanted[p.Destination]
		delete(wanted, p.Destination)
		switch {
		case !ok:
			faults = append(faults, fmt.Sprintf("Mounts has a %s on %s that nobody asked for", p.Type, p.Destination))
		case p.Type != m.Type || p.RW == m.ReadOnly:
			faults = append(faults, fmt.Sprintf("Mounts has %s as %s, writable %t", p.Destination, p.Type, p.RW))
		case m.Type == mount.TypeBind && p.Source != m.Source, m.Type == mount.TypeVolume && p.Name != m.Source:
			faults = append(faults, fmt.Sprintf("Mounts has %s from %s%s", p.Destination, p.Name, p.Source))
		}
	}
	for target := range wanted {
		faults = append(faults, "Mounts lacks "+target)
	}
	slices.Sort(faults)
	return faults
}

// readBackVolume compares a volume with the request that made it. A volume of
// the same name that was there before would be returned by a create as if made.
func readBackVolume(want volume.CreateOptions, got volume.Volume) error {
	switch {
	case got.Name != want.Name:
		return fmt.Errorf("reading volume %s back: the engine has made %s", want.Name, got.Name)
	case got.Driver != want.Driver || !maps.Equal(got.Options, want.DriverOpts):
		return fmt.Errorf("reading volume %s back: it is %s %v, not %s %v", want.Name, got.Driver, got.Options, want.Driver, want.DriverOpts)
	case !maps.Equal(got.Labels, want.Labels):
		return fmt.Errorf("reading volume %s back: its labels are %v", want.Name, got.Labels)
	}
	return nil
}

// sameRun says whether a volume that is to be shared belongs to the Spec's run.
func sameRun(v volume.Volume, s runner.Spec) bool {
	return v.Labels[runner.LabelManaged] == "1" && v.Labels[runner.LabelSandbox] == s.Labels[runner.LabelSandbox]
}
