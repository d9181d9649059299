// Package workspacetest holds the suite that every [workspace.Transport] passes:
// a repository goes in, a script changes it, and the patch that comes out
// applies exactly onto a fresh clone. It is for tests only and never imported by
// a program.
package workspacetest

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/runner/workspace"
)

// Harness is one empty workspace and the way to it.
type Harness struct {
	Transport workspace.Transport
	// Sh runs a script of sh with the workspace as its directory, as its
	// owner, and returns what it printed.
	Sh func(t testing.TB, script string) string
}

// Bounds are those that the suite captures with.
var Bounds = workspace.Bounds{Entries: 100_000, Depth: 100, Bytes: 64 << 20, File: 16 << 20, Time: workspace.WalkTime}

// Run runs the suite; fresh makes a new harness for each case.
func Run(t *testing.T, fresh func(t *testing.T) Harness) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := setUp(t, c)
			h := fresh(t)
			if _, err := h.Transport.Load(t.Context(), s.tree); err != nil {
				t.Fatal(err)
			}
			if c.loaded != "" {
				if got := strings.TrimSpace(h.Sh(t, c.loaded)); got != c.want {
					t.Errorf("after loading: got %q, want %q", got, c.want)
				}
			}
			h.Sh(t, c.change)
			capt, err := s.store.Capture(t.Context(), h.Transport, s.tree, Bounds)
			if err != nil {
				t.Fatal(err)
			}
			checkOmissions(t, capt.Omissions, c.omits)
			var patch bytes.Buffer
			p, err := s.store.Patch(t.Context(), s.tree, capt.Tree, &patch, 64<<20)
			if err != nil {
				t.Fatal(err)
			}
			checkChanges(t, p.Changes, c.changes)
			if !c.noClone {
				s.applyToClone(t, patch.Bytes(), capt.Tree)
			}
		})
	}
	t.Run("refuses a workspace that is not empty", func(t *testing.T) {
		s := setUp(t, suiteCase{})
		h := fresh(t)
		h.Sh(t, "echo mine > here")
		if _, err := h.Transport.Load(t.Context(), s.tree); err == nil || !strings.Contains(err.Error(), "not empty") {
			t.Errorf("loading into a full workspace: %v", err)
		}
		if got := h.Sh(t, "cat here; ls -A | wc -l"); got != "mine\n1\n" {
			t.Errorf("it touched what was there: %q", got)
		}
	})
	t.Run("is bounded", func(t *testing.T) {
		s := setUp(t, suiteCase{})
		h := fresh(t)
		if _, err := h.Transport.Load(t.Context(), s.tree); err != nil {
			t.Fatal(err)
		}
		h.Sh(t, "i=0; while [ $i -lt 100 ]; do : > f$i; i=$((i+1)); done")
		b := Bounds
		b.Entries = 50
		if _, err := s.store.Capture(t.Context(), h.Transport, s.tree, b); err == nil || !strings.Contains(err.Error(), "could not be read whole") {
			t.Errorf("capturing more than the bounds: %v", err)
		}
	})
}

// suiteCase is one run: what is loaded, what changes it, and what must come out.
type suiteCase struct {
	name    string
	deny    []string
	loaded  string // a script run before the change, and what it must print
	want    string
	change  string
	changes []string // "M path", "R from -> path", sorted
	omits   []string // "reason path"
	noClone bool
}

