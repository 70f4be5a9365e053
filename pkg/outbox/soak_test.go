package outbox

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/messaging/messagingtest"
	"github.com/throughline/throughline/pkg/postgres/pgtest"
)

// rowsVariable says how many rows the long form has, ten million for example.
const rowsVariable = "THROUGHLINE_SOAK_ROWS"

// shortRows are those of the short form: enough for plans to differ from those of an empty table, and for several pages.
const shortRows = 20_000

// TestBacklogOfAnySize writes a backlog without a broker, and lets it drain. What one look of the sweep, one removal and one
// search in the archive read does not grow with the rows, and neither does the memory of the process. All events go out in
// sequence.
func TestBacklogOfAnySize(t *testing.T) {
	t.Parallel()
	rows := soakRows(t, shortRows)
	ctx := t.Context()
	pool, server := pgtest.New(t, Migrations()), messagingtest.New(t)
	b := &backlog{t: t, pool: pool}
	b.write(shortRows / 10)
	few := b.costs()
	b.write(rows - shortRows/10)
	many := b.costs()
	few.wantFlat(t, many, fmt.Sprintf("%d rows pending", rows), "look", "count", "remove") // and "rows" looks at all of them

	conn, err := messaging.Connect(messaging.Config{URL: server.URL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	if err := conn.WaitConnected(ctx); err != nil {
		t.Fatal(err)
	}
	// Only the newest messages are kept: the rows may be more than the disk should hold twice.
	cfg := jetstream.StreamConfig{Name: "ALL", Subjects: []string{"evt.>"}, MaxMsgs: 10_000, Discard: jetstream.DiscardOld, Duplicates: time.Second}
	if _, err := conn.JetStream().CreateStream(ctx, cfg); err != nil {
		t.Fatal(err)
	}
	seen := listen(t, server.URL())
	// Only a full sweep takes rows that are younger than a day.
	relay := NewRelay(pool, conn, Config{SweepRate: 1_000_000, SweepAge: 24 * time.Hour, FlushHorizon: time.Millisecond})
	if rows == shortRows {
		relay.pageKeys = shortRows/3 | 1 // several pages here, too, and each ends within an aggregate
	}
	memory := heap()
	began := time.Now()
	stop, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = relay.Run(stop, stop) })
	defer running.Wait()
	defer cancel()
	peak := uint64(0)
	late := time.After(time.Minute + time.Duration(rows)*time.Millisecond)
	for done := false; !done; {
		select {
		case <-time.After(20 * time.Millisecond):
			peak = max(peak, heap())
			done = b.pending() == 0 && seen.count() >= rows
		case <-late:
			t.Fatalf("got %d rows pending and %d events seen after %s, want none and %d", b.pending(), seen.count(), time.Since(began), rows)
		}
	}
	took := time.Since(began)
	seen.want(t, rows)
	// 200,000 acknowledgements, 100,000 keys and 250 aggregates at a time, and what waits for the collector.
	const most = 192 << 20
	if grown := int64(peak) - int64(memory); grown > most {
		t.Errorf("got %d MiB of heap more while the backlog drained, want at most %d", grown>>20, most>>20)
	}
	// Rows that are written behind those of the backlog keep its pages from being cut off.
	b.write(200)
	b.exec(`VACUUM ANALYZE outbox`)
	after := b.costs()
	few.wantFlat(t, after, fmt.Sprintf("%d rows sent", rows), "look", "count", "remove", "rows")
	t.Logf("%d rows drained in %s (%.0f a second), heap at most %d MiB; blocks read with few, all and after all rows: %v, %v, %v",
		rows, took.Round(time.Millisecond), float64(rows)/took.Seconds(), peak>>20, few, many, after)
}

// soakRows gives the rows of the short form, or those of the long one if it is asked for.
func soakRows(t *testing.T, short int) int {
	t.Helper()
	text := os.Getenv(rowsVariable)
	if text == "" {
		return short
	}
	rows, err := strconv.Atoi(text)
	if err != nil || rows < 10*shortRows {
		t.Fatalf("reading %s: got %q, %v, want a number of at least %d", rowsVariable, text, err, 10*shortRows)
	}
	return rows
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse
}

