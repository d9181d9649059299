package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// What a workload did to the tree, in git's binary patch format: applied to a
// fresh clone by git it gives exactly the workload's tree.
func TestPatchApplies(t *testing.T) {
	needDocker(t)
	for _, isolation := range isolations(t) {
		for _, transport := range transports() {
			t.Run(isolation+"/"+transport, func(t *testing.T) { patchApplies(t, isolation, transport) })
		}
	}
}

func patchApplies(t *testing.T, isolation, transport string) {
	c := newCheckout(t, map[string]string{
		"keep": "same\n", "change": "one\n", "gone": "gone\n", "sub/renamed.txt": strings.Repeat("a long enough text to be found again\n", 20),
		"becomes-dir": "file\n", "becomes-link": "file\n", "mode.sh": "#!/bin/sh\n", "to-empty": "text\n", "crlf": "a\r\nb\r\n",
		".gitignore": "build/\n*.log\n", "tracked.log": "tracked although ignored\n", ".gitattributes": "* text eol=crlf filter=evil diff=evil\n*.bin -diff\n",
	})
	c.git("add", "-f", "tracked.log")
	c.git("commit", "-q", "--amend", "--no-edit")
	c.env = append(c.env, "COUNTERSIGN_TRANSPORT="+transport)
	script := `set -e
echo two >> change; rm gone; mv sub/renamed.txt moved.txt; rm becomes-dir; mkdir becomes-dir; echo in > becomes-dir/file
rm becomes-link; ln -s /etc/passwd becomes-link; ln -s nowhere/at/all dangling; chmod +x mode.sh; : > to-empty; : > empty
head -c 5000 /dev/urandom > random.bin; printf 'a\0b\0' > zeros.bin; echo x > 'name with spaces'; echo x > "$(printf 'new\nline')"
echo x > "$(printf 'not-utf8-\377\376')"; echo x > 'quote"and\back'; printf 'no newline' > nonl; printf 'a\nb\r\n' > crlf
mkdir -p build deep/er/still; echo built > build/out; echo log > new.log; echo more >> tracked.log; echo d > deep/er/still/file
mkfifo fifo; mkdir -p nested/.git/hooks; echo evil > nested/.git/hooks/post-checkout; echo '[core] fsmonitor = "touch /tmp/pwned"' >> .git/config
mkdir -p .git/hooks; echo evil > .git/hooks/post-index-change; rm -f .git/index; echo '!build/' > .git/info/exclude || true
# what the tree is, as git inside sees it, but for what stays out
find . -name .git -prune -o \( -type f -o -type l \) ! -path './build/*' ! -name new.log -print | wc -l
`
	r := c.sh(isolated(isolation, ""), script)
	if r.code != 0 {
		t.Fatalf("exit %d: %s\n%s", r.code, r.outcome.Reason, r.stderr)
	}
	clone := filepath.Join(t.TempDir(), "clone")
	c.git("clone", "-q", c.dir, clone)
	apply := exec.Command("git", "apply", "--binary", "--index", "--whitespace=nowarn", filepath.Join(r.outcome.Evidence, "changes.patch"))
	apply.Dir, apply.Env = clone, append(c.env, "GIT_ATTR_NOSYSTEM=1")
	if out, err := apply.CombinedOutput(); err != nil {
		t.Fatalf("git apply: %v\n%s", err, out)
	}
	tree := exec.Command("git", "write-tree")
	tree.Dir, tree.Env = clone, c.env
	got, err := tree.Output()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(r.file(t, "ledger.jsonl"), `"tree":"`+strings.TrimSpace(string(got))+`"`) {
		t.Errorf("the patch gives tree %s, the ledger has another", got)
	}
	listed := exec.Command("git", "ls-files", "-s")
	listed.Dir, listed.Env = clone, c.env
	files, err := listed.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"100755", "becomes-dir/file", "dangling", `"name with spaces"`[1:17], `new\nline`, `not-utf8-\377\376`, "tracked.log"} {
		if !strings.Contains(string(files), want) {
			t.Errorf("%s is missing from\n%s", want, files)
		}
	}
	for _, bad := range []string{"build/out", "new.log", "fifo", "nested/.git", "\tgone"} {
		if strings.Contains(string(files), bad) {
			t.Errorf("%s is in\n%s", bad, files)
		}
	}
	told := []string{"ignored", "git_directory"}
	if isolation != "runsc" || transport != "direct" { // gVisor keeps a FIFO to itself: none comes to be on the host
		told = append(told, "fifo")
	}
	for _, told := range told {
		if !strings.Contains(r.stderr, told) {
			t.Errorf("it is not said that %s was left out:\n%s", told, r.stderr)
		}
	}
	if _, err := os.Lstat("/tmp/pwned"); err == nil {
		t.Error("git ran on the host in a tree that a workload wrote")
	}
}

