package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/policy/ledger"
	"github.com/countersign-dev/countersign/runner"
)

// evidenceDir is where the bundle goes; below the repository it is kept out of
// git by a file of its own.
func (l *localRun) evidenceDir(g *facts) (string, error) {
	if !utf8.ValidString(l.f.evidence) {
		return "", fmt.Errorf("the evidence directory %q is not UTF-8 text", l.f.evidence)
	}
	if l.f.evidence != "" {
		return filepath.Abs(l.f.evidence)
	}
	base := g.repo.Worktree
	if base == "" {
		base = g.repo.GitDir
	}
	own := filepath.Join(base, ".countersign")
	for _, dir := range []string{own, filepath.Join(own, "runs")} {
		if err := ownDir(dir); err != nil {
			return "", fmt.Errorf("making evidence directory: %v; name another with --evidence", err)
		}
	}
	if err := ignoreOwn(filepath.Join(own, ".gitignore")); err != nil {
		return "", fmt.Errorf("making evidence directory: %v; name another with --evidence", err)
	}
	return filepath.Abs(filepath.Join(own, "runs", g.task.RunID))
}

// ownDir makes a directory, or accepts one. A checkout's commit may hold a link
// of that name, which would say where evidence is written.
func ownDir(dir string) error {
	if err := os.Mkdir(dir, 0o755); err == nil || !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Lstat(dir)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is not a directory", dir)
	}
	return err
}

// ignoreOwn keeps evidence out of git.
func ignoreOwn(path string) error {
	const all = "*\n"
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return os.WriteFile(path, []byte(all), 0o644)
	}
	if err != nil {
		return err
	}
	if text, err := readBounded(path); err != nil || !info.Mode().IsRegular() || !strings.HasPrefix(string(text), all) {
		return fmt.Errorf("%s does not keep evidence out of git: it must be a file whose first line is *", path)
	}
	return nil
}

// sign writes the bundle's last file. Evidence that cannot be signed is
// evidence that could not be written.
func (l *localRun) sign(report runner.Report, order runner.Order, key signingKey) contract.Outcome {
	out := report.Outcome
	if report.Statement == nil {
		return out
	}
	if l.env.FailPoint == "sign" {
		die()
	}
	err := agrees(report.Statement.Predicate, order)
	if err == nil {
		err = writeEnvelope(order.Evidence, *report.Statement, key)
	}
	if err != nil {
		out.State, out.ExitCode = contract.StateFailClosed, contract.ExitFailClosed
		out.Reason = runner.ReasonEvidence + ": " + err.Error()
	}
	return out
}

// agrees refuses a statement that is not of this order. The process that made
// it reads what a hostile workload wrote; whatever became of it, it gets no
// signature under another contract or other inputs than it was given.
func agrees(p ledger.Predicate, order runner.Order) error {
	given := map[string][]byte{
		ledger.FileTask: order.Inputs.Task, ledger.FileSnapshot: order.Inputs.Snapshot,
		ledger.FilePolicy: order.Inputs.Policy, ledger.FileCeiling: order.Inputs.Ceiling, ledger.FileSigner: order.Inputs.Signer,
	}
	contracts := []string{}
	if order.Contract != nil {
		given[ledger.ContractFile(1)] = order.Contract
		contracts = append(contracts, contract.DigestBytes(order.Contract))
	}
	if !slices.Equal(p.Contracts, contracts) {
		return fmt.Errorf("the supervisor states the contracts %v, given was %v", p.Contracts, contracts)
	}
	for name, data := range given {
		if p.Files[name] != contract.DigestBytes(data) {
			return fmt.Errorf("the supervisor states another %s than it was given", name)
		}
	}
	return nil
}

// writeEnvelope puts evidence.json in place whole or not at all: a bundle
// without it is incomplete, which is what a crash before this must look like.
func writeEnvelope(dir string, s ledger.Statement, key signingKey) error {
	envelope, err := ledger.Sign(s, key)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, ledger.FileEvidence)
	tmp := path + ".tmp"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("writing evidence: %v", err)
	}
	_, err = f.Write(envelope)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = errors.Join(os.Rename(tmp, path), syncDir(dir))
	}
	if err != nil {
		os.Remove(tmp)
		return fmt.Errorf("writing evidence: %v", err)
	}
	return nil
}