// backlog writes rows as they are when a broker is away, two events for each aggregate.
type backlog struct {
	t       *testing.T
	pool    *pgxpool.Pool
	written int
	free    bool // statements run as the planner likes
}

func (b *backlog) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.pool.Exec(b.t.Context(), sql, args...); err != nil {
		b.t.Fatal(err)
	}
}

func (b *backlog) pending() (n int) {
	b.t.Helper()
	if err := b.pool.QueryRow(b.t.Context(), `SELECT count(*) FROM outbox`).Scan(&n); err != nil {
		b.t.Fatal(err)
	}
	return n
}

// write writes n more rows. Ids grow, aggregates are spread at random.
func (b *backlog) write(n int) {
	b.t.Helper()
	for n > 0 {
		batch := min(n, 500_000)
		b.exec(`
			WITH m AS (
			    INSERT INTO outbox_message (message_id, aggregate_id, aggregate_seq, subject, type, source, payload, created_at)
			    SELECT (lpad(to_hex(i), 12, '0') || '70008000000000000000')::uuid, md5((i / 2)::text)::uuid, i % 2 + 1, 'evt.thing.changed', 'test.v1.Changed',
			           '/thing', '\x00', clock_timestamp() - interval '1 minute'
			      FROM generate_series($1::bigint, $2::bigint) AS i
			    RETURNING message_id, aggregate_id, aggregate_seq, created_at
			)
			INSERT INTO outbox (message_id, aggregate_id, aggregate_seq, created_at) SELECT * FROM m`, b.written, b.written+batch-1)
		b.written += batch
		n -= batch
	}
	b.exec(`ANALYZE outbox, outbox_message`)
	b.exec(summarize)
}

// summarize does what autovacuum does for indexes over ranges of pages, in time. It makes them anew, since a range whose summary autovacuum
// has begun and had to give up is otherwise left as it is.
const summarize = `DO $$
DECLARE ranges regclass;
BEGIN
    FOR ranges IN SELECT c.oid FROM pg_class c JOIN pg_am a ON a.oid = c.relam
                   WHERE a.amname = 'brin' AND c.relkind = 'i' AND c.relname LIKE 'outbox%' LOOP
        EXECUTE format('REINDEX INDEX %s', ranges);
    END LOOP;
END $$`

// costs are the blocks that one run of a statement reads, by what it is for.
type costs map[string]int64

// costs measures the statements whose work must not depend on what there is.
func (b *backlog) costs() costs {
	b.t.Helper()
	newest := b.written - 1
	var ids, aggregates []uuid.UUID
	rows, err := b.pool.Query(b.t.Context(), `SELECT message_id, aggregate_id FROM outbox ORDER BY message_id DESC LIMIT 100`)
	if err != nil {
		b.t.Fatal(err)
	}
	var id, aggregate uuid.UUID
	if _, err := pgx.ForEachRow(rows, []any{&id, &aggregate}, func() error {
		ids, aggregates = append(ids, id), append(aggregates, aggregate)
		return nil
	}); err != nil || len(ids) != 100 {
		b.t.Fatalf("got %d rows after %d, %v, want 100", len(ids), newest, err)
	}
	streams, sequences, ages := make([]string, 100), make([]int64, 100), make([]time.Duration, 100)
	for i := range streams {
		streams[i], sequences[i] = "ALL", int64(i)
	}
	return costs{
		"look":   b.blocks(selectDue, DefaultSweepAge, sweepRows),
		"count":  b.blocks(selectBacklog, 1000),
		"rows":   b.blocks(selectPending, aggregates),
		"remove": b.blocks(removeRows, ids, streams, sequences, ages),
	}
}

