package workspace

import (
	"io"
	"os"
	"strings"
)

// gitIndex is the index of a synthetic .git. It comes last and is made where
// the files are, because the kernel alone knows what it says of them.
const gitIndex = ".git/index"

// gitNode is a directory of a synthetic .git, or a file: a copy of another or
// a text.
type gitNode struct {
	path string
	dir  bool
	from string
	text string
}

// dotGit is the synthetic .git without its index, directories before what they
// hold and depth first.
func (t *Tree) dotGit() []gitNode {
	const pack = ".git/objects/pack"
	config := bareConfig(t.store.oidLen, false,
		"[user]\n\tname = Countersign sandbox\n\temail = sandbox@countersign.invalid\n[gc]\n\tauto = 0\n")
	return []gitNode{
		{path: ".git", dir: true},
		{path: ".git/objects", dir: true},
		{path: pack, dir: true},
		{path: pack + "/pack-" + t.commit + ".pack", from: t.pack + ".pack"},
		{path: pack + "/pack-" + t.commit + ".idx", from: t.pack + ".idx"},
		{path: ".git/refs", dir: true},
		{path: ".git/refs/heads", dir: true},
		{path: ".git/refs/heads/main", text: t.commit + "\n"},
		{path: ".git/HEAD", text: "ref: refs/heads/main\n"},
		{path: ".git/config", text: config},
	}
}

// open opens a file and says how many bytes it has.
func (n gitNode) open() (io.ReadCloser, int64, error) {
	if n.from == "" {
		return io.NopCloser(strings.NewReader(n.text)), int64(len(n.text)), nil
	}
	f, err := os.Open(n.from)
	if err != nil {
		return nil, 0, err
	}
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, st.Size(), nil
}
