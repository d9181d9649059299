package docker

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/countersign-dev/countersign/runner"
)

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestFindCounters(t *testing.T) {
	const id, other = "0123456789abcdef", "fedcba9876543210"
	root := t.TempDir()
	for _, dir := range []string{"docker/" + id, "docker/" + other, "system.slice/docker-" + id + ".scope"} {
		writeFile(t, filepath.Join(root, "pids", dir, "pids.events"), "")
		writeFile(t, filepath.Join(root, "memory", dir, "memory.oom_control"), "")
		writeFile(t, filepath.Join(root, dir, "pids.events"), "")
		writeFile(t, filepath.Join(root, dir, "memory.events"), "")
	}
	one := counterFiles{"pids/docker/" + id + "/pids.events", "memory/docker/" + id + "/memory.oom_control"}
	for _, c := range []struct {
		name, membership string
		want             counterFiles
	}{
		{"version 1", "9:name=systemd:/docker/" + id + "\n8:pids:/docker/" + id + "\n4:memory:/docker/" + id + "\n0::/\n", one},
		{"version 1, together with others", "8:rdma,pids:/docker/" + id + "\n", counterFiles{pids: one.pids}},
		{"version 2", "0::/docker/" + id + "\n", counterFiles{"docker/" + id + "/pids.events", "docker/" + id + "/memory.events"}},
		{"version 2 under systemd", "0::/system.slice/docker-" + id + ".scope\n", counterFiles{"system.slice/docker-" + id + ".scope/pids.events", "system.slice/docker-" + id + ".scope/memory.events"}},
		{"of another container", "8:pids:/docker/" + other + "\n4:memory:/docker/" + other + "\n", counterFiles{}},
		{"of the host", "8:pids:/\n0::/\n", counterFiles{}},
		{"not there", "0::/elsewhere/" + id + "\n", counterFiles{}},
		{"another controller", "3:cpuset:/docker/" + id + "\n", counterFiles{}},
		{"nonsense", id + "\n::\n", counterFiles{}},
		{"nothing", "", counterFiles{}},
	} {
		want := c.want
		for _, file := range []*string{&want.pids, &want.memory} {
			if *file != "" {
				*file = filepath.Join(root, *file)
			}
		}
		if got := findCounters(root, c.membership, id); got != want {
			t.Errorf("%s: got %q, want %q", c.name, got, want)
		}
	}
}

func TestReadCounter(t *testing.T) {
	for text, want := range map[string]int64{
		"max 0\n": 0, "max 12\n": 12, "local 1\nmax 3\n": 3, "": 0, "max\n": 0, "max x\n": 0, "maximum 3\n": 0, "oom_kill 3\n": 0,
	} {
		if got := readCounter(writeFile(t, filepath.Join(t.TempDir(), "c"), text), "max"); got != want {
			t.Errorf("%q: got %d, want %d", text, got, want)
		}
	}
}

// The counters are what they were when the process had ended.
func TestCounterWatch(t *testing.T) {
	dir := t.TempDir()
	files := counterFiles{filepath.Join(dir, "pids.events"), filepath.Join(dir, "memory.oom_control")}
	count := func(pids, memory string) {
		writeFile(t, files.pids, "max "+pids+"\n")
		writeFile(t, files.memory, "oom_kill_disable 0\nunder_oom 0\noom_kill "+memory+"\n")
	}
	begin := func() (*counterWatch, func()) {
		cat := exec.Command("cat")
		stdin, err := cat.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cat.Start(); err != nil {
			t.Fatal(err)
		}
		fd, err := unix.PidfdOpen(cat.Process.Pid, unix.PIDFD_NONBLOCK)
		if err != nil {
			t.Fatal(err)
		}
		return watchProcess(os.NewFile(uintptr(fd), "pidfd"), files), func() {
			stdin.Close()
			if err := cat.Wait(); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := func(w *counterWatch, ctx context.Context, before, after runner.Exit) {
		t.Helper()
		if w.add(ctx, &before); before != after {
			t.Errorf("got %+v, want %+v", before, after)
		}
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()

	count("0", "0")
	w, end := begin()
	count("7", "0")
	end()
	want(w, t.Context(), runner.Exit{Code: 2}, runner.Exit{Code: 2, PidsFailures: 7})

	count("0", "1")
	w, end = begin()
	end()
	want(w, t.Context(), runner.Exit{Code: 137}, runner.Exit{Code: 137, OOMKilled: true})

	w, end = begin()
	want(w, over, runner.Exit{}, runner.Exit{}) // it lives
	end()

	count("0", "0")
	w, end = begin()
	end()
	want(w, t.Context(), runner.Exit{OOMKilled: true}, runner.Exit{OOMKilled: true}) // the engine's word stands

	count("1", "1")
	w, end = begin()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	end()
	want(w, t.Context(), runner.Exit{}, runner.Exit{}) // the cgroup is gone
	want(nil, t.Context(), runner.Exit{Code: 1}, runner.Exit{Code: 1})
}
