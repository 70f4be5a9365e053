package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/pkg/saga"
)

// ReleaseConstraint is the name of the constraint that a release made twice violates.
const ReleaseConstraint = "due_release_pkey"

// Release is due work that a person has let go at once.
type Release struct {
	RequestKey, Actor, Reason string
	// Sagas is how many timers of sagas were due, Steps how many steps at each participant.
	Sagas     int64
	Steps     map[string]int64
	CreatedAt time.Time
}

const insertRelease = `
INSERT INTO due_release (request_key, actor, reason, sagas, steps)
SELECT $1, $2, $3, count(*), $4 FROM saga_timer WHERE due_at <= now()
RETURNING sagas, created_at`

// ReleaseDue lets due sagas go at once and puts that on record, in one transaction, which fails with a violation of [ReleaseConstraint]
// if the release was made before. Sagas and CreatedAt are filled in.
func ReleaseDue(ctx context.Context, pool *pgxpool.Pool, r *Release) error {
	var b pgx.Batch
	var due int64
	saga.QueueRelease(&b, &due)
	b.Queue(insertRelease, r.RequestKey, r.Actor, r.Reason, r.Steps).QueryRow(func(row pgx.Row) error {
		return row.Scan(&r.Sagas, &r.CreatedAt)
	})
	if err := postgres.SendAtomic(ctx, pool, &b); err != nil {
		return fmt.Errorf("releasing due work: %w", err)
	}
	return nil
}

// FindRelease reads the release with a key; false if there is none.
func FindRelease(ctx context.Context, pool *pgxpool.Pool, key string) (Release, bool, error) {
	var r Release
	err := pool.QueryRow(ctx, `SELECT request_key, actor, reason, sagas, steps, created_at FROM due_release WHERE request_key = $1`, key).
		Scan(&r.RequestKey, &r.Actor, &r.Reason, &r.Sagas, &r.Steps, &r.CreatedAt)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return Release{}, false, nil
	case err != nil:
		return Release{}, false, fmt.Errorf("reading a release: %w", err)
	}
	return r, true, nil
}
