package workspace

import (
	"bytes"
	"cmp"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"slices"

	"golang.org/x/sys/unix"
)

// Modes as git's trees and index write them.
const (
	modeFile    = 0o100644
	modeExec    = 0o100755
	modeLink    = 0o120000
	modeGitlink = 0o160000
	modeTree    = 0o040000
)

// indexEntry is one delivered path with what the kernel says of it.
type indexEntry struct {
	path string
	mode uint32
	oid  []byte
	stat unix.Stat_t // zero for a submodule
}

// encodeIndex makes a git index, version 2, whose stat data are those of the
// files just written: git in the sandbox then sees a clean tree without reading
// one file, and so do the plumbing commands that never refresh. An index made
// elsewhere could not know inode numbers and change times.
// https://git-scm.com/docs/index-format
func encodeIndex(entries []indexEntry, oidLen int) []byte {
	slices.SortFunc(entries, func(a, b indexEntry) int { return cmp.Compare(a.path, b.path) })
	var b bytes.Buffer
	b.WriteString("DIRC")
	u32 := func(n uint32) { b.Write(binary.BigEndian.AppendUint32(nil, n)) }
	u32(2)
	u32(uint32(len(entries)))
	for _, e := range entries {
		start := b.Len()
		st := &e.stat
		for _, n := range []uint32{
			uint32(st.Ctim.Sec), uint32(st.Ctim.Nsec), uint32(st.Mtim.Sec), uint32(st.Mtim.Nsec),
			uint32(st.Dev), uint32(st.Ino), e.mode, st.Uid, st.Gid, uint32(st.Size),
		} {
			u32(n)
		}
		b.Write(e.oid)
		b.Write(binary.BigEndian.AppendUint16(nil, uint16(min(len(e.path), 0xfff))))
		b.WriteString(e.path)
		b.Write(make([]byte, 8-(b.Len()-start)%8))
	}
	h := newHash(oidLen)
	h.Write(b.Bytes())
	return h.Sum(b.Bytes())
}

// newHash is the hash whose object ids have oidLen bytes.
func newHash(oidLen int) hash.Hash {
	if oidLen == sha256.Size {
		return sha256.New()
	}
	return sha1.New()
}
