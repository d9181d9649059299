package egress

// Authority is one run's certificate authority, trusted inside its sandbox
// only. Its key never leaves the process and is never written.
type Authority struct{}
