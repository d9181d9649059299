package workspace

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
)

// Reason says why something did not leave a tree.
type Reason byte

// Reasons of a walk.
const (
	ReasonSocket     Reason = 's'
	ReasonFIFO       Reason = 'p'
	ReasonDevice     Reason = 'b'
	ReasonSetuid     Reason = 'u' // only the set-id and sticky bits are dropped, the file stays
	ReasonDeep       Reason = 'd' // more directories deep than Bounds.Depth, or a path over MaxPath
	ReasonLarge      Reason = 'g' // larger than Bounds.File
	ReasonTotal      Reason = 't' // would take the contents past Bounds.Bytes
	ReasonMany       Reason = 'n' // more nodes than Bounds.Entries
	ReasonTime       Reason = 'c' // not reached within Bounds.Time
	ReasonGit        Reason = 'i' // the tree's own .git, or a nested one
	ReasonUnreadable Reason = 'r' // its owner may not read it, or reading it failed
	ReasonMount      Reason = 'm' // on another mount
)

// Reasons of a selection.
const (
	ReasonName      Reason = 'a' // a name or length that no checkout takes
	ReasonIgnored   Reason = 'e' // excluded by the start commit's ignore rules
	ReasonDenied    Reason = 'y' // at or under a path that was not delivered
	ReasonSubmodule Reason = 'o' // inside a submodule, which is carried over as it was
	ReasonConflict  Reason = 'f' // a file where something that is carried over needs a directory
)

var reasonNames = map[Reason]string{
	ReasonSocket: "socket", ReasonFIFO: "fifo", ReasonDevice: "device", ReasonSetuid: "setuid_bit",
	ReasonDeep: "too_deep", ReasonLarge: "too_large", ReasonTotal: "total_too_large", ReasonMany: "too_many",
	ReasonTime: "out_of_time", ReasonGit: "git_directory", ReasonUnreadable: "unreadable", ReasonMount: "other_mount",
	ReasonName: "name", ReasonIgnored: "ignored", ReasonDenied: "read_denied", ReasonSubmodule: "submodule",
	ReasonConflict: "conflict",
}

// String is the reason's name as evidence writes it.
func (r Reason) String() string {
	if s, ok := reasonNames[r]; ok {
		return s
	}
	return "unknown"
}

// hides says whether the reason keeps from view something that may well be
// there: what the start tree has at such a place is then carried over, never
// taken for deleted.
func (r Reason) hides() bool {
	switch r {
	case ReasonDeep, ReasonLarge, ReasonTotal, ReasonMany, ReasonTime, ReasonUnreadable, ReasonMount, ReasonName:
		return true
	}
	return false
}

// LeftOut is one thing that did not leave, with its reason. A path may occur
// more than once, and also among the entries (ReasonSetuid).
type LeftOut struct {
	Path   string
	Reason Reason
}

// Omission counts what was left out for one reason. Names are the first few,
// quoted as Go strings where they are not plain printable text.
type Omission struct {
	Reason string   `json:"reason"`
	Count  int64    `json:"count"`
	Names  []string `json:"names"`
}

// omissionNames is how many names an Omission keeps.
const omissionNames = 20

// Omissions counts by reason, sorted by the reason's name.
func Omissions(lists ...[]LeftOut) []Omission {
	by := map[Reason]*Omission{}
	for _, list := range lists {
		for _, l := range list {
			o := by[l.Reason]
			if o == nil {
				o = &Omission{Reason: l.Reason.String(), Names: []string{}}
				by[l.Reason] = o
			}
			o.Count++
			if len(o.Names) < omissionNames {
				o.Names = append(o.Names, printable(l.Path))
			}
		}
	}
	out := make([]Omission, 0, len(by))
	for o := range maps.Values(by) {
		out = append(out, *o)
	}
	slices.SortFunc(out, func(a, b Omission) int { return cmp.Compare(a.Reason, b.Reason) })
	return out
}

// printable quotes what could move a terminal's cursor or is not UTF-8.
func printable(p string) string {
	p = clip(p)
	if q := strconv.Quote(p); q != `"`+p+`"` {
		return q
	}
	return p
}
