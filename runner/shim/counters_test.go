package shim

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/countersign-dev/countersign/runner/shim/protocol"
)

// tree writes files below a new directory.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		p := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestCgroupReadings(t *testing.T) {
	for name, c := range map[string]struct {
		files    map[string]string
		limits   map[string]int64
		counters counters
	}{
		"version 2": {
			map[string]string{
				"memory.max": "134217728\n", "memory.swap.max": "0\n", "pids.max": "40\n", "cpu.max": "150000 100000\n",
				"memory.events": "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n", "pids.events": "max 7\n",
			},
			map[string]int64{"memory": 134217728, "memory_swap": 0, "pids": 40, "cpu_milli": 1500},
			counters{memory: 2, pids: 7},
		},
		"version 2 without limits": {
			map[string]string{"memory.max": "max\n", "memory.swap.max": "max\n", "pids.max": "max\n", "cpu.max": "max 100000\n", "memory.events": "oom_kill 0\n", "pids.events": "max 0\n"},
			map[string]int64{"memory": -1, "memory_swap": -1, "pids": -1, "cpu_milli": -1},
			counters{},
		},
		"version 1": {
			map[string]string{
				"memory/memory.limit_in_bytes": "134217728\n", "memory/memory.memsw.limit_in_bytes": "134217728\n", "pids/pids.max": "40\n",
				"cpu/cpu.cfs_quota_us": "50000\n", "cpu/cpu.cfs_period_us": "100000\n",
				"memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n", "pids/pids.events": "max 7\n",
			},
			map[string]int64{"memory": 134217728, "memory_swap": 0, "pids": 40, "cpu_milli": 500},
			counters{memory: 2, pids: 7},
		},
		"version 1 without limits": {
			map[string]string{
				"memory/memory.limit_in_bytes": "9223372036854771712\n", "memory/memory.memsw.limit_in_bytes": "9223372036854771712\n",
				"pids/pids.max": "max\n", "cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n",
			},
			map[string]int64{"memory": -1, "memory_swap": -1, "pids": -1, "cpu_milli": -1},
			counters{memory: -1, pids: -1},
		},
		"nothing":       {nil, map[string]int64{}, counters{memory: -1, pids: -1}},
		"nonsense":      {map[string]string{"memory.max": "many\n", "cpu.max": "1 0\n", "pids.events": "max\n"}, map[string]int64{}, counters{memory: -1, pids: -1}},
		"a sum alone":   {map[string]string{"memory/memory.memsw.limit_in_bytes": "5\n"}, map[string]int64{}, counters{memory: -1, pids: -1}},
		"only a memory": {map[string]string{"memory.max": "5\n"}, map[string]int64{"memory": 5}, counters{memory: -1, pids: -1}},
	} {
		g := cgroup{root: tree(t, c.files)}
		if got := g.limits(); !maps.Equal(got, c.limits) {
			t.Errorf("%s: limits %v, want %v", name, got, c.limits)
		}
		if got := g.counters(); got != c.counters {
			t.Errorf("%s: counters %v, want %v", name, got, c.counters)
		}
	}
}

func TestCountersSince(t *testing.T) {
	for _, c := range []struct{ now, then, want counters }{
		{counters{5, 3}, counters{2, 3}, counters{3, 0}},
		{counters{-1, 3}, counters{2, -1}, counters{-1, -1}},
	} {
		if got := c.now.since(c.then); got != c.want {
			t.Errorf("%v since %v is %v, want %v", c.now, c.then, got, c.want)
		}
	}
}

