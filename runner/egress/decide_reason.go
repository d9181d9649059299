package egress

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/countersign-dev/countersign/policy/contract"
)

// Bounds of a reason, in bytes where nothing else is said.
const (
	maxListed     = 4  // entries
	maxListedText = 24 // of one entry
	maxReason     = 200
)

// reason says why the nearest rule denies q: a clause of printable ASCII that
// names what is listed instead, and not the target, which the reader knows.
func (r *Rules) reason(q Question, v Verdict) string {
	if v.Rule < 0 {
		return "no rule names the host"
	}
	rule := r.allow[v.Rule]
	switch v.Class {
	case ClassPort:
		return fmt.Sprintf("the host is listed for port %s, not for %d", listed(r.portsOf(q.Host)), q.Port)
	case ClassExpired:
		return fmt.Sprintf("the grant of its rule ended at %s", rule.Grant.NotAfter)
	case ClassMethod:
		if err := contract.CheckMethod(q.Method); err != nil {
			return problem("method", err)
		}
		return fmt.Sprintf("the rule allows %s, not %s", listed(rule.Methods), q.Method)
	case ClassPath:
		return fmt.Sprintf("the rule allows the path %s, not %s", listed(rule.Paths), clip(q.Path))
	}
	return "the rule does not allow WebSocket"
}

func (r *Rules) portsOf(host string) []string {
	var ports []int
	for _, named := range r.naming(host) {
		for _, i := range named {
			ports = append(ports, r.allow[i].Port)
		}
	}
	slices.Sort(ports)
	var out []string
	for _, p := range slices.Compact(ports) {
		out = append(out, strconv.Itoa(p))
	}
	return out
}

// listed joins the first entries and counts the others.
func listed(entries []string) string {
	var b strings.Builder
	for i, e := range entries {
		if i == maxListed {
			fmt.Fprintf(&b, " and %d more", len(entries)-maxListed)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(clip(e))
	}
	return b.String()
}

// problem is a reason from contract's words about a value of the sandbox, which
// quote it with an ellipsis that is not ASCII.
func problem(what string, err error) string {
	text := "the " + what + " " + strings.ReplaceAll(err.Error(), "\u2026", "...")
	if len(text) > maxReason {
		return text[:maxReason-3] + "..."
	}
	return text
}

// clip bounds a text and makes it printable ASCII.
func clip(s string) string {
	quoted := strconv.QuoteToASCII(s[:min(len(s), maxListedText)])
	text := quoted[1 : len(quoted)-1]
	if len(s) > maxListedText || len(text) > maxListedText {
		return text[:min(len(text), maxListedText)] + "..."
	}
	return text
}
