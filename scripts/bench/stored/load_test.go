package stored

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/throughline/throughline/pkg/idempotency"
	"github.com/throughline/throughline/pkg/inbox"
	"github.com/throughline/throughline/pkg/outbox"
	"github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/pkg/postgres/pgtest"
	"github.com/throughline/throughline/pkg/saga"
)

func migrations() []postgres.Migrations {
	return []postgres.Migrations{saga.Migrations(), outbox.Migrations(), inbox.Migrations(), idempotency.Migrations()}
}

// A table that has another name now would be loaded as if its rows stayed for good.
func TestNamedTablesExist(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, migrations()...)
	names := passing
	for name := range retentions() {
		names = append(names[:len(names):len(names)], name)
	}
	for _, name := range names {
		var exists bool
		if err := pool.QueryRow(t.Context(), `SELECT to_regclass($1) IS NOT NULL`, name).Scan(&exists); err != nil {
			t.Fatal(err)
		}
		if !exists {
			t.Errorf("there is no table %s", name)
		}
	}
}

func exec(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("running %q: %v", strings.TrimSpace(sql), err)
	}
}

func TestLoad(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t, migrations()...)
	pool := pgtest.Open(t, url)
	order, message := uuid.New(), uuid.Must(uuid.NewV7())
	of := Template{Known: []uuid.UUID{order, message}, Key: "the-key-of-the-order"}
	at := time.Now()
	exec(t, pool, `
INSERT INTO saga_instance (saga_id, name, definition_version, definition_hash, idempotency_key, status, state, data, created_at)
VALUES ($1, 'place-order', 1, '', $2, 'completed', '{}', '', $3)`, order, of.Key, at)
	exec(t, pool, `
INSERT INTO saga_transition (saga_no, revision, position, step, from_state, to_state, cause, attempt)
SELECT saga_no, 1, 1, '', '', '', '', 1 FROM saga_instance`)
	exec(t, pool, `INSERT INTO outbox_message (message_id, aggregate_id, subject, payload, created_at) VALUES ($1, $2, 'evt', '', $3)`, message, order, at)
	exec(t, pool, `INSERT INTO outbox_sent (message_id, stream, stream_sequence, sent_at) VALUES ($1, 'events', 1, $2)`, message, at)
	exec(t, pool, `INSERT INTO inbox (consumer, message_id) VALUES ('order', $1)`, message)
	exec(t, pool, `
INSERT INTO idempotency_record (record_id, operation, fingerprint, fingerprint_version, request, status, header, body, response, expires_at)
VALUES ($1, 'create', '', 1, '', 201, '', '', '', now() + interval '1 day')`, order)

	h := history{n: 60, youngest: 20}
	if err := load(t.Context(), url, of, h, func(string, int) {}); err != nil {
		t.Fatal(err)
	}

	for table, want := range map[string]int{
		"saga_instance": 1 + h.n, "saga_transition": 1 + h.n, "outbox_message": 1 + h.youngest, "outbox_sent": 1 + h.youngest, "inbox": 1 + h.youngest,
		"idempotency_record": 1 + h.youngest,
	} {
		var got int
		if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM "+pgx.Identifier{table}.Sanitize()).Scan(&got); err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("got %d rows of %s, want %d", got, table, want)
		}
	}
	const selectAges = `
SELECT count(*) FILTER (WHERE r.record_id IS NOT NULL AND m.message_id IS NOT NULL AND s.created_at = m.created_at),
       count(*) FILTER (WHERE r.record_id IS NULL), coalesce(max(s.created_at) FILTER (WHERE r.record_id IS NULL), 'epoch'),
       bool_and(s.saga_no = n.in_time)
  FROM saga_instance s
  JOIN (SELECT saga_id, row_number() OVER (ORDER BY created_at) + 1 AS in_time FROM saga_instance WHERE saga_id <> $1) n USING (saga_id)
  LEFT JOIN idempotency_record r ON r.record_id = s.saga_id
  LEFT JOIN outbox_message m ON m.aggregate_id = s.saga_id`
	var whole, former int
	var last time.Time
	var inSequence bool
	if err := pool.QueryRow(t.Context(), selectAges, order).Scan(&whole, &former, &last, &inSequence); err != nil {
		t.Fatal(err)
	}
	if whole != h.youngest || former != h.former() {
		t.Errorf("got %d orders with all that is kept for a time and %d without, want %d and %d", whole, former, h.youngest, h.former())
	}
	if age := time.Since(last); age < inbox.DefaultTTL {
		t.Errorf("got a former order of %s ago, want none that an inbox would know", age)
	}
	if !inSequence {
		t.Error("the numbers of sagas do not follow their times")
	}
	var all, frozen int
	const selectVisible = `SELECT sum(relpages), sum(relallvisible) FROM pg_class WHERE oid IN ('saga_instance'::regclass, 'inbox'::regclass)`
	if err := pool.QueryRow(t.Context(), selectVisible).Scan(&all, &frozen); err != nil {
		t.Fatal(err)
	}
	if all == 0 || frozen != all {
		t.Errorf("got %d of %d pages known to be visible to all, want all", frozen, all)
	}
}
