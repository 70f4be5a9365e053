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
	"github.com/throughline/throughline/services/shipping/internal/postgres"
	"github.com/throughline/throughline/services/shipping/internal/shipping"
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

	if err := store(t.Context(), pool, postgres.Change{Row: row(known, 0, uuid.Nil, 0), Update: shipping.Update{ShipmentID: "shp_1"}}); err != nil {
		t.Fatalf("inserting: %v", err)
	}
	if got := load(t, pool, known, fresh); len(got) != 1 || *got[known] != row(known, 0, uuid.Nil, 1) {
		t.Fatalf("after the insert: got %+v, want revision 1", got)
	}
	err := store(t.Context(), pool,
		postgres.Change{Row: row(known, 2, message, 1), Update: shipping.Update{State: shipping.StateCreated}},
		postgres.Change{Row: row(fresh, 0, uuid.Nil, 0)},
	)
	if err != nil {
		t.Fatalf("updating one and inserting another: %v", err)
	}
	if got := load(t, pool, known, fresh); len(got) != 2 || *got[known] != row(known, 2, message, 2) || got[fresh].Revision != 1 {
		t.Fatalf("after the update: got %+v", got)
	}
	var status, shipment string
	err = pool.QueryRow(t.Context(), `SELECT status, shipment_id FROM shipment WHERE order_id = $1`, known).Scan(&status, &shipment)
	if err != nil || status != "created" || shipment != "shp_1" {
		t.Errorf("row: got %s %s, %v, want created shp_1: what an update leaves out stays", status, shipment, err)
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
