package saga_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/throughline/throughline/pkg/inbox"
	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/outbox"
	"github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/pkg/saga"
)

// TestWholeSagas runs sagas over JetStream, with participants that repeat themselves and look away for a moment.
func TestWholeSagas(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := f.conn.WaitConnected(ctx); err != nil {
		t.Fatalf("connecting: %v", err)
	}
	err := f.conn.EnsureStreams(ctx,
		messaging.Stream{Name: "COMMANDS", Subjects: []string{"cmd.>"}, WorkQueue: true},
		messaging.Stream{Name: "REPLIES", Subjects: []string{"rpl.>"}, WorkQueue: true},
		messaging.Stream{Name: "EVENTS", Subjects: []string{"evt.>"}, MaxAge: time.Hour})
	if err != nil {
		t.Fatalf("creating streams: %v", err)
	}
	// The sweep would hide a hand-off that does not work: it comes an hour late.
	f.relay = outbox.NewRelay(f.pool, f.conn, outbox.Config{SweepInterval: time.Hour, SweepAge: time.Hour})
	f.engine = f.newEngine(f.pool, rows{}, definition(slow))

	stop, end := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer end()
	run := func(fn func() error) {
		running.Go(func() {
			if err := fn(); err != nil && stop.Err() == nil {
				t.Errorf("running: %v", err)
			}
		})
	}
	run(func() error { return f.relay.Run(stop, ctx) })
	for f.relay.Ready(ctx) != nil { // every hand-off before that is left to the sweep
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("relay: got not ready, want it ready")
		}
	}

	outcomes := make(map[uuid.UUID]map[string]saga.Outcome) // beside done; written before the sagas begin
	var mu sync.Mutex
	commands := make(map[uuid.UUID][]messaging.Message)
	participant := func(ctx context.Context, batch []messaging.Delivery) {
		for _, d := range batch {
			mu.Lock()
			commands[d.AggregateID] = append(commands[d.AggregateID], d.Message)
			mu.Unlock()
			outcome := saga.OutcomeDone
			if o, ok := outcomes[d.AggregateID][d.StepName]; ok {
				outcome = o
			}
			r := reply(d.AggregateID, d.StepName, outcome, d.ID)
			copied := reply(d.AggregateID, d.StepName, outcome, d.ID)
			for _, m := range []messaging.Message{r.Message, r.Message, copied.Message} {
				if _, err := f.conn.Publish(ctx, &m).Wait(ctx); err != nil {
					t.Errorf("replying: %v", err)
				}
			}
			if err := d.Ack(); err != nil {
				t.Errorf("acknowledging: %v", err)
			}
		}
	}
	run(func() error {
		return f.conn.Consume(stop, ctx, messaging.ConsumerConfig{Stream: "COMMANDS", Name: "participants", Batch: 7}, participant)
	})
	replies := &inbox.Processor{Pool: f.pool, Consumer: consumer, Apply: f.engine.ApplyReplies}
	run(func() error {
		return f.conn.Consume(stop, ctx, messaging.ConsumerConfig{Stream: "REPLIES", Name: consumer}, replies.Handle)
	})

	const n = 30
	births := make([]*saga.Birth, n)
	ids := make([]uuid.UUID, n)
	for i := range n {
		ids[i] = f.newID()
		births[i] = f.birth(ctx, definition(slow), ids[i])
		switch i % 3 {
		case 1:
			outcomes[ids[i]] = map[string]saga.Outcome{"ship": saga.OutcomeRefused}
		case 2:
			outcomes[ids[i]] = map[string]saga.Outcome{"capture": saga.OutcomeRefused}
		}
	}
	ended := make(chan uuid.UUID, n)
	seen := make(map[uuid.UUID]int64)
	run(func() error {
		return f.conn.Consume(stop, ctx, messaging.ConsumerConfig{Stream: "EVENTS", Name: "observer"}, func(_ context.Context, batch []messaging.Delivery) {
			for _, d := range batch {
				if d.AggregateSeq > seen[d.AggregateID] {
					if want := seen[d.AggregateID] + 1; d.AggregateSeq != want {
						t.Errorf("event of saga %s: got number %d, want %d", d.AggregateID, d.AggregateSeq, want)
					}
					seen[d.AggregateID] = d.AggregateSeq
					if d.Subject == "evt.sale.completed" || d.Subject == "evt.sale.compensated" {
						ended <- d.AggregateID
					}
				}
				if err := d.Ack(); err != nil {
					t.Errorf("acknowledging: %v", err)
				}
			}
		})
	})
	var b pgx.Batch
	if err := f.engine.QueueBirths(&b, births); err != nil {
		t.Fatalf("beginning: %v", err)
	}
	if err := postgres.SendAtomic(ctx, f.pool, &b); err != nil {
		t.Fatalf("beginning: %v", err)
	}
	f.engine.Born(births)
	for range n {
		select {
		case <-ended:
		case <-ctx.Done():
			t.Fatalf("sagas: got some that have not ended, want all ended\nlog:\n%s", f.logged)
		}
	}

	want := [][]string{
		{"authorize", "ship", "capture", "dispatch", "thank"},
		{"authorize", "ship", "void"},
		{"authorize", "ship", "capture", "unship", "void"},
	}
	mu.Lock()
	defer mu.Unlock()
	for i, id := range ids {
		f.wantStatus(id, []saga.Status{saga.Completed, saga.Compensated, saga.Compensated}[i%3])
		var got []string
		for _, c := range commands[id] {
			got = append(got, c.StepName)
		}
		if !slices.Equal(got, want[i%3]) {
			t.Errorf("commands of saga %s: got %v, want %v", id, got, want[i%3])
		}
	}
	f.wantNumber("rows that were left to the sweep", 0, `SELECT count(*) FROM outbox WHERE left_to_sweep AND aggregate_seq = 0`)

	c := commands[ids[0]][2]
	if c.Subject != "cmd.payment.capture" || c.Kind != messaging.Command || c.Type != "google.protobuf.StringValue" || c.Source != "/sale" ||
		c.StepName != "capture" || c.StepKey != keys.StepKey(ids[0], "capture") || c.IdempotencyKey != "key of "+ids[0].String() ||
		c.AggregateID != ids[0] || c.AggregateSeq != 0 || c.LastSeen == uuid.Nil {
		t.Errorf("command on the wire: got %+v, want capture for saga %s, with the last that payment said", c, ids[0])
	}
}
