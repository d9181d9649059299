package runner

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

const runA, runB = "run_01kb7v2q8tn4yfpm6s0ehr3wxa", "run_01kb7v2q8tn4yfpm6s0ehr3wxb"

func mustClaim(t *testing.T, state, id string) *Claim {
	t.Helper()
	c, err := NewClaim(state, id)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// die ends a claim as a killed process would: the kernel drops the lock, the
// directory stays.
func (c *Claim) die() { c.lock.Close() }

func TestSweepSparesTheLiving(t *testing.T) {
	state := t.TempDir()
	dead, alive := mustClaim(t, state, runA), mustClaim(t, state, runB)
	dead.die()
	n, err := SweepState(state)
	if n != 1 || err != nil {
		t.Fatalf("swept %d, %v", n, err)
	}
	if _, err := os.Stat(dead.Dir); !os.IsNotExist(err) {
		t.Errorf("the dead run's directory: %v", err)
	}
	if _, err := os.Stat(alive.Sockets); err != nil {
		t.Errorf("the living run's directory: %v", err)
	}
	if err := alive.Release(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(alive.Dir); !os.IsNotExist(err) {
		t.Errorf("after release: %v", err)
	}
}

func TestAlive(t *testing.T) {
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	state := t.TempDir()
	c := mustClaim(t, state, runA)
	labels := Labels{LabelRunDir: c.Dir, LabelState: c.State, LabelDeadline: fmt.Sprint(now.Unix() - 1)}
	if !Alive(now)(labels) {
		t.Error("a run whose lock is held counts as dead after its deadline")
	}
	c.die()
	if Alive(now)(labels) {
		t.Error("a run whose lock is free counts as alive")
	}
	labels[LabelRunDir], labels[LabelDeadline] = filepath.Join(state, "gone"), fmt.Sprint(now.Unix()+1)
	if Alive(now)(labels) {
		t.Error("a run without a directory counts as alive")
	}
	// The same path in another mount namespace is another state directory, or none.
	other := t.TempDir()
	mustClaim(t, other, runB).die()
	labels[LabelRunDir] = filepath.Join(other, "gone")
	if !Alive(now)(labels) {
		t.Error("a run of another state directory counts as dead because this one does not have it")
	}
	labels[LabelRunDir] = filepath.Join(t.TempDir(), "gone")
	if !Alive(now)(labels) {
		t.Error("a run whose state directory cannot be seen counts as dead")
	}
	labels[LabelDeadline] = fmt.Sprint(now.Unix() - 1)
	if Alive(now)(labels) {
		t.Error("a run whose state directory cannot be seen counts as alive after its deadline")
	}
	if Alive(now)(Labels{}) {
		t.Error("labels that name no directory count as alive")
	}
	// A directory that cannot be looked into: here its parent is a file.
	file := filepath.Join(state, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	labels[LabelRunDir] = filepath.Join(file, "run")
	if Alive(now)(labels) {
		t.Error("another's run counts as alive after its deadline")
	}
	labels[LabelDeadline] = fmt.Sprint(now.Unix() + 1)
	if !Alive(now)(labels) {
		t.Error("another's run counts as dead before its deadline")
	}
}

func TestClaimTwice(t *testing.T) {
	state := t.TempDir()
	mustClaim(t, state, runA)
	if _, err := NewClaim(state, runA); err == nil {
		t.Error("one run was claimed twice")
	}
}

func TestUIDsAreNotShared(t *testing.T) {
	state := t.TempDir()
	a, b := mustClaim(t, state, runA), mustClaim(t, state, runB)
	same := bytes.Repeat([]byte{1, 0, 0, 0}, 1) // draws the same number first
	first, err := a.takeUID(bytes.NewReader(same))
	if err != nil || first < firstUID || first >= firstUID+uidCount {
		t.Fatalf("%d, %v", first, err)
	}
	second, err := b.takeUID(bytes.NewReader(append(same, 2, 0, 0, 0)))
	if err != nil || second == first {
		t.Errorf("the second run got %d beside %d, %v", second, first, err)
	}
}
