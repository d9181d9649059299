package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/policy/ledger"
	"github.com/countersign-dev/countersign/runner/egress"
	"github.com/countersign-dev/countersign/runner/redact"
	"github.com/countersign-dev/countersign/runner/shim/protocol"
)

// network is a run's way out while it is open: the proxy, on a socket in the
// directory that only this run's sandbox sees.
type network struct {
	proxy    *egress.Proxy
	listener *net.UnixListener
	served   chan error
	flushing sync.WaitGroup
	end      chan struct{} // of flushing
}

// openNetwork puts the contract's rules in force before anything can ask for a
// way out, and has the sandbox lead there.
func (r *run) openNetwork(ctx context.Context) error {
	if r.c.Network.Mode == contract.NetworkNone {
		return nil
	}
	config, err := r.proxyConfig()
	if err != nil {
		return err
	}
	n := &network{served: make(chan error, 1), end: make(chan struct{})}
	if n.proxy, err = egress.New(config); err != nil {
		return fmt.Errorf("opening the way out: %w", err)
	}
	if n.listener, err = listenUnix(filepath.Join(r.claim.Sockets, filepath.Base(protocol.EgressSocket))); err != nil {
		return err
	}
	r.network = n
	go func() { n.served <- n.proxy.Serve(n.listener) }()
	n.flushing.Go(func() { r.bundle.KeepFlushed(n.end) })
	ask := protocol.Network{Ports: rulePorts(r.c.Network)}
	if config.Authority != nil {
		ask.CA = string(config.Authority.PEM())
	}
	var opened protocol.Networked
	if err := r.session.ask(ctx, protocol.KindNetwork, ask, protocol.KindNetworked, &opened); err != nil {
		return fmt.Errorf("opening the way out: %w", err)
	}
	r.job.Env = withDefaults(r.job.Env, opened.Trust)
	r.bundle.Record("network.opened", map[string]any{"rules": len(r.c.Network.Allow), "inspects": config.Authority != nil, "resolver": r.order.Resolver})
	return nil
}

// proxyConfig gathers what the run's proxy is told.
func (r *run) proxyConfig() (egress.Config, error) {
	rules, err := egress.Compile(r.c.Network)
	if err != nil {
		return egress.Config{}, fmt.Errorf("opening the way out: %w", err)
	}
	resolver, err := resolverAt(r.order.Resolver)
	if err != nil {
		return egress.Config{}, &Unavailable{What: err.Error(), Hint: "name it as ADDRESS or ADDRESS:PORT"}
	}
	config := egress.Config{
		Rules: rules, Resolver: resolver, Own: egress.OwnAddresses,
		Credentials: map[string]redact.Secret{}, Record: r.recordMasked, Notify: r.boundary,
		Peer: r.checkProxyPeer, Now: r.s.Now, Log: r.s.Log,
	}
	for _, named := range r.secrets() {
		config.Secrets = append(config.Secrets, *named.Secret)
	}
	for _, ref := range r.c.SecretRefs {
		if ref.Deliver == contract.DeliverInject {
			config.Credentials[ref.Name] = *redact.NewSecret([]byte(r.order.Secrets[ref.Name]))
		}
	}
	if slices.ContainsFunc(r.c.Network.Allow, func(n contract.NetRule) bool { return n.Mode == contract.RuleInspect }) {
		life := time.Duration(r.c.Limits.TimeoutSec+settleSec) * time.Second
		if config.Authority, err = egress.NewAuthority(r.c.RunID, r.s.Now(), life); err != nil {
			return egress.Config{}, err
		}
	}
	return config, nil
}

// recordMasked records what the proxy did; what the sandbox asked for may hold a
// secret, in a host's name or a path.
func (r *run) recordMasked(typ string, data any) {
	if typ == egress.TypeDenied || typ == egress.TypeRequest {
		encoded, err := json.Marshal(data)
		if err != nil {
			r.bundle.keep(err)
			return
		}
		data = json.RawMessage(r.masks.Mask(encoded))
	}
	r.bundle.RecordSoon(typ, data)
}

func resolverAt(addr string) (egress.Resolver, error) {
	if addr == "" {
		return egress.SystemResolver(), nil
	}
	return egress.NewResolver(addr)
}

func (r *run) checkProxyPeer(conn *net.UnixConn) error {
	return checkPeer(conn, r.spec.UID, r.shape.Isolation)
}

// boundary tells whoever reads the workload's errors what it was refused.
func (r *run) boundary(b egress.Boundary) {
	if log := r.log.Load(); log != nil {
		log.write(2, []byte(b.Reason+"\n"))
	}
}

// closeNetwork shuts the way out, and counts what went through it. It may be
// called more than once.
func (r *run) closeNetwork() error {
	n := r.network
	if n == nil {
		return nil
	}
	r.network = nil
	err := n.proxy.Close()
	n.listener.Close()
	if served := <-n.served; served != nil && !errors.Is(served, net.ErrClosed) {
		err = errors.Join(err, served)
	}
	close(n.end)
	n.flushing.Wait()
	r.totals, r.byRule = n.proxy.Totals(), n.proxy.RuleTotals()
	if err != nil {
		return fmt.Errorf("closing the way out: %v", err)
	}
	return nil
}

// egressRules is what the statement says of each rule; none when no way out was
// opened.
func egressRules(n contract.Network, counts []egress.RuleTotals) []ledger.EgressRule {
	var all []ledger.EgressRule
	for i, c := range counts {
		r := n.Allow[i]
		all = append(all, ledger.EgressRule{
			Rule: i, Host: r.Host, Port: r.Port, Mode: r.Mode, Coverage: r.Coverage,
			Connections: c.Connections, BytesOut: c.BytesOut, BytesIn: c.BytesIn, Charged: c.Charged,
		})
	}
	return all
}

// listenUnix listens at path. Any uid may connect to the socket itself: the only
// way to it is the run's private directory, or the mount in the sandbox.
func listenUnix(path string) (*net.UnixListener, error) {
	if len(path) > 107 { // sun_path, unix(7)
		return nil, &Unavailable{What: fmt.Sprintf("the state directory's path is too long for a socket: %s", path), Hint: "set COUNTERSIGN_STATE_DIR to a shorter one"}
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listening for the sandbox: %v", err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		l.Close()
		return nil, fmt.Errorf("listening for the sandbox: %v", err)
	}
	return l, nil
}

// rulePorts are those that rules name, sorted, each once.
func rulePorts(n contract.Network) []int {
	ports := []int{}
	for _, r := range n.Allow {
		ports = append(ports, r.Port)
	}
	slices.Sort(ports)
	return slices.Compact(ports)
}

// withDefaults adds the variables that env does not set, in one order.
func withDefaults(env []string, defaults map[string]string) []string {
	for _, k := range slices.Sorted(maps.Keys(defaults)) {
		if !slices.ContainsFunc(env, func(e string) bool { return len(e) > len(k) && e[:len(k)+1] == k+"=" }) {
			env = append(env, k+"="+defaults[k])
		}
	}
	return env
}