func TestReadRoutes(t *testing.T) {
	const head = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\n"
	const loopback6 = "00000000000000000000000000000001 80 00000000000000000000000000000000 00 00000000000000000000000000000000 00000000 00000001 00000000 80200001       lo\n"
	for name, c := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"loopback alone": {map[string]string{"route": head, "ipv6_route": loopback6, "if_inet6": "x"}, []string{}},
		"a default":      {map[string]string{"route": head + "eth0\t00000000\t0100A8C0\n", "ipv6_route": ""}, []string{"eth0 00000000 0100A8C0"}},
		"a default in 6": {map[string]string{"route": head, "ipv6_route": loopback6 + "0 00 0 00 fe80 0 0 0 3     eth0\n"}, []string{"0 00 0 00 fe80 0 0 0 3 eth0"}},
		"no IPv6":        {map[string]string{"route": head}, []string{}},
		"hidden IPv6":    {map[string]string{"route": head, "if_inet6": "x"}, []string{"unreadable: ENOENT"}},
		"hidden":         {nil, []string{"unreadable: ENOENT"}},
	} {
		got := readRoutes(tree(t, c.files))
		if len(got) != len(c.want) || (len(got) == 1 && got[0] != c.want[0]) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestReadMounts(t *testing.T) {
	dir := t.TempDir()
	spaced := filepath.Join(dir, "with space")
	if err := os.Mkdir(spaced, 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(tree(t, map[string]string{"mountinfo": "" +
		"20 1 0:1 / " + dir + "/with\\040space rw,noexec shared:1 - ext4 /dev/sda rw\n" + // lies below the next
		"21 20 0:2 / " + dir + "/with\\040space nodev,rw,nosuid master:2 shared:3 - tmpfs tmpfs rw,size=1k\n" +
		"22 1 0:3 / " + dir + "/gone ro - tmpfs tmpfs ro\n" +
		"not a line\n"}), "mountinfo")
	got := readMounts(file, []string{spaced, dir + "/gone", "/not/a/mount"})
	if len(got) != 1 {
		t.Fatalf("mounts are %v", got)
	}
	if m := got[spaced]; m.Type != "tmpfs" || m.Flags != "nodev,nosuid,rw" || m.Bytes == 0 {
		t.Errorf("the topmost mount is %+v", m)
	}
	if got := readMounts(file+".missing", []string{spaced}); len(got) != 0 {
		t.Errorf("without mountinfo: %v", got)
	}
}

func TestReadStatus(t *testing.T) {
	file := filepath.Join(tree(t, map[string]string{"status": "Name:\tx\nUid:\t7\t7\t7\t7\nSeccomp:\t2\n"}), "status")
	got := readStatus(file)
	want := map[string]string{"Uid": "7 7 7 7", "Seccomp": "2"}
	if !maps.Equal(got, want) {
		t.Errorf("status is %v, want %v: what is not there stays away", got, want)
	}
}

// Every call that the host will judge is one that a probe makes.
func TestEveryCallIsMade(t *testing.T) {
	x86only := map[string]bool{"modify_ldt": true, "iopl": true, "ioperm": true}
	made := map[string]bool{}
	for _, table := range callTables("/nowhere") {
		for name := range table {
			if made[name] {
				t.Errorf("%s is made twice", name)
			}
			made[name] = true
		}
	}
	for _, c := range protocol.Calls() {
		if !made[c.Name] && !(x86only[c.Name] && archCalls() == nil) {
			t.Errorf("%s is never made", c.Name)
		}
		delete(made, c.Name)
	}
	for name := range made {
		t.Errorf("%s is made and nobody judges it", name)
	}
}

func TestResultNames(t *testing.T) {
	dir := t.TempDir()
	files := tree(t, map[string]string{"full": "x", "hollow": ""})
	for name, c := range map[string]struct {
		got  error
		want string
	}{
		"created":         {create(dir), "ok"},
		"nowhere":         {create(dir + "/missing"), "ENOENT"},
		"a file's inside": {create(files + "/full"), "ENOTDIR"},
		"read":            {read(files + "/full"), "ok"},
		"read hollow":     {read(files + "/hollow"), "empty"},
		"read nothing":    {read(files + "/missing"), "ENOENT"},
		"listed":          {read(files), "ok"},
		"listed hollow":   {read(dir), "empty"},
		"no socket":       {dial("unix", dir+"/s.sock"), "ENOENT"},
		"not a socket":    {dial("unix", files+"/full"), "ECONNREFUSED"},
		"no call":         {tryCall("no such call", dir), protocol.Unsupported},
	} {
		if r := result(c.got); r != c.want {
			t.Errorf("%s: %q, want %q", name, r, c.want)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("the attempts left %v", left)
	}
}
