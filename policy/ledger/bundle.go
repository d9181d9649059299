package ledger

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"

	"github.com/countersign-dev/countersign/policy/contract"
)

// Names of the files of an evidence bundle, relative to its directory. The
// directories of promotions and decisions hold one document each, named by the
// hexadecimal of its digest: promotions/<64 hex digits>.json.
const (
	FileTask     = "inputs/task.json"
	FileSnapshot = "inputs/snapshot.json"
	FilePolicy   = "inputs/policy.yml"
	FileCeiling  = "inputs/ceiling.yml"
	FileSpec     = "spec.json"
	FileLedger   = "ledger.jsonl"
	FileOutput   = "output.log"
	FilePatch    = "changes.patch"
	FileEvidence = "evidence.json"
	// FileSigner is the signer's public key in PEM. It is the signer's own
	// claim: it lets a reader without a trusted key check that the bundle is
	// consistent, and says nothing of who signed.
	FileSigner = "signer.pem"

	DirContracts  = "contracts"
	DirInputs     = "inputs"
	DirPromotions = "promotions"
	DirDecisions  = "decisions"
)

// ContractFile names the file of a contract's revision, from 1.
func ContractFile(revision int) string {
	return DirContracts + "/" + strconv.Itoa(revision) + ".json"
}

// Bounds of a bundle.
const (
	MaxFiles     = 2_000
	MaxFileBytes = 4 << 30
)

// FilesOf returns the digest ("sha256:…") of every file below fsys but
// evidence.json, by name. It refuses what is neither a directory nor a regular
// file (a link is never followed), and a bundle with more files or bytes than a
// bundle may have. Give it the FS of an [os.Root], which stays below its
// directory even if somebody replaces parts of it meanwhile.
func FilesOf(fsys fs.FS) (map[string]string, error) {
	files := map[string]string{}
	seen := 0
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if seen++; seen > MaxFiles {
			return fmt.Errorf("the bundle has more than %d files", MaxFiles)
		}
		if d.IsDir() || name == FileEvidence && d.Type().IsRegular() {
			return nil
		}
		if !d.Type().IsRegular() {
			return fmt.Errorf("%s is not a regular file", contract.Escape(name))
		}
		digest, err := digestFile(fsys, name)
		if err != nil {
			return err
		}
		files[name] = digest
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading bundle: %w", err)
	}
	return files, nil
}

func digestFile(fsys fs.FS, name string) (string, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a regular file", contract.Escape(name))
	}
	h := sha256.New()
	n, err := io.Copy(h, io.LimitReader(f, MaxFileBytes+1))
	if err != nil {
		return "", err
	}
	if n > MaxFileBytes {
		return "", fmt.Errorf("%s is larger than %d bytes", contract.Escape(name), int64(MaxFileBytes))
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), nil
}

func trimDigest(digest string) string { return strings.TrimPrefix(digest, "sha256:") }
