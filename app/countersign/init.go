package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/countersign-dev/countersign/policy"
)

func newInitCommand() *cobra.Command {
	var repo string
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Write a commented starter policy and a test case for it",
		Long: `Init writes ` + policy.StarterPath + ` and ` + policy.StarterCasePath + `.
It overwrites nothing: when one of them exists, it writes neither.

Exit status: 0 when both were written, 1 when not.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error { return writeStarter(cmd, repo) },
	}
	cmd.Flags().StringVar(&repo, "repo", ".", "the repository's `DIR`")
	return cmd
}

func writeStarter(cmd *cobra.Command, repo string) error {
	if info, err := os.Stat(repo); err != nil || !info.IsDir() {
		return exitStatus{1, fmt.Errorf("%s is not a directory: say which with --repo DIR", repo)}
	}
	files := []struct {
		path string
		data []byte
	}{{policy.StarterPath, policy.Starter()}, {policy.StarterCasePath, policy.StarterCases()}}
	for _, f := range files {
		if _, err := os.Lstat(filepath.Join(repo, f.path)); !errors.Is(err, fs.ErrNotExist) {
			return exitStatus{1, fmt.Errorf("%s is there already: nothing was written; move it away first", filepath.Join(repo, f.path))}
		}
	}
	for _, f := range files {
		if err := writeNew(filepath.Join(repo, f.path), f.data); err != nil {
			return exitStatus{1, fmt.Errorf("writing starter policy: %v", err)}
		}
		fmt.Fprintf(cmd.OutOrStdout(), "wrote %s\n", filepath.Join(repo, f.path))
	}
	fmt.Fprintf(cmd.OutOrStdout(), "next: countersign policy test %s, then commit both\n", filepath.Join(repo, filepath.Dir(policy.StarterCasePath)))
	return nil
}

// writeNew writes a file that must not exist, with its directories.
func writeNew(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	if _, err = f.Write(data); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
