// Package runner obeys a sealed contract: it compiles it to what an engine is
// told at create time ([Spec]) and what the sandbox is told at start time
// (protocol.Job), drives an [Engine] through one run, and writes the bundle
// that package evidence reads.
//
// The way of one run:
//
//	Admit (pure)      what the contract asks for that has no executor: refused by name
//	Compile (pure)    contract + placement → Spec, Job
//	Supervise         claim → workspace → sandbox → canaries → workload → canaries → capture → remove
//	Conclude (pure)   what was seen → Outcome
//
// What always holds: only a contract.Sealed runs; a control that cannot be had
// ends the run with status 125 and a sentence, never a weaker run; what the
// sandbox says is a claim, the exit status is the engine's; a run is never
// repeated; when Supervise returns, nothing of the run is left on the machine.
//
// The package never interprets policy (it does not import it), never runs git
// on a tree that a workload wrote, and never signs: the parent of the
// supervising process does that.
package runner
