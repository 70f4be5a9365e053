package participant_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/throughline/throughline/pkg/inbox"
	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/outbox"
	"github.com/throughline/throughline/pkg/participant"
	"github.com/throughline/throughline/pkg/postgres/pgtest"
)

// A garage keeps one row for each order. Its Projector writes it.
type garage struct{}

func (garage) QueueLoad(b *pgx.Batch, orders []uuid.UUID, into map[uuid.UUID]*participant.Row) {
	b.Queue(`SELECT order_id, event_seq, last_message_id, revision FROM car WHERE order_id = ANY ($1::uuid[])`, orders).
		Query(func(rows pgx.Rows) error {
			for rows.Next() {
				r := new(participant.Row)
				if err := rows.Scan(&r.ID, &r.EventSeq, &r.LastMessageID, &r.Revision); err != nil {
					return err
				}
				into[r.ID] = r
			}
			return rows.Err()
		})
}

func (garage) Events(r participant.Result) ([]messaging.Message, error) {
	if _, done := r.Outcome.(participant.Done); !done {
		return nil, nil
	}
	return []messaging.Message{{Subject: "evt.garage." + r.StepName, Type: "garage.Fact", Source: "/garage"}}, nil
}

func (garage) QueueStore(b *pgx.Batch, changes []participant.Change) error {
	for _, c := range changes {
		b.Queue(`WITH stored AS (
		             INSERT INTO car VALUES ($1, $2, $3, $4 + 1)
		             ON CONFLICT (order_id) DO UPDATE SET event_seq = $2, last_message_id = $3, revision = $4 + 1 WHERE car.revision = $4
		             RETURNING 1)
		         SELECT throughline_require((SELECT count(*) FROM stored), 1, 'car')`,
			c.Row.ID, c.Row.EventSeq, c.Row.LastMessageID, c.Row.Revision)
	}
	return nil
}

// A step is performed once, however often it is asked for, and not any more once it was undone.
func ExampleRunner() {
	pgtest.Example(func(_ testing.TB, pool *pgxpool.Pool) {
		ctx := context.Background()
		running, stop := context.WithCancel(ctx)
		defer stop()
		if _, err := pool.Exec(ctx, `CREATE TABLE car (order_id uuid PRIMARY KEY, event_seq bigint, last_message_id uuid, revision bigint)`); err != nil {
			fmt.Println(err)
			return
		}
		performed := make(chan string, 10)
		runner, err := participant.NewRunner(
			participant.Config{
				Pool: pool, Projector: garage{}, Source: "/garage", ReplySubject: "rpl.order.trip", Consumer: "garage",
				// A service runs its relay; here the outbox shows what it would publish.
				Relay: outbox.NewRelay(pool, nil, outbox.Config{}),
			},
			participant.Step{Name: "rent_car", Perform: func(_ context.Context, c *participant.Call) participant.Outcome {
				// Here the outside system is called, under a key that derives from c.StepKey.
				performed <- c.StepName
				return participant.Done{Result: wrapperspb.String("red"), Reference: "car-7"}
			}},
			participant.Step{Name: "return_car", Undoes: []string{"rent_car"}, Perform: func(ctx context.Context, c *participant.Call) participant.Outcome {
				rented, _, err := c.Sibling(ctx, "rent_car")
				if err != nil {
					return participant.Unknown{Err: err}
				}
				performed <- c.StepName + " " + rented.Reference
				return participant.Done{}
			}},
		)
		if err != nil {
			fmt.Println(err)
			return
		}

		// The inbox.Processor of a service calls ApplyCommands with what arrives.
		order := keys.OrderID("storefront", "key-1")
		ask := func(step string) {
			err := runner.ApplyCommands(ctx, []messaging.Delivery{messaging.NewDelivery(messaging.Message{
				ID: keys.NewMessageID(), AggregateID: order, StepName: step, StepKey: keys.StepKey(order, step),
			}, 1)})
			if err != nil {
				fmt.Println(err)
			}
		}
		ended := make(chan error, 1)
		go func() { ended <- runner.Run(running, ctx) }()

		ask("rent_car")
		fmt.Println("performed:", <-performed)
		ask("return_car") // waits until the outcome of rent_car is recorded
		fmt.Println("performed:", <-performed)
		stop()
		fmt.Println("ended:", <-ended)
		ask("rent_car") // too late: done, but undone

		rows, _ := pool.Query(ctx, `
			SELECT concat_ws(' ', subject, nullif(step_name, ''), nullif(outcome, ''), nullif(reason, ''))
			  FROM outbox_pending ORDER BY message_id`)
		var message string
		_, err = pgx.ForEachRow(rows, []any{&message}, func() error {
			fmt.Println(message)
			return nil
		})
		if err != nil {
			fmt.Println(err)
		}
	}, inbox.Migrations(), outbox.Migrations(), participant.Migrations())
	// Output:
	// performed: rent_car
	// performed: return_car car-7
	// ended: <nil>
	// evt.garage.rent_car
	// rpl.order.trip rent_car done
	// evt.garage.return_car
	// rpl.order.trip return_car done
	// rpl.order.trip rent_car refused undone
}
