// Command countersign-shim is what runs inside a sandbox: PID 1, the holder of
// a workspace volume, and the probe. It is built static and stripped, so that it
// starts in any image and in a few milliseconds.
//
// Started as "countersign", the name under which the sandbox has it on PATH, it
// offers only what a workload may ask for. The asking tools are not built yet,
// and it says so.
package main

import (
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"

	"github.com/countersign-dev/countersign/policy/contract"
	"github.com/countersign-dev/countersign/runner/shim"
	"github.com/countersign-dev/countersign/runner/shim/protocol"
)

func main() { os.Exit(run(os.Args, os.Stdin, os.Stdout, os.Stderr)) }

func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	name, verb, rest := "countersign-shim", "", []string(nil)
	if len(args) > 0 {
		name = filepath.Base(args[0])
	}
	if len(args) > 1 {
		verb, rest = args[1], args[2:]
	}
	switch verb {
	case "version", "--version":
		fmt.Fprintf(stdout, "%s %s (protocol %d)\n", name, revision(), protocol.Version)
		return 0
	case "help", "--help", "-h":
		fmt.Fprint(stdout, usage(name))
		return 0
	}
	if name == "countersign" {
		return refuse(stderr, name, verb)
	}
	switch verb {
	case "init", "hold":
		return serve(name, verb, rest, stderr)
	case "probe":
		if err := shim.TakeProbe(stdin, stdout, os.Environ()); err != nil {
			fmt.Fprintf(stderr, "%s: %v\n", name, err)
			return contract.ExitFailClosed
		}
		return 0
	}
	return refuse(stderr, name, verb)
}

func serve(name, verb string, args []string, stderr io.Writer) int {
	flags := flag.NewFlagSet(name+" "+verb, flag.ContinueOnError)
	flags.SetOutput(stderr)
	control := flags.String("control", "", "`path` of the supervisor's socket")
	var egress string
	if verb == "init" {
		flags.StringVar(&egress, "egress", "", "`path` of the proxy's socket")
	}
	if err := flags.Parse(args); err != nil {
		return contract.ExitFailClosed
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(stderr, "%s: %s takes no arguments\n", name, verb)
		return contract.ExitFailClosed
	}
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintf(stderr, "%s: finding its own binary: %v\n", name, err)
		return contract.ExitFailClosed
	}
	cfg := shim.Config{
		Control:    *control,
		Egress:     egress,
		Executable: self,
		Environ:    os.Environ(),
		Log:        slog.New(slog.NewTextHandler(stderr, nil)),
	}
	if verb == "hold" {
		return shim.Hold(cfg)
	}
	return shim.Init(cfg)
}

func refuse(stderr io.Writer, name, verb string) int {
	if verb == "" {
		fmt.Fprint(stderr, usage(name))
		return contract.ExitFailClosed
	}
	fmt.Fprintf(stderr, "%s: unknown verb %q\n%s", name, verb, usage(name))
	return contract.ExitFailClosed
}

func usage(name string) string {
	if name == "countersign" {
		return `countersign, inside a sandbox: asking for more than the contract gives is not built yet.
Run countersign outside of the sandbox to start, explain or verify a run.

  countersign version
  countersign help
`
	}
	return `countersign-shim runs inside a sandbox; an engine starts it, not a person.

  countersign-shim init [--control PATH] [--egress PATH]
                                           be PID 1
  countersign-shim hold [--control PATH]   keep a workspace volume
  countersign-shim probe                   try what must fail: request on stdin, readings on stdout
  countersign-shim version
`
}

// revision is the commit that the binary was built from, as Go recorded it.
func revision() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	return "unknown revision"
}
