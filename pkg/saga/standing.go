package saga

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Standing is where a saga stands, for those who look whether it goes on.
type Standing struct {
	// Instance has its ID, Status, Attention, Reason, Steps and Revision.
	Instance

	// Overdue is how long ago, by the database, the saga should have been looked at; 0 if that is still to come, or nothing is awaited.
	Overdue time.Duration
	// Timed says that the saga has a timer. It is only told of one that has not ended, and must be so unless it needs a person.
	Timed bool
}

const selectStandings = `
SELECT saga_id, status, attention, reason, state, revision, now() FROM saga_instance WHERE saga_id = ANY ($1::uuid[])`

// There is no index that leads from a saga to its timers, which are about as many as what was begun within a deadline: they are read as a whole, once,
// and only where there is a saga that has not ended.
const selectTimed = `
SELECT DISTINCT t.saga_id FROM saga_timer t JOIN unnest($1::uuid[]) AS u (id) ON u.id = t.saga_id`

// Standings tells where some sagas stand. Those that do not exist are left out. What it tells is of one moment in a transaction of
// repeatable reads.
func Standings(ctx context.Context, db Querier, ids []uuid.UUID) (map[uuid.UUID]Standing, error) {
	rows, err := db.Query(ctx, selectStandings, ids)
	if err != nil {
		return nil, fmt.Errorf("reading where sagas stand: %w", err)
	}
	found := make(map[uuid.UUID]Standing, len(ids))
	var unfinished []uuid.UUID
	list, err := pgx.CollectRows(rows, scanStanding)
	if err != nil {
		return nil, fmt.Errorf("reading where sagas stand: %w", err)
	}
	for _, s := range list {
		found[s.ID] = s
		if !s.Status.Ended() {
			unfinished = append(unfinished, s.ID)
		}
	}
	if len(unfinished) == 0 {
		return found, nil
	}
	if rows, err = db.Query(ctx, selectTimed, unfinished); err != nil {
		return nil, fmt.Errorf("reading which sagas have a timer: %w", err)
	}
	timed, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return nil, fmt.Errorf("reading which sagas have a timer: %w", err)
	}
	for _, id := range timed {
		s := found[id]
		s.Timed = true
		found[id] = s
	}
	return found, nil
}

func scanStanding(row pgx.CollectableRow) (s Standing, err error) {
	var (
		state []byte
		now   time.Time
		kept  stored
	)
	if err := row.Scan(&s.ID, &s.Status, &s.Attention, &s.Reason, &state, &s.Revision, &now); err != nil {
		return s, err
	}
	if err := json.Unmarshal(state, &kept); err != nil {
		return s, fmt.Errorf("decoding the state of saga %s: %w", s.ID, err)
	}
	s.Steps = kept.Steps
	if due := s.due(); !due.IsZero() && due.Before(now) {
		s.Overdue = now.Sub(due)
	}
	return s, nil
}

const selectOverdue = `
SELECT due_at, saga_id
  FROM saga_timer
 WHERE (due_at, saga_id) > ($1, $2) AND due_at < now() - $3::interval
 ORDER BY due_at, saga_id
 LIMIT $4`

// Overdue gives timers that have been due for longer than an age, at most limit, behind one that was given before; the first to come due is
// the first.
func Overdue(ctx context.Context, db Querier, behind Timer, age time.Duration, limit int) ([]Timer, error) {
	rows, err := db.Query(ctx, selectOverdue, behind.Due, behind.SagaID, age, limit)
	if err != nil {
		return nil, fmt.Errorf("reading overdue timers: %w", err)
	}
	timers, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (t Timer, err error) {
		return t, row.Scan(&t.Due, &t.SagaID)
	})
	if err != nil {
		return nil, fmt.Errorf("reading overdue timers: %w", err)
	}
	return timers, nil
}
