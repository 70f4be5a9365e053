package main

import (
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/throughline/throughline/scripts/bench/load"
)

func TestCompare(t *testing.T) {
	t.Parallel()
	costs := figures{keyRate: 500, "sync_commits_per_order": 2, "wal_kb_per_order": 30, "postgres_cpu_ms_per_order": 2, "sync_commits_per_order_256": 1}
	with := func(key string, value float64) map[string]figures {
		f := maps.Clone(costs)
		f[key] = value
		return map[string]figures{inProcess: f, ceilingSingle: costs}
	}
	without := func(key string) map[string]figures {
		f := maps.Clone(costs)
		delete(f, key)
		return map[string]figures{inProcess: f}
	}
	for _, tc := range []struct {
		name string
		now  map[string]figures
		want error
	}{
		{"the same", map[string]figures{inProcess: costs}, nil},
		{"slower only", with(keyRate, 100), nil},
		{"a little more", with("wal_kb_per_order", 32.9), nil},
		{"more commits", with("sync_commits_per_order", 2.3), errWorse},
		{"more log", with("wal_kb_per_order", 33.1), errWorse},
		{"more of Postgres", with("postgres_cpu_ms_per_order", 2.3), errWorse},
		{"more with many in flight", with("sync_commits_per_order_256", 1.2), errWorse},
		{"not counted any more", without("wal_kb_per_order"), errWorse},
		{"not measured at all", map[string]figures{}, errWorse},
		{"a ceiling that costs more", map[string]figures{inProcess: costs, ceilingSingle: {"wal_kb_per_order": 99}}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			err := compare(map[string]figures{inProcess: costs, ceilingSingle: costs}, tc.now, io.Discard)
			if !errors.Is(err, tc.want) || tc.want == nil && err != nil {
				t.Errorf("got %v, want %v", err, tc.want)
			}
		})
	}
	if err := compare(map[string]figures{ceilingSingle: costs}, map[string]figures{inProcess: costs}, io.Discard); err == nil {
		t.Error("comparing with results that hold nothing of the product: got no error")
	}
}

func TestResultsAreKept(t *testing.T) {
	t.Parallel()
	path := t.TempDir() + "/latest.json"
	r := &results{about: map[string]any{"commit": "abc", "rounds": 3}, systems: map[string]figures{
		ceilingSingle: {keyRate: 100}, ceilingBatched: {keyRate: 400, "p50_ms": 5}, inProcess: {keyRate: 200, "p50_ms": 8},
	}}
	addRatios(r.systems)
	if err := r.save(path); err != nil {
		t.Fatal(err)
	}
	got, err := loadResults(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 3 {
		t.Errorf("got %d systems back, want 3: %v", len(got), got)
	}
	for key, want := range map[string]float64{
		keyRate: 200, "ratio_to_batched_ceiling": 0.5, "ratio_to_single_ceiling": 2, "ratio_p50_to_batched_ceiling": 1.6,
	} {
		if value := got[inProcess][key]; value != want {
			t.Errorf("got %s %v, want %v", key, value, want)
		}
	}
}

func TestMedians(t *testing.T) {
	t.Parallel()
	got := medians([]figures{{"a": 3, "b": 1, "c": 4}, {"a": 1}, {"a": 2, "c": 1}})
	if got["a"] != 2 || got["b"] != 1 || got["c"] != 2.5 {
		t.Errorf("got %v, want a 2, b 1 and c 2.5", got)
	}
}

// TestRatiosAreOfOneTurn has a machine that is twice as fast in the second turn, and a product that is at half of the ceiling in each but
// the last.
func TestRatiosAreOfOneTurn(t *testing.T) {
	t.Parallel()
	turn := func(ceiling, product float64) map[string]figures {
		return map[string]figures{ceilingBatched: {keyRate: ceiling}, inProcess: {keyRate: product}}
	}
	got := ofTurns([]map[string]figures{turn(400, 200), turn(800, 400), turn(1000, 300)})[inProcess]
	if want := (figures{keyRate: 300, "ratio_to_batched_ceiling": 0.5}); got[keyRate] != want[keyRate] || got["ratio_to_batched_ceiling"] != want["ratio_to_batched_ceiling"] {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestGroups(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		names []string
		want  [][]string
	}{
		{[]string{ceilingBatched, inProcess}, [][]string{{ceilingBatched, inProcess}}},
		{[]string{traced}, [][]string{{inProcess, traced}}},
		{
			[]string{ceilingSingle, ceilingBatched, inProcess, overHTTP, apart, sampled, traced},
			[][]string{{ceilingSingle, ceilingBatched, inProcess, overHTTP}, {inProcess, apart, sampled, traced}},
		},
	} {
		if got := groups(tc.names); !slices.EqualFunc(got, tc.want, slices.Equal) {
			t.Errorf("%v: got %v, want %v", tc.names, got, tc.want)
		}
	}
}

func TestVariantsAreBesideTheProduct(t *testing.T) {
	t.Parallel()
	got := ofTurns([]map[string]figures{
		{ceilingBatched: {keyRate: 900}, inProcess: {keyRate: 450}},
		{inProcess: {keyRate: 200, "cpu_ms_per_order": 5}, traced: {keyRate: 180, "cpu_ms_per_order": 7, "collector_cpu_ms_per_order": 1}},
	})
	if f := got[traced]; f["ratio_to_inprocess"] != 0.9 || f["ratio_cpu_to_inprocess"] != 1.2 {
		t.Errorf("got %v, want 0.9 of the rate and 1.2 of the CPU", f)
	}
	if f := got[inProcess]; f["ratio_to_batched_ceiling"] != 0.5 {
		t.Errorf("got %v of the ceiling, want 0.5", f["ratio_to_batched_ceiling"])
	}
}

func TestNoneStoredIsOfTheSameTurn(t *testing.T) {
	t.Parallel()
	f := figures{keyRate: 180, keyRate + suffixMany: 300}
	f.addNone(figures{keyRate: 200, keyRate + suffixMany: 400})
	for key, want := range (figures{keyNone: 200, "ratio_to_none_stored": 0.9, keyNone + suffixMany: 400, "ratio_to_none_stored" + suffixMany: 0.75}) {
		if f[key] != want {
			t.Errorf("got %s %v, want %v", key, f[key], want)
		}
	}
}

// TestTimesAreShown looks for the medians of what is measured without a load and at half of it in the table.
func TestTimesAreShown(t *testing.T) {
	t.Parallel()
	f := make(figures)
	for _, prefix := range []string{idle, half} {
		f.addTimes(prefix, load.Quantiles{}, load.Quantiles{})
		f.addLag(prefix, load.Quantiles{})
	}
	for key := range f {
		shown := slices.ContainsFunc(rows, func(r struct{ title, key string }) bool { return r.key == key })
		if strings.HasSuffix(key, "p50_ms") && !shown {
			t.Errorf("the table has no row for %s", key)
		}
	}
}

func TestCheckRoom(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		stored []int
		free   int64
		want   error
	}{
		{nil, 0, nil},
		{[]int{1_000_000, 5_000_000}, 58e9, nil},
		{[]int{5_000_000, 1_000_000}, 57e9, errRoom},
	} {
		if err := checkRoom(tc.stored, tc.free); !errors.Is(err, tc.want) {
			t.Errorf("%v orders with %d bytes free: got %v, want %v", tc.stored, tc.free, err, tc.want)
		}
	}
}
