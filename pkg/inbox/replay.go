package inbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/pkg/telemetry"
)

const (
	followLease    = 10 * time.Second
	followInterval = time.Second
	followBatch    = 100
)

const selectPlace = `
SELECT (SELECT count(*) FROM dead_letter e
         WHERE e.consumer = l.consumer AND e.aggregate_id = l.aggregate_id AND split_part(e.subject, '.', 2) = split_part(l.subject, '.', 2)
           AND e.settled_at IS NULL AND e.aggregate_seq > 0 AND e.aggregate_seq < l.aggregate_seq),
       (SELECT count(*) FROM dead_letter e
         WHERE e.consumer = l.consumer AND e.aggregate_id = l.aggregate_id AND split_part(e.subject, '.', 2) = split_part(l.subject, '.', 2)
           AND e.state = 'waiting' AND e.aggregate_seq > l.aggregate_seq),
       EXISTS (SELECT FROM inbox i WHERE i.consumer = l.consumer AND i.message_id = l.message_id),
       extract(epoch FROM now() - least(l.stored_at, l.created_at))::float8
  FROM dead_letter l
 WHERE l.dead_letter_id = $1`

// place is what a letter stands among.
type place struct {
	before, behind int
	seen           bool
	age            time.Duration
}

func (d *DeadLetters) place(ctx context.Context, id int64) (p place, err error) {
	var seconds float64
	err = d.pool.QueryRow(ctx, selectPlace, id).Scan(&p.before, &p.behind, &p.seen, &seconds)
	if err != nil {
		return p, fmt.Errorf("reading what dead letter %d stands among: %w", id, err)
	}
	p.age = time.Duration(seconds * float64(time.Second))
	return p, nil
}

// Replay runs the handler with the stored message. It refuses what was settled, what waits behind an earlier event, what this
// service has no consumer for, and what is older than inbox rows are where the handler has no record of its own: another copy
// may have been dealt with then, and nobody would know. An error means that nothing is known but what is in the letter's actions.
func (d *DeadLetters) Replay(ctx context.Context, id int64, o Order) (Report, error) {
	return d.act(ctx, id, "replay", o, func(r *Report, pl place) (func() (Outcome, string, State), string) {
		p := d.processors[r.Letter.Consumer]
		message, err := r.Letter.Message()
		switch {
		case p == nil:
			return nil, fmt.Sprintf("this service has no consumer %s any more", r.Letter.Consumer)
		case err != nil:
			return nil, err.Error()
		case p.Sequenced && pl.before > 0:
			return nil, fmt.Sprintf("%d earlier events of its order come first", pl.before)
		case pl.age > d.ttl && !p.Recorded && !pl.seen:
			return nil, fmt.Sprintf("it is %s old, inbox rows live for %s, and consumer %s keeps no other record: a copy of it may have been dealt with",
				pl.age.Round(time.Second), d.ttl, r.Letter.Consumer)
		}
		delivery := messaging.NewDelivery(message, uint64(r.Letter.Attempts)+1)
		return func() (Outcome, string, State) {
			if pl.seen {
				return AlreadyDone, "", StateReplayed
			}
			if err := p.replay(ctx, delivery); err != nil {
				return Failed, err.Error(), StateDead
			}
			return Done, "", StateReplayed
		}, fmt.Sprintf("%s of order %s would be handled by %s", message.Type, message.AggregateID, r.Letter.Consumer)
	})
}

// Discard settles a letter without dealing with it. Events that wait behind it then follow.
func (d *DeadLetters) Discard(ctx context.Context, id int64, o Order) (Report, error) {
	return d.act(ctx, id, "discard", o, func(r *Report, pl place) (func() (Outcome, string, State), string) {
		if pl.before > 0 && r.Letter.State == StateWaiting {
			return nil, "it is sound and waits; settle what it waits for"
		}
		return func() (Outcome, string, State) { return Done, "", StateDiscarded },
			fmt.Sprintf("%s of order %s would never be handled by %s", r.Letter.Subject, r.Letter.AggregateID, r.Letter.Consumer)
	})
}

const beginAction = `
INSERT INTO dead_letter_action (dead_letter_id, action, actor, reason) VALUES ($1, $2, $3, $4) RETURNING action_id`

const endAction = `UPDATE dead_letter_action SET outcome = $2, detail = $3 WHERE action_id = $1`

// settle ends a letter, unless it is back in an open state.
const settle = `
UPDATE dead_letter SET state = $2, settled_at = now() WHERE dead_letter_id = $1 AND settled_at IS NULL`

const failAgain = `
UPDATE dead_letter SET state = 'dead', error = $2, attempts = attempts + 1 WHERE dead_letter_id = $1 AND settled_at IS NULL`

