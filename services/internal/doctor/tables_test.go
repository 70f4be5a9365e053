package doctor

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/throughline/throughline/pkg/outbox"
	"github.com/throughline/throughline/pkg/postgres/pgtest"
)

// TestSizes adds up the partitions of a table that has some, and takes others as they are.
func TestSizes(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, outbox.Migrations())
	if _, err := pool.Exec(t.Context(), `
		INSERT INTO outbox_message (message_id, aggregate_id, subject, payload)
		SELECT gen_random_uuid(), gen_random_uuid(), 'evt.x.y', '' FROM generate_series(1, 100)`); err != nil {
		t.Fatal(err)
	}
	analyze(t, pool)
	got, err := sizes(t.Context(), pool, []Table{{Name: "outbox_message"}, {Name: "outbox"}, {Name: "none"}})
	if err != nil {
		t.Fatal(err)
	}
	if m := got["outbox_message"]; m.Rows != 100 || m.Bytes == 0 {
		t.Errorf("partitioned table: got %+v, want 100 rows and their bytes", m)
	}
	if o := got["outbox"]; o.Rows != 0 || o.Bytes == 0 {
		t.Errorf("plain table: got %+v, want no rows and the bytes of its indexes", o)
	}
	if n := got["none"]; n.Rows+n.Bytes != 0 {
		t.Errorf("table that is not there: got %+v, want nothing", n)
	}
}

// analyze makes the statistics true.
func analyze(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), `ANALYZE outbox_message`); err != nil {
		t.Fatal(err)
	}
}

func TestExtrapolate(t *testing.T) {
	t.Parallel()
	tables := []Table{{"kept", time.Hour}, {"for ever", 0}}
	before := map[string]size{"kept": {Inserted: 1000}}
	after := map[string]size{"kept": {Inserted: 1100, Rows: 1000, Bytes: 500_000}, "for ever": {Inserted: 10, Rows: 10, Bytes: 10}}
	got := extrapolate(tables, before, after, 10*time.Second)
	if g := got[0]; g.RowsPerSec != 10 || g.ExpectedRows != 36_000 || g.ExpectedBytes != 18_000_000 {
		t.Errorf("got %+v, want 10 rows/s, 36000 rows and 18 MB", g)
	}
	if g := got[1]; g.RowsPerSec != 1 || g.ExpectedRows != 0 {
		t.Errorf("got %+v, want 1 row/s and nothing expected of what is kept for ever", g)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	ok := Rule{"one", "a", time.Second, "b", time.Second}
	if err := Check([]Rule{ok}); err != nil {
		t.Errorf("equal times: got %v, want none", err)
	}
	ok.ShorterValue++
	if err := Check([]Rule{ok}); !errors.Is(err, ErrDisagree) {
		t.Errorf("a longer one: got %v, want %v", err, ErrDisagree)
	}
}
