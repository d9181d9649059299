// Package drill owns the hostile workloads that prove each control of a
// sandbox, and judges what became of them.
//
// A drill is a list of works ([Work]), run one after another through the real
// path by whoever implements [Sealed], and a table of controls, each with what
// is tried against it and a judge over what was found. The hostile program is
// inside.py; it runs in the sandbox under the image's own Python.
//
// What always holds: a control that was not seen to be tried does not hold; a
// control is "weaker" only with exactly the successes that a table states for
// the isolation, each with the sentence that the evidence of a run repeats; the
// judges are pure, what they need is gathered before.
//
// The package never talks to an engine and never loosens a run: it asks for
// contracts and looks at what the runs left. For as long as the drill lasts it
// opens listeners on loopback and on the engine's bridge that serve a harmless
// script, so that a download that works is seen to work; and, on loopback, the
// servers and the name server that a run with a way out is led to. It needs no
// other network.
package drill

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/policy/contract"
)

//go:embed inside.py
var program string

//go:embed egress.py
var egressProgram string

// Program is the hostile program, for tests that run it by themselves.
func Program() string { return program }

// Sealed runs works through the real path: contract, supervising process,
// sandbox, evidence.
type Sealed interface {
	// Commit makes a repository whose one commit has these files, each readable
	// and executable. It is called once, before Run.
	Commit(ctx context.Context, files map[string]string) error
	// Run performs one work and returns when it has ended. An error means that
	// there is no result, not that the work failed. It is called for a work and
	// its Beside at the same time.
	Run(ctx context.Context, w Work) (Result, error)
}

// Engines that a work can ask for.
const (
	EngineReal             = ""
	EngineMissing          = "missing"           // nobody answers at the engine's address
	EngineWithoutIsolation = "without-isolation" // the real one, which says that it lacks the work's isolation
)

// Work is one run of a drill.
type Work struct {
	Name      string
	Isolation string
	Engine    string
	Policy    string // the policy's text
	Argv      []string
	// HostEnv is added to the environment of the process that asks for the run,
	// KEY=VALUE; none of it may reach the sandbox.
	HostEnv []string
	// Home is that process's home directory.
	Home string
	// ShowAt, when set, is a line of the workload's output at which the run is
	// looked at from the host, before more of its output is read.
	ShowAt string
	// Look, when set, is given the engine's record while the run is looked at.
	Look func(shown []byte)
	// Resolver is the name server that the run's proxy asks; "" is the machine's.
	Resolver string
	// Beside, when not nil, is performed at the same time. Ended, when set, is
	// called when the work has.
	Beside *Work
	Ended  func()
}

// Result is what became of one work.
type Result struct {
	Exit    int
	Outcome contract.Outcome
	// Said is what the run printed, the workload's output in it.
	Said []byte
	// Evidence is the directory of the bundle, "" when there is none.
	Evidence string
	// Verified is what `countersign verify` says of the evidence, "" when it
	// finds it consistent or there is none.
	Verified string
	// Shown is the engine's own record of the run's container, volume and image
	// layers while the workload ran; nil when it was not looked at.
	Shown []byte
	// Left names what is left of the run on the machine; RepoChanged says that
	// the repository is not what it was.
	Left        []string
	RepoChanged bool
}

// Config is what a drill needs. Every field is required.
type Config struct {
	Sealed    Sealed
	Isolation contract.Isolation
	Image     string // reference of the image to run in, on this machine
	// Dir is an empty directory of the drill's own, removed by the caller. What
	// it plants for workloads to find lies there.
	Dir  string
	Rand io.Reader // of tags and planted secrets
	Now  func() time.Time
	// Progress, when not nil, is told each work's name before it runs.
	Progress func(name string)
}

// Unable says that a drill could not be performed, which is no verdict on any
// control.
type Unable struct{ Why string }

func (u *Unable) Error() string { return "the drill could not run: " + u.Why }

// Run performs a drill, which takes about half a minute. The error is an [*Unable] when there is no sandbox to
// try anything in.
func Run(ctx context.Context, c Config) (Report, error) {
	begun := c.Now()
	f, err := gather(ctx, c)
	if err != nil {
		return Report{}, err
	}
	r := judge(f)
	r.Image = c.Image
	r.DurationMS = c.Now().Sub(begun).Milliseconds()
	return r, nil
}

// gather plants what a workload must not find, has every work run, and notes
// what each left. It judges nothing.
func gather(ctx context.Context, c Config) (f *findings, err error) {
	p, err := plant(c)
	if err != nil {
		return nil, &Unable{err.Error()}
	}
	defer p.close()
	if err := c.Sealed.Commit(ctx, p.repository()); err != nil {
		return nil, &Unable{err.Error()}
	}
	f = &findings{isolation: c.Isolation, secrets: p.secrets, works: map[string]*finding{}}
	for _, w := range works(c, p) {
		if err := f.perform(ctx, c, p, w); err != nil {
			return nil, err
		}
	}
	f.hits, f.found, f.key, f.knocked = p.hits(), p.way.found(), p.way.key, p.way.knocked
	return f, nil
}

// perform has a work and the one beside it run, and notes what they left.
func (f *findings) perform(ctx context.Context, c Config, p *planted, w Work) error {
	together := []Work{w}
	if w.Beside != nil {
		together = append(together, *w.Beside)
	}
	results, errs := make([]Result, len(together)), make([]error, len(together))
	var running sync.WaitGroup
	for i, w := range together {
		if c.Progress != nil {
			c.Progress(w.Name)
		}
		running.Go(func() {
			results[i], errs[i] = c.Sealed.Run(ctx, w)
			if w.Ended != nil {
				w.Ended()
			}
		})
	}
	running.Wait()
	if ctx.Err() != nil {
		return &Unable{"it was interrupted"}
	}
	for i, w := range together {
		if errs[i] != nil {
			return &Unable{fmt.Sprintf("%s: %v", w.Name, errs[i])}
		}
		if w.Name == workAttempts && results[i].Outcome.WorkloadExit == nil {
			return &Unable{fmt.Sprintf("no workload could be started: %s", results[i].Outcome.Reason)}
		}
		var err error
		if f.works[w.Name], err = read(results[i], p); err != nil {
			return &Unable{fmt.Sprintf("%s: %v", w.Name, err)}
		}
	}
	return nil
}
