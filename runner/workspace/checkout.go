package workspace

import (
	"bytes"
	"hash"
	"strconv"

	"golang.org/x/sys/unix"
)

// checkout is a user's checkout as a place where blobs lie unpacked. It is
// never trusted to be what was committed: a file is taken only when its bytes,
// as they were read, have the very object id that is wanted. git's object store
// is not even asked for that proof.
type checkout struct {
	files *treeFiles
	hash  hash.Hash
	sum   []byte
}

// openCheckout opens the checkout at root; nil when there is none, or it cannot
// be opened.
func openCheckout(root string, oidLen int) *checkout {
	if root == "" {
		return nil
	}
	files, err := openTree(root)
	if err != nil {
		return nil
	}
	return &checkout{files: files, hash: newHash(oidLen)}
}

func (c *checkout) close() {
	if c != nil {
		c.files.close()
	}
}

// blob fills b, which has the blob's size, and says whether b now holds exactly
// that blob. Whatever else lies there, or nothing, is no error: the object store
// has it too.
func (c *checkout) blob(e treeEntry, b []byte) bool {
	if c == nil || e.mode != modeFile && e.mode != modeExec {
		return false
	}
	fd, size, err := c.files.file(e.path)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return size == int64(len(b)) && readFull(fd, b) && c.is(e.oid, b)
}

// is says whether b is the blob with this id.
func (c *checkout) is(oid string, b []byte) bool {
	c.hash.Reset()
	c.hash.Write(blobHeader(int64(len(b))))
	c.hash.Write(b)
	c.sum = c.hash.Sum(c.sum[:0])
	return bytes.Equal(c.sum, rawOID(oid))
}

// blobHeader is what git hashes before a blob's contents.
// https://git-scm.com/book/en/v2/Git-Internals-Git-Objects#_object_storage
func blobHeader(size int64) []byte {
	return append(strconv.AppendInt([]byte("blob "), size, 10), 0)
}

// readFull says whether fd could fill b.
func readFull(fd int, b []byte) bool {
	for len(b) > 0 {
		n, err := readSome(fd, b)
		if err != nil || n <= 0 {
			return false
		}
		b = b[n:]
	}
	return true
}
