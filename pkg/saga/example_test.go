package saga_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/throughline/throughline/pkg/inbox"
	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/messaging/natsserver"
	"github.com/throughline/throughline/pkg/outbox"
	"github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/pkg/postgres/pgtest"
	"github.com/throughline/throughline/pkg/saga"
)

// Trip is what the sagas of the examples are about. A real one is a message of your own.
type Trip = *wrapperspb.StringValue

var trip = saga.MustDefine("book-trip", 1,
	saga.Compensatable("reserve_hotel", to("hotels", "reserve_hotel"), to("hotels", "release_hotel")),
	saga.Compensatable("reserve_flight", to("airline", "reserve_flight"), to("airline", "release_flight")),
	saga.Pivot("charge", to("bank", "charge")),
	saga.Retriable("send_tickets", to("mail", "send_tickets")),
)

func to(participant, step string) saga.Builder[Trip] {
	return func(t Trip) saga.Command { return saga.To(participant, step, wrapperspb.String(t.GetValue())) }
}

// A definition is a pure value: this is a saga whose flight is refused, without any database or broker.
func ExampleDefinition_Advance() {
	id := keys.OrderID("storefront", "trip-1")
	now := time.Date(2026, time.January, 5, 9, 0, 0, 0, time.UTC)
	in := trip.New(id, "trip-1")
	for _, input := range []saga.Input{
		saga.Started{},
		saga.Replied{Step: "reserve_hotel", Outcome: saga.OutcomeDone},
		saga.Replied{Step: "reserve_flight", Outcome: saga.OutcomeRefused, Reason: "sold_out"},
		saga.Replied{Step: "release_hotel", Outcome: saga.OutcomeDone},
	} {
		after, effects, err := trip.Advance(in, wrapperspb.String("Rome"), input, now)
		if err != nil {
			fmt.Println(err)
		}
		for _, c := range effects.Send {
			fmt.Println("send", c.Step, "to", c.Participant)
		}
		in = after
	}
	fmt.Println(in.Status, in.Reason)
	// Output:
	// send reserve_hotel to hotels
	// send reserve_flight to airline
	// send release_hotel to hotels
	// compensated sold_out
}

// Steps that do not need each other run side by side. Here the flight is refused while the hotel has not replied yet.
func ExampleParallel() {
	trip := saga.MustDefine("book-trip", 2,
		saga.Parallel(
			saga.Compensatable("reserve_hotel", to("hotels", "reserve_hotel"), to("hotels", "release_hotel")),
			saga.Compensatable("reserve_flight", to("airline", "reserve_flight"), to("airline", "release_flight")),
		),
		saga.Pivot("charge", to("bank", "charge")),
	)
	play := func(inputs ...saga.Input) {
		in := trip.New(keys.OrderID("storefront", "trip-1"), "trip-1")
		for _, input := range append([]saga.Input{saga.Started{}}, inputs...) {
			after, effects, err := trip.Advance(in, wrapperspb.String("Rome"), input, time.Date(2026, time.January, 5, 9, 0, 0, 0, time.UTC))
			if err != nil {
				fmt.Println(err)
			}
			for _, c := range effects.Send {
				fmt.Println("send", c.Step)
			}
			in = after
		}
		fmt.Println(in.Status)
	}
	play(
		saga.Replied{Step: "reserve_flight", Outcome: saga.OutcomeDone},
		saga.Replied{Step: "reserve_hotel", Outcome: saga.OutcomeDone}, // both are done: the saga goes on
	)
	fmt.Println("---")
	play(
		saga.Replied{Step: "reserve_flight", Outcome: saga.OutcomeRefused, Reason: "sold_out"}, // the hotel is in doubt
		saga.Replied{Step: "reserve_hotel", Outcome: saga.OutcomeDone},                         // it is being undone already
		saga.Replied{Step: "release_hotel", Outcome: saga.OutcomeDone},
	)
	// Output:
	// send reserve_hotel
	// send reserve_flight
	// send charge
	// running
	// ---
	// send reserve_hotel
	// send reserve_flight
	// send release_hotel
	// compensated
}

// silence is a projector of an owner who keeps no rows of his own.
type silence struct{}

func (silence) Events(saga.Change[Trip]) ([]messaging.Message, error) { return nil, nil }
func (silence) Queue(*pgx.Batch, []saga.Change[Trip]) error           { return nil }

// folder is a temporary folder, for the broker of an example.
func folder(tb testing.TB) string {
	dir, err := os.MkdirTemp("", "saga-example-")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// The engine keeps sagas in Postgres. Here the replies are made by hand; in a service an inbox.Processor gets them from
// JetStream, a relay publishes the commands, and RunTimers looks after those who do not reply.
func ExampleEngine() {
	pgtest.Example(func(tb testing.TB, pool *pgxpool.Pool) {
		ctx := context.Background()
		broker, err := natsserver.Start(natsserver.Config{StoreDir: folder(tb)})
		if err != nil {
			tb.Fatal(err)
		}
		defer broker.Shutdown()
		conn, err := messaging.Connect(messaging.Config{URL: broker.URL()})
		if err != nil {
			tb.Fatal(err)
		}
		defer conn.Close()
		engine := saga.NewEngine(saga.Config[Trip]{
			Pool: pool, Conn: conn, Relay: outbox.NewRelay(pool, conn, outbox.Config{}), Projector: silence{},
			Source: "/trips", Consumer: "trips",
		}, trip)

		id := keys.OrderID("storefront", "trip-1")
		birth, err := engine.Begin(ctx, trip, id, "trip-1", wrapperspb.String("Rome"), time.Now())
		if err != nil {
			tb.Fatal(err)
		}
		// The caller's own rows go into the same batch, and with it into the same transaction.
		var b pgx.Batch
		if err := engine.QueueBirths(&b, []*saga.Birth{birth}); err != nil {
			tb.Fatal(err)
		}
		if err := postgres.SendAtomic(ctx, pool, &b); err != nil {
			tb.Fatal(err)
		}
		engine.Born([]*saga.Birth{birth})

		reply := func(step string, outcome saga.Outcome) messaging.Delivery {
			return messaging.NewDelivery(messaging.Message{
				ID: keys.NewMessageID(), Subject: "rpl.trips.book-trip", AggregateID: id, StepName: step, StepKey: keys.StepKey(id, step), Outcome: string(outcome),
			}, 1)
		}
		hotel := reply("reserve_hotel", saga.OutcomeDone)
		for _, d := range []messaging.Delivery{hotel, hotel, reply("reserve_flight", saga.OutcomeDone)} {
			if err := engine.ApplyReplies(ctx, []messaging.Delivery{d}); err != nil {
				tb.Fatal(err)
			}
		}
		_, err = engine.Cancel(ctx, id, nil)
		fmt.Println("cancelled:", err)

		in, err := engine.Get(ctx, id)
		if err != nil {
			tb.Fatal(err)
		}
		for _, s := range in.Steps {
			if s.Phase != saga.Idle {
				fmt.Println(s.Name, s.Phase)
			}
		}
		_, err = engine.Cancel(ctx, uuid.Nil, nil)
		fmt.Println("cancelled:", err)
	}, outbox.Migrations(), inbox.Migrations(), saga.Migrations())
	// Output:
	// cancelled: cancelling saga b9154a24-a413-59e6-8272-2906582b00f2: too late to cancel the saga
	// reserve_hotel done
	// reserve_flight done
	// charge sent
	// cancelled: no such saga: 00000000-0000-0000-0000-000000000000
}
