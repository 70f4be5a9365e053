package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// errWorse says that an order costs more than it did.
var errWorse = errors.New("an order costs more than before")

// tolerance is what a cost may rise by. Costs hold steadier than orders/s, which follow the machine.
const tolerance = 0.10

// guarded are the costs that must not rise, at 64 and at 256 in flight.
func guarded() []string {
	var keys []string
	for _, suffix := range []string{"", suffixMany} {
		for _, key := range []string{"sync_commits_per_order", "wal_kb_per_order", "postgres_cpu_ms_per_order"} {
			keys = append(keys, key+suffix)
		}
	}
	return keys
}

// compareFiles compares two files of results.
func compareFiles(before, after string, out io.Writer) error {
	was, err := loadResults(before)
	if err != nil {
		return err
	}
	is, err := loadResults(after)
	if err != nil {
		return err
	}
	return compare(was, is, out)
}

// compare prints what the product's orders cost in two runs. The error wraps errWorse if a cost has risen by more than
// the tolerance, or is missing in the later run. The ceilings are printed too, but their costs are no promise.
func compare(was, is map[string]figures, out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tbefore\tafter\tchange\t")
	var worse []string
	compared := 0
	for _, name := range slices.Sorted(maps.Keys(was)) {
		promised := name == inProcess || name == overHTTP
		for _, key := range append([]string{keyRate, keyRate + suffixMany}, guarded()...) {
			old, ok := was[name][key]
			if !ok || old == 0 {
				continue
			}
			now, there := is[name][key]
			verdict := ""
			if promised && slices.Contains(guarded(), key) {
				compared++
				if !there || now > old*(1+tolerance) {
					verdict = "worse"
					worse = append(worse, name+" "+key)
				}
			}
			fmt.Fprintf(w, "%s %s\t%s\t%s\t%+.1f%%\t%s\n", name, key, format(old), format(now), 100*(now/old-1), verdict)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if compared == 0 {
		return errors.New("the earlier results hold no costs of the product")
	}
	if len(worse) > 0 {
		return fmt.Errorf("%w: %s", errWorse, strings.Join(worse, ", "))
	}
	return nil
}
