package main

import (
	"bytes"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/policy/contract"
)

//go:embed testdata/trees.py
var treesProgram string

// trap is a program on the host that leaves a mark when anything runs it. Its
// name is what a hostile tree asks git, or whoever reads the tree, to run.
type trap struct{ program, mark string }

func newTrap(t *testing.T) trap {
	t.Helper()
	dir := t.TempDir()
	p := trap{filepath.Join(dir, "trap"), filepath.Join(dir, "mark")}
	if err := os.WriteFile(p.program, []byte("#!/bin/sh\necho \"$0 $*\" >> "+p.mark+"\ncat\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return p
}

// sprung fails the test when the program ran.
func (p trap) sprung(t *testing.T) {
	t.Helper()
	if mark, err := os.ReadFile(p.mark); err == nil {
		t.Errorf("something of the tree ran on the host: %s", mark)
	}
}

// omissions are what the ledger says was left out: count and names by reason.
func (r result) omissions(t *testing.T) map[string]struct {
	Count int64
	Names []string
} {
	t.Helper()
	type omission struct {
		Reason string
		Count  int64
		Names  []string
	}
	out := map[string]struct {
		Count int64
		Names []string
	}{}
	for line := range strings.Lines(r.file(t, "ledger.jsonl")) {
		var rec struct {
			Type string
			Data struct{ Omissions []omission }
		}
		if err := json.Unmarshal([]byte(line), &rec); err != nil {
			t.Fatal(err)
		}
		for _, o := range rec.Data.Omissions {
			out[o.Reason] = struct {
				Count int64
				Names []string
			}{o.Count, o.Names}
		}
	}
	return out
}

// What a workload can leave in its tree to have something run, followed or
// read on the host. Each case is a function of testdata/trees.py.
func TestHostileTrees(t *testing.T) {
	needDocker(t)
	// Under gVisor the walker reads through another kernel's calls.
	hardened := []string{}
	if slices.Contains(isolations(t), "runsc") {
		hardened = []string{"links_out", "specials", "setuid", "deep", "names", "unreadable"}
	}
	for i, tt := range []struct {
		name string
		// patch must be in changes.patch, never must not.
		patch, never []string
		// left is how much is left out for each reason, -1 for any number.
		left map[string]int64
	}{
		{"git_config", nil, []string{"trap"}, map[string]int64{"git_directory": 1}},
		{"git_hooks", nil, []string{"trap"}, map[string]int64{"git_directory": 1}},
		{"git_redirects", nil, []string{"trap"}, map[string]int64{"git_directory": 1}},
		{"git_file", nil, []string{"gitdir:"}, map[string]int64{"git_directory": 1}},
		{"git_symlink", nil, []string{"/etc"}, map[string]int64{"git_directory": 1}},
		{"git_gone", []string{"+changed"}, nil, nil},
		{"attributes", []string{".gitattributes", "+changed"}, nil, map[string]int64{"git_directory": 1}},
		{"nested", []string{"nested/file"}, []string{"nested/.git"}, map[string]int64{"git_directory": 3}},
		{"submodules", nil, []string{"Subproject", "new file mode 120000"}, map[string]int64{"name": 1}},
		{"links_out", []string{"new file mode 120000", "/etc/shadow", "/proc/self/root"}, []string{"root:"}, nil},
		{"hard_links", []string{"b/one", "b/two"}, []string{"root:"}, nil},
		{"specials", nil, []string{"b/fifo", "b/socket", "b/device"}, map[string]int64{"fifo": 1, "socket": 1}},
		{"setuid", []string{"b/setuid", "new file mode 100755"}, []string{"104755"}, map[string]int64{"setuid_bit": 3}},
		{"sparse", nil, []string{"giant"}, map[string]int64{"total_too_large": 1}},
		{"sparse_many", []string{"sparse00"}, nil, map[string]int64{"total_too_large": -1}},
		{"deep", []string{"+shallow"}, nil, map[string]int64{"too_deep": 1}},
		{"names", []string{`new\nline`, `esc\033[31m`, `\377\376`, "+++ b/ \t\n", "b/...", `b/..\\up`, "b/Twin", "b/twin", "b/-rf"}, []string{"\x1b"}, map[string]int64{"name": -1}},
		{"ignored", []string{"b/.gitignore", "b/kept"}, []string{"b/build/"}, map[string]int64{"ignored": 1}},
		{"unreadable", nil, []string{"deleted file"}, map[string]int64{"unreadable": 2}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			// What walks is the same on both ways, which package workspace
			// holds to one suite; here they take turns.
			ways := transports()
			hostileTree(t, "runc", ways[i%len(ways)], tt.name, tt.patch, tt.never, tt.left)
		})
		if !slices.Contains(hardened, tt.name) {
			continue
		}
		t.Run("runsc/"+tt.name, func(t *testing.T) {
			t.Parallel()
			hostileTree(t, "runsc", "streamed", tt.name, tt.patch, tt.never, tt.left)
		})
	}
}

func hostileTree(t *testing.T, isolation, transport, name string, patch, never []string, left map[string]int64) {
	bait := newTrap(t)
	c := newCheckout(t, map[string]string{
		"trees.py": treesProgram, "file": "file\n", "tracked/file": "tracked\n", ".gitignore": "build/\n", "locked/file": "locked\n", "closed": "closed\n",
	})
	c.env = append(c.env, "COUNTERSIGN_TRANSPORT="+transport)
	args := append(policyFile(t, isolated(isolation, "")), "--", "python3", "trees.py", name, bait.program)
	r := c.run(args...)
	if r.code != 0 {
		t.Fatalf("%s: exit %d: %s\n%s", transport, r.code, r.outcome.Reason, r.stderr)
	}
	bait.sprung(t)
	got := r.file(t, "changes.patch")
	for _, want := range patch {
		if !strings.Contains(got, want) {
			t.Errorf("%s: %q is not in the patch:\n%.1000s", transport, want, got)
		}
	}
	for _, bad := range never {
		if strings.Contains(got, bad) {
			t.Errorf("%s: %q is in the patch:\n%.1000s", transport, bad, got)
		}
	}
	said := r.omissions(t)
	for reason, n := range left {
		if have := said[reason]; have.Count != n && (n != -1 || have.Count == 0) || len(have.Names) == 0 {
			t.Errorf("%s: the ledger counts %d × %s (%q), want %d", transport, have.Count, reason, have.Names, n)
		}
		if reason != "git_directory" && !strings.Contains(r.stderr, "× "+reason) {
			t.Errorf("%s: standard error does not say %s:\n%s", transport, reason, r.stderr)
		}
	}
	if strings.Contains(r.stderr, "\x1b") {
		t.Errorf("%s: an escape reaches the terminal: %q", transport, r.stderr)
	}
	if v := c.exec("verify", r.outcome.Evidence); v.code != 0 {
		t.Errorf("%s: verify: %s", transport, v.stdout)
	}
}

// manyFiles makes as many files as it is told, in directories of ten thousand,
// and says how many there came to be. Its names are as long as it is told.
const manyFiles = `
import os, sys
n, wide = int(sys.argv[1]), int(sys.argv[2])
made = 0
try:
    for i in range(n):
        if i % 10000 == 0:
            os.mkdir("many%02d" % (i // 10000))
            os.chdir("many%02d" % (i // 10000))
        os.mknod(str(i).rjust(wide, "n"))
        made += 1
        if i % 10000 == 9999: os.chdir("..")
except OSError as e:
    print(made, e.strerror, flush=True)
    sys.exit(9)
print(made, flush=True)
`

// Three hundred thousand files within the contract's bound come out, every one:
// as the patch, or counted by the reason that kept them out of it.
func TestManyFiles(t *testing.T) {
	needDocker(t)
	const files = 300000
	for i, tt := range []struct {
		ignore         string
		patch, ignored int
	}{
		{"", files, 0},
		{"many1*/\nmany2*/\n", files / 3, files - files/3},
	} {
		c := newCheckout(t, map[string]string{"many.py": manyFiles, ".gitignore": tt.ignore})
		ways := transports()
		c.env = append(c.env, "COUNTERSIGN_TRANSPORT="+ways[i%len(ways)])
		args := policyFile(t, limits(fmt.Sprintf("files=%d memory=2GiB disk=512MiB timeout=300s", files+100)))
		r := c.run(append(args, "--", "python3", "many.py", strconv.Itoa(files), "6")...)
		said := r.omissions(t)["ignored"]
		if r.code != 0 || r.outcome.Patch.Files != tt.patch || said.Count != int64(tt.ignored) || len(said.Names) == 0 && tt.ignored > 0 {
			t.Errorf("%s: exit %d (%s), %d files in the patch, left out %v\n%s", ways[i%len(ways)], r.code, r.outcome.Reason, r.outcome.Patch.Files, said, r.stderr)
		}
	}
}

// A tree past a bound. Files past limits.files never come to be: the workload is
// told so, and what there is comes out whole. Names past the walk's own bound
// end the run without a patch, because what was not seen may be there.
func TestTooManyFiles(t *testing.T) {
	needDocker(t)
	c := newCheckout(t, map[string]string{"many.py": manyFiles, ".gitignore": "many*/\n"})
	for _, transport := range transports() {
		c.env = append(c.env, "COUNTERSIGN_TRANSPORT="+transport)
		args := policyFile(t, limits("files=200000 memory=2GiB disk=512MiB timeout=300s"))
		r := c.run(append(args, "--", "python3", "many.py", "300000", "6")...)
		made, told, _ := strings.Cut(strings.TrimSpace(r.file(t, "output.log")), " ")
		said := r.omissions(t)["ignored"]
		if r.code != 9 || told != "No space left on device" || !strings.HasPrefix(r.outcome.Reason, "disk: the workspace of 512 MiB and 200000 files was full") ||
			made != strconv.FormatInt(said.Count, 10) || said.Count < 199900 || len(said.Names) == 0 || r.outcome.Patch.Files != 0 {
			t.Errorf("%s: exit %d (%s); %q were made, left out %v\n%s", transport, r.code, r.outcome.Reason, made, said, r.stderr)
		}
		args = policyFile(t, limits("files=300100 memory=2GiB disk=512MiB timeout=300s"))
		r = c.run(append(args, "--", "python3", "many.py", "300000", "230")...)
		if r.code != 125 || r.outcome.State != contract.StateFailClosed || r.outcome.WorkloadExit == nil || *r.outcome.WorkloadExit != 0 ||
			!strings.Contains(r.outcome.Reason, "could not be read whole (too_many after 28") || r.file(t, "changes.patch") != "" {
			t.Errorf("%s: exit %d (%s)\n%s", transport, r.code, r.outcome.Reason, r.stderr)
		}
		if v := c.exec("verify", r.outcome.Evidence); v.code != 0 {
			t.Errorf("%s: verify: %s", transport, v.stdout)
		}
	}
	if left := leftovers(t); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// A pull request's head that wants something to happen on the host when its
// tree is read: nothing of it takes effect, and what cannot be a tree is
// refused with its name.
func TestHostileStart(t *testing.T) {
	needDocker(t)
	bait := newTrap(t)
	lfs := "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n"
	c := newCheckout(t, map[string]string{
		".gitattributes": "* filter=evil diff=evil merge=evil text eol=crlf ident\n*.bin filter=lfs diff=lfs merge=lfs -text\n",
		".gitignore":     "*\n!*/\n/../../etc/passwd\n[\n\\\n", ".gitmodules": "[submodule \"s\"]\n\tpath = sub\n\turl = ext::" + bait.program + "\n\tupdate = !" + bait.program + "\n",
		"data.bin": lfs, "file": "$Id$\nfile\n", "new\nline": "x\n", "esc\x1b[31m": "x\n", "\xff": "x\n", "Twin": "1\n", "twin": "2\n", "-rf": "x\n", "...": "x\n",
		"hooks/post-checkout*": "#!/bin/sh\nexec " + bait.program + "\n",
	})
	for link, target := range map[string]string{"etc": "/etc", "up": "../../../../../../../../etc/shadow", "proc": "/proc/self/root", "loop": "loop", "git": ".git/config"} {
		if err := os.Symlink(target, filepath.Join(c.dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	c.git("add", "-Af")
	c.git("update-index", "--add", "--cacheinfo", "160000,"+strings.Repeat("1", 40)+",sub")
	c.git("commit", "-qm", "hostile")
	// The user's own repository has drivers of these names, as with git-lfs.
	for _, key := range []string{
		"filter.evil.smudge", "filter.evil.clean", "filter.evil.process", "filter.lfs.smudge", "filter.lfs.process", "diff.evil.textconv", "diff.evil.command",
		"diff.external", "core.fsmonitor", "core.sshCommand", "core.pager", "uploadpack.packObjectsHook", "merge.evil.driver", "alias.archive", "credential.helper",
	} {
		c.git("config", key, bait.program)
	}
	c.git("config", "core.hooksPath", filepath.Join(c.dir, "hooks"))
	c.git("config", "core.untrackedCache", "true")
	script := "ls -A sub; cat file; readlink etc up proc loop git; head -1 data.bin; echo more >> file; echo new > fresh"
	for _, dirty := range []bool{false, true} {
		args := policyFile(t, smallPolicy(""))
		if dirty {
			args = append(args, "--dirty")
		}
		r := c.run(append(args, "--", "/bin/sh", "-c", script)...)
		bait.sprung(t)
		log := r.file(t, "output.log")
		if r.code != 0 || log != "$Id$\nfile\n/etc\n../../../../../../../../etc/shadow\n/proc/self/root\nloop\n.git/config\nversion https://git-lfs.github.com/spec/v1\n" {
			t.Errorf("dirty %t: exit %d: %s\n%s%s", dirty, r.code, r.outcome.Reason, log, r.stderr)
		}
		if patch := r.file(t, "changes.patch"); r.outcome.Patch.Files != 1 || !strings.Contains(patch, "+more\n") || strings.Contains(patch, "\r") {
			t.Errorf("dirty %t: the patch is\n%s", dirty, patch)
		}
		if !strings.Contains(r.stderr, "1 empty submodules and 1 LFS pointers") || !strings.Contains(r.stderr, "1 × ignored") {
			t.Errorf("dirty %t: it is not said what was left out:\n%s", dirty, r.stderr)
		}
	}
	// The trap is good: git as a person runs it there falls into it.
	status := exec.Command("git", "status", "--porcelain")
	status.Dir, status.Env = c.dir, c.env
	status.Run() // whose own opinion of such a tree does not matter
	if _, err := os.Stat(bait.mark); err != nil {
		t.Error("git itself does not run the program: the test could not fail")
	}
}

// Trees that git's own commands would not make: each is refused by its name
// before anything is made.
func TestMalformedStart(t *testing.T) {
	needDocker(t)
	c := newCheckout(t, map[string]string{"a": "a\n"})
	blob := strings.TrimSpace(c.git("rev-parse", "HEAD:a"))
	raw, err := hex.DecodeString(blob)
	if err != nil {
		t.Fatal(err)
	}
	sub := c.literalTree("100644 config\x00" + string(raw))
	entry := func(mode, name string, id []byte) string { return mode + " " + name + "\x00" + string(id) }
	for name, tree := range map[string]string{
		"parent":           entry("100644", "..", raw),
		"dot":              entry("100644", ".", raw),
		"git":              entry("40000", ".git", sub),
		"git in capitals":  entry("40000", ".GIT", sub),
		"git for HFS":      entry("40000", ".g\u200cit", sub),
		"slash":            entry("100644", "../../a", raw),
		"empty name":       entry("100644", "", raw),
		"twice":            entry("100644", "a", raw) + entry("100644", "a", raw),
		"link and tree":    entry("120000", "l", raw) + entry("40000", "l", sub),
		"modules as link":  entry("120000", ".gitmodules", raw),
		"object not there": entry("100644", "a", bytes.Repeat([]byte{7}, 20)),
	} {
		t.Run(name, func(t *testing.T) {
			commit := strings.TrimSpace(c.git("commit-tree", hex.EncodeToString(c.literalTree(tree)), "-m", name))
			r := c.run(append(policyFile(t, smallPolicy("")), "--rev", commit, "--", "echo", "ran")...)
			if r.code != 125 || r.outcome.WorkloadExit != nil {
				t.Errorf("exit %d: %s\n%s", r.code, r.outcome.Reason, r.stderr)
			}
			if left := leftovers(t); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// literalTree writes a tree object that nobody checks.
func (c *checkout) literalTree(entries string) []byte {
	c.t.Helper()
	cmd := exec.Command("git", "hash-object", "-t", "tree", "-w", "--literally", "--stdin")
	cmd.Dir, cmd.Env, cmd.Stdin = c.dir, c.env, strings.NewReader(entries)
	out, err := cmd.Output()
	if err != nil {
		c.t.Fatal(err)
	}
	id, err := hex.DecodeString(strings.TrimSpace(string(out)))
	if err != nil {
		c.t.Fatal(err)
	}
	return id
}
