package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// results are what a run keeps.
type results struct {
	// about says where and when.
	about   map[string]any
	systems map[string]figures
}

func newResults(b *bench) *results {
	about := map[string]any{
		"at": b.began.UTC().Format(time.RFC3339), "quick": b.plan.quick, "rounds": b.plan.rounds, "cores": runtime.NumCPU(), "huge_pages": b.hugePages, "go": runtime.Version(),
		"platform": runtime.GOOS + "/" + runtime.GOARCH,
	}
	// Outside of a repository there is nothing to tell.
	if out, err := exec.Command("git", "-c", "safe.directory=*", "describe", "--always", "--dirty").Output(); err == nil { //nolint:noctx // returns at once
		about["commit"] = strings.TrimSpace(string(out))
	}
	return &results{about: about, systems: make(map[string]figures)}
}

// ofTurns gives the medians of all turns, by system. Ratios are medians, too, of those within the turns.
func ofTurns(turns []map[string]figures) map[string]figures {
	all := make(map[string][]figures)
	for _, systems := range turns {
		addRatios(systems)
		for name, f := range systems {
			all[name] = append(all[name], f)
		}
	}
	m := make(map[string]figures, len(all))
	for name, f := range all {
		m[name] = medians(f)
	}
	return m
}

// medians gives the median of each figure.
func medians(turns []figures) figures {
	m := make(figures)
	for _, f := range turns {
		for key := range maps.Keys(f) {
			var values []float64
			for _, other := range turns {
				if v, ok := other[key]; ok {
					values = append(values, v)
				}
			}
			slices.Sort(values)
			m[key] = (values[(len(values)-1)/2] + values[len(values)/2]) / 2
		}
	}
	return m
}

// addRatios puts each system beside the ceilings of the same turn, and the product's variants beside the product.
func addRatios(systems map[string]figures) {
	ratio := func(f, to figures, into, key string) {
		if to != nil && to[key] > 0 && f[key] > 0 {
			f[into] = f[key] / to[key]
		}
	}
	for _, f := range systems {
		for _, suffix := range []string{"", suffixMany} {
			ratio(f, systems[ceilingBatched], "ratio_to_batched_ceiling"+suffix, keyRate+suffix)
			ratio(f, systems[ceilingSingle], "ratio_to_single_ceiling"+suffix, keyRate+suffix)
			ratio(f, systems[ceilingBatched], "ratio_cpu_to_batched_ceiling"+suffix, "cpu_ms_per_order"+suffix)
		}
		ratio(f, systems[ceilingBatched], "ratio_p50_to_batched_ceiling", "p50_ms")
		ratio(f, systems[ceilingBatched], "ratio_wal_to_batched_ceiling"+suffixMany, "wal_kb_per_order"+suffixMany)
		ratio(f, systems[ceilingBatched], "ratio_postgres_cpu_to_batched_ceiling"+suffixMany, "postgres_cpu_ms_per_order"+suffixMany)
	}
	for name, f := range systems {
		none := systems[inProcess]
		if !isVariant(name) || none == nil {
			continue
		}
		ratio(f, none, "ratio_to_inprocess", keyRate)
		ratio(f, none, "ratio_to_inprocess"+suffixMany, keyRate+suffixMany)
		if none["cpu_ms_per_order"] > 0 && f["cpu_ms_per_order"] > 0 { // the collector is not the system's
			f["ratio_cpu_to_inprocess"] = (f["cpu_ms_per_order"] - f["collector_cpu_ms_per_order"]) / none["cpu_ms_per_order"]
		}
	}
}

// save writes the results as one flat object of each system.
func (r *results) save(path string) error {
	all := make(map[string]any, len(r.about)+len(r.systems))
	for key, value := range r.about {
		all[key] = value
	}
	for name, f := range r.systems {
		all[name] = f
	}
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return fmt.Errorf("writing the results: %w", err)
	}
	// Beside its place and then renamed: a run that is cut short leaves the results of the one before.
	unfinished := path + ".new"
	if err := os.WriteFile(unfinished, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("writing the results: %w", err)
	}
	if err := os.Rename(unfinished, path); err != nil {
		return fmt.Errorf("writing the results: %w", err)
	}
	return nil
}

// load reads the systems of a file of results.
func loadResults(path string) (map[string]figures, error) {
	text, err := os.ReadFile(filepath.Clean(path))
	if err != nil {
		return nil, fmt.Errorf("reading results: %w", err)
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("reading results of %s: %w", path, err)
	}
	systems := make(map[string]figures)
	for name, raw := range all {
		var f figures
		if json.Unmarshal(raw, &f) == nil { // what is no object is about the run
			systems[name] = f
		}
	}
	return systems, nil
}

