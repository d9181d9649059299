package main

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/countersign-dev/countersign/policy"
	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/runner/redact"
)

// pure measures what decides and what filters, in CPU time of one thread: other
// work on the machine does not count.
func (b *bench) pure() error {
	in, err := localInput()
	if err != nil {
		return err
	}
	var fault error
	each := cpuTime(2*time.Second, func() {
		if d := policy.Derive(in); d.Refusal != nil {
			fault = d.Refusal
		} else if d.Sealed.IsZero() {
			fault = errors.New("a derivation is not sealed")
		}
	})
	if fault != nil {
		return fault
	}
	b.line("Derive + Seal", float64(each)/1000, " µs", false, 100, "CPU time; local run, built-in policy")
	noise := make([]byte, 3<<20)
	rand.New(rand.NewSource(2)).Read(noise)
	for _, c := range []struct {
		name string
		text []byte
		goal float64
	}{
		{"log lines", logLines(4 << 20), 300},
		{"base64 of noise", []byte(base64.StdEncoding.EncodeToString(noise)), 0},
		{"noise", noise, 0},
	} {
		rate, err := redaction(c.text)
		if err != nil {
			return err
		}
		b.line("redaction of 64 secrets, "+c.name, rate, " MB/s", true, c.goal, "CPU time; writes of 32 KiB")
	}
	return nil
}

// cpuTime is the median CPU time of one call, of batches that fill the time.
func cpuTime(fill time.Duration, f func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	now := func() time.Duration {
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
			panic("unreachable: Linux has a clock of each thread")
		}
		return time.Duration(ts.Nano())
	}
	f()
	batch := 1
	for begun := now(); now()-begun < fill/20; batch++ {
		f()
	}
	var took []float64
	for begun := now(); now()-begun < fill; {
		from := now()
		for range batch {
			f()
		}
		took = append(took, float64(now()-from)/float64(batch))
	}
	return time.Duration(median(took))
}

// localInput is what `countersign run -- make test` derives a contract from.
func localInput() (policy.Input, error) {
	var in policy.Input
	sha := strings.Repeat("c", 40)
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	id, err := contract.NewRunID(now, rand.New(rand.NewSource(1)))
	if err != nil {
		return in, err
	}
	in.Task = contract.Task{
		Schema: contract.SchemaTask, RunID: id, Event: contract.Event{Kind: contract.EventLocal},
		Repo: contract.Repo{FullName: contract.LocalRepoName("/src/project")}, Base: contract.Ref{Ref: "main", SHA: sha},
		Head: contract.Head{SHA: sha}, Start: contract.Start{SHA: sha},
		Actor: contract.Person{Login: "local", Role: contract.RoleLocal}, Argv: []string{"make", "test"},
	}
	if in.Policy, err = policy.Parse("built-in policy", policy.BuiltinPolicy()); err != nil {
		return in, err
	}
	if in.Ceiling, err = policy.ParseCeiling("built-in ceiling", policy.BuiltinLocalCeiling()); err != nil {
		return in, err
	}
	task, err := contract.Encode(in.Task)
	if err != nil {
		return in, err
	}
	in.Snapshot = contract.Snapshot{
		Schema: contract.SchemaSnapshot, Time: contract.FormatTime(now), TaskDigest: contract.DigestBytes(task),
		Policy:  contract.Source{Status: contract.SourceBuiltin, Ref: "builtin", Digest: contract.DigestBytes(policy.BuiltinPolicy())},
		Ceiling: contract.Source{Status: contract.SourceBuiltin, Ref: "builtin", Digest: contract.DigestBytes(policy.BuiltinLocalCeiling())},
		Images: map[string]contract.ImageFact{image: {
			ID: contract.DigestBytes(nil), Platform: "linux/" + runtime.GOARCH, EnvKeys: []string{"PATH"},
		}},
	}
	return in, nil
}

// redaction is the rate of one redactor with 64 secrets, in MB a second.
func redaction(text []byte) (float64, error) {
	rnd := rand.New(rand.NewSource(1))
	var secrets []redact.Named
	for i := range 64 {
		s := make([]byte, 20+rnd.Intn(60))
		for j := range s {
			s[j] = byte('!' + rnd.Intn(90))
		}
		secrets = append(secrets, redact.Named{Name: fmt.Sprintf("secret-%d", i), Secret: redact.NewSecret(s)})
	}
	m, err := redact.Compile(secrets...)
	if err != nil {
		return 0, err
	}
	w := m.Writer(io.Discard)
	each := cpuTime(2*time.Second, func() {
		for p := text; len(p) > 0; {
			n := min(len(p), 32<<10)
			w.Write(p[:n])
			p = p[n:]
		}
	})
	return float64(len(text)) / 1e6 / each.Seconds(), nil
}

func logLines(n int) []byte {
	const line = "2026-11-29T13:00:00Z INFO compiling github.com/countersign-dev/countersign/runner/redact (64 files) in 1.25s\n"
	return bytes.Repeat([]byte(line), n/len(line))
}

// start measures how long the shim takes from its start to its exit.
func (b *bench) start() error {
	shim := filepath.Join(b.bin, "countersign-shim")
	our, their, _, err := inTurn(3*b.pairs, func() (float64, error) {
		took, err := b.command(nil, shim, "version")
		return ms(took), err
	}, func() (float64, error) {
		took, err := b.command(nil, "/bin/true")
		return ms(took), err
	})
	if err != nil {
		return err
	}
	b.line("countersign-shim, start to exit", our, " ms", false, 20, fmt.Sprintf("/bin/true beside it %s ms", figure(their)))
	return nil
}