// A search of the archive reads a small part of it, also for what left in no order of ids, as a backlog does.
func TestSearchInALargeArchive(t *testing.T) {
	t.Parallel()
	rows := soakRows(t, 5*shortRows)
	b := &backlog{t: t, pool: pgtest.New(t, Migrations())}
	b.write(rows)
	b.exec(`
		WITH gone AS (DELETE FROM outbox RETURNING message_id)
		INSERT INTO outbox_sent (message_id, stream, stream_sequence, sent_at)
		SELECT message_id, 'ALL', row_number() OVER (ORDER BY md5(message_id::text)), now() FROM gone`)
	b.exec(summarize)
	b.exec(`ANALYZE outbox_message, outbox_sent`)
	var order uuid.UUID
	var messages, sent int64
	const size = `(SELECT sum(pg_relation_size(inhrelid)) / 8192 FROM pg_inherits WHERE inhparent = '%s'::regclass)::bigint`
	if err := b.pool.QueryRow(t.Context(), `SELECT md5('1000')::uuid, `+fmt.Sprintf(size, "outbox_message")+`, `+fmt.Sprintf(size, "outbox_sent")).
		Scan(&order, &messages, &sent); err != nil {
		t.Fatal(err)
	}
	b.free = true
	find := b.blocks(selectSent, pgx.QueryExecModeExec, never, nil, nil, &order, "", int64(0), int64(0), nil, uuid.Nil, MaxSelection)
	t.Logf("search for an order among %d rows: %d blocks of %d and %d", rows, find, messages, sent)
	// An order's rows are in one or two ranges of 32 pages; in the others the filters are read, and err at times. The planner thinks
	// filters over random ids to be dear, so up to some million rows it reads what was written as a whole.
	most := min(messages, 30_000) + sent/3
	if find > most {
		t.Errorf("search for an order: got %d blocks of %d and %d, want at most %d", find, messages, sent, most)
	}
}

// never is longer than any test.
const never = time.Hour

// blocks runs a statement, takes back what it did, and gives the blocks of tables and indexes that it touched.
func (b *backlog) blocks(sql string, args ...any) int64 {
	b.t.Helper()
	ctx := b.t.Context()
	tx, err := b.pool.Begin(ctx)
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if !b.free {
		if _, err := tx.Exec(ctx, byIndex); err != nil {
			b.t.Fatal(err)
		}
	}
	var raw []byte
	if err := tx.QueryRow(ctx, `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) `+sql, args...).Scan(&raw); err != nil {
		b.t.Fatalf("explaining %s: %v", sql, err)
	}
	var plans []struct {
		Plan struct {
			Hit  int64 `json:"Shared Hit Blocks"`
			Read int64 `json:"Shared Read Blocks"`
		}
	}
	if err := json.Unmarshal(raw, &plans); err != nil {
		b.t.Fatalf("reading %s: %v", raw, err)
	}
	return plans[0].Plan.Hit + plans[0].Plan.Read
}

// wantFlat fails the test where the costs have grown by more than some levels of an index.
func (c costs) wantFlat(t *testing.T, now costs, with string, names ...string) {
	t.Helper()
	for _, what := range names {
		few := c[what]
		if most := 4*few + 100; now[what] > most {
			t.Errorf("%s: got %d blocks with %s, want at most %d: it was %d with few rows", what, now[what], with, most, few)
		}
	}
}

// listener sees what reaches the stream, and holds only aggregates of which it has seen one event.
type listener struct {
	mu     sync.Mutex
	open   map[string]bool
	events int
	errs   int
}

func listen(t *testing.T, url string) *listener {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	l := &listener{open: make(map[string]bool)}
	sub, err := nc.Subscribe("evt.>", func(m *nats.Msg) {
		order, seq := m.Header.Get(messaging.HeaderOrderID), m.Header.Get(messaging.HeaderAggregateSeq)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.events++
		switch {
		case seq == "1" && !l.open[order]:
			l.open[order] = true
		case seq == "2" && l.open[order]:
			delete(l.open, order)
		default:
			l.errs++
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *listener) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.events
}

func (l *listener) want(t *testing.T, events int) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.events != events || l.errs > 0 || len(l.open) > 0 {
		t.Errorf("got %d events, %d of them out of sequence or twice, and %d aggregates without their second, want %d and none", l.events, l.errs, len(l.open), events)
	}
}
