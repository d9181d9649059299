package docker

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/runner"
)

// cgroupRoot is where the host shows its cgroups: the unified tree at the root,
// or one tree a controller below it.
const cgroupRoot = "/sys/fs/cgroup"

// counters are failures that the kernel counted in a container's cgroup: tasks
// that it refused, and processes that it killed for want of memory
// (admin-guide/cgroup-v2.rst, cgroup-v1/pids.rst, cgroup-v1/memory.rst).
type counters struct{ pids, memory int64 }

// counterFiles are where they stand, "" for what is not there.
type counterFiles struct{ pids, memory string }

// counterWatch reads the counters of a container under gVisor at its end. Under
// runc the shim reads them. gVisor shows nothing of them inside, and at either
// limit its own kernel ends; soon after, the runtime removes the cgroup, and the
// engine may not have heard of the memory. So the host reads as soon as the
// container's process has ended.
//
// A nil watch counts nothing.
type counterWatch struct {
	process *os.File // a pidfd (pidfd_open(2))
	count   chan counters
}

// watchCounters begins to watch. Without the means it returns nil: the limits
// hold all the same, only their names may be missing from the outcome.
func (b *sandbox) watchCounters(ctx context.Context) *counterWatch {
	if b.spec.Isolation != contract.IsolationRunsc {
		return nil
	}
	got, err := b.engine.api.ContainerInspect(ctx, b.id)
	if err != nil || got.ContainerJSONBase == nil || got.State == nil || got.State.Pid <= 0 {
		return nil
	}
	// The descriptor comes first: what is read then is of this very process, or
	// of none whose cgroup bears the container's name.
	fd, err := unix.PidfdOpen(got.State.Pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil
	}
	process := os.NewFile(uintptr(fd), "pidfd")
	membership, err := os.ReadFile("/proc/" + strconv.Itoa(got.State.Pid) + "/cgroup")
	files := findCounters(cgroupRoot, string(membership), b.id)
	if err != nil || files == (counterFiles{}) {
		process.Close()
		return nil
	}
	return watchProcess(process, files)
}

// watchProcess takes over a pidfd that does not block.
func watchProcess(process *os.File, files counterFiles) *counterWatch {
	w := &counterWatch{process: process, count: make(chan counters, 1)}
	go func() {
		if w.awaitEnd() == nil {
			w.count <- counters{pids: readCounter(files.pids, "max"), memory: readCounter(files.memory, "oom_kill")}
		}
	}()
	return w
}

// awaitEnd returns nil when the process has ended, an error when nobody waits
// for it any more.
func (w *counterWatch) awaitEnd() error {
	conn, err := w.process.SyscallConn()
	if err != nil {
		return err
	}
	return conn.Read(func(fd uintptr) bool {
		ready := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(ready, 0)
		return n > 0 && err == nil
	})
}

// add ends the watch and adds what it saw to how the container ended. The
// container must have ended, or ctx.
func (w *counterWatch) add(ctx context.Context, exit *runner.Exit) {
	if w == nil {
		return
	}
	defer w.process.Close()
	select {
	case n := <-w.count:
		exit.PidsFailures = n.pids
		exit.OOMKilled = exit.OOMKilled || n.memory > 0
	case <-ctx.Done():
	}
}

// findCounters finds the counters of the container id by a process's membership
// (/proc/PID/cgroup, cgroups(7)). A cgroup that does not bear the container's
// name is never read.
func findCounters(root, membership, id string) counterFiles {
	var files counterFiles
	for line := range strings.Lines(membership) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, path, ok := strings.Cut(rest, ":")
		if !ok || !strings.Contains(path, id) {
			continue
		}
		if controllers == "" { // the unified tree, which names none
			files.pids = existing(files.pids, filepath.Join(root, path, "pids.events"))
			files.memory = existing(files.memory, filepath.Join(root, path, "memory.events"))
			continue
		}
		names := strings.Split(controllers, ",")
		if slices.Contains(names, "pids") {
			files.pids = existing(files.pids, filepath.Join(root, "pids", path, "pids.events"))
		}
		if slices.Contains(names, "memory") {
			files.memory = existing(files.memory, filepath.Join(root, "memory", path, "memory.oom_control"))
		}
	}
	return files
}

// existing is file if it is there, else what was found before.
func existing(before, file string) string {
	if _, err := os.Lstat(file); err != nil {
		return before
	}
	return file
}

// readCounter is the number behind key in a file's lines of "key number", 0
// where there is none, also when the runtime was faster.
func readCounter(file, key string) int64 {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if n, ok := strings.CutPrefix(strings.TrimSpace(line), key+" "); ok {
			if n, err := strconv.ParseInt(n, 10, 64); err == nil {
				return n
			}
		}
	}
	return 0
}
