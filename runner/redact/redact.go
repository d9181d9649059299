// Package redact keeps secrets out of what is written: a value that prints
// nothing ([Secret]), a writer that masks ([Redactor]) and one that bounds
// ([Bounded]).
//
// What always holds: a secret of a [Matcher] never appears in a Redactor's
// output, in any of the forms listed at [Compile], however the stream was cut
// into writes; text without a secret passes unchanged; what is held back is
// never longer than the longest form.
//
// What it never does: find a secret that was transformed in another way
// (reversed, encrypted, compressed, spelled out). Redaction is the last net, not
// the control: a secret that the workload must not have is not given to it.
//
// The package imports nothing of this module.
package redact
