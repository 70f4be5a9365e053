package saga_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/throughline/throughline/pkg/saga"
)

func TestStandings(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ids := f.begin(3)
	f.exec(`DELETE FROM saga_timer WHERE saga_id = $1`, ids[1])
	f.exec(`UPDATE saga_instance SET state = jsonb_set(state, '{steps,0,due}', to_jsonb(now() - interval '10 minutes')) WHERE saga_id = $1`, ids[2])
	got, err := saga.Standings(t.Context(), f.pool, append(ids, uuid.New()))
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 3 {
		t.Fatalf("got %d sagas, want the 3 that exist", len(got))
	}
	for i, want := range []struct {
		timed   bool
		overdue time.Duration
	}{{true, 0}, {false, 0}, {true, 10 * time.Minute}} {
		s := got[ids[i]]
		if s.Status != saga.Running || s.Revision != 1 || s.Timed != want.timed || s.Overdue.Truncate(time.Minute) != want.overdue {
			t.Errorf("saga %d: got %s at revision %d, timed %v, overdue %s, want running at 1, %v and %s", i, s.Status, s.Revision, s.Timed, s.Overdue, want.timed, want.overdue)
		}
	}
}

func TestOverdue(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.exec(`INSERT INTO saga_timer (due_at, saga_id) SELECT now() - interval '1 minute' * n, gen_random_uuid() FROM generate_series(1, 10) AS n`)
	var behind saga.Timer
	var seen []time.Time
	for {
		page, err := saga.Overdue(t.Context(), f.pool, behind, 4*time.Minute+30*time.Second, 4)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		for _, timer := range page {
			if timer.Due.Before(behind.Due) {
				t.Errorf("timer due at %s comes behind one due at %s", timer.Due, behind.Due)
			}
			seen = append(seen, timer.Due)
			behind = timer
		}
	}
	if len(seen) != 6 {
		t.Errorf("overdue for more than 4.5 minutes: got %d timers, want 6", len(seen))
	}
}
