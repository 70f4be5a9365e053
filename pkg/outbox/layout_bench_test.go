package outbox_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/pkg/postgres/pgcluster"
)

// layout is one way to keep what is pending and what was sent.
type layout struct {
	name  string
	setup string
	// write is one transaction of a business service, relay what follows on the acknowledgement.
	write, relay []string
	poll         string
	// tables are what grows, or should not.
	tables []string
}

const (
	layoutColumns = `message_id, aggregate_id, aggregate_seq, subject, type, source, idempotency_key, traceparent, payload, created_at, left_to_sweep`
	layoutTypes   = `message_id uuid NOT NULL, aggregate_id uuid NOT NULL, aggregate_seq bigint NOT NULL, subject text NOT NULL,
		type text NOT NULL, source text NOT NULL, idempotency_key text NOT NULL, traceparent text NOT NULL, payload bytea NOT NULL,
		created_at timestamptz NOT NULL, left_to_sweep boolean NOT NULL`
	// $1 ids, $2 aggregates, $3 keys, $4 payloads
	layoutSource = `SELECT m, a, 1, 'evt.payment.authorized', 'throughline.payment.v1.PaymentAuthorized', '/payment', k,
		'00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01', p, now(), false
		FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::bytea[]) AS r (m, a, k, p)`
	eager     = `WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0)`
	sentTypes = `, stream text NOT NULL, stream_sequence bigint NOT NULL, sent_at timestamptz NOT NULL) PARTITION BY RANGE (sent_at);
		CREATE TABLE sent_1 PARTITION OF sent FOR VALUES FROM ('2000-01-01') TO ('2100-01-01');
		CREATE INDEX ON sent USING brin (message_id, aggregate_id uuid_bloom_ops, stream_sequence int8_minmax_multi_ops, sent_at) WITH (pages_per_range = 32, autosummarize = on);`
	asyncOff = `SELECT set_config('synchronous_commit', 'off', true)`
	// $1 ids, $2 stream sequences
	copyDeleted = `WITH gone AS (DELETE FROM outbox WHERE message_id = ANY ($1::uuid[]) RETURNING ` + layoutColumns + `)
		INSERT INTO sent (` + layoutColumns + `, stream, stream_sequence, sent_at)
		SELECT g.*, 'EVT', s.n, now() FROM gone g JOIN unnest($1::uuid[], $2::bigint[]) AS s (id, n) ON s.id = g.message_id`
)

func layouts() []layout {
	outbox := `CREATE TABLE outbox (` + layoutTypes + `, PRIMARY KEY (message_id)) ` + eager + `;
		CREATE INDEX ON outbox (message_id) WHERE left_to_sweep;`
	insert := []string{`INSERT INTO outbox (` + layoutColumns + `) ` + layoutSource}
	poll := `SELECT message_id, aggregate_id FROM outbox WHERE left_to_sweep OR created_at < now() - interval '3 s' ORDER BY message_id LIMIT 1000`
	copies := []string{asyncOff, copyDeleted}
	return []layout{
		{"deleted and forgotten", outbox, insert, []string{asyncOff, `DELETE FROM outbox WHERE message_id = ANY ($1::uuid[]) AND $2::bigint[] IS NOT NULL`}, poll, []string{"outbox"}},
		{"deleted and copied", outbox + `CREATE TABLE sent (` + layoutTypes + sentTypes, insert, copies, poll, []string{"outbox", "sent_1"}},
		{"deleted and copied, B-tree on the order", outbox + `CREATE TABLE sent (` + layoutTypes + sentTypes + `CREATE INDEX ON sent (aggregate_id);`, insert, copies, poll, []string{"outbox", "sent_1"}},
		{"append-only, narrow pending table",
			`CREATE TABLE outbox (` + layoutTypes + `) PARTITION BY RANGE (created_at);
			CREATE TABLE outbox_1 PARTITION OF outbox FOR VALUES FROM ('2000-01-01') TO ('2100-01-01');
			CREATE INDEX ON outbox (message_id);
			CREATE INDEX ON outbox USING brin (aggregate_id uuid_bloom_ops, created_at) WITH (pages_per_range = 32, autosummarize = on);
			CREATE TABLE pending (message_id uuid PRIMARY KEY, aggregate_id uuid NOT NULL, created_at timestamptz NOT NULL, left_to_sweep boolean NOT NULL) ` + eager + `;
			CREATE INDEX ON pending (message_id) WHERE left_to_sweep;
			CREATE TABLE sent (message_id uuid NOT NULL` + sentOnly,
			[]string{`WITH row AS (INSERT INTO outbox (` + layoutColumns + `) ` + layoutSource + ` RETURNING message_id, aggregate_id, created_at, left_to_sweep)
				INSERT INTO pending SELECT * FROM row`},
			[]string{asyncOff, `WITH gone AS (DELETE FROM pending WHERE message_id = ANY ($1::uuid[]) RETURNING message_id)
				INSERT INTO sent SELECT g.message_id, 'EVT', s.n, now() FROM gone g JOIN unnest($1::uuid[], $2::bigint[]) AS s (id, n) ON s.id = g.message_id`},
			`SELECT message_id, aggregate_id FROM pending WHERE left_to_sweep OR created_at < now() - interval '3 s' ORDER BY message_id LIMIT 1000`,
			[]string{"outbox_1", "pending", "sent_1"}},
	}
}

