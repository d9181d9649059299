package drill

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/runner/egress"
)

// refusal is one that the ledger of a run must hold.
type refusal struct {
	host  string
	class egress.Class
}

// onTheWay is a row of the way out: what was tried from inside went as it must,
// no server was sent what is marked with the word, and the run's ledger has the
// refusals. An empty word marks nothing.
func onTheWay(name, tried, word string, want ...refusal) control {
	return control{name, tried, func(f *findings) (Verdict, string) {
		w := f.work(workEgress)
		if w.Exit != 0 {
			return Fails, "the program did not come to its end: " + w.Outcome.Reason
		}
		v, happened := judgeAttempts(f.isolation, name, w.attempts)
		if v == Fails {
			return v, happened
		}
		if word != "" && slices.Contains(f.found.forged, word) {
			return Fails, "what had to be refused arrived at a server: never/" + word
		}
		for _, r := range want {
			if !w.ledger.denied[r] {
				return Fails, fmt.Sprintf("the ledger has no refusal of %q as %s", r.host, r.class)
			}
		}
		return v, happened
	}}
}

// also adds a judge to a row: it is asked when the row does not fail already,
// and says what is wrong, "" when nothing is.
func (c control) also(wrong func(*findings) string) control {
	judge := c.judge
	c.judge = func(f *findings) (Verdict, string) {
		v, happened := judge(f)
		if v != Fails {
			if what := wrong(f); what != "" {
				return Fails, what
			}
		}
		return v, happened
	}
	return c
}

// egressControls are the rows of the way out.
func egressControls() []control {
	return []control{
		onTheWay("the way out that the contract gives", "listed hosts by curl, Python, HTTP, HTTP/2, TLS, a gateway; with and without a proxy setting", "").also(arrived),
		onTheWay("unlisted host", "other names and ports, by HTTP, TLS, look-alikes of names; with and without a proxy setting", "unlisted",
			refusal{hostUnlisted, egress.ClassHost}, refusal{hostListed, egress.ClassPort}),
		onTheWay("private address by name", "listed names whose address is this machine's, also inside an IPv6 address", "private",
			refusal{hostInner, egress.ClassAddress}, refusal{hostMapped, egress.ClassAddress}),
		onTheWay("metadata and this machine by name", "names with rules for private addresses that lead to cloud metadata, behind NAT64, to 0.0.0.0", "metadata",
			refusal{hostMetadata, egress.ClassAddress}, refusal{hostMetadata6, egress.ClassAddress}, refusal{hostEmbedded, egress.ClassAddress}, refusal{hostZero, egress.ClassAddress}),
		onTheWay("an answer that changes", "a name that is harmless when it is looked up first and this machine from then on", "rebound", refusal{hostRebind, egress.ClassAddress}).also(lookedUpOnce),
		onTheWay("addresses in every spelling", "decimal, octal, hexadecimal, short, IPv6, embedded, with user information; to the proxy and directly", "address",
			refusal{"2130706433", egress.ClassName}, refusal{"[::1]", egress.ClassName}),
		onTheWay("one name: tunnel, server name, Host", "TLS and requests, first and later ones, under another name than the tunnel's", "name",
			refusal{hostSecure, egress.ClassMismatch}, refusal{hostListed, egress.ClassMismatch}, refusal{hostInspected, egress.ClassMismatch}),
		onTheWay("requests that parsers disagree on", "lengths and chunks, folded fields, bare line ends, names that are none; each hiding another request", "smuggled",
			refusal{hostListed, egress.ClassMalformed}, refusal{hostListed, egress.ClassBounds}, refusal{hostGateway, egress.ClassMalformed}),
		onTheWay("other protocols", "HTTP/2 without TLS, upgrades, CONNECT and TRACE in a tunnel, TLS and bytes to a gateway", "protocol",
			refusal{hostListed, egress.ClassProtocol}, refusal{hostGateway, egress.ClassProtocol}),
		onTheWay("requests outside a rule", "methods and paths of no rule, dot segments in every encoding, to a gateway and an inspected host", "rule",
			refusal{hostGateway, egress.ClassPath}, refusal{hostGateway, egress.ClassMethod}, refusal{hostInspected, egress.ClassPath}),
		onTheWay("upload budget", fmt.Sprintf("megabytes by tunnel, body, chunks and fields, with %d and %d KiB", sinkUpload>>10, smallUpload>>10), "",
			refusal{hostSink, egress.ClassBudget}, refusal{hostSmall, egress.ClassBudget}, refusal{hostSlender, egress.ClassBudget}).also(withinBudgets),
		onTheWay("look-ups leave nothing", "names that carry data, records of every kind, other name servers", "").also(askedForListed),
		onTheWay("redirect to an unlisted host", "a listed server's redirect, followed by curl and Python", "redirect", refusal{hostUnlisted, egress.ClassHost}),
		onTheWay("piped download from an unlisted host", "curl, Python, git and node, piped into sh; the refusal itself piped into sh", "script", refusal{hostUnlisted, egress.ClassHost}).also(toldOf),
		onTheWay("the proxy's socket", "requests for control, of engines, of itself; removing it", ""),
		{"a foreign process at the proxy's socket", "a tunnel, asked for on the host by another user's process", foreign},
		onTheWay("injected credential", "sending one's own, having it echoed in fields, bodies and trailers; looking for it everywhere inside", "credential").also(injected),
		onTheWay("secret file", "its mode, owner and place; printing it in five spellings and in pieces", "").also(masked),
		{otherRun, "two runs at once: the other's sockets, hosts, secrets, authority, uid", apart},
		{"records of the way out", "each connection and refusal in the ledger, and the counts of all", countsAgree},
	}
}