// The workspace is the commit's tree, and the working copy only when asked.
func TestDirty(t *testing.T) {
	needDocker(t)
	c := newCheckout(t, map[string]string{"a": "committed\n", ".gitignore": "ignored\n"})
	c.write(map[string]string{"a": "dirty\n", "new": "new\n", "ignored": "secret of the checkout\n"})
	clean := c.sh(smallPolicy(""), "cat a; ls")
	if log := clean.file(t, "output.log"); log != "committed\na\n" {
		t.Errorf("without --dirty the workspace has\n%s", log)
	}
	args := append(policyFile(t, smallPolicy("")), "--dirty", "--", "/bin/sh", "-c", "cat a; ls; echo more >> a")
	dirty := c.run(args...)
	if log := dirty.file(t, "output.log"); log != "dirty\na\nnew\n" {
		t.Errorf("with --dirty the workspace has\n%s%s", log, dirty.stderr)
	}
	if patch := dirty.file(t, "changes.patch"); !strings.Contains(patch, "+more") || strings.Contains(patch, "new file") {
		t.Errorf("the patch is not against the working copy:\n%s", patch)
	}
	if s := dirty.file(t, "inputs/snapshot.json"); !strings.Contains(s, `"dirty":true`) {
		t.Errorf("--dirty is not recorded: %s", s)
	}
	if v := c.exec("verify", dirty.outcome.Evidence); v.code != 0 {
		t.Errorf("verify: %s", v.stdout)
	}
}

// The policy that counts is the default branch's, never the head's.
func TestPolicyOfTheDefaultBranch(t *testing.T) {
	needDocker(t)
	strict := smallPolicy("")
	c := newCheckout(t, map[string]string{".github/countersign.yml": strict})
	c.git("checkout", "-q", "-b", "feature")
	c.write(map[string]string{".github/countersign.yml": strings.Replace(strict, "pids: 64", "pids: 4000", 1)})
	c.git("commit", "-qam", "loosen")
	r := c.run("--", "true")
	if r.code != 0 {
		t.Fatalf("exit %d: %s\n%s", r.code, r.outcome.Reason, r.stderr)
	}
	if got := r.file(t, "contracts/1.json"); !strings.Contains(got, `"pids":64`) || !strings.Contains(got, `"ref":"main"`) {
		t.Errorf("the contract is not of main's policy: %s", got)
	}
}

// A flood is bounded in output.log, and said so, while all of it is seen live.
func TestFlood(t *testing.T) {
	needDocker(t)
	c := newCheckout(t, map[string]string{"a": "a\n"})
	args := append(policyFile(t, limits("log=1MiB")), "--", "/bin/sh", "-c", "head -c 20000000 /dev/zero | tr '\\0' 'x'; echo end >&2")
	r := c.exec(append([]string{"run"}, args...)...)
	if r.code != 0 || len(r.stdout) != 20_000_000 {
		t.Fatalf("exit %d, %d bytes live\n%s", r.code, len(r.stdout), r.stderr)
	}
	if !strings.Contains(r.stderr, "18951424 bytes of output are not in it") && !strings.Contains(r.stderr, "18951428 bytes of output are not in it") {
		t.Errorf("it is not said how much is missing:\n%s", r.stderr)
	}
	logs, err := filepath.Glob(filepath.Join(c.dir, ".countersign/runs/*/output.log"))
	if err != nil || len(logs) != 1 {
		t.Fatal(logs, err)
	}
	info, err := os.Stat(logs[0])
	if err != nil || info.Size() < 1<<20 || info.Size() > 1<<20+200 {
		t.Errorf("output.log has %d bytes, %v", info.Size(), err)
	}
}

// A policy that is there and cannot apply is never passed over in silence, and
// neither is a link where evidence would go.
func TestPolicyWithoutADefaultBranch(t *testing.T) {
	needDocker(t)
	c := newCheckout(t, map[string]string{".github/countersign.yml": smallPolicy(""), "a": "a\n"})
	c.git("branch", "-m", "main", "trunk")
	r := c.run("--", "true")
	if r.code != 125 || !strings.Contains(r.outcome.Reason, "--policy") {
		t.Errorf("exit %d (%s)", r.code, r.outcome.Reason)
	}
	bare := filepath.Join(t.TempDir(), "bare.git") // whose HEAD says which branch it is
	c.git("clone", "-q", "--bare", c.dir, bare)
	r = c.run("--repo", bare, "--", "true")
	if r.code != 0 || !strings.Contains(r.file(t, "contracts/1.json"), `"ref":"trunk"`) {
		t.Errorf("bare: exit %d (%s)", r.code, r.outcome.Reason)
	}
	c.git("branch", "-m", "trunk", "main")
	elsewhere := t.TempDir()
	if err := os.RemoveAll(filepath.Join(c.dir, ".countersign")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, filepath.Join(c.dir, ".countersign")); err != nil {
		t.Fatal(err)
	}
	r = c.run("--", "true")
	if left, _ := os.ReadDir(elsewhere); r.code != 125 || len(left) > 0 {
		t.Errorf("exit %d (%s); written through the link: %v", r.code, r.outcome.Reason, left)
	}
}

// What a workload makes at a path that was not delivered is its own, and stays
// out of the patch.
func TestDeniedPathMadeAnew(t *testing.T) {
	needDocker(t)
	c := newCheckout(t, map[string]string{"deploy/key": "secret\n", "a": "a\n"})
	policy := strings.Replace(smallPolicy(""), "    writable:", "    read_denied: [/workspace/deploy]\n    writable:", 1)
	r := c.sh(policy, "test -e deploy && exit 9; mkdir deploy; echo mine > deploy/key; echo b > a")
	if r.code != 0 || r.outcome.Patch.Files != 1 {
		t.Errorf("exit %d (%s), %d files\n%s", r.code, r.outcome.Reason, r.outcome.Patch.Files, r.stderr)
	}
	if patch := r.file(t, "changes.patch"); strings.Contains(patch, "deploy") {
		t.Errorf("the patch touches the denied path:\n%s", patch)
	}
}
