package sagasim_test

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/throughline/throughline/pkg/internal/sagasim"
)

// defaultSchedules is how many schedules a run of the tests makes; SCHEDULES sets another number.
const defaultSchedules = 10_000

func schedules(t *testing.T) int {
	t.Helper()
	text := os.Getenv("SCHEDULES")
	if text == "" {
		return defaultSchedules
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("SCHEDULES: got %q, want a number above 0", text)
	}
	return n
}

// sum is what many schedules came to.
type sum struct {
	ran      int
	moves    int
	table    sagasim.Table
	statuses map[string]int
	// failed is the failing schedule with the lowest seed.
	failed *sagasim.Result
}

// runAll runs the schedules of the seeds 1 to n on all processors, until one fails. progress, if it is not nil, is told how far that is.
func runAll(n int, m sagasim.Mutation, progress func(format string, args ...any)) sum {
	total := sum{table: make(sagasim.Table), statuses: make(map[string]int)}
	var (
		mu   sync.Mutex
		next atomic.Int64
		stop atomic.Bool
		wg   sync.WaitGroup
	)
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for !stop.Load() {
				seed := next.Add(1)
				if seed > int64(n) {
					return
				}
				r := sagasim.Run(uint64(seed), m, sagasim.InMemory())
				mu.Lock()
				total.ran++
				if progress != nil && total.ran%100_000 == 0 && total.ran < n {
					progress("%d schedules so far", total.ran)
				}
				total.moves += r.Moves
				total.table.Add(r.Table)
				for s, k := range r.Statuses {
					total.statuses[s] += k
				}
				if r.Err != nil {
					stop.Store(true)
					if total.failed == nil || r.Seed < total.failed.Seed {
						total.failed = &r
					}
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return total
}

// TestModel runs schedules of everything that can go wrong, and checks that all of them end, and end right.
func TestModel(t *testing.T) {
	t.Parallel()
	n := schedules(t)
	total := runAll(n, sagasim.None, t.Logf)
	if total.failed != nil {
		t.Fatalf("%v\nto see it again: SCHEDULES=%d go test ./internal/sagasim -run TestModel",
			sagasim.Shortest(total.failed.Seed, sagasim.None), total.failed.Seed)
	}
	var ends []string
	for s, k := range total.statuses {
		ends = append(ends, fmt.Sprintf("%d %s", k, s))
	}
	slices.Sort(ends)
	report := fmt.Sprintf("%s\nends of sagas: %s; moves: %d\n%d schedules", total.table, strings.Join(ends, ", "), total.moves, total.ran)
	t.Logf("\n%s", report)
	// go test shows nothing of what passes, so whoever wants to see it names a file.
	if file := os.Getenv("MODEL_REPORT"); file != "" {
		if err := os.WriteFile(file, []byte("what the model test of sagas went through:\n"+report+"\n"), 0o600); err != nil {
			t.Errorf("writing the report: %v", err)
		}
	}
	if missing := total.table.Missing(); len(missing) > 0 && n >= defaultSchedules {
		t.Errorf("what never happened in %d schedules: %s", n, strings.Join(missing, ", "))
	}
}

// TestModelFindsKnownBugs puts bugs in that others had, and shows that each is found.
func TestModelFindsKnownBugs(t *testing.T) {
	t.Parallel()
	for _, m := range sagasim.Mutations() {
		t.Run(string(m), func(t *testing.T) {
			t.Parallel()
			total := runAll(defaultSchedules, m, nil)
			if total.failed == nil {
				t.Fatalf("not found in %d schedules", total.ran)
			}
			t.Logf("found by schedule %d: %v", total.failed.Seed, total.failed.Err)
		})
	}
}

// TestShortestTellsWhy checks what is printed of a schedule that fails.
func TestShortestTellsWhy(t *testing.T) {
	t.Parallel()
	failed := runAll(defaultSchedules, sagasim.NoTombstone, nil).failed
	if failed == nil {
		t.Fatal("no schedule has failed")
	}
	story := sagasim.Shortest(failed.Seed, sagasim.NoTombstone)
	if !strings.HasPrefix(story, fmt.Sprintf("seed %d: ", failed.Seed)) || !strings.Contains(story, "WRONG: ") {
		t.Errorf("story: got %s, want the seed, and what was wrong", story)
	}
	if n := strings.Count(story, "\n"); n > failed.Moves {
		t.Errorf("story: got %d lines, want fewer than the %d moves of the whole schedule", n, failed.Moves)
	}
	t.Log(story)
}

// TestSchedulesCanBeRepeated checks that a seed stands for one schedule.
func TestSchedulesCanBeRepeated(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		first, second := sagasim.Run(seed, sagasim.None, sagasim.InMemory()), sagasim.Run(seed, sagasim.None, sagasim.InMemory())
		if first.Moves != second.Moves || first.Table.String() != second.Table.String() {
			t.Errorf("seed %d: got %d moves, then %d", seed, first.Moves, second.Moves)
		}
	}
}
