package drill

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/runner/shim/protocol"
)

// Names of the works that have a way out. They go on at the same time.
const (
	workEgress    = "way out"
	workNeighbour = "another run's way out"
)

// Names that the drill's name server knows, and one that no contract lists.
// .test is nobody's (RFC 6761 §6.2).
const (
	hostListed    = "listed.drill.test"
	hostWild      = "one.wild.drill.test" // under a rule for *.wild.drill.test
	hostSecure    = "secure.drill.test"
	hostLine      = "line.drill.test"
	hostSink      = "sink.drill.test"
	hostSmall     = "small.drill.test"
	hostInner     = "inner.drill.test"    // an address of this machine, and a rule that is not private
	hostMapped    = "mapped.drill.test"   // the same, embedded in IPv6
	hostMetadata  = "metadata.drill.test" // its rule is private, as are those of the next three
	hostMetadata6 = "metadata6.drill.test"
	hostEmbedded  = "embedded.drill.test" // metadata, behind NAT64's prefix
	hostZero      = "zero.drill.test"     // 0.0.0.0, by which Linux dials itself
	hostRebind    = "rebind.drill.test"   // harmless at first, and 0.0.0.0 from then on
	hostInspected = "inspected.drill.test"
	hostUpstream  = "upstream.drill.test"
	hostGateway   = "api.internal"
	hostSlender   = "slender.internal" // a gateway that lets little out
	hostForged    = "forged.internal"  // a gateway whose server cannot prove hostFalse
	hostFalse     = "false.name.drill.test"
	hostUnlisted  = "unlisted.drill.test"
	hostNeighbour = "neighbour.drill.test"
)

// What rules let out, in bytes: more than the pieces in which a proxy sends, so
// that it is their sum which is bounded.
const (
	sinkUpload  = 512 << 10
	smallUpload = 128 << 10
)

const keyHeader = "X-Drill-Key" // which the proxy sets

// zone leads every name that has a server to loopback.
func zone() map[string][][]netip.Addr {
	loopback := netip.MustParseAddr("127.0.0.1")
	z := map[string][][]netip.Addr{}
	for _, name := range []string{hostListed, hostWild, hostSecure, hostLine, hostSink, hostSmall, hostInner, hostInspected, hostUpstream, hostFalse, hostNeighbour, hostUnlisted} {
		z[name] = [][]netip.Addr{{loopback}}
	}
	for name, addr := range map[string]string{
		hostMapped: "::ffff:127.0.0.1", hostMetadata: "169.254.169.254", hostMetadata6: "fd00:ec2::254", hostEmbedded: "64:ff9b::a9fe:a9fe", hostZero: "0.0.0.0",
	} {
		z[name] = [][]netip.Addr{{netip.MustParseAddr(addr)}}
	}
	z[hostRebind] = [][]netip.Addr{{loopback}, {netip.MustParseAddr("0.0.0.0")}}
	return z
}

// looked are the names that a proxy may ask for: those that rules list and it
// does not answer for itself.
func looked() []string {
	return []string{
		hostListed, hostWild, hostSecure, hostLine, hostSink, hostSmall, hostInner, hostMapped, hostMetadata, hostMetadata6, hostEmbedded,
		hostZero, hostRebind, hostInspected, hostUpstream, hostFalse, hostNeighbour,
	}
}

// egressRules is the policy's network for the work that tries the way out.
func (t *target) egressRules() string {
	http, tls := t.ports[portHTTP], t.ports[portTLS]
	opaque := func(host string, port int, more string) string {
		return fmt.Sprintf("{host: %q, port: %d%s}", host, port, more)
	}
	const private = ", private: true"
	rules := []string{
		opaque(hostListed, http, private), opaque("*.wild.drill.test", http, private), opaque(hostSecure, tls, private), opaque(hostLine, t.ports[portLine], private),
		opaque(hostSink, t.ports[portSink], private+", upload: 512KiB"), opaque(hostSmall, http, private+", upload: 128KiB"),
		opaque(hostInner, http, ""), opaque(hostMapped, http, ""), opaque(hostMetadata, http, private), opaque(hostMetadata6, http, private),
		opaque(hostEmbedded, http, private), opaque(hostZero, http, private), opaque(hostRebind, http, private),
		fmt.Sprintf("{host: %s, port: %d, mode: inspect, methods: [GET, POST], paths: [/v1/**], private: true, inject: drill-key}", hostInspected, tls),
	}
	for _, gateway := range [][3]string{{hostGateway, hostUpstream}, {hostSlender, hostUpstream, ", upload: 128KiB"}, {hostForged, hostFalse}} {
		rules = append(rules, fmt.Sprintf("{host: %s, upstream: 'https://%s:%d', mode: gateway, methods: [GET, POST], paths: [/v1/**], private: true, inject: drill-key%s}",
			gateway[0], gateway[1], tls, gateway[2]))
	}
	return "network: {allow: [" + strings.Join(rules, ", ") + "]}"
}