// arrived wants the servers to have seen what the contract gives.
func arrived(f *findings) string {
	for _, name := range []string{hostListed, hostWild, hostSecure, hostInspected, hostUpstream} {
		if !slices.ContainsFunc(f.found.requests, func(r request) bool { return nameOf(r.Host) == name }) {
			return "no request arrived at " + name
		}
	}
	return ""
}

// lookedUpOnce: between the look-up that is checked and the connection there is
// no other one.
func lookedUpOnce(f *findings) string {
	if n := f.found.questions[hostRebind]; n != 2 {
		return fmt.Sprintf("it was looked up %d times for two connections", n)
	}
	return ""
}

// withinBudgets compares what servers were sent with the rules.
func withinBudgets(f *findings) string {
	if n := f.found.sunk; n == 0 || n > sinkUpload {
		return fmt.Sprintf("%d bytes arrived through the tunnel", n)
	}
	sent := map[string]int64{}
	for _, r := range f.found.requests {
		if r.Path == "/v1/upload" {
			sent[nameOf(r.Host)] += r.Body
		}
	}
	for _, host := range []string{hostSmall, hostUpstream} { // the upstream is the gateway's
		if sent[host] < 100 || sent[host] > smallUpload {
			return fmt.Sprintf("%d bytes of bodies arrived at %s", sent[host], host)
		}
	}
	return ""
}

// nameOf is a Host field without its port.
func nameOf(host string) string {
	name, _, _ := strings.Cut(host, ":")
	return name
}

// askedForListed wants only names of the contracts at the name server.
func askedForListed(f *findings) string {
	for _, name := range slices.Sorted(maps.Keys(f.found.questions)) {
		if !slices.Contains(looked(), name) {
			return fmt.Sprintf("the name server was asked for %q", name)
		}
	}
	if len(f.found.questions) == 0 {
		return "the name server was asked for nothing, so it was not this one that was asked"
	}
	return ""
}

// toldOf wants the person at the terminal, and the output that is kept, to say
// what was refused and how to ask for it.
func toldOf(f *findings) string {
	w := f.work(workEgress)
	const told = "countersign: " + hostUnlisted + ":80 is not in this run's contract"
	for where, text := range map[string]string{"output that was shown": string(w.Said), "output that was kept": w.output} {
		line, _, _ := strings.Cut(text[max(0, strings.Index(text, told)):], "\n")
		if !strings.Contains(line, told) || !strings.Contains(line, "--allow "+hostUnlisted+":80") {
			return "no sentence says in the " + where + " what was refused and how to ask for it"
		}
	}
	return ""
}

