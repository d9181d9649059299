// Package egress is the only way out of a sandbox: a proxy on a Unix socket
// that turns a name into a decision, the decision into checked addresses, and
// one of those into a connection.
//
//	name ─ contract.ParseHost ─▶ Decide (pure) ─▶ resolve ─ Classify (pure) ─▶ dial what was checked
//
// What always holds: nothing is dialled that a rule of the contract does not
// allow; what is dialled is an address that was classified, never a name; where
// a name is said twice (tunnel, server name, Host) it is the same name, on every
// request; what parsers could read in two ways is refused; bytes that leave are
// counted against the rule that let them out; every decision is recorded.
//
// What it never does: interpret policy, hold a body in memory, serve control
// on its socket, or tell the sandbox the value of an injected credential.
//
// The package imports contract and redact only.
package egress
