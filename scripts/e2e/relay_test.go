package e2e_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/messaging/messagingtest"
	"github.com/throughline/throughline/scripts/e2e/system"
	"github.com/throughline/throughline/services/throughline/verify"
)

// services are those that have an outbox.
var services = []string{"order", "payment", "shipping"}

// A relay dies between the acknowledgement of a message and the removal of its row, with its statement under way. The row is published
// again, under the same id. Within the broker's memory that leaves one copy, after it two; what the message leads to happens once.
//
// The broker is made to forget by a shorter duplicate window, and not by waiting for the end of the one that it has: what a relay sees
// afterwards is the same.
func TestOPEN19CrashBeforeTheRemoval(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		forgotten bool
		copies    int
	}{
		"within the broker's memory": {false, 1},
		"after the broker's memory":  {true, 2},
	} {
		for _, service := range services {
			t.Run(service+" "+name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, system.Options{Separate: true})
				ctx := system.Context(t, patience)
				a := w.place(ctx, t, r0(), "Idempotency-Key", "open19")
				wantCreated(t, "order", a, false)
				system.Eventually(ctx, t, "a pending row of "+service, func() bool { return w.count(service, `SELECT count(*) FROM outbox`) > 0 })
				tx, err := w.db[service].Begin(ctx)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = tx.Rollback(context.Background()) }()
				if _, err := tx.Exec(ctx, `LOCK TABLE outbox IN SHARE MODE`); err != nil {
					t.Fatal(err)
				}
				system.Eventually(ctx, t, "the removal to wait for the lock", func() bool {
					return w.count(service, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%DELETE FROM outbox%'`) > 0
				})
				if tt.forgotten {
					w.forgetIDs(ctx, t)
				}
				w.Kill(service, 0)
				w.exec(service, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)
				if err := tx.Rollback(ctx); err != nil {
					t.Fatal(err)
				}
				w.doneOnce(ctx, t, service, a.Order.ID)
				most := 0
				for _, copies := range w.copies(ctx, t) {
					most = max(most, copies)
				}
				if most != tt.copies {
					t.Errorf("got %d copies of an event in the stream, want %d", most, tt.copies)
				}
			})
		}
	}
}

// The acknowledgement is lost on its way to the relay, and nothing else is.
func TestOPEN19AcknowledgementLost(t *testing.T) {
	t.Parallel()
	for _, service := range services {
		t.Run(service, func(t *testing.T) {
			t.Parallel()
			broker := messagingtest.New(t)
			acks := newAckProxy(t, broker.URL())
			lost := acks.drop(service, 2)
			w := newWorldOn(t, system.Options{Separate: true}, broker.URL(), acks.URL())
			ctx := system.Context(t, patience)
			a := w.place(ctx, t, r0(), "Idempotency-Key", "open19-lost")
			wantCreated(t, "order", a, false)
			w.doneOnce(ctx, t, service, a.Order.ID)
			if left := lost.Load(); left != 0 {
				t.Errorf("got %d acknowledgements of %s that were not lost, want none", left, service)
			}
			for id, copies := range w.copies(ctx, t) {
				if copies != 1 {
					t.Errorf("event %s: got %d copies in the stream, want 1", id, copies)
				}
			}
		})
	}
}

// doneOnce waits until an order is confirmed and all its messages are sent, and checks that everything was done once.
func (w *world) doneOnce(ctx context.Context, t *testing.T, service, id string) {
	t.Helper()
	if last := awaitRest(ctx, t, w.shop, id); last.Order.Status != verify.Confirmed {
		t.Errorf("got %s, want CONFIRMED", last.Order.Status)
	}
	system.Eventually(ctx, t, "all rows to be sent", func() bool { return w.count(service, `SELECT count(*) FROM outbox`) == 0 })
	if n := w.count(service, `SELECT count(*) FROM outbox_message m WHERE NOT EXISTS (SELECT FROM outbox_sent s WHERE s.message_id = m.message_id)`); n != 0 {
		t.Errorf("got %d messages of %s that are not noted as sent, want none", n, service)
	}
	w.settled(ctx, t)
	got := effects(ctx, t, w.System, id)
	for _, once := range []string{"payment_intents.confirm", "payment_intents.capture", "shipments.create", "shipments.dispatch"} {
		if got[once] != 1 {
			t.Errorf("got %d effects of %s, want 1", got[once], once)
		}
	}
}

// copies counts the copies of each event in the stream, by message id. It fails the test if two events are in the same place of their
// order, or if a copy is known to the broker by another id than to consumers.
func (w *world) copies(ctx context.Context, t *testing.T) map[string]int {
	t.Helper()
	stream, err := w.jetstream(t).Stream(ctx, "EVT")
	if err != nil {
		t.Fatal(err)
	}
	state := stream.CachedInfo().State
	copies, places := make(map[string]int), make(map[string]string)
	for seq := state.FirstSeq; seq > 0 && seq <= state.LastSeq; seq++ {
		m, err := stream.GetMsg(ctx, seq)
		if err != nil {
			t.Fatal(err)
		}
		id := m.Header.Get(messaging.HeaderCEID)
		if id == "" {
			continue // a probe
		}
		copies[id]++
		if got := m.Header.Get(nats.MsgIdHdr); got != id {
			t.Errorf("event %s: got %s %s, want the same", id, nats.MsgIdHdr, got)
		}
		place := lineName(m.Header.Get(messaging.HeaderOrderID), m.Subject) + " " + m.Header.Get(messaging.HeaderAggregateSeq)
		if other, ok := places[place]; ok && other != id {
			t.Errorf("%s: got events %s and %s, want one", place, other, id)
		}
		places[place] = id
	}
	return copies
}

// forgetIDs makes the streams forget the ids of all that they hold.
func (w *world) forgetIDs(ctx context.Context, t *testing.T) {
	t.Helper()
	js := w.jetstream(t)
	for name, subject := range map[string]string{"CMD": "cmd.nobody.probe", "RPL": "rpl.nobody.probe", "EVT": "evt.nobody.probe"} {
		stream, err := js.Stream(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		cfg := stream.CachedInfo().Config
		id := jetstream.WithMsgID(uuid.NewString())
		if _, err := js.Publish(ctx, subject, nil, id); err != nil {
			t.Fatal(err)
		}
		// Ids are forgotten in the order of their messages, and the broker looks whenever the window is changed.
		window := 100 * time.Millisecond
		system.Eventually(ctx, t, name+" to forget", func() bool {
			window ^= time.Millisecond
			cfg.Duplicates = window
			if _, err := js.UpdateStream(ctx, cfg); err != nil {
				t.Fatal(err)
			}
			ack, err := js.Publish(ctx, subject, nil, id)
			if err != nil {
				t.Fatal(err)
			}
			return !ack.Duplicate
		})
	}
}
