package inbox_test

import (
	"testing"
	"time"

	"github.com/throughline/throughline/pkg/inbox"
	"github.com/throughline/throughline/pkg/postgres/pgtest"
)

// Millions of rows expire in one moment when a service comes back after a long time. They go in transactions that delay nobody.
func TestReaperGoesInBatches(t *testing.T) {
	t.Parallel()
	pool := pgtest.Open(t, newURL(t))
	const expired, batch = 2500, 1000
	exec(t, pool, `
		CREATE TABLE removed (n bigint);
		CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO removed SELECT count(*) FROM gone; RETURN NULL; END $$;
		CREATE TRIGGER note AFTER DELETE ON inbox REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION note()`)
	exec(t, pool, `INSERT INTO inbox (consumer, message_id, received_at) SELECT 'webhooks', gen_random_uuid(), now() - interval '1 day' FROM generate_series(1, $1)`, expired)
	r := &inbox.Reaper{Pool: pool, TTL: time.Hour}
	if n, err := r.Reap(t.Context()); err != nil || n != expired {
		t.Errorf("got %d removed, %v, want %d", n, err, expired)
	}
	if got := count(t, pool, `SELECT max(n) FROM removed`); got != batch {
		t.Errorf("got %d rows in one transaction, want at most %d", got, batch)
	}
}
