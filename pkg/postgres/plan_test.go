package postgres_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/pkg/postgres/pgtest"
)

// The plan of a statement that is first sent while its table is empty is made once, and looks rows up.
func TestPlanOnce(t *testing.T) {
	t.Parallel()
	const lookup = `SELECT body FROM thing WHERE thing_id = ANY ($1::bigint[])`
	for _, c := range []struct {
		name string
		once bool
		want [2]int // custom and generic plans of four executions
	}{
		{"left to the server", false, [2]int{4, 0}},
		{"once", true, [2]int{0, 4}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			url := pgtest.URL(t)
			pool, err := open(t, postgres.Config{URL: url, PlanOnce: c.once})
			if err != nil {
				t.Fatalf("Open: %v", err)
			}
			conn, err := pool.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Release()
			if _, err := conn.Exec(t.Context(), `CREATE TABLE thing (thing_id bigint PRIMARY KEY, body text)`); err != nil {
				t.Fatal(err)
			}
			for range 4 {
				if _, err := conn.Exec(t.Context(), lookup, []int64{1, 2}); err != nil {
					t.Fatal(err)
				}
			}
			var got [2]int
			err = conn.QueryRow(t.Context(), `SELECT custom_plans, generic_plans FROM pg_prepared_statements WHERE statement = $1`, lookup).Scan(&got[0], &got[1])
			if err != nil || got != c.want {
				t.Errorf("got %d custom and generic plans, %v, want %d", got, err, c.want)
			}
			rows, err := conn.Query(t.Context(), `EXPLAIN SELECT body FROM thing WHERE body = 'not indexed' OR thing_id = 1`)
			if err != nil {
				t.Fatal(err)
			}
			lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				t.Fatal(err)
			}
			// What no index can answer is read as a whole all the same, and is not compiled for its cost.
			if plan := strings.Join(lines, "\n"); !strings.Contains(plan, "Seq Scan") || strings.Contains(plan, "JIT") {
				t.Errorf("got the plan\n%s\nwant a sequential scan without JIT", plan)
			}
		})
	}
}
