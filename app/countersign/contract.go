package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/countersign-dev/countersign/policy"
	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/runner/docker"
)

func newContractCommand() *cobra.Command {
	var f runFlags
	var explain bool
	cmd := &cobra.Command{
		Use:   "contract [flags] -- ARGV...",
		Short: "Print the contract that run would execute, and why",
		Long: `Contract derives the contract for ARGV as run would and prints it, without
running anything. Each call draws a new run id. With --explain it prints the
reason of every field instead.

Exit status: 0; 125 when a fact could not be read; 126 when it is refused.`,
		Args: commandArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return printContract(cmd, &f, args, explain)
		},
	}
	f.register(cmd)
	cmd.SetFlagErrorFunc(flagError)
	cmd.Flags().BoolVar(&explain, "explain", false, "print which rule, profile or cap gave each field")
	cmd.AddCommand(newContractDiffCommand())
	return cmd
}

func printContract(cmd *cobra.Command, f *runFlags, argv []string, explain bool) error {
	env, err := readEnvironment()
	if err != nil {
		return exitStatus{contract.ExitFailClosed, err}
	}
	engine, err := docker.New(docker.Config{Host: env.DockerHost, Logger: newLogger(cmd.ErrOrStderr())})
	if err != nil {
		return exitStatus{contract.ExitFailClosed, err}
	}
	f.timeoutSet = cmd.Flags().Changed("timeout")
	g, err := gather(cmd.Context(), f, argv, env.StateDir, engine, time.Now())
	if err != nil {
		return exitStatus{contract.ExitFailClosed, err}
	}
	if explain {
		fmt.Fprint(cmd.OutOrStdout(), policy.Explain(g.derivation))
	}
	if g.refused != nil {
		return exitStatus{g.code(), g.refused}
	}
	if explain {
		return nil
	}
	sealed := g.derivation.Sealed
	fmt.Fprintf(cmd.ErrOrStderr(), "%s\n", sealed.Digest())
	return writeIndented(cmd.OutOrStdout(), sealed.Bytes())
}

// writeIndented is for reading; the digest is of the canonical bytes.
func writeIndented(w io.Writer, canonical []byte) error {
	var b bytes.Buffer
	if err := json.Indent(&b, canonical, "", "  "); err != nil {
		return err
	}
	b.WriteByte('\n')
	_, err := b.WriteTo(w)
	return err
}

func newContractDiffCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "diff A B",
		Short: "Print what contract B may do differently from contract A",
		Long: `Diff compares two contracts, as files from an evidence bundle or as printed by
countersign contract.

Exit status: 0 when they are the same, 1 when they differ, 2 when one cannot be read.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return exitStatus{2, errors.New("diff takes two contracts: countersign contract diff A B")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			var c [2]contract.Contract
			for i, path := range args {
				data, err := os.ReadFile(path)
				if err == nil {
					c[i], err = contract.Decode[contract.Contract](data)
				}
				if err != nil {
					return exitStatus{2, fmt.Errorf("%s: %w", path, err)}
				}
			}
			changes := contract.Diff(c[0], c[1])
			if len(changes) == 0 {
				return nil
			}
			fmt.Fprint(cmd.OutOrStdout(), contract.FormatDiff(changes))
			return exitStatus{code: 1}
		},
	}
}