var cases = []suiteCase{
	{
		name:   "nothing changes",
		loaded: "git status --porcelain --ignored; git diff-index --quiet HEAD && git log --format=%s && git fsck --strict 2>&1 && git remote && git count-objects | cut -d, -f1",
		want:   "Start of the run\n0 objects",
		change: "git status >/dev/null; touch a.txt",
		omits:  []string{"git_directory .git"},
	},
	{
		name: "files of every kind",
		change: `printf 'changed\n' > a.txt; chmod +x bin.dat; rm dir/gone; mv 'with space.txt' 'moved here.txt'
ln -s ../a.txt dir/link; ln -sfn elsewhere ln; : > empty-new; printf 'x\0y' > new.bin; printf 'line\r\n' > crlf
printf 'q' > 'quote"and\back'; printf n > "$(printf 'new\nline')"; printf l > "$(printf 'latin\351')"; mkdir -p deep/er; echo d > deep/er/d`,
		changes: []string{
			"A crlf", "A deep/er/d", "A dir/link", "A empty-new", "A latin\xe9", "A new\nline", "A new.bin", `A quote"and\back`,
			"D dir/gone", "M a.txt", "M bin.dat", "M ln", "R with space.txt -> moved here.txt",
		},
		omits: []string{"git_directory .git"},
	},
	{
		name:    "file, directory and link change places",
		change:  `rm a.txt; mkdir a.txt; echo in > a.txt/in; rm -r dir; echo file > dir; rm ln; echo text > ln; rm script.sh; ln -s a.txt script.sh`,
		changes: []string{"A a.txt/in", "A dir", "D a.txt", "D dir/gone", "D dir/kept", "T ln", "T script.sh"},
		omits:   []string{"git_directory .git"},
	},
	{
		name: "what does not leave",
		change: `mkfifo pipe; mkdir sub && git -C sub init -q && echo s > sub/s; echo t > tool; chmod 4755 tool
echo no > build.log; mkdir -p node_modules/x; echo no > node_modules/x/i.js; echo secret > shut; chmod 000 shut; mkdir room; echo r > room/r; chmod 000 room`,
		changes: []string{"A sub/s", "A tool"},
		omits: []string{
			"fifo pipe", "git_directory .git", "git_directory sub/.git", "ignored build.log", "ignored node_modules/x/i.js",
			"setuid_bit tool", "unreadable room", "unreadable shut",
		},
	},
	{
		name:    "denied paths",
		deny:    []string{"dir/gone", "script.sh"},
		loaded:  "git status --porcelain; ls dir; test -e script.sh || echo absent",
		want:    "kept\nabsent",
		change:  "rm -rf dir; echo mine > script.sh; echo y > other",
		changes: []string{"A other", "D dir/kept"},
		omits:   []string{"git_directory .git", "read_denied script.sh"},
	},
	{
		name:    "a link where a denied path was",
		deny:    []string{"dir/gone"},
		change:  "rm -r dir; ln -s /etc dir",
		changes: []string{"D dir/kept"},
		omits:   []string{"conflict dir", "git_directory .git"},
	},
	{
		name:    "unreadable files of the start tree count as unchanged",
		change:  "chmod 000 a.txt dir",
		omits:   []string{"git_directory .git", "unreadable a.txt", "unreadable dir"},
		changes: nil,
	},
	{
		name: "a path no checkout can hold",
		change: `n=0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789
mkdir x; echo leaf > x/leaf; i=0; while [ $i -lt 49 ]; do mkdir y; mv x y/$n; mv y x; i=$((i+1)); done; mv x $n`,
		omits: []string{"git_directory .git", "name " + strings.Repeat(strings.Repeat("0123456789", 10)+"/", 50) + "leaf"},
	},
	{
		name:    "a huge sparse file",
		change:  "truncate -s 1T giant 2>/dev/null || truncate -s 17M giant; echo y > y",
		changes: []string{"A y"},
		omits:   []string{"git_directory .git", "too_large giant"},
	},
	{
		name:    "history, hooks and filters of the sandbox stay there",
		change:  `git checkout -q -b x && echo z > a.txt && git commit -qam z && printf '#!/bin/sh\ntouch /tmp/pwned' > .git/hooks-x; printf '* filter=evil diff=evil\n' > .gitattributes; git config filter.evil.clean 'touch /tmp/pwned'`,
		changes: []string{"A .gitattributes", "M a.txt"},
		omits:   []string{"git_directory .git"},
	},
}

