package workspace

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

const listingMagic = "countersign listing 1\n"

// Records of a listing stream: entries first (the byte is their Kind), then
// what was left out, then the end.
const (
	recLeftOut    = '-' // reason, path
	recListingEnd = 'E' // reason of incompleteness or 0, visited
)

// EncodeListing writes a listing as [DecodeListing] reads it.
func EncodeListing(w io.Writer, l *Listing) error {
	e := newEncoder(w, listingMagic)
	for _, x := range l.Entries {
		e.byte(byte(x.Kind))
		e.string(x.Path)
		if x.Kind == Symlink {
			e.string(x.Target)
		} else {
			e.uint(uint64(x.Size))
			e.uint(uint64(x.Allocated))
		}
		e.uint(x.Links)
	}
	for _, x := range l.LeftOut {
		e.byte(recLeftOut)
		e.byte(byte(x.Reason))
		e.string(x.Path)
	}
	e.byte(recListingEnd)
	e.byte(byte(l.Incomplete))
	e.uint(uint64(l.Visited))
	if err := e.flush(); err != nil {
		return fmt.Errorf("sending listing: %w", err)
	}
	return nil
}

// DecodeListing reads a listing from a sender that may be hostile: whatever
// arrives, the result keeps the rules of [Listing], the bounds the walk was
// given, and [MaxNames]; anything else is an error. Time is not bounded here:
// close the reader.
func DecodeListing(r io.Reader, b Bounds) (*Listing, error) {
	d, err := newDecoder(r, listingMagic)
	if err == nil {
		ld := &listingDecoder{d: d, b: b, list: &Listing{}}
		if err = ld.run(); err == nil {
			return ld.list, nil
		}
	}
	return nil, fmt.Errorf("receiving listing: %w", err)
}

type listingDecoder struct {
	d     *decoder
	b     Bounds
	list  *Listing
	names int
	bytes int64
}

func (ld *listingDecoder) run() error {
	for {
		kind, err := ld.d.byte()
		if err != nil {
			return err
		}
		switch kind {
		case byte(Regular), byte(Executable), byte(Symlink):
			if len(ld.list.LeftOut) > 0 {
				return errors.New("an entry after what was left out")
			}
			err = ld.entry(Kind(kind))
		case recLeftOut:
			err = ld.leftOut()
		case recListingEnd:
			return ld.end()
		default:
			err = fmt.Errorf("record of unknown kind %q", kind)
		}
		if err != nil {
			return err
		}
	}
}

func (ld *listingDecoder) entry(kind Kind) (err error) {
	x := Entry{Kind: kind}
	if int64(len(ld.list.Entries)) >= ld.b.Entries {
		return fmt.Errorf("more than %d entries", ld.b.Entries)
	}
	if x.Path, err = ld.path(); err != nil {
		return err
	}
	if strings.Contains("/"+x.Path+"/", "/.git/") {
		return fmt.Errorf("%q lies in a .git, which a walk never enters", clip(x.Path))
	}
	if n := len(ld.list.Entries); n > 0 {
		if err := follows(ld.list.Entries[n-1].Path, x.Path); err != nil {
			return err
		}
	}
	if kind == Symlink {
		if x.Target, err = ld.target(x.Path); err != nil {
			return err
		}
		x.Size = int64(len(x.Target))
	} else if x.Size, x.Allocated, err = ld.sizes(); err != nil {
		return fmt.Errorf("%q: %w", clip(x.Path), err)
	}
	links, err := ld.d.uint("link count", 1<<62)
	if err != nil {
		return err
	}
	x.Links = uint64(links)
	ld.list.Entries = append(ld.list.Entries, x)
	return nil
}

// follows refuses b after a unless it comes later and is not inside a, which is
// no directory.
func follows(a, b string) error {
	switch {
	case ComparePaths(a, b) >= 0:
		return fmt.Errorf("%q after %q: twice, or out of order", clip(b), clip(a))
	case within(b, a):
		return fmt.Errorf("%q lies under %q, which is no directory", clip(b), clip(a))
	}
	return nil
}

// path reads a path within the bounds of names and depth.
func (ld *listingDecoder) path() (string, error) {
	p, err := ld.d.path()
	if err != nil {
		return "", err
	}
	if ld.names += len(p); ld.names > 2*MaxNames {
		return "", fmt.Errorf("more than %d bytes of names", 2*MaxNames)
	}
	if strings.Count(p, "/") > ld.b.Depth {
		return "", fmt.Errorf("%q is more than %d directories deep", clip(p), ld.b.Depth)
	}
	return p, nil
}

func (ld *listingDecoder) target(path string) (string, error) {
	target, err := ld.d.string("link target", MaxTarget)
	if err != nil {
		return "", err
	}
	if target == "" || strings.IndexByte(target, 0) >= 0 {
		return "", fmt.Errorf("the target of %q is empty or holds a NUL", clip(path))
	}
	ld.names += len(target)
	return target, nil
}

func (ld *listingDecoder) sizes() (size, allocated int64, err error) {
	if size, err = ld.d.uint("size", min(ld.b.File, ld.b.Bytes-ld.bytes)); err != nil {
		return 0, 0, err
	}
	ld.bytes += size
	allocated, err = ld.d.uint("allocated size", 1<<62)
	return size, allocated, err
}

func (ld *listingDecoder) leftOut() error {
	if int64(len(ld.list.LeftOut)) > 2*ld.b.Entries {
		return fmt.Errorf("more than %d things left out", 2*ld.b.Entries)
	}
	b, err := ld.d.byte()
	if err != nil {
		return err
	}
	if _, ok := reasonNames[Reason(b)]; !ok {
		return fmt.Errorf("unknown reason %q", b)
	}
	p, err := ld.path()
	if err != nil {
		return err
	}
	if n := len(ld.list.LeftOut); n > 0 && ComparePaths(ld.list.LeftOut[n-1].Path, p) > 0 {
		return fmt.Errorf("%q out of order", clip(p))
	}
	ld.list.LeftOut = append(ld.list.LeftOut, LeftOut{p, Reason(b)})
	return nil
}

func (ld *listingDecoder) end() error {
	b, err := ld.d.byte()
	if err != nil {
		return err
	}
	why := Reason(b)
	if why != 0 && why != ReasonMany && why != ReasonTime {
		return fmt.Errorf("unknown reason %q for an early end", b)
	}
	visited, err := ld.d.uint("visited", ld.b.Entries)
	if err != nil {
		return err
	}
	if visited < int64(len(ld.list.Entries)) {
		return fmt.Errorf("%d visited and %d listed", visited, len(ld.list.Entries))
	}
	ld.list.Incomplete, ld.list.Visited = why, visited
	return nil
}
