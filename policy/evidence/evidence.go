// Package evidence judges the bundle that a run leaves: offline, from its files
// alone, without trusting who made it.
//
// [Verify] checks the signature, that every file is the one that was signed, the
// ledger's chain and that its head is the signed one; then it does the work
// again: it parses policy and ceiling, derives the contract from the recorded
// task and snapshot, and compares the result with the contract that was sealed,
// with the container that was ordered under it, with every connection and request
// that went out, and with the outcome. So a bundle that was signed by the right
// key and claims something that does not follow is found too.
//
// What always holds: each check is one [Line], and a bundle is good only if every
// line is; a changed, added, removed or reordered byte of any file is found; a
// document that this version cannot judge is refused by name and never passed
// over; every text of a [Report] is escaped, because a bundle may be hostile;
// files are bounded in number and size and no link is followed.
//
// What it cannot know: whether the signer told the truth about what happened
// outside the bundle, and whether a whole bundle was left away. Without a key
// that the reader trusts it says that the signer is unknown.
//
// It reads nothing but the file system it is given, changes nothing, and asks no
// network and no clock.
package evidence

import (
	"crypto/ed25519"
	"fmt"
	"io/fs"

	"github.com/countersign-dev/countersign/policy/contract"
)

// Verdict is the result of a verification.
type Verdict string

const (
	// Verified: every line holds, and a trusted key signed.
	Verified Verdict = "verified"
	// Consistent: every line holds; no trusted key was given, so the signature
	// says only that nothing changed since somebody signed.
	Consistent Verdict = "consistent"
	// Incomplete: there is no evidence.json. The run, or the process that wrote
	// the bundle, ended before the evidence was complete.
	Incomplete Verdict = "incomplete"
	// Failed: at least one line does not hold.
	Failed Verdict = "failed"
)

// Line is one check. Detail says what was found; it is printable.
type Line struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
}

// Report is what [Verify] found, in the order in which it looked. KeyID, RunID
// and Contract are "" until they could be read.
type Report struct {
	Verdict  Verdict `json:"verdict"`
	Summary  string  `json:"summary"`
	KeyID    string  `json:"key_id"`
	RunID    string  `json:"run_id"`
	Contract string  `json:"contract"`
	Lines    []Line  `json:"lines"`
}

// OK reports whether the bundle may be relied on as far as its verdict says.
func (r Report) OK() bool { return r.Verdict == Verified || r.Verdict == Consistent }

// Failures are the lines that do not hold.
func (r Report) Failures() []Line {
	var out []Line
	for _, l := range r.Lines {
		if !l.OK {
			out = append(out, l)
		}
	}
	return out
}

// Verify judges the bundle in fsys; for a directory on disk give it the FS of an
// [os.Root]. trusted are the keys of signers that the reader trusts; without any
// the best verdict is [Consistent]. A bundle that another key signed does not
// verify when trusted keys were given.
func Verify(fsys fs.FS, trusted []ed25519.PublicKey) Report {
	v := &verifier{fsys: fsys, trusted: trusted}
	v.run()
	r := v.report
	switch {
	case v.incomplete:
		r.Verdict, r.Summary = Incomplete, "incomplete: the bundle has no signed statement; "+v.reached
	case len(r.Failures()) > 0:
		r.Verdict, r.Summary = Failed, fmt.Sprintf("does not verify: %d of %d checks failed", len(r.Failures()), len(r.Lines))
	case len(trusted) == 0:
		r.Verdict, r.Summary = Consistent, "consistent, signer unknown: give the signer's public key with --key"
	default:
		r.Verdict, r.Summary = Verified, "verified: signed by "+r.KeyID
	}
	return r
}

// add records one check. detail may hold text from the bundle.
func (v *verifier) add(name string, ok bool, format string, args ...any) bool {
	v.report.Lines = append(v.report.Lines, Line{contract.Escape(name), ok, contract.Escape(fmt.Sprintf(format, args...))})
	return ok
}

// check records that err is nil; good is the detail when it is.
func (v *verifier) check(name string, err error, good string, args ...any) bool {
	if err != nil {
		return v.add(name, false, "%v", err)
	}
	return v.add(name, true, good, args...)
}

// same records that two values agree.
func (v *verifier) same(name, what, got, want string) bool {
	if got != want {
		return v.add(name, false, "%s is %s, expected %s", what, orNone(got), orNone(want))
	}
	return v.add(name, true, "%s is %s", what, orNone(got))
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
