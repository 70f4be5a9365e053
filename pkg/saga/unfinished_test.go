package saga_test

import (
	"testing"

	"github.com/throughline/throughline/pkg/saga"
)

func TestCountUnfinished(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	want := func(what string, running, compensating int64, began bool) {
		t.Helper()
		got, err := saga.CountUnfinished(t.Context(), f.pool)
		if err != nil {
			t.Fatal(err)
		}
		if got.Running != running || got.Compensating != compensating || got.Oldest.IsZero() == began {
			t.Errorf("%s: got %+v, want %d running and %d compensating", what, got, running, compensating)
		}
	}
	want("nothing begun", 0, 0, false)
	ids := f.begin(3)
	want("three begun", 3, 0, true)
	// Timers stay when what they were for is over; several of one saga are one saga.
	f.exec(`INSERT INTO saga_timer (due_at, saga_id) SELECT now() + interval '3 days', saga_id FROM saga_instance`)
	f.exec(`UPDATE saga_instance SET status = 'completed' WHERE saga_id = $1`, ids[0])
	f.exec(`UPDATE saga_instance SET status = 'compensating' WHERE saga_id = $1`, ids[1])
	want("one ended, one turned back", 1, 1, true)
	f.exec(`UPDATE saga_instance SET attention = 'no_outcome' WHERE saga_id = $1`, ids[1])
	want("one in need of a person", 1, 0, true)
}
