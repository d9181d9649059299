// Command countersign lets a repository hand work to a coding agent or any
// command, in a sealed container, under a contract that was fixed before.
//
// This package is the outermost room: it reads flags, the environment and the
// clock, builds the adapters, and hands them to the packages that decide and
// act. There is one file for each verb. No rule lives here.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	os.Exit(Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// Main runs one command line and returns its exit status.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	// A reader that goes away (`| head`) is an error of that write, not the end
	// of a process that has a sandbox to remove. Notified, not ignored: what is
	// ignored would be ignored in the programs that are started, too.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	root := newRootCommand()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	var exit exitStatus
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		if exit.err != nil {
			fmt.Fprintf(stderr, "countersign: %v\n", exit.err)
		}
		return exit.code
	}
	fmt.Fprintf(stderr, "countersign: %v\n", err)
	return 1
}

// exitStatus is an error that ends the program with a status of its own. An
// empty err has been told already.
type exitStatus struct {
	code int
	err  error
}

func (e exitStatus) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.code)
	}
	return e.err.Error()
}

func (e exitStatus) Unwrap() error { return e.err }

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "countersign",
		Short: "Run work in a sealed container, under a contract, and leave evidence",
		Long: `Countersign runs any command in a sealed Docker container, under a contract
that was derived from your policy before the command said a word, and leaves
evidence that anyone can verify.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(
		newRunCommand(), newContractCommand(), newPlanCommand(), newVerifyCommand(),
		newPolicyCommand(), newInitCommand(), newDemoCommand(), newDrillCommand(), newSuperviseCommand(), newVersionCommand(),
	)
	return root
}

// newLogger writes plain lines for people; nothing of a workload goes through it.
func newLogger(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{
		Level: slog.LevelInfo,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey && len(groups) == 0 {
				return slog.Attr{}
			}
			return a
		},
	}))
}

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "countersign %s\n", buildVersion())
			return err
		},
	}
}

// version is set by the linker (make build); nothing else writes it.
var version string

// buildVersion is what the linker was told, else the module's version.
func buildVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
