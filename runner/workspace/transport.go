package workspace

import (
	"context"
	"fmt"
	"io"
)

// Transport reaches one workspace: as root through its directory, or through
// the shim in its sandbox. Both keep the same rules; package workspacetest holds
// the suite that says so.
type Transport interface {
	// Load fills the empty workspace with a start tree.
	Load(ctx context.Context, t *Tree) (Stats, error)
	// List walks it. The listing may come from a hostile sender but keeps the
	// rules of [Listing].
	List(ctx context.Context, b Bounds) (*Listing, error)
	// Fetch streams the contents of paths, in the listing's order, as
	// [SendFiles] writes them. The reader need not be honest; it must be
	// closed.
	Fetch(ctx context.Context, paths []string, b Bounds) (io.ReadCloser, error)
}

// Direct is the Transport of a directory that this process can reach itself.
type Direct struct {
	Root string
	UID  int // owner of what Load writes; see [ReceiveOptions]
}

// Load implements [Transport].
func (d Direct) Load(ctx context.Context, t *Tree) (Stats, error) { return t.place(ctx, d.Root, d.UID) }

// List implements [Transport].
func (d Direct) List(ctx context.Context, b Bounds) (*Listing, error) {
	return Walk(ctx, d.Root, b)
}

// Fetch implements [Transport].
func (d Direct) Fetch(ctx context.Context, paths []string, b Bounds) (io.ReadCloser, error) {
	pr, pw := io.Pipe()
	go func() {
		_, err := SendFiles(ctx, pw, d.Root, paths, b)
		pw.CloseWithError(err)
	}()
	return pr, nil
}

// Captured is what came of a workspace.
type Captured struct {
	Tree      string     `json:"tree"` // id of the result tree
	Files     int64      `json:"files"`
	Bytes     int64      `json:"bytes"`
	Visited   int64      `json:"visited"`
	Omissions []Omission `json:"omissions"`
}

// Capture reads a workspace within the bounds and makes the result tree of it.
// Everything else in the sandbox must be dead by then.
func (s *Store) Capture(ctx context.Context, tr Transport, t *Tree, b Bounds) (*Captured, error) {
	list, err := tr.List(ctx, b)
	if err != nil {
		return nil, fmt.Errorf("capturing workspace: %w", err)
	}
	sel, err := s.Select(ctx, t, list)
	if err != nil {
		return nil, fmt.Errorf("capturing workspace: %w", err)
	}
	r, err := tr.Fetch(ctx, sel.WantPaths(), b)
	if err != nil {
		return nil, fmt.Errorf("capturing workspace: %w", err)
	}
	defer r.Close()
	id, err := s.Import(ctx, t, sel, r, b)
	if err != nil {
		return nil, fmt.Errorf("capturing workspace: %w", err)
	}
	c := &Captured{Tree: id, Files: int64(len(sel.Keep)), Visited: list.Visited, Omissions: Omissions(list.LeftOut, sel.LeftOut)}
	for _, e := range sel.Want {
		c.Bytes += e.Size
	}
	return c, nil
}
