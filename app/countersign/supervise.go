package main

import (
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/countersign-dev/countersign/runner"
	"github.com/countersign-dev/countersign/runner/docker"
)

const superviseName = "supervise"

// newSuperviseCommand is the run's own process. It is started by `run`, not by
// a person: the order comes on standard input, events go to standard output.
func newSuperviseCommand() *cobra.Command {
	var stateDir, shim, host, failPoint string
	cmd := &cobra.Command{
		Use:    superviseName,
		Short:  "Supervise one run (started by run)",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			log := newLogger(cmd.ErrOrStderr())
			engine, err := docker.New(docker.Config{Host: host, Logger: log})
			if err != nil {
				return err
			}
			s := &runner.Supervisor{
				Engine: engine, StateDir: stateDir, Shim: shim, Now: time.Now, Rand: rand.Reader, Log: log,
				FailPoint: failAt(failPoint, cmd.ErrOrStderr()),
			}
			return runner.ServeOrder(cmd.Context(), s, cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&stateDir, "state-dir", "", "directory of live runs")
	fl.StringVar(&shim, "shim", "", "path of the shim")
	fl.StringVar(&host, "docker-host", "", "the engine's address")
	fl.StringVar(&failPoint, "fail-point", "", "kill this process at the named place")
	return cmd
}

// failAt kills this process at the fail point of that name; "stop:NAME" stops
// it there instead, says so, and leaves the killing to whoever watches.
func failAt(point string, stderr io.Writer) func(name string) {
	stop, standing := strings.CutPrefix(point, "stop:")
	return func(name string) {
		switch {
		case standing && name == stop:
			fmt.Fprintf(stderr, "fail point: process %d stands still at %s\n", os.Getpid(), name)
			syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		case name == point:
			die()
		}
	}
}

// die ends the process as kill -9 would: nothing is flushed, nothing deferred.
func die() { syscall.Kill(os.Getpid(), syscall.SIGKILL) }
