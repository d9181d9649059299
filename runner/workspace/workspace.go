// Package workspace moves one tree of files into a sandbox and what became of
// it out again, and makes the patch between the two.
//
// It decides what of a commit is delivered ([Store.Start]), what of a written
// tree leaves ([Walk], [Store.Select]) and what patch says so ([Store.Patch]).
//
// What always holds:
//
//   - No program runs on a tree that an agent may have written. The tree is
//     read by our own walker; git works only in bare repositories that this
//     package made, and, for object look-ups, on the user's repository with
//     nothing of its configuration able to start a program or a connection.
//   - What is delivered is the commit's own contents. A file of the user's
//     checkout may stand for an object, which saves unpacking it, but only when
//     the bytes that were read have that object's id.
//   - No link is followed, in or out. Every directory is opened relative to its
//     parent, and no mount is crossed.
//   - Every stream is read as if its sender were hostile, and every direction
//     is bounded: entries, depth, bytes, names, time. What is left out is
//     counted with its reason.
//   - A patch is handed out only after git itself applied it to the start tree
//     and got the result tree, bit for bit.
//
// What it never does: deliver history or remotes, honour a user's or a
// machine's git configuration, write to the user's repository.
//
// The in-sandbox half (Receive, Walk, the listing and the file streams) runs no
// program and depends on the standard library and x/sys alone.
package workspace

import "time"

// Kind says what an entry is.
type Kind byte

// Kinds of entry.
const (
	Regular    Kind = 'f'
	Executable Kind = 'x' // a regular file that its owner may execute
	Symlink    Kind = 'l'
)

// Entry is one file or symbolic link of a walked tree. Directories are not
// entries: git does not keep them.
type Entry struct {
	// Path is relative, "/"-separated, any bytes but NUL; see [CheckPath].
	Path string
	Kind Kind
	// Size is the apparent size in bytes, of a link its target's length.
	Size int64
	// Allocated is the space the file takes, in bytes; less than Size where it
	// has holes.
	Allocated int64
	// Links is the number of hard links.
	Links uint64
	// Target is where a symbolic link points, exactly as it is stored.
	Target string
}

// Stats counts what a stream carried.
type Stats struct {
	Entries int64 `json:"entries"`
	Bytes   int64 `json:"bytes"` // of contents
}

// Bounds bound a walk, a listing or a stream of files in every direction. The
// zero value is closed: nothing may pass.
type Bounds struct {
	Entries int64         // nodes visited, directories too
	Depth   int           // directories deep; at most [MaxDepth]
	Bytes   int64         // bytes of contents in all
	File    int64         // bytes of one file
	Time    time.Duration // of a walk
}

const (
	// MaxDepth is the deepest directory that any bound can allow: a walk keeps
	// one descriptor open for each level.
	MaxDepth = 2000
	// MaxPath is the longest path in bytes that a stream carries. It is far
	// beyond PATH_MAX, which only binds paths that are handed to the kernel
	// whole.
	MaxPath = 1 << 16
	// MaxTarget is the longest target of a symbolic link, PATH_MAX less its NUL.
	MaxTarget = 4095
	// MaxNames bounds the bytes of all paths and targets of one listing.
	MaxNames = 64 << 20
)
