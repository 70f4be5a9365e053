package outbox_test

import (
	"errors"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/throughline/throughline/pkg/messaging/natsserver"
	"github.com/throughline/throughline/pkg/outbox"
	"github.com/throughline/throughline/pkg/postgres"
)

func smallServer(t *testing.T, maxPayload int32) *natsserver.Server {
	t.Helper()
	s, err := natsserver.Start(natsserver.Config{StoreDir: t.TempDir(), MaxPayload: maxPayload})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Shutdown)
	return s
}

func TestRowsAreAsDurableAsTheirTransaction(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	errNo := errors.New("no")
	err := postgres.InTx(t.Context(), pool, pgx.TxOptions{}, func(tx pgx.Tx) error {
		if _, err := changeIn(t.Context(), tx, uuid.New(), uuid.Nil, event()); err != nil {
			return err
		}
		return errNo
	})
	if !errors.Is(err, errNo) || pending(t, pool) != 0 {
		t.Errorf("Write in a transaction that failed: got %v and %d rows, want %v and none", err, pending(t, pool), errNo)
	}

	queue := func(then string) error {
		var a, c outbox.Aggregate
		a.ID, c.ID = uuid.New(), uuid.New()
		chains := []outbox.Chain{a.Begin(uuid.Nil), c.Begin(uuid.Nil), {}}
		a.Append(&chains[0], event())
		a.Append(&chains[0], command())
		c.Append(&chains[1], event())
		var b pgx.Batch
		if err := outbox.Queue(&b, chains); err != nil {
			return err
		}
		b.Queue(then)
		return postgres.SendAtomic(t.Context(), pool, &b)
	}
	if err := queue(`SELECT throughline_require(1, 2, 'x')`); postgres.Classify(err) != postgres.Conflict || pending(t, pool) != 0 {
		t.Errorf("Queue in a batch that failed: got %v and %d rows, want a conflict and none", err, pending(t, pool))
	}
	if err := queue(`SELECT 1`); err != nil || pending(t, pool) != 3 {
		t.Errorf("Queue: got %v and %d rows, want 3", err, pending(t, pool))
	}
	var empty pgx.Batch
	if err := outbox.Queue(&empty, []outbox.Chain{{}}); err != nil || empty.Len() != 0 {
		t.Errorf("Queue of nothing: got %v and %d statements, want none", err, empty.Len())
	}
}

func TestPayloadIsBoundedWhenItIsWritten(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	m := event()
	m.Payload = make([]byte, outbox.MaxPayload+1)
	if _, err := change(t.Context(), pool, uuid.New(), uuid.Nil, m); !errors.Is(err, outbox.ErrPayloadTooLarge) {
		t.Errorf("got error %v, want %v", err, outbox.ErrPayloadTooLarge)
	}
	// The largest one fits the broker's default with its headers.
	conn := connect(t, newServer(t), all)
	r := start(t, pool, conn, outbox.Config{})
	m.Payload = m.Payload[1:]
	chains := mustChange(t, pool, uuid.New(), uuid.Nil, m)
	r.HandOff(chains)
	wantOrder(t, awaitStream(t, conn, 1), chains[0])
}

func TestAggregateCountsEventsOnly(t *testing.T) {
	t.Parallel()
	a := outbox.Aggregate{ID: uuid.New()}
	chain := a.Begin(uuid.Nil)
	if !chain.Proven {
		t.Error("got no proof for a new aggregate, want one")
	}
	first := a.Append(&chain, event())
	cmd := a.Append(&chain, command())
	second := a.Append(&chain, event())
	if first.AggregateSeq != 1 || cmd.AggregateSeq != 0 || second.AggregateSeq != 2 || a.EventSeq != 2 {
		t.Errorf("got sequence numbers %d, %d, %d and %d, want 1, 0, 2 and 2", first.AggregateSeq, cmd.AggregateSeq, second.AggregateSeq, a.EventSeq)
	}
	if a.LastMessageID != second.ID || len(chain.Messages) != 3 {
		t.Errorf("got last message %s of %d, want %s of 3", a.LastMessageID, len(chain.Messages), second.ID)
	}
	for name, tt := range map[string]struct {
		seen uuid.UUID
		want bool
	}{"the last": {second.ID, true}, "one before": {cmd.ID, false}, "nothing": {uuid.Nil, false}} {
		if got := a.Begin(tt.seen).Proven; got != tt.want {
			t.Errorf("having seen %s: got proven %t, want %t", name, got, tt.want)
		}
	}
}
