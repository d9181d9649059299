package main

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/policy/evidence"
	"github.com/countersign-dev/countersign/policy/ledger"
)

// Exit statuses of verify, beside 0.
const (
	verifyFailed     = 1
	verifyUnreadable = 2
	verifyIncomplete = 3
)

func newVerifyCommand() *cobra.Command {
	var key string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "verify [flags] DIR",
		Short: "Check the evidence of a run, offline",
		Long: `Verify checks the evidence bundle in DIR, line by line: the signature, every
file, the ledger's chain, that the recorded inputs derive the contract again,
and that container and outcome follow from it. It needs no network and no
Docker, and changes nothing.

With --key the bundle must be signed by one of the keys in FILE (PEM; the signer's
own is signing-key.pub.pem in its configuration directory). Without it the
signer is unknown, and verify can only say that the bundle is consistent.

Exit status:
  0  verified (with --key) or consistent (without)
  1  it does not verify: something was changed, is missing, was signed by
     another key, or does not follow from the inputs
  2  it could not be checked: no such directory, no such key, a wrong flag
  3  incomplete: the run ended before its evidence was signed`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return exitStatus{verifyUnreadable, errors.New("name one directory: countersign verify DIR [--key FILE]")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			trusted, err := readTrusted(key)
			if err != nil {
				return exitStatus{verifyUnreadable, err}
			}
			report, err := verifyDir(args[0], trusted)
			if err != nil {
				return exitStatus{verifyUnreadable, err}
			}
			if err := printReport(cmd.OutOrStdout(), report, asJSON); err != nil {
				return exitStatus{verifyUnreadable, err}
			}
			return verifyStatus(report)
		},
	}
	cmd.Flags().StringVar(&key, "key", "", "`FILE` with the public keys that are trusted, PEM")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the report as one JSON object")
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return exitStatus{verifyUnreadable, fmt.Errorf("%v; see countersign verify --help", err)}
	})
	return cmd
}

// readTrusted reads the keys of --key; no file means that none is trusted.
func readTrusted(path string) ([]ed25519.PublicKey, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading --key: %v", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("reading --key: %v", err)
	}
	if len(text) > maxFile {
		return nil, fmt.Errorf("reading --key: %s is larger than %d bytes", path, maxFile)
	}
	keys, err := ledger.ParsePublicKeys(text)
	if err != nil {
		return nil, fmt.Errorf("reading --key %s: %v", path, err)
	}
	return keys, nil
}

// verifyDir gives the verifier a view that stays below the directory.
func verifyDir(dir string, trusted []ed25519.PublicKey) (evidence.Report, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return evidence.Report{}, fmt.Errorf("opening evidence: %v", err)
	}
	defer root.Close()
	return evidence.Verify(root.FS(), trusted), nil
}

// printReport writes a line for each check, and the verdict last. Every text of
// a report is escaped already.
func printReport(w io.Writer, r evidence.Report, asJSON bool) error {
	if asJSON {
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false)
		return enc.Encode(r)
	}
	for _, l := range r.Lines {
		mark := "ok  "
		if !l.OK {
			mark = "FAIL"
		}
		if _, err := fmt.Fprintf(w, "%s  %s: %s\n", mark, l.Name, l.Detail); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(w, contract.Escape(r.Summary))
	return err
}

func verifyStatus(r evidence.Report) error {
	switch r.Verdict {
	case evidence.Verified, evidence.Consistent:
		return nil
	case evidence.Incomplete:
		return exitStatus{code: verifyIncomplete}
	}
	return exitStatus{code: verifyFailed}
}
