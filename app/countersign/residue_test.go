package main

import (
	"strings"
	"testing"
)

// markerProgram leaves a marker wherever it can, or looks for one of an earlier
// run, in names and in contents.
const markerProgram = `
import os, socket, stat, subprocess, sys
mode, marker = sys.argv[1], "countersign-" + "marker"
skip = ("/proc", "/sys", "/usr/lib", "/usr/share", "/usr/local", "/usr/include")  # of the read-only root, and large
left, found = [], []
for top, dirs, files in os.walk("/"):
    dirs[:] = [d for d in dirs if os.path.join(top, d) not in skip]
    if mode == "leave":
        try:
            with open(os.path.join(top, marker), "w") as f: f.write(marker)
            left.append(top)
        except OSError: pass
        continue
    for name in dirs + files:
        path = os.path.join(top, name)
        if marker in name: found.append(path); continue
        try:
            st = os.lstat(path)
            if stat.S_ISREG(st.st_mode) and st.st_size < 1 << 16 and not top.startswith(("/usr", "/etc", "/var/lib")):
                if marker.encode() in open(path, "rb").read(): found.append(path)
        except OSError: pass
if mode == "leave":
    s = socket.socket(socket.AF_UNIX); s.bind("\0" + marker)
    subprocess.run(["git", "config", "--global", "alias." + marker, marker])
    for f in ("/home/agent/.bashrc", "/home/agent/.profile", "/home/agent/.cache", "/workspace/.git/hooks/pre-commit", "/tmp/bin"):
        try:
            os.makedirs(os.path.dirname(f), exist_ok=True)
            open(f, "w").write(marker)
        except OSError as e: print(f, e)
    child = os.fork()
    if child == 0:
        os.setsid()
        os.execv(sys.executable, ["python3", "-c", "import time; time.sleep(1000)", marker])
    for root in ("/workspace", "/tmp", "/home/agent", "/dev/shm"):
        if root not in left: print("no marker could be left in", root)
    print("left in", len(left))
else:
    s = socket.socket(socket.AF_UNIX)
    try: s.connect("\0" + marker); found.append("abstract socket")
    except OSError: pass
    for p in os.listdir("/proc"):
        if p.isdigit() and int(p) != os.getpid():
            try:
                if marker in open("/proc/%s/cmdline" % p).read(): found.append("process " + p)
            except OSError: pass
    if any(marker in k + v for k, v in os.environ.items()): found.append("environment")
    for tool in (["git", "config", "--list"], ["ipcs"]):
        try:
            if marker in subprocess.run(tool, capture_output=True, text=True).stdout: found.append(tool[0])
        except OSError: pass
    print("found", found)
`

// Two runs in a row share nothing: a marker in every place that the first could
// write is not there for the second, and the image is what it was.
func TestWithoutResidue(t *testing.T) {
	needDocker(t)
	for _, isolation := range isolations(t) {
		for _, transport := range transports() {
			t.Run(isolation+"/"+transport, func(t *testing.T) { withoutResidue(t, isolation, transport) })
		}
	}
}

func withoutResidue(t *testing.T, isolation, transport string) {
	state := func() string {
		image, err := dockerOutput("image", "inspect", "--format", "{{.Id}} {{.RootFS.Layers}} {{.Size}}", sandboxImage)
		if err != nil {
			t.Fatal(err)
		}
		images, err := dockerOutput("image", "ls", "-aq", "--no-trunc", sandboxImage)
		if err != nil {
			t.Fatal(err)
		}
		return image + images
	}
	before := state()
	c := newCheckout(t, map[string]string{"a": "a\n", "marker.py": markerProgram})
	c.env = append(c.env, "COUNTERSIGN_TRANSPORT="+transport)
	policy := isolated(isolation, "")
	left := c.sh(policy, "python3 marker.py leave && python3 marker.py look")
	for _, want := range []string{"/workspace/", "/tmp/", "/home/agent/", "/dev/shm/", "process ", "git"} { // looking finds what is there
		if log := left.file(t, "output.log"); left.code != 0 || !strings.HasPrefix(log, "left in ") || !strings.Contains(log, "'"+want) {
			t.Fatalf("%q: exit %d: %s\n%s", want, left.code, log, left.stderr)
		}
	}
	found := c.sh(policy, "python3 marker.py look")
	if log := found.file(t, "output.log"); found.code != 0 || log != "found []\n" {
		t.Errorf("exit %d: %s\n%s", found.code, log, found.stderr)
	}
	if state() != before {
		t.Errorf("the image was %s and is %s", before, state())
	}
	if left := leftovers(t); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
