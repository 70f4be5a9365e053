package postgres_test

import (
	"context"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/outbox"
	"github.com/throughline/throughline/pkg/participant"
	pkgpostgres "github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/pkg/postgres/pgtest"
	"github.com/throughline/throughline/services/payment/internal/payment"
	"github.com/throughline/throughline/services/payment/internal/postgres"
)

func store(ctx context.Context, pool *pgxpool.Pool, changes ...postgres.Change) error {
	slices.SortFunc(changes, func(a, b postgres.Change) int { return slices.Compare(a.Row.ID[:], b.Row.ID[:]) })
	var b pgx.Batch
	postgres.QueueStore(&b, changes)
	return pkgpostgres.SendAtomic(ctx, pool, &b)
}

func load(t *testing.T, pool *pgxpool.Pool, orders ...uuid.UUID) map[uuid.UUID]*participant.Row {
	t.Helper()
	into := make(map[uuid.UUID]*participant.Row)
	var b pgx.Batch
	postgres.QueueLoad(&b, orders, into)
	if err := pool.SendBatch(t.Context(), &b).Close(); err != nil {
		t.Fatalf("loading: %v", err)
	}
	return into
}

func row(id uuid.UUID, seq int64, last uuid.UUID, revision int64) participant.Row {
	return participant.Row{Aggregate: outbox.Aggregate{ID: id, EventSeq: seq, LastMessageID: last}, Revision: revision}
}

func TestStore(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, postgres.Migrations())
	known, fresh, message := uuid.New(), uuid.New(), keys.NewMessageID()
	amount, captured := int64(2500), int64(2500)

	if err := store(t.Context(), pool, postgres.Change{Row: row(known, 0, uuid.Nil, 0), Update: payment.Update{Currency: "EUR", Amount: &amount}}); err != nil {
		t.Fatalf("inserting: %v", err)
	}
	if got := load(t, pool, known, fresh); len(got) != 1 || *got[known] != row(known, 0, uuid.Nil, 1) {
		t.Fatalf("after the insert: got %+v, want revision 1", got)
	}
	err := store(t.Context(), pool,
		postgres.Change{Row: row(known, 2, message, 1), Update: payment.Update{State: payment.Captured, Captured: &captured}},
		postgres.Change{Row: row(fresh, 0, uuid.Nil, 0)},
	)
	if err != nil {
		t.Fatalf("updating one and inserting another: %v", err)
	}
	if got := load(t, pool, known, fresh); len(got) != 2 || *got[known] != row(known, 2, message, 2) || got[fresh].Revision != 1 {
		t.Fatalf("after the update: got %+v", got)
	}
	var status, currency string
	var gotAmount, gotCaptured int64
	err = pool.QueryRow(t.Context(), `SELECT status, currency, amount, amount_captured FROM payment WHERE order_id = $1`, known).Scan(&status, &currency, &gotAmount, &gotCaptured)
	if err != nil || status != "captured" || currency != "EUR" || gotAmount != amount || gotCaptured != captured {
		t.Errorf("row: got %s %s %d %d, %v, want captured EUR 2500 2500: what an update leaves out stays", status, currency, gotAmount, gotCaptured, err)
	}
}

// TestStoreStale: a row that has moved since it was read undoes the whole transaction.
func TestStoreStale(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, postgres.Migrations())
	moved, other := uuid.New(), uuid.New()
	for _, id := range []uuid.UUID{moved, other} {
		if err := store(t.Context(), pool, postgres.Change{Row: row(id, 0, uuid.Nil, 0)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := store(t.Context(), pool, postgres.Change{Row: row(moved, 1, keys.NewMessageID(), 1)}); err != nil {
		t.Fatal(err)
	}
	err := store(t.Context(), pool, postgres.Change{Row: row(moved, 1, keys.NewMessageID(), 1)}, postgres.Change{Row: row(other, 1, keys.NewMessageID(), 1)})
	if got := pkgpostgres.Classify(err); got != pkgpostgres.Conflict {
		t.Errorf("updating a row that has moved: got %v (%v), want %v", got, err, pkgpostgres.Conflict)
	}
	if got := load(t, pool, other)[other]; got.Revision != 1 {
		t.Errorf("the row beside it: got revision %d, want 1", got.Revision)
	}
	if err := store(t.Context(), pool, postgres.Change{Row: row(other, 0, uuid.Nil, 0)}); !pkgpostgres.IsUniqueViolation(err) {
		t.Errorf("inserting a row that is there: got %v, want a unique violation", err)
	}
}
