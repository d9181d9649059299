package workspace

import (
	"context"
	"errors"
	"io"

	"github.com/countersign-dev/countersign/policy/contract"
)

var errPending = errors.New("not landed yet")

// Listing is what a walk saw.
type Listing struct {
	Entries    []Entry   // sorted by ComparePaths
	LeftOut    []LeftOut // likewise
	Incomplete Reason    // why the walk stopped early, 0 when it is whole
	Visited    int64
}

type ReceiveOptions struct {
	UID     int // owner and group of everything when running as root; negative: leave as created
	Entries int64
	Bytes   int64 // of contents, the synthetic .git too
}

func Receive(ctx context.Context, r io.Reader, root string, o ReceiveOptions) (Stats, error) {
	return Stats{}, errPending
}
func Walk(ctx context.Context, root string, b Bounds) (*Listing, error) { return nil, errPending }
func EncodeListing(w io.Writer, l *Listing) error                       { return errPending }
func DecodeListing(r io.Reader, b Bounds) (*Listing, error)             { return nil, errPending }
func EncodePaths(w io.Writer, paths []string) error                     { return errPending }
func DecodePaths(r io.Reader, b Bounds) ([]string, error)               { return nil, errPending }
func SendFiles(ctx context.Context, w io.Writer, root string, paths []string, b Bounds) (Stats, error) {
	return Stats{}, errPending
}
func ReceiveFiles(r io.Reader, want []Entry, b Bounds, sink func(Entry, io.Reader) error) (Stats, error) {
	return Stats{}, errPending
}

type Repo struct{ GitDir, CommonDir, Worktree string } // Worktree "" for a bare one

func OpenRepo(ctx context.Context, dir string) (*Repo, error)           { return nil, errPending }
func (r *Repo) Resolve(ctx context.Context, rev string) (string, error) { return "", errPending }
func (r *Repo) DefaultBranch(ctx context.Context) (ref, sha string, err error) {
	return "", "", errPending
} // ErrNoDefaultBranch
func (r *Repo) ReadFile(ctx context.Context, sha, path string) ([]byte, bool, error) {
	return nil, false, errPending
}

var ErrNoDefaultBranch = errors.New("no default branch")

type Store struct{}

// NewStore makes private bare repositories under dir, which must not exist or be empty.
func NewStore(ctx context.Context, dir string, from *Repo) (*Store, error) { return nil, errPending }

type StartOptions struct {
	SHA   string   // full commit id
	Dirty string   // worktree whose present contents are the start tree; "" for the commit's own
	Deny  []string // relative to the workspace
}

type Tree struct {
	Commit      string
	ID          string // the start tree
	Delivered   string // ID without what is denied
	Stats       TreeStats
	Patch       []byte // with Dirty: from the commit's tree to ID
	PatchDigest string // sha256:… of Patch, "" without
}

type TreeStats struct {
	Files, Symlinks, Submodules, LFSPointers, Denied int64
	Bytes                                            int64 // of contents delivered
	GitBytes                                         int64 // of the synthetic .git
}

func (s *Store) Start(ctx context.Context, o StartOptions) (*Tree, error) { return nil, errPending }
func (t *Tree) Send(ctx context.Context, w io.Writer) error               { return errPending }

type Selection struct {
	Keep    []Entry // what the result tree is made of
	Want    []Entry // the regular files of Keep, in the order they must be sent
	LeftOut []LeftOut
}

func (s *Store) Select(ctx context.Context, t *Tree, l *Listing) (*Selection, error) {
	return nil, errPending
}

// Import reads the stream of SendFiles for sel.Want and returns the result tree's id.
func (s *Store) Import(ctx context.Context, t *Tree, sel *Selection, contents io.Reader, b Bounds) (string, error) {
	return "", errPending
}

type Change struct {
	Status           string // A M D R T
	Path, From       string
	OldMode, NewMode string
}
type Patch struct {
	Stats   contract.PatchStats
	Digest  string
	Changes []Change
}

// Patch writes nothing to w unless the patch proved itself; more than maxBytes is a *TooLarge.
func (s *Store) Patch(ctx context.Context, t *Tree, newTree string, w io.Writer, maxBytes int64) (*Patch, error) {
	return nil, errPending
}

type TooLarge struct{ Limit int64 }

func (e *TooLarge) Error() string { return "patch too large" }

// Transport reaches one workspace: directly as root, or through a shim.
type Transport interface {
	Load(ctx context.Context, t *Tree) (Stats, error)
	List(ctx context.Context, b Bounds) (*Listing, error)
	Fetch(ctx context.Context, want []string, b Bounds) (io.ReadCloser, error)
}

// Direct is the Transport of a directory that this process can reach.
type Direct struct {
	Root string
	UID  int
}

// Captured is what Capture got: the result tree and everything that was left out.
type Captured struct {
	Tree      string
	Files     int64
	Bytes     int64
	Omissions []Omission
}

// Capture does List, Select, Fetch, Import over a transport.
func (s *Store) Capture(ctx context.Context, tr Transport, t *Tree, b Bounds) (*Captured, error) {
	return nil, errPending
}