// repository is what every case starts from.
const repository = `printf 'one\ntwo\n' > a.txt; printf 'x\0\1\2' > bin.dat; mkdir dir; echo gone > dir/gone; echo kept > dir/kept
seq 1 40 > 'with space.txt'; ln -s a.txt ln; printf '#!/bin/sh\n' > script.sh; chmod +x script.sh; : > empty; printf '*.log\nnode_modules/\n' > .gitignore
echo tracked > kept.log; git add -f . && git -c user.name=t -c user.email=t@t commit -qm first
echo more >> a.txt; git -c user.name=t -c user.email=t@t commit -qam second`

type setup struct {
	dir   string
	repo  string
	store *workspace.Store
	tree  *workspace.Tree
}

func setUp(t *testing.T, c suiteCase) *setup {
	t.Helper()
	s := &setup{dir: t.TempDir()}
	s.repo = filepath.Join(s.dir, "repo")
	sh(t, s.dir, "git init -q -b main repo")
	sh(t, s.repo, repository)
	r, err := workspace.OpenRepo(t.Context(), s.repo)
	if err != nil {
		t.Fatal(err)
	}
	sha, err := r.Resolve(t.Context(), "HEAD")
	if err != nil {
		t.Fatal(err)
	}
	if s.store, err = workspace.NewStore(t.Context(), filepath.Join(s.dir, "store"), r); err != nil {
		t.Fatal(err)
	}
	if s.tree, err = s.store.Start(t.Context(), workspace.StartOptions{SHA: sha, Deny: c.deny}); err != nil {
		t.Fatal(err)
	}
	return s
}

// applyToClone applies the patch as a person would and compares the tree, of
// the index and of the files.
func (s *setup) applyToClone(t *testing.T, patch []byte, want string) {
	t.Helper()
	clone := filepath.Join(s.dir, "clone")
	sh(t, s.dir, "git clone -q --no-local repo clone")
	if len(patch) > 0 {
		if err := os.WriteFile(filepath.Join(s.dir, "p"), patch, 0o600); err != nil {
			t.Fatal(err)
		}
		sh(t, clone, "git apply --index --whitespace=nowarn ../p")
	}
	if got := strings.TrimSpace(sh(t, clone, "git write-tree")); got != want {
		t.Errorf("the applied patch gives tree %s, want %s\n%s", got, want, patch)
	}
	if got := sh(t, clone, "git diff-files --name-status"); got != "" {
		t.Errorf("the files differ from the index: %s", got)
	}
}

func sh(t testing.TB, dir, script string) string {
	t.Helper()
	out, err := Script(t.Context(), dir, nil, script)
	if err != nil {
		t.Fatalf("%s\n%v: %s", script, err, out)
	}
	return out
}

// Script runs a script of sh in dir with an environment of its own.
func Script(ctx context.Context, dir string, wrap func(*exec.Cmd), script string) (string, error) {
	cmd := exec.CommandContext(ctx, "/bin/sh", "-ec", script)
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/nonexistent", "LC_ALL=C", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
	}
	if wrap != nil {
		wrap(cmd)
	}
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, io.MultiWriter(&stderr)
	err := cmd.Run()
	return out.String() + stderr.String(), err
}

func checkOmissions(t *testing.T, got []workspace.Omission, want []string) {
	t.Helper()
	var flat []string
	for _, o := range got {
		for _, n := range o.Names {
			flat = append(flat, o.Reason+" "+n)
		}
	}
	for i, w := range want { // names are shortened when long
		if len(w) > 300 {
			reason, path, _ := strings.Cut(w, " ")
			want = slices.Clone(want)
			want[i] = reason + " " + path[:200] + "…"
		}
	}
	slices.Sort(flat)
	if !slices.Equal(flat, want) {
		t.Errorf("left out:\n got %q\nwant %q", flat, want)
	}
}

func checkChanges(t *testing.T, got []workspace.Change, want []string) {
	t.Helper()
	var flat []string
	for _, c := range got {
		s := c.Status + " " + c.Path
		if c.From != "" {
			s = c.Status + " " + c.From + " -> " + c.Path
		}
		flat = append(flat, s)
	}
	slices.Sort(flat)
	if !slices.Equal(flat, want) {
		t.Errorf("changes:\n got %q\nwant %q", flat, want)
	}
}
