package participanttest_test

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
	"github.com/throughline/throughline/pkg/participant"
	"github.com/throughline/throughline/pkg/participant/participanttest"
)

func TestMemory(t *testing.T) {
	t.Parallel()
	participanttest.TestStore(t, func(*testing.T) participanttest.Keeper {
		var passed atomic.Int64
		epoch := time.Date(2026, time.January, 5, 9, 0, 0, 0, time.UTC)
		m := participanttest.NewMemory(func() time.Time { return epoch.Add(time.Duration(passed.Load())) })
		return participanttest.Keeper{
			Store: m,
			Pass:  func(d time.Duration) { passed.Add(int64(d)) },
			Outbox: func(order uuid.UUID) []uuid.UUID {
				var ids []uuid.UUID
				for _, msg := range m.Outbox(order) {
					ids = append(ids, msg.ID)
				}
				return ids
			},
		}
	})
}

func TestPostgres(t *testing.T) {
	t.Parallel()
	participanttest.TestStore(t, func(t *testing.T) participanttest.Keeper {
		pool, clock := pgclock.New(t, outbox.Migrations(), inbox.Migrations(), participant.Migrations())
		if _, err := pool.Exec(t.Context(), participanttest.Schema); err != nil {
			t.Fatalf("making the table of business rows: %v", err)
		}
		return participanttest.Keeper{
			Store: participant.OnPostgres(pool, participanttest.Projector{Name: "test"}, "commands"),
			Pass:  func(d time.Duration) { clock.Pass(t, d) },
			Outbox: func(order uuid.UUID) []uuid.UUID {
				found, _ := pool.Query(t.Context(), `SELECT message_id FROM outbox WHERE aggregate_id = $1`, order) // CollectRows reports it
				ids, err := pgx.CollectRows(found, pgx.RowTo[uuid.UUID])
				if err != nil {
					t.Fatalf("reading the outbox: %v", err)
				}
				slices.SortFunc(ids, func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) })
				return ids
			},
		}
	})
}
