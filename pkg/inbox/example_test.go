package inbox_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/throughline/throughline/pkg/inbox"
	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/pkg/postgres/pgtest"
)

// mailer is a consumer of events with a database of its own: it writes down whom to thank, once per order.
type mailer struct{ pool *pgxpool.Pool }

// apply deals with a batch: one read, one atomic write. It is an inbox.Apply.
func (m *mailer) apply(ctx context.Context, batch []messaging.Delivery) error {
	ids, seen := make([]uuid.UUID, len(batch)), make(map[uuid.UUID]bool)
	for i, d := range batch {
		ids[i] = d.ID
	}
	var read pgx.Batch
	inbox.QueueSeen(&read, "mailer", ids, seen)
	if err := m.pool.SendBatch(ctx, &read).Close(); err != nil {
		return fmt.Errorf("reading what was seen: %w", err)
	}
	var write pgx.Batch
	var marks, orders []uuid.UUID
	for _, d := range batch {
		if seen[d.ID] {
			continue
		}
		if len(d.Payload) == 0 {
			return fmt.Errorf("%w: empty payload", inbox.ErrPermanent) // ends as a dead letter, alone
		}
		marks, orders = append(marks, d.ID), append(orders, d.AggregateID)
	}
	write.Queue(`INSERT INTO thanks (order_id) SELECT unnest($1::uuid[])`, orders)
	inbox.QueueMarks(&write, "mailer", marks)
	return postgres.SendAtomic(ctx, m.pool, &write)
}

// run consumes until ctx ends.
func (m *mailer) run(ctx context.Context, conn *messaging.Conn) {
	p := &inbox.Processor{Pool: m.pool, Consumer: "mailer", Apply: m.apply}
	cfg := messaging.ConsumerConfig{Stream: "EVENTS", Name: "mailer", Filter: []string{"evt.order.confirmed"}}
	_ = conn.Consume(ctx, context.WithoutCancel(ctx), cfg, p.Handle) // its error only says that ctx has ended
}

// A consumer with a database of its own. The broker delivers at least once; the effect happens once.
func Example() {
	pgtest.Example(func(tb testing.TB, pool *pgxpool.Pool) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		if _, err := pool.Exec(ctx, `CREATE TABLE thanks (order_id uuid)`); err != nil {
			tb.Fatal(err)
		}
		conn := publishTwice(ctx, tb) // one event, in two copies
		done := make(chan struct{})
		go func() {
			defer close(done)
			(&mailer{pool}).run(ctx, conn)
		}()
		awaitAcks(ctx, tb, conn, 2)
		cancel()
		<-done
		var thanks int
		if err := pool.QueryRow(context.Background(), `SELECT count(*) FROM thanks`).Scan(&thanks); err != nil {
			tb.Fatal(err)
		}
		fmt.Println("thanks:", thanks)
	}, inbox.Migrations())
	// Output:
	// thanks: 1
}