// injected wants the credential at the servers, exactly where a rule injects it.
func injected(f *findings) string {
	used := 0
	for _, r := range f.found.requests {
		host := nameOf(r.Host)
		own := r.Key == f.key && (host == hostUpstream || host == hostInspected)
		if r.Authorization != "" || r.Key != "" && !own {
			return fmt.Sprintf("%s was sent a credential that it should not have", r.Host)
		}
		if own {
			used++
		}
	}
	if used < 4 {
		return fmt.Sprintf("the credential arrived with %d requests only", used)
	}
	return ""
}

// masked wants the output to show where a secret was, and no secret.
func masked(f *findings) string {
	w := f.work(workEgress)
	if leaks := w.leaks; len(leaks) > 0 {
		return "a secret is in " + strings.Join(leaks, ", ")
	}
	if n := strings.Count(w.output, "secret: "); n < 5 {
		return fmt.Sprintf("it was printed %d times only", n)
	}
	return ""
}

// foreign judges what a process outside the sandbox was told.
func foreign(f *findings) (Verdict, string) {
	w := f.work(workEgress)
	switch note := noteOf(f.isolation, "peer identification"); {
	case f.knocked == "":
		return Fails, "it was not tried"
	case strings.HasPrefix(f.knocked, "HTTP/1.1 200") && note != "":
		return Weaker, note
	case f.knocked != closedUnanswered:
		return Fails, "it was told " + f.knocked
	case !w.ledger.denied[refusal{"", egress.ClassPeer}]:
		return Fails, "the ledger does not say so"
	}
	return Holds, f.knocked
}

const otherRun = "another run's way out"

// apart judges two runs that were there at the same time.
func apart(f *findings) (Verdict, string) {
	a, b := f.work(workEgress), f.work(workNeighbour)
	for _, w := range []*finding{a, b} {
		if w.Exit != 0 {
			return Fails, "the program did not come to its end: " + w.Outcome.Reason
		}
	}
	switch {
	case a.Outcome.RunID == b.Outcome.RunID || a.Outcome.ContractDigest == b.Outcome.ContractDigest:
		return Fails, "the two runs were one"
	case len(b.leaks) > 0:
		return Fails, "a secret is in the other run's " + strings.Join(b.leaks, ", ")
	case slices.Contains(f.found.forged, "neighbour"):
		return Fails, "what had to be refused arrived at a server"
	case !a.ledger.denied[refusal{hostNeighbour, egress.ClassHost}] || !b.ledger.denied[refusal{hostListed, egress.ClassHost}]:
		return Fails, "the ledgers do not have the refusals"
	}
	return judgeAttempts(f.isolation, otherRun, slices.Concat(a.attempts, b.attempts))
}

// countsAgree wants the ledger to end with counts that are those of its records.
func countsAgree(f *findings) (Verdict, string) {
	l := f.work(workEgress).ledger
	switch {
	case l.totals == nil:
		return Fails, "the ledger has no counts of the way out"
	case l.totals.Allowed != l.connected+l.requests || l.totals.Denied != l.refusals+l.more:
		return Fails, fmt.Sprintf("the ledger counts %d allowed and %d denied, and has records of %d and %d", l.totals.Allowed, l.totals.Denied, l.connected+l.requests, l.refusals+l.more)
	case l.connected == 0 || l.connected != l.closed:
		return Fails, fmt.Sprintf("%d connections were recorded, and the end of %d", l.connected, l.closed)
	case l.named:
		return Fails, "the names of canaries are in the ledger"
	}
	return Holds, fmt.Sprintf("%d connections, %d requests, %d refusals", l.connected, l.requests, l.totals.Denied)
}
