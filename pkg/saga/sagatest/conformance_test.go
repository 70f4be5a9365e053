package sagatest_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/throughline/throughline/pkg/inbox"
	"github.com/throughline/throughline/pkg/internal/pgclock"
	"github.com/throughline/throughline/pkg/outbox"
	"github.com/throughline/throughline/pkg/saga"
	"github.com/throughline/throughline/pkg/saga/sagatest"
)

func TestMemory(t *testing.T) {
	t.Parallel()
	sagatest.TestStore(t, func(*testing.T) sagatest.Keeper {
		var passed atomic.Int64
		m := sagatest.NewMemory(func() time.Time { return sagatest.Epoch.Add(time.Duration(passed.Load())) })
		return sagatest.Keeper{
			Store: m,
			Pass:  func(d time.Duration) { passed.Add(int64(d)) },
			Outbox: func(id uuid.UUID) []uuid.UUID {
				var ids []uuid.UUID
				for _, msg := range m.Outbox(id) {
					ids = append(ids, msg.ID)
				}
				return ids
			},
		}
	})
}

func TestPostgres(t *testing.T) {
	t.Parallel()
	sagatest.TestStore(t, func(t *testing.T) sagatest.Keeper {
		pool, clock := pgclock.New(t, outbox.Migrations(), inbox.Migrations(), saga.Migrations())
		return sagatest.Keeper{
			Store: saga.OnPostgres(pool, "replies"),
			Pass:  func(d time.Duration) { clock.Pass(t, d) },
			Outbox: func(id uuid.UUID) []uuid.UUID {
				found, _ := pool.Query(t.Context(), `SELECT message_id FROM outbox WHERE aggregate_id = $1`, id) // CollectRows reports it
				ids, err := pgx.CollectRows(found, pgx.RowTo[uuid.UUID])
				if err != nil {
					t.Fatalf("reading the outbox: %v", err)
				}
				slices.SortFunc(ids, func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) })
				return ids
			},
			Histories: func(id uuid.UUID) (n int) {
				row := pool.QueryRow(t.Context(), `SELECT count(*) FROM saga_transition JOIN saga_instance USING (saga_no) WHERE saga_id = $1`, id)
				if err := row.Scan(&n); err != nil {
					t.Fatalf("counting transitions: %v", err)
				}
				return n
			},
		}
	})
}