// act looks at a letter, decides by plan whether there is anything in the way, and does what plan gives. With nothing to do,
// the plan's text says why; else it says what would be touched.
func (d *DeadLetters) act(ctx context.Context, id int64, action string, o Order,
	plan func(*Report, place) (func() (Outcome, string, State), string),
) (Report, error) {
	if !o.DryRun && (o.Actor == "" || o.Reason == "") {
		return Report{}, ErrAnonymous
	}
	if err := d.limiter.Wait(ctx); err != nil {
		return Report{}, fmt.Errorf("waiting for the turn of dead letter %d: %w", id, err)
	}
	l, err := d.letter(ctx, id)
	if err != nil {
		return Report{}, err
	}
	pl, err := d.place(ctx, id)
	if err != nil {
		return Report{}, err
	}
	r := Report{Letter: l, Followers: pl.behind}
	if !l.Open() {
		r.Outcome, r.Detail = Refused, fmt.Sprintf("it was %s at %s", l.State, l.SettledAt.UTC().Format(time.RFC3339))
		return r, nil
	}
	do, text := plan(&r, pl)
	switch {
	case do == nil:
		r.Outcome, r.Detail = Refused, text
		return r, nil
	case o.DryRun:
		r.Outcome, r.Detail = Would, text
		return r, nil
	}
	var actionID int64
	if err := d.pool.QueryRow(ctx, beginAction, id, action, o.Actor, o.Reason).Scan(&actionID); err != nil {
		return r, fmt.Errorf("noting the %s of dead letter %d: %w", action, id, err)
	}
	var state State
	r.Outcome, r.Detail, state = do()
	var b pgx.Batch
	b.Queue(endAction, actionID, r.Outcome, storable(r.Detail))
	if state == StateDead {
		b.Queue(failAgain, id, storable(r.Detail))
	} else {
		b.Queue(settle, id, state)
	}
	if err := postgres.SendAtomic(ctx, d.pool, &b); err != nil {
		return r, fmt.Errorf("noting the outcome of the %s of dead letter %d, which is %q: %w", action, id, r.Outcome, err)
	}
	about := telemetry.WithAttributes(ctx, telemetry.OrderID.String(l.AggregateID.String()))
	if m, err := l.Message(); err == nil {
		about = m.About(ctx)
	}
	d.log.InfoContext(about, "dead letter acted on", "dead_letter_id", id, "action", action, "actor", o.Actor, "reason", o.Reason,
		"outcome", r.Outcome, "detail", r.Detail)
	return r, nil
}

// replay applies one message that did not come from the broker.
func (p *Processor) replay(ctx context.Context, d messaging.Delivery) error {
	for conflicts := 0; ; conflicts++ {
		err := p.Apply(ctx, []messaging.Delivery{d})
		if Blame(err) != Race || conflicts >= conflictLimit || ctx.Err() != nil {
			return err
		}
		if conflicts > conflictRetries {
			pause(ctx, pauseFirst)
		}
	}
}

// selectFollowers finds events that wait for nothing any more.
const selectFollowers = `
SELECT ` + letterColumns + `
  FROM dead_letter w
 WHERE state = 'waiting'
   AND NOT EXISTS (SELECT FROM dead_letter e
                    WHERE e.consumer = w.consumer AND e.aggregate_id = w.aggregate_id
                      AND split_part(e.subject, '.', 2) = split_part(w.subject, '.', 2)
                      AND e.settled_at IS NULL AND e.aggregate_seq < w.aggregate_seq)
 ORDER BY dead_letter_id
 LIMIT $1`

// Run deals with events that waited behind a dead letter which was settled since, in their sequence, until ctx ends. One
// instance does.
func (d *DeadLetters) Run(ctx context.Context) error {
	lease := postgres.NewLease(d.pool, "dead_letters", d.owner, followLease)
	lease.Logger = d.log
	err := lease.Run(ctx, func(ctx context.Context, _ int64) error {
		for ctx.Err() == nil {
			n, err := d.follow(ctx)
			if err != nil && ctx.Err() == nil {
				d.log.Warn("events that waited not dealt with, trying again", "error", err)
			}
			if n == 0 || err != nil {
				pause(ctx, followInterval)
			}
		}
		return ctx.Err()
	})
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// follow deals with the first waiting event of each line that is free, and says how many it has settled.
func (d *DeadLetters) follow(ctx context.Context) (n int, err error) {
	rows, err := d.pool.Query(ctx, selectFollowers, followBatch)
	if err != nil {
		return 0, fmt.Errorf("looking for events that waited: %w", err)
	}
	letters, err := pgx.CollectRows(rows, scanLetter)
	if err != nil {
		return 0, fmt.Errorf("looking for events that waited: %w", err)
	}
	for _, l := range letters {
		p := d.processors[l.Consumer]
		if p == nil {
			continue
		}
		cause := d.followOne(ctx, p, l)
		switch {
		case Blame(cause) == Ourselves || ctx.Err() != nil:
			return n, cause
		case cause != nil:
			_, err = d.pool.Exec(ctx, failAgain, l.ID, storable(cause.Error()))
		default:
			_, err = d.pool.Exec(ctx, settle, l.ID, StateFollowed)
		}
		if err != nil {
			return n, fmt.Errorf("noting what became of event %s: %w", l.MessageID, err)
		}
		n++
	}
	return n, nil
}

func (d *DeadLetters) followOne(ctx context.Context, p *Processor, l Letter) error {
	m, err := l.Message()
	if err != nil {
		return err
	}
	seen := make(map[uuid.UUID]bool)
	var b pgx.Batch
	QueueSeen(&b, l.Consumer, []uuid.UUID{l.MessageID}, seen)
	if err := d.pool.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("reading what was seen: %w", err)
	}
	if seen[l.MessageID] {
		return nil
	}
	return p.replay(ctx, messaging.NewDelivery(m, 1))
}