// wayOut is what a drill has beside its target for the runs with a way out.
type wayOut struct {
	*target
	key     string // the credential that is injected
	roots   string // file of the target's authority
	secret  string // files of secrets that are delivered, to the one run and to the other
	other   string
	knocked string // see knock
}

// openWayOut opens the target and keeps the secrets as a person would. It is
// closed by its caller, also after an error.
func openWayOut(c Config, key, secret, other string) (*wayOut, error) {
	t, err := newTarget(c.Now())
	w := &wayOut{target: t, key: key, roots: filepath.Join(c.Dir, "ca.pem"), secret: filepath.Join(c.Dir, "secret"), other: filepath.Join(c.Dir, "other-secret")}
	if err != nil {
		return w, err
	}
	for path, text := range map[string]string{w.roots: string(t.ca), w.secret: secret, w.other: other} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return w, fmt.Errorf("planting a secret: %v", err)
		}
	}
	return w, nil
}

// work is two runs at the same time: one tries the way out, and the other has
// one of its own.
func (w *wayOut) work(c Config, p *planted) Work {
	one := func(name, verb string, profile ...string) Work {
		arg, err := json.Marshal(map[string]any{
			"tag": p.tag, "ports": w.ports, "ca": string(w.ca), "show_kib": showKiB, "sink_bytes": sinkUpload, "small_bytes": smallUpload,
		})
		if err != nil {
			panic("unreachable: " + err.Error())
		}
		return Work{
			Name: name, Isolation: string(c.Isolation), Policy: policyText(c.Image, c.Isolation, usual, append(profile, writable)...),
			Argv: []string{"python3", "-B", "egress.py", verb, string(arg)}, Home: p.home, Resolver: w.names.address(),
			HostEnv: append([]string{"SSL_CERT_FILE=" + w.roots, "DRILL_KEY=" + w.key}, p.env...),
		}
	}
	first := one(workEgress, "way-out", w.egressRules(),
		"secrets: {drill-key: {ref: 'env://DRILL_KEY', deliver: inject, as: header, name: "+keyHeader+"}, drill-file: {ref: 'file://"+w.secret+"', deliver: file}}")
	first.ShowAt, first.Look, first.Ended = showLine, w.knock, w.meeting.leave
	beside := one(workNeighbour, "neighbour",
		fmt.Sprintf("network: {allow: [{host: %s, port: %d, private: true}, {host: %s, port: %d, mode: inspect, methods: [GET], paths: [/v1/**], private: true}]}",
			hostNeighbour, w.ports[portLine], hostUpstream, w.ports[portTLS]),
		"secrets: {drill-other: {ref: 'file://"+w.other+"', deliver: file}}")
	beside.Ended = func() { w.meeting.arrive("") }
	first.Beside = &beside
	return first
}

// knock asks the run's proxy for a tunnel from outside the sandbox, and keeps
// the first line of the answer. shown is the engine's record, which says where
// the socket is.
func (w *wayOut) knock(shown []byte) {
	w.knocked = func() string {
		conn, err := net.Dial("unix", filepath.Join(socketsOf(shown), filepath.Base(protocol.EgressSocket)))
		if err != nil {
			return "the socket was not found: " + err.Error()
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(10 * time.Second))
		fmt.Fprintf(conn, "CONNECT %s:%d HTTP/1.1\r\n\r\n", hostLine, w.ports[portLine])
		answer, _ := bufio.NewReader(io.LimitReader(conn, 1<<10)).ReadString('\n')
		if answer == "" {
			return closedUnanswered
		}
		return strings.TrimSpace(answer)
	}()
}

const closedUnanswered = "closed without an answer"

// socketsOf finds the host's directory of a run's sockets among the mounts of
// its container.
func socketsOf(shown []byte) string {
	var records []json.RawMessage
	if json.Unmarshal(shown, &records) != nil {
		return ""
	}
	for _, r := range records {
		var c struct {
			Mounts []struct{ Source, Destination string }
		}
		if json.Unmarshal(r, &c) != nil {
			continue // a list of layers, or of changes
		}
		for _, m := range c.Mounts {
			if m.Destination == protocol.SocketDir {
				return m.Source
			}
		}
	}
	return ""
}
