// Package policy decides what a run may do. It reads a repository's policy and
// its owner's ceiling, and derives one contract from them and from the facts of
// one task.
//
// What always holds:
//
//   - Nothing loosens the ceiling. A number is cut to the ceiling's, a switch or
//     a list that goes past it is a refusal; nothing is dropped without a word.
//   - Absent and empty mean none. A key that is not known is an error, with its
//     place and the nearest word that is.
//   - [Derive] is a function: the same bytes, task and snapshot give the same
//     contract, on any machine, at any time. `countersign verify` relies on it.
//   - Every field of a derived contract carries the reason it has its value.
//
// What it never does: read a file, a clock, an environment or a network; run
// a program; decide by anything a model said; hold a secret's value.
//
// The way through the package is [Parse] and [ParseCeiling] → [ImageRefs] →
// (the caller reads those facts) → [Derive] → contract.Seal, and [Explain] for
// people.
package policy
