package runner

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/runner/shim/protocol"
	"github.com/countersign-dev/countersign/runner/workspace"
)

// listingShim answers one capture with a listing.
func listingShim(conn *protocol.Conn, l *workspace.Listing) error {
	if err := conn.Expect(protocol.KindCapture, &protocol.Capture{}); err != nil {
		return err
	}
	w := conn.WriteStream()
	return errors.Join(workspace.EncodeListing(w, l), w.Close(), conn.Send(protocol.KindCaptured, protocol.Captured{}))
}

// A holder that finds nothing at all holds another workspace than the one that
// died; one in which only the .git is left is the run's own.
func TestHeld(t *testing.T) {
	bounds := workspace.Bounds{Entries: 10, Depth: 10, Bytes: 10, File: 10, Time: time.Minute}
	git := &workspace.Listing{LeftOut: []workspace.LeftOut{{Path: ".git", Reason: workspace.ReasonGit}}, Visited: 1}
	for _, c := range []struct {
		listing *workspace.Listing
		want    string
	}{
		{&workspace.Listing{}, "the workspace went with its sandbox"},
		{git, ""},
	} {
		host, shim := net.Pipe()
		done := make(chan error, 1)
		go func() { done <- listingShim(protocol.NewConn(shim), c.listing) }()
		session := &session{conn: protocol.NewConn(host)}
		_, err := held{streamed{session: session}}.List(t.Context(), bounds)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		session.close()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%d visited: %v, want %q", c.listing.Visited, err, c.want)
		}
	}
}

// Work begins only when its workspace would outlive the sandbox.
func TestAwaitHolder(t *testing.T) {
	ready, never := make(chan struct{}), make(chan struct{})
	close(ready)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	broken := &Unavailable{What: "no room"}
	for _, c := range []struct {
		name string
		ctx  context.Context
		hold *holder
		want error
	}{
		{"none is needed", over, nil, nil},
		{"there", t.Context(), &holder{ready: ready}, nil},
		{"broken", t.Context(), &holder{ready: ready, err: broken}, broken},
		{"not in time", over, &holder{ready: never}, context.Canceled},
	} {
		i := &instance{hold: c.hold}
		if err := i.awaitHolder(c.ctx); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

// What a lost sandbox left and could not be kept ends the run fail_closed, also
// where memory is why it was lost.
func TestLostAndNotKept(t *testing.T) {
	b, err := CreateBundle(filepath.Join(t.TempDir(), "evidence"), "run_01k00000000000000000000000", 0, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	r := &run{bundle: b, seen: Observed{Engine: &Exit{Code: 137, OOMKilled: true}}}
	r.fail("work", errors.New("the sandbox broke off"))
	r.fail("remove", errors.New("another"))
	if got := Conclude(r.seen); got.State != contract.StateFailed || !strings.HasPrefix(got.Reason, "memory: ") {
		t.Errorf("lost: %s (%s)", got.State, got.Reason)
	}
	r.fail("capture", errors.New("the workspace went with it"))
	got := Conclude(r.seen)
	if got.State != contract.StateFailClosed || got.ExitCode != contract.ExitFailClosed || got.Reason != "evidence: the sandbox broke off; the workspace went with it" {
		t.Errorf("lost and not kept: %s, exit %d (%s)", got.State, got.ExitCode, got.Reason)
	}
}
