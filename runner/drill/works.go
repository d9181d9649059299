package drill

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/countersign-dev/countersign/policy/contract"
)

// Names of works, which judges look results up by.
const (
	workAttempts    = "attempts"
	workResidue     = "residue"
	workAgain       = "residue again"
	workDaemons     = "daemons"
	workMemory      = "memory"
	workProcesses   = "processes"
	workDisk        = "disk"
	workFlood       = "flood"
	workClock       = "clock"
	workKillInit    = "kill-init"
	workDenied      = "denied path of the image"
	workNoEngine    = "no engine"
	workNoImage     = "no image"
	workNoIsolation = "no isolation"
	workAskSocket   = "policy with Docker's socket"
)

// limits of a work, as a policy writes them.
type limits struct {
	memoryMiB, pids, diskMiB, homeMiB, tmpMiB, shmMiB, files, logMiB, timeoutSec int64
}

// usual bounds a work tightly, so that every bound can be run into in seconds.
var usual = limits{memoryMiB: 512, pids: 256, diskMiB: 64, homeMiB: 16, tmpMiB: 16, shmMiB: 16, files: 4000, logMiB: 8, timeoutSec: 300}

// Bounds that works run into, and the host looks for.
const (
	floodKiB   = 6 << 10
	floodLog   = 1 // MiB of output.log
	clockSec   = 2
	memoryMiB  = 128
	processMax = 128 // fewer is refused under gVisor, whose own threads count
	diskMiB    = 8
	// showKiB is more than what the pipes, sockets and buffers between a
	// workload and the drill hold together.
	showKiB = 4 << 10
)

const showLine = "drill: look now"

// policyText writes the policy of one work. extra are whole lines of the
// profile.
func policyText(image string, isolation contract.Isolation, l limits, extra ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "version: 1\nrev: drill\ndefault: drill\nprofiles:\n  drill:\n    image: %q\n    isolation: %s\n", image, isolation)
	fmt.Fprintf(&b, "    limits: {cpu: 2, memory: %dMiB, pids: %d, disk: %dMiB, home: %dMiB, tmp: %dMiB, shm: %dMiB, files: %d, log: %dMiB, timeout: %ds, wait: 0s}\n",
		l.memoryMiB, l.pids, l.diskMiB, l.homeMiB, l.tmpMiB, l.shmMiB, l.files, l.logMiB, l.timeoutSec)
	b.WriteString("    env: {CI: \"1\"}\n    outputs: {kind: patch}\n")
	fmt.Fprintf(&b, "    read_denied: [%s]\n", strings.Join(denied(isolation), ", "))
	for _, line := range extra {
		b.WriteString("    " + line + "\n")
	}
	return b.String()
}

// denied are the paths that a work may not read. gVisor masks none of the image,
// which a work of its own shows.
func denied(isolation contract.Isolation) []string {
	if isolation == contract.IsolationRunsc {
		return []string{"/workspace/keys"}
	}
	return []string{"/workspace/keys", "/usr/share/perl5", "/etc/debian_version"}
}

const writable = "writable: [/workspace, /tmp]"

// works are the runs of a drill, in order. The first decides whether there can
// be a drill at all.
func works(c Config, p *planted) []Work {
	one := func(name, verb string, given map[string]any, change func(*limits)) Work {
		l := usual
		if change != nil {
			change(&l)
		}
		if given == nil {
			given = map[string]any{}
		}
		given["tag"] = p.tag
		arg, err := json.Marshal(given)
		if err != nil {
			panic("unreachable: " + err.Error())
		}
		return Work{
			Name: name, Isolation: string(c.Isolation), Policy: policyText(c.Image, c.Isolation, l, writable),
			Argv: []string{"python3", "inside.py", verb, string(arg)}, HostEnv: p.env, Home: p.home,
		}
	}
	first := one(workAttempts, "attempts", p.given(c.Isolation), nil)
	first.ShowAt = showLine
	list := []Work{
		first,
		p.way.work(c, p),
		one(workResidue, "residue", nil, nil),
		one(workAgain, "residue", nil, nil),
		one(workDaemons, "daemons", nil, nil),
		one(workMemory, "memory", nil, func(l *limits) { l.memoryMiB = memoryMiB }),
		one(workProcesses, "processes", nil, func(l *limits) { l.pids = processMax }),
		one(workDisk, "disk", nil, func(l *limits) { l.diskMiB = diskMiB }),
		one(workFlood, "flood", map[string]any{"flood_kib": floodKiB}, func(l *limits) { l.logMiB = floodLog }),
		one(workClock, "clock", nil, func(l *limits) { l.timeoutSec = clockSec }),
	}
	if c.Isolation == contract.IsolationRunsc {
		image := one(workDenied, "attempts", nil, nil)
		image.Policy = strings.Replace(image.Policy, "read_denied: [", "read_denied: [/etc/debian_version, ", 1)
		list = append(list, one(workKillInit, "kill-init", nil, nil), image)
	}
	return append(list, missing(c, p)...)
}

// missing are works that must end before anything ran.
func missing(c Config, p *planted) []Work {
	base := Work{
		Isolation: string(c.Isolation), Policy: policyText(c.Image, c.Isolation, usual, writable),
		Argv: []string{"sh", "-c", "echo it ran"}, HostEnv: p.env, Home: p.home,
	}
	named := func(name string, change func(*Work)) Work {
		w := base
		w.Name = name
		change(&w)
		return w
	}
	return []Work{
		named(workNoEngine, func(w *Work) { w.Engine = EngineMissing }),
		named(workNoImage, func(w *Work) { w.Policy = policyText("countersign.invalid/drill:none", c.Isolation, usual, writable) }),
		named(workNoIsolation, func(w *Work) { w.Engine = EngineWithoutIsolation }),
		named(workAskSocket, func(w *Work) {
			w.Policy = policyText(c.Image, c.Isolation, usual, "writable: [/workspace, /var/run/docker.sock]")
		}),
	}
}

const mib = 1 << 20

// given is what inside.py is told for its attempts.
func (p *planted) given(isolation contract.Isolation) map[string]any {
	hostname, err := os.Hostname()
	if err != nil {
		hostname = ""
	}
	return map[string]any{
		"host_files": p.files[:3], "host_tmp": []string{p.tmp}, "host_pids": []int{os.Getpid()}, "hostname": hostname,
		"listeners": p.listeners, "abstract": p.abstract, "show_kib": showKiB,
		// gVisor lets it: a work of its own does that there.
		"spare_init": isolation == contract.IsolationRunsc, "image_denied": isolation != contract.IsolationRunsc,
		"bytes":  map[string]int64{"/tmp": usual.tmpMiB * mib, "/home/agent": usual.homeMiB * mib, "/dev/shm": usual.shmMiB * mib},
		"inodes": map[string]int64{"/tmp": usual.tmpMiB*mib/4096 + 64, "/workspace": usual.files},
	}
}
