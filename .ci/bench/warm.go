package main

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/runner"
)

// warm measures whole runs of `true` in sandboxes that a pool had started
// before. There is no goal: it is what the pool is for.
func (b *bench) warm() error {
	waiting := make(chan int, 100)
	pool := runner.NewPool(runner.PoolConfig{
		Command: func() (*exec.Cmd, error) {
			c := exec.Command(filepath.Join(b.bin, "countersign"), "supervise",
				"--state-dir", filepath.Join(b.dir, "s"), "--shim", filepath.Join(b.bin, "countersign-shim"), "--docker-host", os.Getenv("DOCKER_HOST"))
			c.Env = b.env
			return c, nil
		},
		MemoryBytes: 64 << 30, Depth: 1,
		Waiting: func(n int) { waiting <- n },
		Log:     slog.New(slog.DiscardHandler),
	})
	defer pool.Close()
	if _, err := b.inPool(pool); err != nil { // names the shape
		return err
	}
	our, their, ratio, err := inTurn(b.pairs, func() (float64, error) {
		for n := range waiting {
			if n == 1 {
				break
			}
		}
		return b.inPool(pool)
	}, func() (float64, error) { return b.docker("runc") })
	if err != nil {
		return err
	}
	b.line("whole run of `true` in a warm sandbox / docker run --rm", ratio, "", false, 0,
		fmt.Sprintf("%s ms / %s ms, from the sealed contract to the unsigned evidence", figure(our), figure(their)))
	return nil
}

// inPool performs one run by way of the pool and returns its milliseconds.
func (b *bench) inPool(pool *runner.Pool) (float64, error) {
	out, err := b.output(filepath.Join(b.bin, "countersign"), "contract", "--repo", b.repo, "--", "true")
	if err != nil {
		return 0, err
	}
	var c contract.Contract
	if err := json.Unmarshal([]byte(out), &c); err != nil {
		return 0, err
	}
	sealed, err := contract.Seal(c)
	if err != nil {
		return 0, err
	}
	order := runner.Order{Contract: sealed.Bytes(), Repo: b.repo, Evidence: filepath.Join(b.dir, c.RunID)}
	defer os.RemoveAll(order.Evidence)
	begun := time.Now()
	report, err := pool.Launch(b.ctx, order, func(int, []byte) {}, nil)
	took := ms(time.Since(begun))
	if err == nil && report.Outcome.State != contract.StateCompleted {
		err = fmt.Errorf("the run ended %s: %s", report.Outcome.State, report.Outcome.Reason)
	}
	return took, err
}
