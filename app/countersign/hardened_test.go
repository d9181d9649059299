package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/policy/ledger"
	"github.com/countersign-dev/countersign/runner"
	"github.com/countersign-dev/countersign/runner/drill"
)

var update = flag.Bool("update", false, "write docs/controls.md anew")

// isolations are those that this machine's engine has. CI demands gVisor where
// the distribution has a package of it.
func isolations(t *testing.T) []string {
	t.Helper()
	if hasRuntime(t, "runsc") {
		return []string{"runc", "runsc"}
	}
	if os.Getenv("COUNTERSIGN_TEST_REQUIRE_RUNSC") == "1" {
		t.Fatal("the engine has no runsc: as root, run .ci/ensure-docker")
	}
	t.Log("left out: the engine has no runsc")
	return []string{"runc"}
}

// transports are the ways of reaching a workspace that this user has: only root
// reaches a volume.
func transports() []string {
	if os.Geteuid() != 0 {
		return []string{"streamed"}
	}
	return []string{"direct", "streamed"}
}

// isolated is the small policy under an isolation, with changed limits. gVisor
// needs room for threads of its own.
func isolated(isolation, change string) string {
	if isolation == "runsc" {
		change = strings.TrimSpace("pids=160 " + change)
	}
	return strings.Replace(limits(change), "    env:", "    isolation: "+isolation+"\n    env:", 1)
}

// What the program from inside may do more under gVisor is stated in the
// evidence, each by its control.
func TestWeakerIsStated(t *testing.T) {
	stated := map[string]bool{}
	for _, c := range runner.Controls(contract.IsolationRunsc) {
		stated[c.Name] = c.Holds != ledger.ControlHolds && c.Note != ""
	}
	for attempt, control := range drill.Stated(contract.IsolationRunsc) {
		if !stated[control] {
			t.Errorf("%s: control %q is not stated as weaker", attempt, control)
		}
	}
}

// Whoever ends PID 1, which gVisor allows to code of the same uid, ends the run
// and does not pass for success; a denied path of the image is a refusal before
// the workload; and too few processes for gVisor itself are refused by name.
func TestHardenedRefusals(t *testing.T) {
	needDocker(t)
	if !slices.Contains(isolations(t), "runsc") {
		return
	}
	c := newCheckout(t, map[string]string{"a": "a\n"})
	denied := strings.Replace(isolated("runsc", ""), "    writable:", "    read_denied: [/etc/debian_version]\n    writable:", 1)
	for _, tt := range []struct {
		name, policy, script string
		exit                 int
		reason               string
	}{
		{"PID 1 killed", isolated("runsc", ""), "python3 -c 'import os; os.kill(1, 9)'; sleep 1; exit 0", 125, "lost: "},
		{"fork bomb", isolated("runsc", "pids=128"), "python3 -c '\nimport os, signal\nwhile True:\n    if os.fork() == 0: signal.pause()\n'", 2, "pids: the limit of 128 processes was reached"},
		{"denied path of the image", denied, "echo ran", 125, "canary: "},
		{"too few processes", isolated("runsc", "pids=64"), "echo ran", 126, "refused: limits.pids"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := c.sh(tt.policy, tt.script)
			if r.code != tt.exit || !strings.HasPrefix(r.outcome.Reason, tt.reason) {
				t.Errorf("exit %d: %s\n%s", r.code, r.outcome.Reason, r.stderr)
			}
			if strings.Contains(r.file(t, "output.log"), "ran") {
				t.Error("the workload ran")
			}
			if v := c.exec("verify", r.outcome.Evidence); v.code != 0 {
				t.Errorf("verify: %s", v.stdout)
			}
			if left := leftovers(t); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// docs/controls.md is what runner.Controls says, in a table; -update writes it.
func TestControlsPage(t *testing.T) {
	path := filepath.Join("..", "..", "docs", "controls.md")
	want := controlsPage()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(have)); diff != "" {
		t.Errorf("docs/controls.md is stale (go test ./app/countersign -run ControlsPage -update): -want +have\n%s", diff)
	}
}

func controlsPage() string {
	var b, notes strings.Builder
	fmt.Fprint(&b, `# Controls of a sandbox

Written by the tests of `+"`app/countersign`"+` from what every run's evidence repeats; do not edit.

*Holds*: tried from inside before and after each workload, or read back from the engine; otherwise the run ends with 125.
*Weaker*: what is less than under runc, and why. *Refused*: a run that needs it ends without a sandbox.
What concerns the way out, hosts and below, is decided by the run's proxy for each connection and request.

| control | runc | runsc (gVisor) |
|---|---|---|
`)
	runc, runsc := runner.Controls(contract.IsolationRunc), runner.Controls(contract.IsolationRunsc)
	note := 0
	for i, c := range runc {
		cells := []string{c.Name}
		for _, c := range []ledger.Control{c, runsc[i]} {
			cell := c.Holds
			if c.Note != "" {
				note++
				cell += fmt.Sprintf(" (%d)", note)
				fmt.Fprintf(&notes, "%d. %s: %s.\n", note, c.Name, c.Note)
			}
			cells = append(cells, cell)
		}
		fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
	}
	return b.String() + "\n" + notes.String() + drillTable()
}

// drillTable says what a drill tries. What became of it is for the drill to say,
// on the machine that it is asked about.
func drillTable() string {
	var b strings.Builder
	fmt.Fprint(&b, `
## What the drill tries

`+"`countersign drill`"+` tries these on the machine that it is started on, under either isolation, and says of each what happened.

| control | tried |
|---|---|
`)
	for _, row := range drill.Table(contract.IsolationRunsc) { // runc has all but the last two
		fmt.Fprintf(&b, "| %s | %s |\n", row.Control, row.Tried)
	}
	return b.String()
}
