// Command bench measures what the goals of this repository are about and prints
// each with its goal: `make bench`. Ratios are medians of pairs that were
// measured in turn, ours and theirs, so that what else the machine does falls on
// both. Everything that needs an engine goes through bin/countersign, as a
// person would; the times of a run's stages are those of its ledger.
//
// It judges nothing but the numbers: a missed goal is said, and the exit status
// is 0. It is 1 only when something could not be measured. Tests have no
// thresholds of time; this is where such numbers stand.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
)

const image = "countersign/sandbox:latest"

func main() {
	if len(os.Args) > 1 && os.Args[1] == "traffic" {
		os.Exit(traffic(os.Args[2:]))
	}
	os.Exit(run())
}

func run() int {
	pairs := flag.Int("pairs", 15, "`N` pairs of short runs; long ones have a third of it")
	only := flag.String("only", "", "the one `PART` to measure: pure, start, run, warm, tree, runsc or egress")
	size := flag.Int64("bytes", 1e9, "`N` bytes of a transfer through the way out")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	b, err := newBench(ctx, *pairs)
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		return 1
	}
	defer b.close()
	b.bytes = *size
	fmt.Printf("%d CPUs (%s), load %s, %d pairs; image %s\n\n", runtime.NumCPU(), runtime.GOARCH, load(), b.pairs, image)
	failed := 0
	for _, part := range []struct {
		name string
		do   func(*bench) error
	}{
		{"pure", (*bench).pure}, {"start", (*bench).start}, {"run", (*bench).runs}, {"warm", (*bench).warm}, {"tree", (*bench).trees}, {"runsc", (*bench).runsc},
		{"egress", (*bench).egress},
	} {
		if *only != "" && *only != part.name {
			continue
		}
		if err := part.do(b); err != nil {
			fmt.Printf("%-58s NOT MEASURED: %v\n", part.name, err)
			failed = 1
		}
	}
	fmt.Printf("\n%d goals met, %d missed; load %s at the end\n", b.met, len(b.missed), load())
	for _, m := range b.missed {
		fmt.Println("missed:", m)
	}
	return failed
}

// line prints one measurement. A goal of 0 is none.
func (b *bench) line(name string, value float64, unit string, atLeast bool, goal float64, detail string) {
	verdict, sign := "", "≤"
	if atLeast {
		sign = "≥"
	}
	switch {
	case goal == 0:
	case atLeast == (value >= goal) || value == goal:
		verdict = fmt.Sprintf("goal %s %g%s", sign, goal, unit)
		verdict = fmt.Sprintf("%-16s met", verdict)
		b.met++
	default:
		verdict = fmt.Sprintf("goal %s %g%s", sign, goal, unit)
		verdict = fmt.Sprintf("%-16s MISSED", verdict)
		b.missed = append(b.missed, fmt.Sprintf("%s: %s%s, goal %s %g%s", name, figure(value), unit, sign, goal, unit))
	}
	if detail != "" {
		detail = "(" + detail + ")"
	}
	fmt.Println(strings.TrimRight(fmt.Sprintf("%-58s %8s%-5s %-23s %s", name, figure(value), unit, verdict, detail), " "))
}

func figure(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	case v >= 1:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.3f", v)
}

// load is the machine's load average of the last minute.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(text), " ")
	return first
}