const sentOnly = `, stream text NOT NULL, stream_sequence bigint NOT NULL, sent_at timestamptz NOT NULL) PARTITION BY RANGE (sent_at);
	CREATE TABLE sent_1 PARTITION OF sent FOR VALUES FROM ('2000-01-01') TO ('2100-01-01');
	CREATE INDEX ON sent USING brin (message_id, stream_sequence int8_minmax_multi_ops, sent_at) WITH (pages_per_range = 32, autosummarize = on);`

const layoutBatch = 500

// BenchmarkLayout measures the ways to keep what was sent, on a cluster with fsync. One iteration is a transaction that writes
// 500 rows, and one that notes their acknowledgement. It reports per row: rows/s, WAL, space that is left, and how
// long the sweep's look for work takes afterwards. doc.go quotes it.
func BenchmarkLayout(b *testing.B) {
	for _, l := range layouts() {
		b.Run(l.name, func(b *testing.B) { l.bench(b) })
	}
}

func (l layout) bench(b *testing.B) {
	ctx := b.Context()
	pool := durableCluster(b)
	if _, err := pool.Exec(ctx, l.setup); err != nil {
		b.Fatal(err)
	}
	before := wal(b, pool)
	began := time.Now()
	sequence := int64(0)
	for i := range b.N {
		if i == b.N/2 { // half of the run sees its pages for the first time since a checkpoint, as any service does now and then
			layoutExec(ctx, b, pool, `CHECKPOINT`)
		}
		ids, aggregates := make([]uuid.UUID, layoutBatch), make([]uuid.UUID, layoutBatch)
		keys, payloads, sequences := make([]string, layoutBatch), make([][]byte, layoutBatch), make([]int64, layoutBatch)
		for j := range ids {
			sequence++
			ids[j], aggregates[j], sequences[j] = uuid.Must(uuid.NewV7()), uuid.New(), sequence
			keys[j], payloads[j] = uuid.NewString(), make([]byte, 200)
			_, _ = rand.Read(payloads[j])
		}
		l.send(ctx, b, pool, l.write, ids, aggregates, keys, payloads)
		l.send(ctx, b, pool, l.relay, ids, sequences)
	}
	rows := float64(b.N * layoutBatch)
	b.ReportMetric(rows/time.Since(began).Seconds(), "rows/s")
	b.ReportMetric(float64(wal(b, pool)-before)/rows, "WAL-B/row")
	var heap, index int64
	for _, t := range l.tables {
		var h, i int64
		if err := pool.QueryRow(ctx, `SELECT pg_table_size($1::regclass), pg_indexes_size($1::regclass)`, t).Scan(&h, &i); err != nil {
			b.Fatal(err)
		}
		heap, index = heap+h, index+i
	}
	b.ReportMetric(float64(heap)/(1<<20), "heap-MB")
	b.ReportMetric(float64(index)/(1<<20), "index-MB")
	const polls = 20
	began = time.Now()
	for range polls {
		layoutExec(ctx, b, pool, l.poll)
	}
	b.ReportMetric(float64(time.Since(began).Microseconds())/1000/polls, "poll-ms")
	b.ReportMetric(0, "ns/op")
}

func (l layout) send(ctx context.Context, b *testing.B, pool *pgxpool.Pool, statements []string, args ...any) {
	b.Helper()
	var batch pgx.Batch
	for _, s := range statements {
		if s == asyncOff {
			batch.Queue(s)
			continue
		}
		batch.Queue(s, args...)
	}
	if err := postgres.SendAtomic(ctx, pool, &batch); err != nil {
		b.Fatal(err)
	}
}

func wal(b *testing.B, pool *pgxpool.Pool) (bytes int64) {
	b.Helper()
	if err := pool.QueryRow(b.Context(), `SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint`).Scan(&bytes); err != nil {
		b.Fatal(err)
	}
	return bytes
}

func layoutExec(ctx context.Context, b *testing.B, pool *pgxpool.Pool, sql string) {
	b.Helper()
	if _, err := pool.Exec(ctx, sql); err != nil {
		b.Fatal(err)
	}
}

// durableCluster starts a cluster that flushes its commits.
func durableCluster(b *testing.B) *pgxpool.Pool {
	b.Helper()
	ctx := b.Context()
	dir, err := os.MkdirTemp("", "throughline-bench-")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { // the server runs as another user
		b.Fatal(err)
	}
	c, err := pgcluster.Start(ctx, pgcluster.Config{Dir: dir, Trust: true, Settings: map[string]string{"shared_buffers": "1GB", "autovacuum_naptime": "5s"}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := c.Stop(context.Background()); err != nil {
			b.Error(err)
		}
	})
	pool, err := pgxpool.New(ctx, c.SuperuserURL("postgres"))
	if err != nil {
		b.Fatal(fmt.Errorf("opening the cluster: %w", err))
	}
	b.Cleanup(pool.Close)
	return pool
}
