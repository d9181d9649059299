package docker

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/runner"
)

// workspaceDir is the host's path of the workspace volume, or "" when this
// process cannot be sure to reach it. Only root gets a path, and only when the
// directory is the very file system that the container has: a path that merely
// exists (an engine elsewhere, this process in a container) may be anything.
func (b *sandbox) workspaceDir(ctx context.Context) string {
	m, ok := workspaceMount(b.spec)
	if !ok || os.Geteuid() != 0 {
		return ""
	}
	v, err := b.engine.api.VolumeInspect(ctx, m.Source)
	if err != nil {
		return ""
	}
	got, err := b.engine.api.ContainerInspect(ctx, b.id)
	if err != nil || got.ContainerJSONBase == nil || got.State == nil || got.State.Pid <= 0 {
		return ""
	}
	proc, target := strconv.Itoa(got.State.Pid), m.Target
	if b.spec.Isolation == contract.IsolationRunsc {
		// gVisor keeps its mounts to itself: what can be asked is whether the
		// directory is a mount point here.
		proc, target = "self", v.Mountpoint
	}
	if err := isWorkspace(v.Mountpoint, m, proc, target); err != nil {
		b.engine.log.InfoContext(ctx, "workspace volume is not reachable on the host, its contents will be streamed", "reason", err.Error())
		return ""
	}
	return v.Mountpoint
}

func workspaceMount(s runner.Spec) (runner.Mount, bool) {
	for _, m := range s.Mounts {
		if m.Kind == runner.MountVolume {
			return m, true
		}
	}
	return runner.Mount{}, false
}

// isWorkspace makes sure that dir is a tmpfs of the mount's size, and the same
// file system as the one that the process proc has mounted at target.
func isWorkspace(dir string, m runner.Mount, proc, target string) error {
	fd, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening %s: %v", dir, err)
	}
	defer unix.Close(fd)
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return fmt.Errorf("asking for the file system of %s: %v", dir, err)
	}
	page := int64(fs.Bsize)
	if fs.Type != unix.TMPFS_MAGIC || int64(fs.Blocks) != (m.Bytes+page-1)/page || int64(fs.Files) != m.Inodes {
		return fmt.Errorf("checking %s: it is not a tmpfs of %d bytes and %d inodes", dir, m.Bytes, m.Inodes)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("asking for the device of %s: %v", dir, err)
	}
	device, err := deviceAt(proc, target)
	if err != nil {
		return err
	}
	if have := fmt.Sprintf("%d:%d", unix.Major(uint64(st.Dev)), unix.Minor(uint64(st.Dev))); have != device {
		return fmt.Errorf("checking %s: it is device %s, the container has %s", dir, have, device)
	}
	return nil
}

// deviceAt reads the device (major:minor) that a process, a number or "self",
// has mounted at target.
func deviceAt(proc, target string) (string, error) {
	f, err := os.Open("/proc/" + proc + "/mountinfo")
	if err != nil {
		return "", fmt.Errorf("reading mounts of process %s: %v", proc, err)
	}
	defer f.Close()
	return mountedAt(f, target)
}

// mountedAt finds the device of a mount point in the text of mountinfo
// (proc_pid_mountinfo(5)): the last line counts, as it lies on top.
func mountedAt(mountinfo io.Reader, target string) (device string, err error) {
	lines := bufio.NewScanner(mountinfo)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) > 4 && unescape(fields[4]) == target {
			device = fields[2]
		}
	}
	if err := lines.Err(); err != nil {
		return "", fmt.Errorf("reading mounts: %v", err)
	}
	if device == "" {
		return "", fmt.Errorf("reading mounts: there is none at %s", target)
	}
	return device, nil
}

// unescape undoes what the kernel escapes in a mount point.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
