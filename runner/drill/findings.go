package drill

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/runner/egress"
)

// Files of a bundle that are looked into by name.
const (
	fileOutput = "output.log"
	filePatch  = "changes.patch"
	fileLedger = "ledger.jsonl"
)

// findings is everything that the judges look at.
type findings struct {
	isolation contract.Isolation
	secrets   []string
	works     map[string]*finding // by name
	hits      int64               // connections that reached the drill's listeners
	found     found               // what the target of the way out noted
	key       string              // the credential that proxies inject
	knocked   string              // what a process outside the sandbox was told, see knock
}

// finding is what became of one work.
type finding struct {
	Result
	attempts []Attempt // of inside.py, nil when it printed none
	output   string
	patch    string
	logBytes int64
	stages   []stage  // of canaries, from the ledger
	started  bool     // the ledger says that a workload was
	leaks    []string // where a planted secret is
	onHost   []string // what the workload made that is seen on the host
	ledger   wayOutLedger
}

// wayOutLedger is what a run's ledger says of its way out.
type wayOutLedger struct {
	connected, closed, requests, refusals, more int64
	denied                                      map[refusal]bool
	totals                                      *contract.EgressTotals // nil when there are none
	named                                       bool                   // a canary's name is there
}

// stage is one record of the canaries.
type stage struct {
	Stage  string            `json:"stage"`
	Checks int               `json:"checks"`
	Wrong  []json.RawMessage `json:"wrong"`
}

// read gathers what a work left: its evidence, its output, and whether the host
// shows any trace of it.
func read(r Result, p *planted) (*finding, error) {
	f := &finding{Result: r}
	leaks := func(where string, text []byte) {
		for _, s := range p.spelled {
			if bytes.Contains(text, s) {
				f.leaks = append(f.leaks, where)
				return
			}
		}
	}
	leaks("what the run printed", r.Said)
	leaks("the engine's records", r.Shown)
	f.onHost = traces(p.tag)
	if r.Evidence == "" {
		return f, nil
	}
	err := filepath.WalkDir(r.Evidence, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(r.Evidence, path)
		leaks(name, text)
		switch name {
		case fileOutput:
			f.output, f.logBytes = string(text), int64(len(text))
		case filePatch:
			f.patch = string(text)
		case fileLedger:
			f.readLedger(text)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the evidence: %v", err)
	}
	f.attempts, err = ParseAttempts(f.output)
	return f, err
}

func (f *finding) readLedger(text []byte) {
	for line := range bytes.Lines(text) {
		var record struct {
			Type string          `json:"type"`
			Data json.RawMessage `json:"data"`
		}
		if json.Unmarshal(line, &record) != nil {
			continue // of another shape, not one of these
		}
		switch record.Type {
		case "sandbox.probed":
			var s stage
			if json.Unmarshal(record.Data, &s) == nil {
				f.stages = append(f.stages, s)
			}
		case "workload.starting":
			f.started = true
		default:
			f.ledger.read(record.Type, record.Data)
		}
	}
}

// read notes a record of the way out; others are passed over.
func (l *wayOutLedger) read(typ string, data []byte) {
	var record struct {
		Host  string       `json:"host"`
		Class egress.Class `json:"class"`
		Count int64        `json:"count"`
		contract.EgressTotals
	}
	if !strings.HasPrefix(typ, "egress.") || json.Unmarshal(data, &record) != nil {
		return
	}
	l.named = l.named || record.Host == egress.CanaryHost || record.Host == egress.UnlistedHost
	switch typ {
	case egress.TypeConnected:
		l.connected++
	case egress.TypeClosed:
		l.closed++
	case egress.TypeRequest:
		l.requests++
	case egress.TypeDenied:
		l.refusals++
		if l.denied == nil {
			l.denied = map[refusal]bool{}
		}
		l.denied[refusal{record.Host, record.Class}] = true
	case egress.TypeMore:
		l.more += record.Count
	case egress.TypeTotals:
		l.totals = &record.EgressTotals
	}
}

// Attempt is one thing that inside.py tried.
type Attempt struct {
	Control string `json:"control"`
	Name    string `json:"name"`
	Result  string `json:"result"`
}

// Wrong says what is wrong about an attempt, "" when it went as it must.
func (a Attempt) Wrong() string {
	ok := a.Result == "ok" || strings.HasPrefix(a.Result, "ok: ")
	want, rest, _ := strings.Cut(a.Name, " ")
	switch {
	case strings.HasPrefix(a.Result, "not tried"):
		return fmt.Sprintf("%s: %s", rest, a.Result)
	case want == "may" && !ok:
		return fmt.Sprintf("could not %s (%s)", rest, a.Result)
	case want == "no" && ok && a.Result != "ok":
		return fmt.Sprintf("%s: %s", rest, strings.TrimPrefix(a.Result, "ok: "))
	case want == "no" && ok:
		return "got through: " + rest
	case want == "no" && a.Result == "", want != "may" && want != "no":
		return fmt.Sprintf("%q has no meaning (%s)", a.Name, a.Result)
	}
	return ""
}

// ParseAttempts reads the list that inside.py prints last. Output without one,
// such as that of a work that tries one thing, has no attempts.
func ParseAttempts(output string) ([]Attempt, error) {
	var last string
	lines := bufio.NewScanner(strings.NewReader(output))
	lines.Buffer(nil, mib)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), `[{"control": `) {
			last = lines.Text()
		}
	}
	if err := lines.Err(); err != nil && !errors.Is(err, bufio.ErrTooLong) {
		return nil, fmt.Errorf("reading the attempts: %v", err)
	}
	if last == "" {
		return nil, nil
	}
	var list []Attempt
	if err := json.Unmarshal([]byte(last), &list); err != nil {
		return nil, fmt.Errorf("reading the attempts: %v", err)
	}
	return list, nil
}

// traces are what a workload with this tag made that the host shows after its
// end: a process with the tag in its command line, or a file in a directory
// that a sandbox has under the same name.
func traces(tag string) []string {
	var found []string
	for _, dir := range []string{"/tmp", "/dev/shm", "/home/agent", "/workspace"} {
		path := filepath.Join(dir, "drill-left-"+tag)
		if _, err := os.Lstat(path); err == nil {
			found = append(found, path)
		}
	}
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		panic("unreachable: " + err.Error())
	}
	for _, path := range lines {
		text, err := os.ReadFile(path)
		if err == nil && bytes.Contains(text, []byte(`"`+tag+`"`)) { // else it has ended meanwhile
			found = append(found, "process "+filepath.Base(filepath.Dir(path)))
		}
	}
	return found
}
