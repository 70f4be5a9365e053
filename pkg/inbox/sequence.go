package inbox

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/throughline/throughline/pkg/messaging"
)

// errBehind is the cause that is kept with an event that waits.
var errBehind = errors.New("waits behind an earlier event of its aggregate")

// line is what is kept in sequence: the events of one service about one aggregate.
type line struct {
	aggregate uuid.UUID
	service   string
}

func lineOf(m *messaging.Message) line { return line{m.AggregateID, serviceOf(m.Subject)} }

// serviceOf gives the second word of a subject: evt.<service>.<fact>.
func serviceOf(subject string) string {
	_, rest, _ := strings.Cut(subject, ".")
	service, _, _ := strings.Cut(rest, ".")
	return service
}

// selectHeld gives, for some aggregates, the first event of each service that is not dealt with: dead, waiting, or failing.
const selectHeld = `
SELECT aggregate_id, split_part(subject, '.', 2), min(aggregate_seq), bool_or(dead)
  FROM (SELECT aggregate_id, subject, aggregate_seq, true AS dead
          FROM dead_letter
         WHERE consumer = $1 AND aggregate_id = ANY ($2::uuid[]) AND settled_at IS NULL
        UNION ALL
        SELECT aggregate_id, subject, aggregate_seq, false
          FROM inbox_failure
         WHERE consumer = $1 AND aggregate_id = ANY ($2::uuid[])) AS h
 WHERE aggregate_seq > 0
 GROUP BY 1, 2`

// held says from which event on a line waits.
type held struct {
	from int64
	// dead: somebody must act, so what follows is kept in the database. Otherwise it is only given back for a moment.
	dead bool
}

func (p *Processor) heldLines(ctx context.Context, batch []messaging.Delivery) (map[line]held, error) {
	aggregates := make([]uuid.UUID, len(batch))
	for i := range batch {
		aggregates[i] = batch[i].AggregateID
	}
	rows, err := p.Pool.Query(ctx, selectHeld, p.Consumer, aggregates)
	if err != nil {
		return nil, fmt.Errorf("looking for events that hold others up: %w", err)
	}
	lines := make(map[line]held)
	var (
		l line
		h held
	)
	_, err = pgx.ForEachRow(rows, []any{&l.aggregate, &l.service, &h.from, &h.dead}, func() error {
		lines[l] = h
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("looking for events that hold others up: %w", err)
	}
	return lines, nil
}

// runInSequence deals with the events of a batch that must wait, and gives the others.
func (p *Processor) runInSequence(ctx context.Context, batch []messaging.Delivery, settled map[uuid.UUID]bool) []messaging.Delivery {
	var lines map[line]held
	for wait := pauseFirst; ; wait = min(2*wait, pauseMax) {
		var err error
		if lines, err = p.heldLines(ctx, batch); err == nil {
			break
		}
		p.logger().Error("consumer paused: the database does not answer", "consumer", p.Consumer, "in", wait, "error", err)
		pause(ctx, wait)
		if ctx.Err() != nil {
			return nil // whatever is not acknowledged is delivered again
		}
	}
	if len(lines) == 0 {
		return batch
	}
	free := make([]messaging.Delivery, 0, len(batch))
	for i := range batch {
		d := &batch[i]
		h, ok := lines[lineOf(&d.Message)]
		switch {
		case !ok || d.AggregateSeq <= h.from:
			free = append(free, *d)
		case h.dead:
			settled[d.ID] = p.keep(ctx, *d, StateWaiting, 0, errBehind)
		default:
			p.giveBack(d, nakFirst)
		}
	}
	return free
}
