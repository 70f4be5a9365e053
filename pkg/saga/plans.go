package saga

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/throughline/throughline/pkg/telemetry"
)

// unknownInterval is how often an engine says which sagas it leaves alone.
const unknownInterval = time.Minute

// Plan names a definition as sagas are stored with it. Definitions that differ in any of these are different plans: the steps of a saga
// mean nothing under another one.
type Plan struct {
	Name    string
	Version int
	Hash    []byte
}

func (p Plan) String() string {
	return fmt.Sprintf("%s version %d (%s)", p.Name, p.Version, hex.EncodeToString(p.Hash))
}

func (p Plan) equal(q Plan) bool {
	return p.Name == q.Name && p.Version == q.Version && bytes.Equal(p.Hash, q.Hash)
}

// Of tells whether a saga was begun with the plan.
func (p Plan) Of(in *Instance) bool { return p.equal(Plan{in.Definition, in.Version, in.Hash}) }

// plansOf gives the plans of definitions, sorted.
func (e *Engine[T]) plansOf() []Plan {
	plans := make([]Plan, 0, len(e.definitions))
	for _, d := range e.definitions {
		plans = append(plans, Plan{d.name, d.version, d.hash})
	}
	slices.SortFunc(plans, func(a, b Plan) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version), bytes.Compare(a.Hash, b.Hash))
	})
	return plans
}

// Unknown are sagas that have not ended, and whose plan is not known here.
type Unknown struct {
	Plan
	// Sagas is how many there are.
	Sagas int64
	// Changed says that a plan of the same name and version is known, with other steps.
	Changed bool
}

func (u Unknown) String() string {
	text := fmt.Sprintf("%s: %d unfinished sagas", u.Plan, u.Sagas)
	if u.Changed {
		text += ", begun with other steps than this version has here"
	}
	return text
}

// Whatever goes on by itself has a timer, and what does not needs attention. The rest has ended.
const selectUnknown = `
SELECT s.name, s.definition_version, s.definition_hash, count(*)
  FROM saga_instance s
 WHERE s.saga_id IN (SELECT saga_id FROM saga_timer UNION SELECT saga_id FROM saga_instance WHERE attention <> '')
   AND s.status IN ('running', 'compensating')
   AND (s.name, s.definition_version, s.definition_hash) NOT IN
       (SELECT name, version, hash FROM unnest($1::text[], $2::integer[], $3::bytea[]) AS p (name, version, hash))
 GROUP BY s.name, s.definition_version, s.definition_hash
 ORDER BY s.name, s.definition_version, s.definition_hash`

// CountUnknown counts the sagas on record that this engine leaves alone, because it lacks the definition that they began with. Nothing
// is done about them here: their timers do not fire, and what is replied to them waits for a release that knows them.
func (e *Engine[T]) CountUnknown(ctx context.Context) ([]Unknown, error) {
	names, versions, hashes := columns(e.plans)
	rows, err := e.cfg.Pool.Query(ctx, selectUnknown, names, versions, hashes)
	if err != nil {
		return nil, fmt.Errorf("counting sagas of unknown plans: %w", err)
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Unknown, error) {
		var u Unknown
		err := row.Scan(&u.Name, &u.Version, &u.Hash, &u.Sagas)
		_, u.Changed = e.definitions[planKey{u.Name, u.Version}]
		return u, err
	})
	if err != nil {
		return nil, fmt.Errorf("counting sagas of unknown plans: %w", err)
	}
	return found, nil
}

// columns gives plans as arrays for a statement.
func columns(plans []Plan) (names []string, versions []int32, hashes [][]byte) {
	for _, p := range plans {
		names, versions, hashes = append(names, p.Name), append(versions, int32(p.Version)), append(hashes, p.Hash) //nolint:gosec // a small number
	}
	return names, versions, hashes
}

// RefuseUnknown gives an error that wraps [ErrUnknownDefinition] if there are sagas that this engine would leave alone, and names them.
func (e *Engine[T]) RefuseUnknown(ctx context.Context) error {
	found, err := e.CountUnknown(ctx)
	if err != nil {
		return err
	}
	errs := make([]error, 0, len(found))
	for _, u := range found {
		errs = append(errs, fmt.Errorf("%w: %s", ErrUnknownDefinition, u))
	}
	return errors.Join(errs...)
}

// reportUnknown says which sagas are left alone, now and every minute.
func (e *Engine[T]) reportUnknown(ctx context.Context) {
	for ctx.Err() == nil {
		found, err := e.CountUnknown(ctx)
		if err != nil && ctx.Err() == nil {
			e.log.Warn("sagas on record could not be compared with the definitions known here", telemetry.LogError, err)
		}
		for _, u := range found {
			e.log.Error("sagas are left alone, since their definition is not known here", telemetry.LogSaga, u.Name, "version", u.Version,
				"hash", hex.EncodeToString(u.Hash), "sagas", u.Sagas, "changed", u.Changed)
		}
		pause(ctx, unknownInterval)
	}
}
