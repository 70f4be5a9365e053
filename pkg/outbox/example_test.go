package outbox_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/messaging/natsserver"
	"github.com/throughline/throughline/pkg/outbox"
	"github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/pkg/postgres/pgtest"
)

// An account is opened, and an event tells of it: both or neither.
func Example() {
	pgtest.Example(func(tb testing.TB, pool *pgxpool.Pool) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		if _, err := pool.Exec(ctx, `CREATE TABLE account (id uuid PRIMARY KEY, event_seq bigint, last_message_id uuid)`); err != nil {
			tb.Fatal(err)
		}
		conn := exampleBroker(ctx, tb)
		relay := outbox.NewRelay(pool, conn, outbox.Config{})
		go relay.Run(ctx, ctx)

		open := func(id uuid.UUID) error {
			account := outbox.Aggregate{ID: id} // a known account is loaded with its row
			chain := account.Begin(uuid.Nil)
			account.Append(&chain, messaging.Message{
				Kind: messaging.Event, Subject: "evt.account.opened", Type: "bank.v1.AccountOpened", Source: "/account",
			})
			chains := []outbox.Chain{chain}
			var b pgx.Batch
			b.Queue(`INSERT INTO account (id, event_seq, last_message_id) VALUES ($1, $2, $3)`, id, account.EventSeq, account.LastMessageID)
			if err := outbox.Queue(&b, chains); err != nil {
				return err
			}
			if err := postgres.SendAtomic(ctx, pool, &b); err != nil {
				return err
			}
			relay.HandOff(chains) // after the commit
			return nil
		}
		id := uuid.New()
		fmt.Println("opened:      ", open(id))
		fmt.Println("opened again:", postgres.IsUniqueViolation(open(id), "account_pkey"))

		_ = conn.Consume(ctx, ctx, messaging.ConsumerConfig{Stream: "EVENTS", Name: "audit"},
			func(_ context.Context, batch []messaging.Delivery) {
				for _, d := range batch {
					fmt.Println("event", d.AggregateSeq, d.Type, d.AggregateID == id)
				}
				cancel() // a real consumer goes on
			})
	}, outbox.Migrations())
	// Output:
	// opened:       <nil>
	// opened again: true
	// event 1 bank.v1.AccountOpened true
}

// exampleBroker starts a server in this process; a real one is reached the same way.
func exampleBroker(ctx context.Context, tb testing.TB) *messaging.Conn {
	dir, err := os.MkdirTemp("", "example-nats-")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	server, err := natsserver.Start(natsserver.Config{StoreDir: dir})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(server.Shutdown)
	conn, err := messaging.Connect(messaging.Config{URL: server.URL()})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(conn.Close)
	if err := conn.EnsureStreams(ctx, messaging.Stream{Name: "EVENTS", Subjects: []string{"evt.>"}}); err != nil {
		tb.Fatal(err)
	}
	return conn
}