// rows of the table: a heading has no keys.
var rows = []struct{ title, key string }{
	{"64 orders in flight", ""},
	{"orders/s", keyRate},
	{"  of the batched ceiling", "ratio_to_batched_ceiling"},
	{"  of the single ceiling", "ratio_to_single_ceiling"},
	{"  with none stored, beside it", keyNone},
	{"  of that rate", "ratio_to_none_stored"},
	{"synchronous commits/order", "sync_commits_per_order"},
	{"asynchronous commits/order", "async_commits_per_order"},
	{"flushes/order", "flushes_per_order"},
	{"statements/order", "statements_per_order"},
	{"WAL kB/order", "wal_kb_per_order"},
	{"CPU ms/order: all", "cpu_ms_per_order"},
	{"  of the batched ceiling", "ratio_cpu_to_batched_ceiling"},
	{"  Postgres", "postgres_cpu_ms_per_order"},
	{"  services, with JetStream", "services_cpu_ms_per_order"},
	{"  JetStream where it is apart", "jetstream_cpu_ms_per_order"},
	{"  simulators", "simulators_cpu_ms_per_order"},
	{"  collector of traces", "collector_cpu_ms_per_order"},
	{"  client (of a ceiling: all)", "bench_cpu_ms_per_order"},
	{"256 orders in flight", ""},
	{"orders/s", keyRate + suffixMany},
	{"  of the batched ceiling", "ratio_to_batched_ceiling" + suffixMany},
	{"  of the single ceiling", "ratio_to_single_ceiling" + suffixMany},
	{"  with none stored, beside it", keyNone + suffixMany},
	{"  of that rate", "ratio_to_none_stored" + suffixMany},
	{"synchronous commits/order", "sync_commits_per_order" + suffixMany},
	{"flushes/order", "flushes_per_order" + suffixMany},
	{"statements/order", "statements_per_order" + suffixMany},
	{"WAL kB/order", "wal_kb_per_order" + suffixMany},
	{"  of the batched ceiling", "ratio_wal_to_batched_ceiling" + suffixMany},
	{"CPU ms/order: all", "cpu_ms_per_order" + suffixMany},
	{"  of the batched ceiling", "ratio_cpu_to_batched_ceiling" + suffixMany},
	{"  Postgres", "postgres_cpu_ms_per_order" + suffixMany},
	{"  Postgres, of the ceiling's", "ratio_postgres_cpu_to_batched_ceiling" + suffixMany},
	{"  services, with JetStream", "services_cpu_ms_per_order" + suffixMany},
	{"  JetStream where it is apart", "jetstream_cpu_ms_per_order" + suffixMany},
	{"  client (of a ceiling: all)", "bench_cpu_ms_per_order" + suffixMany},
	{"memory of the services, MiB", "services_rss_mib" + suffixMany},
	{"  at most", "services_peak_rss_mib" + suffixMany},
	{"memory of JetStream where it is apart, MiB", "jetstream_rss_mib" + suffixMany},
	{"one order at a time, ms", ""},
	{"POST to 201: p50", "placed_p50_ms"},
	{"  p95", "placed_p95_ms"},
	{"  p99", "placed_p99_ms"},
	{"POST to CONFIRMED: p50", "p50_ms"},
	{"  of the batched ceiling", "ratio_p50_to_batched_ceiling"},
	{"  p95", "p95_ms"},
	{"  p99", "p99_ms"},
	{"commit to publish: p50", "publish_lag_p50_ms"},
	{"  p99", "publish_lag_p99_ms"},
	{"half load, ms", ""},
	{"POST to 201: p50", "half_placed_p50_ms"},
	{"  p95", "half_placed_p95_ms"},
	{"  p99", "half_placed_p99_ms"},
	{"POST to CONFIRMED: p50", "half_p50_ms"},
	{"  p95", "half_p95_ms"},
	{"  p99", "half_p99_ms"},
	{"commit to publish: p50", "half_publish_lag_p50_ms"},
	{"  p99", "half_publish_lag_p99_ms"},
	{"beside inprocess", ""},
	{"of its orders/s, 64 in flight", "ratio_to_inprocess"},
	{"  256 in flight", "ratio_to_inprocess" + suffixMany},
	{"of its CPU ms/order, 64 in flight", "ratio_cpu_to_inprocess"},
}

// place is where a system is in the table: those with stored orders, whose names are longer, at the end.
func place(name string) int {
	order := []string{ceilingSingle, ceilingBatched, inProcess, overHTTP, apart, sampled, traced}
	if i := slices.Index(order, name); i >= 0 {
		return i
	}
	return len(order)
}

// print writes the table.
func (r *results) print(out io.Writer) error {
	names := slices.SortedFunc(maps.Keys(r.systems), func(a, b string) int {
		return cmp.Or(cmp.Compare(place(a), place(b)), cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
	})
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\n\t%s\t\n", strings.Join(names, "\t"))
	for _, row := range rows {
		if row.key == "" {
			fmt.Fprintf(w, "-- %s%s\t\n", row.title, strings.Repeat("\t", len(names)))
			continue
		}
		cells, some := make([]string, len(names)), false
		for i, name := range names {
			cells[i] = "-"
			if v, ok := r.systems[name][row.key]; ok {
				cells[i], some = format(v), true
			}
		}
		if some {
			fmt.Fprintf(w, "%s\t%s\t\n", row.title, strings.Join(cells, "\t"))
		}
	}
	return w.Flush()
}

// format shows about three digits.
func format(v float64) string {
	const hundred, ten = 100, 10
	switch {
	case v >= hundred:
		return fmt.Sprintf("%.0f", v)
	case v >= ten:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}
