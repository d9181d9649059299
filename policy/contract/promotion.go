package contract

// Schema names of the documents around a promotion.
const (
	SchemaPromotion = "countersign/promotion/v1"
	SchemaDecision  = "countersign/decision/v1"
	SchemaPatch     = "countersign/patch/v1"
)

// Promotion is one request to go past a contract. Its name is Digest, the
// digest of Plan's canonical encoding: when and by whom it was asked is not part
// of what is approved.
type Promotion struct {
	Schema string `json:"schema"`
	Digest string `json:"digest"`
	Plan   Plan   `json:"plan"`
	// RequestedAt is when the host accepted the request, NotAfter until when it
	// may be decided. The plan's TTL counts from the approval.
	RequestedAt string `json:"requested_at"`
	NotAfter    string `json:"not_after"`
}

// States of a promotion (DESIGN §7).
const (
	PromotionRequested = "requested"
	PromotionApproved  = "approved"
	PromotionExecuting = "executing"
	PromotionUsed      = "used"
	PromotionDenied    = "denied"
	PromotionExpired   = "expired"
	PromotionRevoked   = "revoked"
)

// Verdicts of a decision.
const (
	VerdictApprove = "approve"
	VerdictDeny    = "deny"
)

// Ways in which a decision was given.
const (
	ViaButton  = "button"  // the check run's requested action
	ViaReview  = "review"  // a pull request review
	ViaComment = "comment" // a whole line of a comment
	ViaPrompt  = "prompt"  // a person at the terminal of a local run
)

// Decision is one person's word on one promotion. Whether the person may decide
// is not in it: the policy judges that when it is taken and again when it is
// used.
type Decision struct {
	Schema    string `json:"schema"`
	Promotion string `json:"promotion"`
	Verdict   string `json:"verdict"`
	By        Person `json:"by"`
	Via       string `json:"via"`
	// Source identifies the event it was read from (a comment's, review's or
	// delivery's id), "" for a prompt.
	Source string `json:"source"`
	// HeadSHA is the pull request's head when it was given.
	HeadSHA string `json:"head_sha"`
	Time    string `json:"time"`
}

// Patch describes the changed workspace that a run produced: what changes.patch
// in the evidence holds, and what stayed out of it.
type Patch struct {
	Schema         string `json:"schema"`
	RunID          string `json:"run_id"`
	ContractDigest string `json:"contract_digest"`
	// Start is the tree that the patch applies to.
	Start Start `json:"start"`
	// Digest and Bytes are of the patch in git's format.
	Digest string      `json:"digest"`
	Bytes  int64       `json:"bytes"`
	Files  []PatchFile `json:"files"`
	// Ignored counts files that the start commit's ignore rules left out;
	// Refused counts entries of a type that a commit cannot hold.
	Ignored int64 `json:"ignored"`
	Refused int64 `json:"refused"`
}

// What happened to a file.
const (
	FileAdded    = "added"
	FileModified = "modified"
	FileDeleted  = "deleted"
)

// PatchFile is one changed file; a rename is a deletion and an addition. Path
// holds the path's bytes (base64 in JSON), because a file's name need not be
// text. Modes are git's ("100644", "100755", "120000"), "" where the file is
// not there.
type PatchFile struct {
	Path    []byte `json:"path"`
	Change  string `json:"change"`
	OldMode string `json:"old_mode"`
	NewMode string `json:"new_mode"`
	Binary  bool   `json:"binary"`
}
