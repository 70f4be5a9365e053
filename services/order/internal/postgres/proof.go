package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/throughline/throughline/services/internal/verify"
)

// Proofs remembers how proofs of effects went. It is a verify.Memory.
type Proofs struct{ Pool *pgxpool.Pool }

var _ verify.Memory = Proofs{}

const selectProof = `
SELECT covered_until, violations, (extract(epoch FROM now() - coalesce(ended_at, created_at)) * 1e6)::bigint FROM effects_proof`

// Last reads what the last run has left.
func (p Proofs) Last(ctx context.Context) (verify.Remembered, error) {
	var r verify.Remembered
	var micros int64
	if err := p.Pool.QueryRow(ctx, selectProof).Scan(&r.CoveredUntil, &r.Violations, &micros); err != nil {
		return r, fmt.Errorf("reading the last proof of effects: %w", err)
	}
	r.Ago = time.Duration(micros) * time.Microsecond
	return r, nil
}

const updateProof = `
UPDATE effects_proof
   SET covered_until = $1, violations = $2, counts = $3, ended_at = now(), completed_at = CASE WHEN $4 THEN now() ELSE completed_at END,
       took_seconds = $5`

// Save stores what a run has left.
func (p Proofs) Save(ctx context.Context, r verify.Remembered, complete bool, took time.Duration) error {
	counts := make(map[verify.Rule]int)
	for _, v := range r.Violations {
		counts[v.Rule]++
	}
	violations := r.Violations
	if violations == nil {
		violations = []verify.Violation{}
	}
	if _, err := p.Pool.Exec(ctx, updateProof, r.CoveredUntil, violations, counts, complete, took.Seconds()); err != nil {
		return fmt.Errorf("saving a proof of effects: %w", err)
	}
	return nil
}

const selectProofState = `
SELECT counts, extract(epoch FROM now() - coalesce(completed_at, created_at))::float8, took_seconds FROM effects_proof`

// State reads what metrics tell.
func (p Proofs) State(ctx context.Context) (verify.State, error) {
	var s verify.State
	var age, took float64
	if err := p.Pool.QueryRow(ctx, selectProofState).Scan(&s.Counts, &age, &took); err != nil {
		return s, fmt.Errorf("reading the state of proofs: %w", err)
	}
	s.Age, s.Took = seconds(age), seconds(took)
	return s, nil
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }
