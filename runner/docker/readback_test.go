package docker

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/volume"

	"github.com/countersign-dev/countersign/runner"
)

// answered is an order and the answer of an engine that followed it.
func answered(t *testing.T) (order, image.InspectResponse, container.InspectResponse) {
	t.Helper()
	spec, _ := planned(t)
	var img image.InspectResponse
	if err := json.Unmarshal([]byte(`{"Id":"`+spec.Image+`","Os":"linux","Architecture":"amd64","Config":{"Volumes":{"/data":{}},"Labels":{"image.own":"1"}}}`), &img); err != nil {
		t.Fatal(err)
	}
	o, err := compile(spec, img, []byte("{}"))
	if err != nil {
		t.Fatal(err)
	}
	got := container.InspectResponse{
		ContainerJSONBase: &container.ContainerJSONBase{Image: spec.Image, Path: spec.Entrypoint[0], Args: spec.Entrypoint[1:]},
		NetworkSettings:   &container.NetworkSettings{Networks: map[string]*network.EndpointSettings{"none": {}}},
		Mounts: []container.MountPoint{
			{Type: mount.TypeBind, Source: spec.Mounts[0].Source, Destination: "/countersign"},
			{Type: mount.TypeBind, Source: spec.Mounts[1].Source, Destination: "/run/countersign"},
			{Type: mount.TypeVolume, Name: spec.Mounts[2].Source, Destination: "/workspace", RW: true},
		},
	}
	got.Config, got.HostConfig = clone(t, *o.config), clone(t, *o.host)
	// What Docker is known to write in, and what the image brings.
	got.Config.Volumes = map[string]struct{}{"/data": {}}
	got.Config.Labels["image.own"] = "1"
	got.Config.Shell = []string{"/evil"}
	got.HostConfig.OomKillDisable = new(bool)
	return o, img, got
}

func clone[T any](t *testing.T, v T) *T {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	c := new(T)
	if err := json.Unmarshal(text, c); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestReadBackEveryField changes each field of both halves of the configuration,
// one at a time, and wants it named. A field that may differ is listed here, so
// that an excuse cannot be added by the way.
func TestReadBackEveryField(t *testing.T) {
	o, img, got := answered(t)
	if err := readBack(o, img, got); err != nil {
		t.Fatal("a faithful answer is refused: ", err)
	}
	free := []string{"ExposedPorts", "OnBuild", "Shell", "ConsoleSize"}
	for _, half := range []string{"Config", "HostConfig"} {
		for _, name := range fieldNames(reflect.TypeFor[container.HostConfig](), reflect.TypeFor[container.Config](), half) {
			o, img, got := answered(t)
			holder := reflect.ValueOf(got.Config).Elem()
			if half == "HostConfig" {
				holder = reflect.ValueOf(got.HostConfig).Elem()
			}
			disturb(holder.FieldByName(name))
			err := readBack(o, img, got)
			if slices.Contains(free, name) {
				if err != nil {
					t.Errorf("%s.%s may differ: %v", half, name, err)
				}
				continue
			}
			if err == nil || !strings.Contains(err.Error(), half+"."+name) {
				t.Errorf("a changed %s.%s is not named: %v", half, name, err)
			}
		}
	}
}

func fieldNames(host, config reflect.Type, half string) (names []string) {
	t := config
	if half == "HostConfig" {
		t = host
	}
	for _, f := range reflect.VisibleFields(t) {
		if !f.Anonymous {
			names = append(names, f.Name)
		}
	}
	return names
}

// disturb makes a value another one.
func disturb(v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int, reflect.Int64:
		v.SetInt(v.Int() + 1)
	case reflect.Uint, reflect.Uint16, reflect.Uint64:
		v.SetUint(v.Uint() + 1)
	case reflect.String:
		v.SetString(v.String() + "x")
	case reflect.Slice:
		v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
	case reflect.Map:
		m := reflect.MakeMap(v.Type())
		key := reflect.New(v.Type().Key()).Elem()
		key.SetString("/other")
		m.SetMapIndex(key, reflect.Zero(v.Type().Elem()))
		v.Set(m)
	case reflect.Pointer:
		changed := reflect.New(v.Type().Elem())
		if !v.IsNil() {
			changed.Elem().Set(v.Elem())
		}
		disturb(changed.Elem())
		v.Set(changed)
	case reflect.Struct:
		disturb(v.Field(0))
	case reflect.Array:
		disturb(v.Index(0))
	default:
		panic("unreachable: a field of kind " + v.Kind().String())
	}
}

// TestReadBackTheRest: what is not in the two halves.
func TestReadBackTheRest(t *testing.T) {
	for _, c := range []struct {
		says   string
		change func(*container.InspectResponse)
	}{
		{"not whole", func(g *container.InspectResponse) { g.HostConfig = nil }},
		{"Image is", func(g *container.InspectResponse) { g.Image = "sha256:other" }},
		{"Path and Args", func(g *container.InspectResponse) { g.Path = "/evil" }},
		{"Path and Args", func(g *container.InspectResponse) { g.Args = append(g.Args, "evil-argument") }},
		{"Networks", func(g *container.InspectResponse) {
			g.NetworkSettings.Networks["bridge"] = &network.EndpointSettings{}
		}},
		{"nobody asked for", func(g *container.InspectResponse) {
			g.Mounts = append(g.Mounts, container.MountPoint{Type: mount.TypeVolume, Name: "anonymous", Destination: "/data", RW: true})
		}},
		{"writable true", func(g *container.InspectResponse) { g.Mounts[0].RW = true }},
		{"from /evil", func(g *container.InspectResponse) { g.Mounts[0].Source = "/evil" }},
		{"from evil", func(g *container.InspectResponse) { g.Mounts[2].Name = "evil" }},
		{"lacks /workspace", func(g *container.InspectResponse) { g.Mounts = g.Mounts[:2] }},
		{"Labels", func(g *container.InspectResponse) { g.Config.Labels[runner.LabelSandbox] = "other" }},
		{"Volumes", func(g *container.InspectResponse) { g.Config.Volumes["/undeclared"] = struct{}{} }},
		{"SecurityOpt", func(g *container.InspectResponse) { g.HostConfig.SecurityOpt[1] = "seccomp=unconfined" }},
		{"Init", func(g *container.InspectResponse) { g.HostConfig.Init = nil }},
		{"PidsLimit", func(g *container.InspectResponse) { g.HostConfig.PidsLimit = nil }},
		{"OomKillDisable", func(g *container.InspectResponse) { disabled := true; g.HostConfig.OomKillDisable = &disabled }},
		{"Mounts", func(g *container.InspectResponse) { g.HostConfig.Mounts[0].ReadOnly = false }},
		{"Tmpfs", func(g *container.InspectResponse) { delete(g.HostConfig.Tmpfs, "/data") }},
	} {
		o, img, got := answered(t)
		c.change(&got)
		if err := readBack(o, img, got); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("want %q, got %v", c.says, err)
		}
	}
}

func TestReadBackVolume(t *testing.T) {
	spec, _ := planned(t)
	want := volumeOf(spec.Mounts[2], spec.UID, spec.Labels)
	good := func() volume.Volume {
		return volume.Volume{Name: want.Name, Driver: "local", Options: map[string]string{"type": "tmpfs", "device": "tmpfs", "o": want.DriverOpts["o"]}, Labels: want.Labels}
	}
	if err := readBackVolume(want, good()); err != nil {
		t.Fatal(err)
	}
	for _, change := range []func(*volume.Volume){
		func(v *volume.Volume) { v.Name = "other" },
		func(v *volume.Volume) { v.Driver = "nfs" },
		func(v *volume.Volume) { v.Options = nil },
		func(v *volume.Volume) { v.Options["o"] = "size=0" },
		func(v *volume.Volume) { v.Labels = nil },
	} {
		v := good()
		change(&v)
		if readBackVolume(want, v) == nil {
			t.Errorf("%+v passes", v)
		}
	}
}

func TestCheckImage(t *testing.T) {
	spec, _ := planned(t)
	make := func(config string) image.InspectResponse {
		var img image.InspectResponse
		if err := json.Unmarshal([]byte(`{"Id":"`+spec.Image+`","Os":"linux","Architecture":"amd64","Config":`+config+`}`), &img); err != nil {
			t.Fatal(err)
		}
		return img
	}
	for _, c := range []struct{ config, says string }{
		{`null`, ""},
		{`{}`, ""},
		{`{"Env":["LD_PRELOAD=/x","HTTP_PROXY","HOME=/evil"],"Labels":{"a":"b"}}`, ""},
		{`{"Env":["LD_AUDIT=/x"]}`, "LD_AUDIT is neither set nor dropped"},
		{`{"Env":["=x"]}`, "without a proper name"},
		{`{"Env":[""]}`, "without a proper name"},
		{`{"Labels":{"countersign.managed":"1"}}`, "countersign.managed"},
		{`{"Labels":{"countersign.rundir":"/"}}`, "countersign.rundir"},
	} {
		err := checkImage(make(c.config), spec, "linux/amd64")
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: got %v, want %q", c.config, err, c.says)
		}
	}
	other := make(`{}`)
	other.ID = "sha256:other"
	if checkImage(other, spec, "linux/amd64") == nil {
		t.Error("another image passes")
	}
	if checkImage(make(`{}`), spec, "linux/arm64") == nil {
		t.Error("another platform passes")
	}
}
