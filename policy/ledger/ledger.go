// Package ledger keeps the record of what a run decided and did, and the
// statement that is signed over it.
//
// A ledger is a file of lines. Each line is one [Record] in canonical JSON (RFC
// 8785) and names the SHA-256 digest of the line before it, so that a changed,
// removed, added or reordered line breaks the chain at a line that [Verify] can
// name. What the chain cannot show by itself is that its end was cut off: for
// that the [Head] stands in the signed [Statement].
//
// A [Statement] is an in-toto v1 statement whose subject is the run's patch. It
// names every other file of the evidence bundle by digest and travels in a DSSE
// envelope, signed with Ed25519 (see [Sign] and [OpenEnvelope]). The names of
// the bundle's files stand in bundle.go, for the runner, which writes them, and
// for package evidence, which reads them.
//
// What always holds: a value that came from a workload is escaped before it is
// recorded, so that printing a ledger cannot steer a terminal; a record, a
// ledger and a bundle are bounded in size; a [Writer] that failed once writes
// nothing more, because what follows a torn line would not verify.
//
// The package opens no file, reads no clock and no randomness: those are
// arguments. It judges nothing; that is the work of package evidence.
package ledger

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/countersign-dev/countersign/policy/contract"
)

// Version is the format of a record; another one is refused.
const Version = 1

// Bounds of a ledger. A writer refuses what a verifier would refuse.
const (
	MaxLine    = 64 << 10 // bytes of one line, with its newline
	MaxRecords = 200_000
	MaxBytes   = 256 << 20 // bytes of a ledger
	maxType    = 64
)

// Genesis is the prev of the first record.
const Genesis = "sha256:0000000000000000000000000000000000000000000000000000000000000000"

// Types of record that evidence relies on. The first record of a run names its
// contract, unless it was refused before it had one; the last says how it
// ended. Those between that are listed here must agree with the statement;
// others are the runner's own words.
const (
	TypeAdmitted  = "run.admitted"       // data is [Admitted]
	TypeConcluded = "run.concluded"      // data is [Exit]
	TypeCreating  = "sandbox.creating"   // data has spec, the digest of spec.json
	TypeTaken     = "sandbox.taken"      // instead of it, of one that was made before its run; data has spec, sandbox and made
	TypeCaptured  = "workspace.captured" // data has patch, the digest of changes.patch
	TypeExited    = "sandbox.exited"     // data has code, the engine's exit status
)

// Admitted is the data of the first record.
type Admitted struct {
	Contract string         `json:"contract"`
	Level    contract.Level `json:"level"`
	Revision int            `json:"revision"`
}

// Record is one line of a ledger.
type Record struct {
	V      int             `json:"v"`
	Seq    int64           `json:"seq"`  // 1, 2, 3, …
	Prev   string          `json:"prev"` // digest of the previous line without its newline
	Time   string          `json:"time"` // RFC 3339 in UTC, milliseconds
	Tenant int64           `json:"tenant"`
	Run    string          `json:"run"`
	Type   string          `json:"type"`
	Data   json.RawMessage `json:"data"` // a JSON object
}

// timeLayout is the one way a record writes its time.
const timeLayout = "2006-01-02T15:04:05.000Z"

// Head names the end of a ledger: the digest of its last line (or [Genesis])
// and how many lines there are.
type Head struct {
	Digest  string `json:"head"`
	Records int64  `json:"records"`
}

// BrokenError says at which line a ledger stops being one.
type BrokenError struct {
	Line int64 // from 1
	Why  string
}

func (e *BrokenError) Error() string {
	return fmt.Sprintf("line %d: %s", e.Line, e.Why)
}

// validType reports whether a record type is a short lower-case word.
func validType(s string) bool {
	if s == "" || len(s) > maxType {
		return false
	}
	return strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789_.") == ""
}
