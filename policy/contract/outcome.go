package contract

// State is where a run ended or stands (DESIGN §7).
type State string

const (
	StateCompleted  State = "completed"
	StateFailed     State = "failed"
	StateTimedOut   State = "timed_out"
	StateFailClosed State = "fail_closed"
	StateRefused    State = "refused"
	StateCancelled  State = "cancelled"
	StateSuperseded State = "superseded"
	StateKilled     State = "killed"
)

// Exit statuses of `countersign run` that are ours; the reason tells them from
// a workload's own.
const (
	ExitTimedOut   = 124 // wall clock
	ExitFailClosed = 125 // sandbox, image, isolation, canary, proxy or evidence could not be had
	ExitRefused    = 126 // refused at admission, or a needed promotion denied
	ExitCancelled  = 130 // cancelled, superseded or killed
)

// Outcome is how a run ended: the object that `run --json` prints. WorkloadExit
// is the workload's own status as the engine reports it, nil if none ran.
type Outcome struct {
	RunID          string         `json:"run_id"`
	State          State          `json:"state"`
	ExitCode       int            `json:"exit_code"`
	WorkloadExit   *int           `json:"workload_exit"`
	Reason         string         `json:"reason"`
	ContractDigest string         `json:"contract_digest"`
	Evidence       string         `json:"evidence"`
	DurationMS     int64          `json:"duration_ms"`
	OOM            bool           `json:"oom"`
	TimedOut       bool           `json:"timed_out"`
	Egress         EgressTotals   `json:"egress"`
	Promotions     []PromotionRef `json:"promotions"`
	Patch          PatchStats     `json:"patch"`
}

// EgressTotals counts decisions of the proxy and bytes sent out.
type EgressTotals struct {
	Allowed  int64 `json:"allowed"`
	Denied   int64 `json:"denied"`
	BytesOut int64 `json:"bytes_out"`
}

// PromotionRef names a promotion of a run and where it stands.
type PromotionRef struct {
	Digest string `json:"digest"`
	Kind   string `json:"kind"`
	State  string `json:"state"`
}

// PatchStats counts changed files and the patch's bytes.
type PatchStats struct {
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
}
