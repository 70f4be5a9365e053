package saga_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/throughline/throughline/pkg/saga"
)

// TestDueWorkIsLetGoAtALimitedRate makes many sagas due at once, as an outage does.
func TestDueWorkIsLetGoAtALimitedRate(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const n = 300
	ids := f.begin(n)
	f.exec(`UPDATE saga_timer SET due_at = now() - interval '1 hour'`)
	f.exec(`UPDATE saga_instance SET state = jsonb_set(state, '{steps,0,due}', to_jsonb(now() - interval '1 hour'))`)
	// One has ended: it costs nothing, and does not wait for its turn among the others.
	f.exec(`UPDATE saga_timer SET due_at = now() - interval '2 hours' WHERE saga_id = $1`, ids[0])
	f.exec(`UPDATE saga_instance SET status = 'completed', state = jsonb_set(state, '{steps,0}', '{"name": "authorize", "phase": "done"}') WHERE saga_id = $1`, ids[0])
	var mu sync.Mutex
	asked := 0
	f.ask = func(context.Context, string, uuid.UUID, string) (saga.Answer, error) {
		mu.Lock()
		defer mu.Unlock()
		asked++
		return done, nil
	}
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return asked
	}
	limit := f.engine.NewThrottle(20)
	fire := func() int {
		t.Helper()
		taken, err := f.engine.FireTimersAt(t.Context(), limit)
		if err != nil {
			t.Fatalf("firing timers: %v", err)
		}
		return taken
	}
	began := time.Now()
	if taken := fire(); taken != 10+1 {
		t.Errorf("timers taken at once: got %d, want those of half a second at 20 a second, and the idle one", taken)
	}
	f.wantTimers(ids[0], 0)
	for range 10 {
		fire()
	}
	if got, most := count(), 10+1+int(20*time.Since(began).Seconds()); got > most {
		t.Errorf("sagas looked after in %s: got %d, want at most %d", time.Since(began), got, most)
	}
	f.wantNumber("timers that stay due", int64(n-1-count()), `SELECT count(*) FROM saga_timer WHERE due_at <= now()`)

	// Somebody releases them. Those that were put off come at once, too.
	f.exec(`UPDATE saga_timer SET due_at = now() + interval '1 hour', failures = 4 WHERE saga_id = $1`, ids[n-1])
	due, err := saga.Release(t.Context(), f.pool)
	if err != nil || due != int64(n-1-count()) {
		t.Errorf("released: got %d, %v, want %d", due, err, n-1-count())
	}
	f.wantNumber("failures that are forgotten", 0, `SELECT count(*) FROM saga_timer WHERE failures > 0`)
	for range 3 {
		fire()
	}
	if got := count(); got != n-1 {
		t.Errorf("sagas looked after once they were released: got %d, want %d", got, n-1)
	}
	if _, err := saga.Release(t.Context(), f.pool); err != nil {
		t.Errorf("releasing again: %v", err)
	}
	f.wantNumber("release on record", 1, `SELECT count(*) FROM saga_release WHERE until > now() AND until <= now() + interval '10 minutes'`)

	// A release ends by itself.
	f.exec(`UPDATE saga_release SET until = now()`)
	f.exec(`DELETE FROM saga_timer`)
	more := f.begin(60)
	f.exec(`UPDATE saga_timer SET due_at = now() - interval '1 hour'`)
	f.exec(`UPDATE saga_instance SET state = jsonb_set(state, '{steps,0,due}', to_jsonb(now() - interval '1 hour')) WHERE saga_id = ANY ($1)`, more)
	limit = f.engine.NewThrottle(20)
	if taken := fire(); taken != 10 {
		t.Errorf("timers taken after the release has ended: got %d, want 10", taken)
	}
}
