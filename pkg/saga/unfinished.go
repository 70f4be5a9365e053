package saga

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Unfinished counts the sagas that have not ended and go on by themselves.
type Unfinished struct {
	// Running and Compensating leave out the sagas that need attention.
	Running, Compensating int64
	// Oldest is when the oldest of them began; zero if there is none.
	Oldest time.Time
}

// Whatever goes on by itself has a timer. So the table of timers, which is about as long as what was begun within a deadline, leads to
// them, and no index on a changing column is needed.
const selectUnfinished = `
SELECT count(*) FILTER (WHERE status = 'running'), count(*) FILTER (WHERE status = 'compensating'), min(created_at)
  FROM saga_instance
 WHERE saga_id IN (SELECT saga_id FROM saga_timer)
   AND status IN ('running', 'compensating')
   AND attention = ''`

// CountUnfinished counts what has not ended. The answer is of one moment.
func CountUnfinished(ctx context.Context, db Querier) (Unfinished, error) {
	rows, err := db.Query(ctx, selectUnfinished)
	if err != nil {
		return Unfinished{}, fmt.Errorf("counting unfinished sagas: %w", err)
	}
	u, err := pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (Unfinished, error) {
		var (
			u      Unfinished
			oldest *time.Time
		)
		err := row.Scan(&u.Running, &u.Compensating, &oldest)
		if oldest != nil {
			u.Oldest = *oldest
		}
		return u, err
	})
	if err != nil {
		return Unfinished{}, fmt.Errorf("counting unfinished sagas: %w", err)
	}
	return u, nil
}
