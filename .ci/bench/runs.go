package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// runs measures whole runs of `true`, and how soon a container that is there
// has a job's first instruction done.
func (b *bench) runs() error {
	var stages []sealedRun
	our, their, ratio, err := b.wholeRuns("runc", b.pairs, &stages)
	if err != nil {
		return err
	}
	b.line("whole run of `true` / docker run --rm", ratio, "", false, 1.3, fmt.Sprintf("%s ms / %s ms, evidence included", figure(our), figure(their)))
	tellStages(stages)

	first, docker, ratio, err := inTurn(b.pairs, func() (float64, error) { return b.firstInstruction() }, func() (float64, error) { return b.docker("runc") })
	if err != nil {
		return err
	}
	b.line("job given to a started container → first instruction", first, " ms", false, 20, "its record in the ledger, the exec and the start of date(1) included")
	b.line("the same / docker run --rm", ratio, "", false, 0.05, fmt.Sprintf("%s ms / %s ms", figure(first), figure(docker)))
	return nil
}

// runsc measures the same under gVisor, for which there are no goals.
func (b *bench) runsc() error {
	if has, err := b.hasRunsc(); err != nil {
		return err
	} else if !has {
		fmt.Println("runsc: not registered with this engine, so not measured")
		return nil
	}
	var stages []sealedRun
	our, their, ratio, err := b.wholeRuns("runsc", max(3, b.pairs/3), &stages)
	if err != nil {
		return err
	}
	b.line("whole run of `true` / docker run --rm, both runsc", ratio, "", false, 0, fmt.Sprintf("%s ms / %s ms", figure(our), figure(their)))
	tellStages(stages)
	return nil
}

func (b *bench) hasRunsc() (bool, error) {
	out, err := b.output("docker", "info", "--format", "{{range $name, $_ := .Runtimes}}{{$name}} {{end}}")
	return strings.Contains(" "+out+" ", " runsc "), err
}

func (b *bench) wholeRuns(isolation string, n int, runs *[]sealedRun) (our, their, ratio float64, err error) {
	return inTurn(n, func() (float64, error) {
		r, err := b.sealed(b.repo, []string{"--isolation", isolation}, "true")
		*runs = append(*runs, r)
		return ms(r.took), err
	}, func() (float64, error) { return b.docker(isolation) })
}

func (b *bench) docker(runtime string) (float64, error) {
	took, err := b.command(nil, "docker", "run", "--rm", "--runtime", runtime, image, "true")
	return ms(took), err
}

// stageNames are the records that end each stage of a run.
var stageNames = []string{
	"source.read", "engine.preflight", "sandbox.creating", "sandbox.started", "workspace.loaded", "sandbox.probed",
	"workload.starting", "workload.exited", "workspace.captured", "sandbox.exited", "sandbox.removed", "run.concluded",
}

// tellStages prints where the time of the runs went, as medians.
func tellStages(runs []sealedRun) {
	var text []string
	before := "run.admitted"
	for _, name := range stageNames {
		var took []float64
		for _, r := range runs {
			took = append(took, ms(r.stages[name].Sub(r.stages[before])))
		}
		text = append(text, fmt.Sprintf("%s %.0f", name, median(took)))
		before = name
	}
	var outside []float64
	for _, r := range runs {
		outside = append(outside, ms(r.took-r.stages["run.concluded"].Sub(r.stages["run.admitted"])))
	}
	fmt.Printf("    ms by stage: %s; before, after and between the processes %.0f\n", strings.Join(text, ", "), median(outside))
}

// firstInstruction runs date(1), whose answer is compared with the time at
// which the host recorded that it is giving the job away. That time is cut to
// whole milliseconds, which makes ours look up to one longer.
func (b *bench) firstInstruction() (float64, error) {
	r, err := b.sealed(b.repo, nil, "date", "+%s%N")
	if err != nil {
		return 0, err
	}
	nanoseconds, err := strconv.ParseInt(r.output, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("reading what date printed: %v", err)
	}
	return ms(time.Unix(0, nanoseconds).Sub(r.stages["workload.starting"])), nil
}
