package shim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/runner/shim/protocol"
)

// probeBound is how long a probe may take in all. Each attempt has a bound of
// its own; this one ends a probe that the kernel itself holds up.
const probeBound = 60 * time.Second

// faultBound is how much of a probe's own complaint is passed on, in bytes.
const faultBound = 2 << 10

// runProbe starts the shim's own binary as a child with the workload's
// credentials and returns its readings. It leaves no process behind.
func runProbe(m protocol.Probe, executable string, environ []string, score *oomScore) (*protocol.Probed, error) {
	request, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encoding probe: %v", err)
	}
	out, fault, err := runChild(program{path: executable, argv: []string{executable, "probe"}, env: environ, dir: "/"}, request, score)
	if err != nil {
		return nil, err
	}
	var got protocol.Probed
	if err := protocol.Decode(out, &got); err != nil {
		return nil, fmt.Errorf("reading the probe: %v; it said %q", err, fault)
	}
	if got.Stage != m.Stage {
		return nil, fmt.Errorf("reading the probe: it answers for stage %q", got.Stage)
	}
	return &got, nil
}

// runChild runs p with input on its standard input, and returns the first of
// what it wrote to standard output and to standard error.
func runChild(p program, input []byte, score *oomScore) (out, fault []byte, err error) {
	inR, inW, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("starting the probe: %v", err)
	}
	defer inR.Close()
	defer inW.Close()
	outR, outW, err := pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("starting the probe: %v", err)
	}
	defer outW.Close()
	errR, errW, err := pipe()
	if err != nil {
		outR.Close()
		return nil, nil, fmt.Errorf("starting the probe: %v", err)
	}
	defer errW.Close()

	p.files = [3]*os.File{inR, outW, errW}
	procs, err := spawn(p, score)
	for _, f := range p.files { // the child's own, whether it lives or not
		f.Close()
	}
	if err != nil {
		outR.Close()
		errR.Close()
		return nil, nil, fmt.Errorf("starting the probe: %v", err)
	}
	go func() {
		_, _ = inW.Write(input) // a child that does not read it ends without an answer
		inW.Close()
	}()
	stdout := &head{limit: protocol.MaxFrame}
	stderr := &head{limit: faultBound}
	drained := make(chan struct{}, 2)
	for r, h := range map[*os.File]*head{outR: stdout, errR: stderr} {
		go func() {
			drain(r, h.take, procs.empty)
			drained <- struct{}{}
		}()
	}
	if err := endChild(procs); err != nil {
		return nil, nil, err
	}
	<-drained
	<-drained
	return stdout.b.Bytes(), stderr.b.Bytes(), nil
}

// endChild waits for the main child and kills whatever it left.
func endChild(procs *processes) error {
	bound := time.NewTimer(probeBound)
	defer bound.Stop()
	late := false
	select {
	case <-procs.status:
	case <-bound.C:
		late = true
	}
	if !childless() {
		procs.kill()
	}
	undead := time.NewTimer(killBound)
	defer undead.Stop()
	select {
	case <-procs.empty:
	case <-undead.C:
		return errUndead
	}
	if late {
		return fmt.Errorf("waiting for the probe: it took more than %v", probeBound)
	}
	return nil
}

// head keeps the first bytes of an output.
type head struct {
	b     bytes.Buffer
	limit int
}

func (h *head) take(p []byte) error {
	h.b.Write(p[:min(len(p), h.limit-h.b.Len())])
	return nil
}

// TakeProbe is the child: it reads a [protocol.Probe] from in, tries and reads
// everything, and writes a [protocol.Probed] to out. It changes nothing that
// outlives it but what an attempt that must fail would have changed.
func TakeProbe(in io.Reader, out io.Writer, environ []string) error {
	payload, err := io.ReadAll(io.LimitReader(in, protocol.MaxFrame+1))
	if err != nil {
		return fmt.Errorf("reading what to probe: %v", err)
	}
	var m protocol.Probe
	if err := protocol.Decode(payload, &m); err != nil {
		return err
	}
	got := protocol.Probed{
		Stage:  m.Stage,
		Status: askNoNewPrivs(readStatus("/proc/self/status")),
		Limits: readLimits(cgroup{root: cgroupRoot}),
		Links:  readLinks(),
		Routes: readRoutes("/proc/net"),
		Mounts: readMounts("/proc/self/mountinfo", m.Mounts),
		Proc:   readProcesses("/proc"),
	}
	for _, e := range environ {
		name, _, _ := strings.Cut(e, "=")
		got.Env = append(got.Env, name)
	}
	// Readings come first: an attempt that succeeds would change them.
	got.Attempts = attemptAll(m)
	encoded, err := json.Marshal(got)
	if err != nil {
		return fmt.Errorf("encoding the readings: %v", err)
	}
	if len(encoded) > protocol.MaxFrame {
		return errors.New("encoding the readings: they are too long; fewer things must be asked for")
	}
	_, err = out.Write(encoded)
	return err
}
