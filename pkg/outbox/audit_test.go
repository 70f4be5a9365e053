package outbox_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/outbox"
)

// forever is an id above all others.
var forever = uuid.Max

func TestAudit(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	conn := connect(t, newServer(t), all)
	r := start(t, pool, conn, outbox.Config{Owner: t.Name()})
	r.open(t)
	var chains []outbox.Chain
	for range 5 {
		chains = append(chains, mustChange(t, pool, uuid.New(), uuid.Nil, event(), command())...)
	}
	r.HandOff(chains)
	eventually(t, "all of it is safe", func() bool { return pending(t, pool) == 0 })
	lost, late, waiting := chains[0].Messages[0], chains[1].Messages[0], uuid.New()
	exec(t, pool, `DELETE FROM outbox_sent WHERE message_id = $1`, lost.ID)
	// One that left long after it was written, as after an outage.
	exec(t, pool, `UPDATE outbox_sent SET sent_at = sent_at + interval '3 hours' WHERE message_id = $1`, late.ID)
	r.kill()
	<-r.done
	mustChange(t, pool, waiting, uuid.Nil, event())

	got, err := outbox.Audit(t.Context(), pool, uuid.Nil, forever, 100)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 11 {
		t.Fatalf("got %d messages, want 11", len(got))
	}
	for i, w := range got {
		if i > 0 && strings.Compare(got[i-1].ID.String(), w.ID.String()) >= 0 {
			t.Errorf("message %d comes behind a later one", i)
		}
		if want := w.AggregateID == waiting; w.Pending != want {
			t.Errorf("message %d of %s: got pending %v, want %v", i, w.AggregateID, w.Pending, want)
		}
		if want := w.ID == lost.ID; w.Lost() != want {
			t.Errorf("message %d (%s): got lost %v, want %v", i, w.ID, w.Lost(), want)
		}
		if !w.Pending && !w.Lost() && (w.Stream != all.Name || w.Sequence == 0) {
			t.Errorf("message %d: got place %s %d, want one in %s", i, w.Stream, w.Sequence, all.Name)
		}
	}
	about, err := outbox.AuditOf(t.Context(), pool, []uuid.UUID{lost.AggregateID, late.AggregateID, waiting, uuid.New()}, 100)
	if err != nil || len(about) != 5 {
		t.Errorf("about three: got %v, %v, want their 5 messages", about, err)
	}
	for _, w := range about {
		if i := slices.IndexFunc(got, func(g outbox.Whereabouts) bool { return g.ID == w.ID }); i < 0 || got[i] != w {
			t.Errorf("about three: got %+v, want the same as of all", w)
		}
	}
	page, err := outbox.Audit(t.Context(), pool, got[3].ID, got[6].ID, 100)
	if err != nil || len(page) != 2 || page[0] != got[4] || page[1] != got[5] {
		t.Errorf("between the 4th and the 7th: got %v, %v, want the 5th and the 6th", page, err)
	}
}

func TestConcerned(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	a, b := uuid.New(), uuid.New()
	mustChange(t, pool, a, uuid.Nil, event(), command())
	mustChange(t, pool, b, uuid.Nil, event())
	got, last, err := outbox.Concerned(t.Context(), pool, uuid.Nil, forever, 100)
	if err != nil || len(got) != 2 || got[0] != a || got[1] != b {
		t.Fatalf("got %v, %v, want %s and %s", got, err, a, b)
	}
	if got, _, err = outbox.Concerned(t.Context(), pool, last, forever, 100); err != nil || len(got) != 0 {
		t.Errorf("behind the last: got %v, %v, want nothing", got, err)
	}
	if got, _, err = outbox.Concerned(t.Context(), pool, uuid.Nil, last, 100); err != nil || len(got) != 1 || got[0] != a {
		t.Errorf("before the last: got %v, %v, want %s", got, err, a)
	}
	if got, _, err = outbox.Concerned(t.Context(), pool, keys.MessageBound(time.Now().Add(time.Hour)), forever, 100); err != nil || len(got) != 0 {
		t.Errorf("since a time to come: got %v, %v, want nothing", got, err)
	}
}

// TestAuditReadsParts: what an audit reads grows with what it looks at, and not with what is kept.
func TestAuditReadsParts(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	const rows = 20_000 // some tens of the parts that are summarized
	exec(t, pool, `
		WITH m AS (SELECT ('0190' || lpad(to_hex(n), 8, '0') || '7000' || '8000' || lpad('', 12, '0'))::uuid AS id, now() - interval '20 s' + n * interval '1 ms' AS at
		             FROM generate_series(1, $1::integer) n),
		     w AS (INSERT INTO outbox_message (message_id, aggregate_id, subject, payload, created_at) SELECT id, gen_random_uuid(), 'evt.x.y', '', at FROM m)
		INSERT INTO outbox_sent (message_id, stream, stream_sequence, sent_at) SELECT id, 'ALL', 1, at + interval '5 ms' FROM m`, rows)
	exec(t, pool, `SELECT brin_summarize_new_values(i.indexrelid)
		  FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam AND a.amname = 'brin'
		 WHERE i.indrelid IN (SELECT relid FROM pg_partition_tree('outbox_sent') WHERE isleaf UNION ALL SELECT relid FROM pg_partition_tree('outbox_message') WHERE isleaf)`)
	exec(t, pool, `ANALYZE outbox_message, outbox_sent`)
	var first uuid.UUID
	if err := pool.QueryRow(t.Context(), `SELECT message_id FROM outbox_message ORDER BY message_id LIMIT 1 OFFSET 10000`).Scan(&first); err != nil {
		t.Fatal(err)
	}
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	read := func(name, sql, args string) {
		t.Helper()
		// Services let every statement be planned once, without the values.
		if _, err := conn.Exec(t.Context(), `DEALLOCATE ALL; SET plan_cache_mode = force_generic_plan; PREPARE audit AS `+sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
		plan, err := conn.Query(t.Context(), `EXPLAIN (ANALYZE, COSTS off, TIMING off) EXECUTE audit (`+args+`)`, pgx.QueryExecModeSimpleProtocol)
		if err != nil {
			t.Fatal(err)
		}
		lines, err := pgx.CollectRows(plan, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range lines {
			_, vain, _ := strings.Cut(line, "Rows Removed by Index Recheck: ")
			n, _ := strconv.Atoi(strings.TrimSpace(vain)) // 0 in other lines
			if n > rows/2 || strings.Contains(line, "Seq Scan on outbox") && !strings.Contains(line, "rows=0") || strings.Contains(line, "Sort Method: external") {
				t.Errorf("%s reads most of a table:\n%s", name, strings.Join(lines, "\n"))
			}
		}
	}
	for name, sql := range outbox.AuditStatements {
		read(name, sql, map[string]string{
			"written":       fmt.Sprintf(`'%s', '%s', 1000`, first, forever),
			"concerned":     fmt.Sprintf(`'%s', '%s', 1000`, first, forever),
			"sent within":   fmt.Sprintf(`now() - interval '10 s', now() - interval '9 s', '%s', '%s', '{}'`, first, forever),
			"sent at":       fmt.Sprintf(`'%s', now() - interval '1 min'`, first),
			"written about": fmt.Sprintf(`'{%s}', 10`, uuid.New()),
		}[name])
	}
}
