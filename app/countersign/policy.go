package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/countersign-dev/countersign/policy"
)

func newPolicyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Check and test policies, and print their schema",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, args []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newPolicyCheckCommand(), newPolicyTestCommand(), newPolicySchemaCommand())
	return cmd
}

func newPolicyCheckCommand() *cobra.Command {
	var ceilingFile string
	var isCeiling bool
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Say whether a policy is sound, and which level each profile has",
		Long: `Check reads a policy and reports everything that is wrong with it as
file:line:column. For a sound one it prints each profile with its level and the
reason for it, as a person at a terminal would get it under the ceiling.

Exit status: 0 when the policy is sound, 1 when it is not.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if isCeiling {
				c, err := readDocument(args[0], policy.ParseCeiling)
				if err != nil {
					return tellProblems(cmd, err)
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s: a sound ceiling with %d profiles\n", args[0], len(c.Profiles()))
				return nil
			}
			return checkPolicy(cmd, args[0], ceilingFile)
		},
	}
	cmd.Flags().StringVar(&ceilingFile, "under", "", "ceiling `FILE` (default: the built-in one of a person at a terminal)")
	cmd.Flags().BoolVar(&isCeiling, "ceiling", false, "FILE is a ceiling")
	return cmd
}

func checkPolicy(cmd *cobra.Command, file, ceilingFile string) error {
	p, err := readDocument(file, policy.Parse)
	if err != nil {
		return tellProblems(cmd, err)
	}
	ceiling, err := readCeiling(ceilingFile)
	if err != nil {
		return tellProblems(cmd, err)
	}
	checked, err := policy.Check(p, ceiling)
	if err != nil {
		return exitStatus{1, err}
	}
	fmt.Fprint(cmd.OutOrStdout(), policy.RenderChecked(file, checked))
	for _, c := range checked {
		if c.Refusal != nil {
			return exitStatus{code: 1}
		}
	}
	return nil
}

func newPolicyTestCommand() *cobra.Command {
	var policyFile, ceilingFile string
	cmd := &cobra.Command{
		Use:   "test DIR",
		Short: "Run the cases of a directory against a policy",
		Long: `Test reads every .yml and .yaml file below DIR as cases: an event, labels, an
actor, and the profile, the fields of the contract or the refusal that the policy
must give. ` + "`countersign init`" + ` writes an example.

The policy is --policy, else countersign.yml in DIR or beside it.

Exit status: 0 when every case holds, 1 when one does not or cannot be read.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return testPolicy(cmd, args[0], policyFile, ceilingFile)
		},
	}
	cmd.Flags().StringVar(&policyFile, "policy", "", "policy `FILE`")
	cmd.Flags().StringVar(&ceilingFile, "ceiling", "", "ceiling `FILE` (default: the built-in one that goes with each event)")
	return cmd
}

func testPolicy(cmd *cobra.Command, dir, policyFile, ceilingFile string) error {
	if policyFile == "" {
		found, err := policyBeside(dir)
		if err != nil {
			return exitStatus{1, err}
		}
		policyFile = found
	}
	p, err := readDocument(policyFile, policy.Parse)
	if err != nil {
		return tellProblems(cmd, err)
	}
	ceiling, err := readCeiling(ceilingFile)
	if err != nil {
		return tellProblems(cmd, err)
	}
	files, err := caseFiles(dir, policyFile)
	if err != nil {
		return exitStatus{1, err}
	}
	var results []policy.CaseResult
	for _, file := range files {
		data, err := readBounded(file)
		if err != nil {
			return exitStatus{1, fmt.Errorf("reading cases: %v", err)}
		}
		r, err := policy.RunCases(p, ceiling, file, data)
		if err != nil {
			return tellProblems(cmd, err)
		}
		results = append(results, r...)
	}
	text, ok := policy.RenderCases(results)
	fmt.Fprint(cmd.OutOrStdout(), text)
	if !ok {
		return exitStatus{code: 1}
	}
	return nil
}

// policyBeside finds the policy that a directory of cases belongs to.
func policyBeside(dir string) (string, error) {
	for _, file := range []string{filepath.Join(dir, "countersign.yml"), filepath.Join(dir, "..", "countersign.yml")} {
		if _, err := os.Stat(file); err == nil {
			return filepath.Clean(file), nil
		}
	}
	return "", fmt.Errorf("there is no countersign.yml in %s or beside it: say which with --policy FILE", dir)
}

// caseFiles lists the case files below dir, in order; the policy itself may lie
// among them.
func caseFiles(dir, policyFile string) ([]string, error) {
	var files []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		ext := filepath.Ext(path)
		if !e.Type().IsRegular() || ext != ".yml" && ext != ".yaml" || filepath.Clean(path) == policyFile {
			return nil
		}
		files = append(files, path)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading cases: %v", err)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("there is no .yml file in %s: countersign init writes an example", dir)
	}
	return files, nil
}

func newPolicySchemaCommand() *cobra.Command {
	var ceiling bool
	cmd := &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of a policy, for editors",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			schema := policy.JSONSchema()
			if ceiling {
				schema = policy.CeilingJSONSchema()
			}
			_, err := cmd.OutOrStdout().Write(schema)
			return err
		},
	}
	cmd.Flags().BoolVar(&ceiling, "ceiling", false, "print the schema of a ceiling")
	return cmd
}

// readDocument reads and parses one file.
func readDocument(file string, parse func(string, []byte) (*policy.Document, error)) (*policy.Document, error) {
	data, err := readBounded(file)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %v", file, err)
	}
	return parse(file, data)
}

// readCeiling is readDocument for a ceiling that need not be given.
func readCeiling(file string) (*policy.Document, error) {
	if file == "" {
		return nil, nil
	}
	return readDocument(file, policy.ParseCeiling)
}

// tellProblems prints problems as they are, one a line, so that editors and CI
// recognise the places; any other error is left to main.
func tellProblems(cmd *cobra.Command, err error) error {
	var problems policy.Problems
	if !errors.As(err, &problems) {
		return exitStatus{1, err}
	}
	fmt.Fprintln(cmd.ErrOrStderr(), strings.TrimSuffix(problems.Error(), "\n"))
	return exitStatus{code: 1}
}
