package inbox_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/throughline/throughline/pkg/inbox"
	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/pkg/postgres/pgtest"
)

// What came again is counted by those who have it in hand, for each consumer of its own; who only asks does not count. The row says which
// instance has dealt with the message.
func TestReceipts(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, inbox.Migrations())
	a, b, never := keys.NewMessageID(), keys.NewMessageID(), keys.NewMessageID()
	var write pgx.Batch
	inbox.QueueMarks(&write, "mailer", []uuid.UUID{b, a})
	inbox.QueueMarks(&write, "printer", []uuid.UUID{a})
	if err := postgres.SendAtomic(t.Context(), pool, &write); err != nil {
		t.Fatal(err)
	}
	for _, ids := range [][]uuid.UUID{{a, never}, {never, a, b}} {
		seen := make(map[uuid.UUID]bool)
		var read pgx.Batch
		inbox.QueueRepeats(&read, "mailer", ids, seen)
		inbox.QueueSeen(&read, "mailer", ids, seen)
		if err := pool.SendBatch(t.Context(), &read).Close(); err != nil {
			t.Fatal(err)
		}
		if len(seen) != len(ids)-1 || seen[never] {
			t.Errorf("seen: got %v, want all of %v but %s", seen, ids, never)
		}
	}
	found, err := inbox.Receipts(t.Context(), pool, []string{"mailer"}, []uuid.UUID{a, b, never})
	if err != nil {
		t.Fatal(err)
	}
	want := map[uuid.UUID]int64{a: 2, b: 1}
	if len(found) != len(want) {
		t.Fatalf("receipts: got %+v, want those of %s and %s", found, a, b)
	}
	for _, r := range found {
		if r.Consumer != "mailer" || r.Repeats != want[r.MessageID] || r.RepeatedAt == nil || r.RepeatedAt.Before(r.ReceivedAt) || r.Instance != t.Name() {
			t.Errorf("receipt: got %+v, want %d repeats after it was dealt with by %q", r, want[r.MessageID], t.Name())
		}
	}
	if found, err = inbox.Receipts(t.Context(), pool, []string{"printer"}, []uuid.UUID{a}); err != nil || len(found) != 1 || found[0].Repeats != 0 || found[0].RepeatedAt != nil {
		t.Errorf("receipt of the other consumer: got %+v, %v, want none repeated", found, err)
	}
}
