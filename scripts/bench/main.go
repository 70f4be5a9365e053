package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/throughline/throughline/scripts/bench/host"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) error {
	if len(args) > 0 && args[0] == host.Command {
		return host.Serve(ctx, in, out, errOut)
	}
	if len(args) > 0 && args[0] == "compare" {
		if len(args) != 3 {
			return errors.New("usage: bench compare OLD NEW: two files of results")
		}
		return compareFiles(args[1], args[2], out)
	}
	o, err := parse(args, errOut)
	if err != nil {
		return err
	}
	o.out, o.progress = out, errOut
	return measure(ctx, o)
}

// options say what is measured.
type options struct {
	// dir keeps the cluster, the logs and the results.
	dir string
	// systems are the names of those to measure.
	systems []string
	// stored are the numbers of stored orders to measure with, beside none.
	stored  []int
	plan    plan
	profile bool
	// top is how many statements are listed for each system, by their cost.
	top int
	// settings are of the server, for trials.
	settings map[string]string

	out, progress io.Writer
}

func parse(args []string, usage io.Writer) (options, error) {
	o := options{plan: full}
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(usage)
	f.StringVar(&o.dir, "dir", ".run/bench", "folder of the cluster, the logs and latest.json")
	quick := f.Bool("quick", false, "one short round without stored orders; ends within a minute")
	rounds := f.Int("rounds", 0, "how often the systems are started, on new databases, and measured in turns; results are medians (0: what the plan says)")
	systems := f.String("systems", "", "the systems to measure, with commas between; empty means all")
	stored := f.String("stored", "1000000,5000000", "numbers of stored orders to measure with, beside none")
	f.IntVar(&o.top, "top", 0, "list so many statements of each system, those that cost most")
	o.settings = make(map[string]string)
	f.Func("set", "a setting of the server, name=value, for a trial", func(text string) error {
		name, value, ok := strings.Cut(text, "=")
		if !ok {
			return fmt.Errorf("%q is not name=value", text)
		}
		o.settings[name] = value
		return nil
	})
	f.BoolVar(&o.profile, "profile", false, "write a CPU profile of each process of ours into the folder")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if *quick {
		o.plan, *stored = quickPlan, ""
	}
	if *rounds > 0 {
		o.plan.rounds = *rounds
	}
	for name := range strings.SplitSeq(*systems, ",") {
		if name != "" {
			o.systems = append(o.systems, name)
		}
	}
	for text := range strings.SplitSeq(*stored, ",") {
		if text == "" {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return o, fmt.Errorf("--stored: %q is no number of orders", text)
		}
		o.stored = append(o.stored, n)
	}
	var err error
	if o.dir, err = filepath.Abs(o.dir); err != nil {
		return o, fmt.Errorf("finding the folder: %w", err)
	}
	return o, nil
}
