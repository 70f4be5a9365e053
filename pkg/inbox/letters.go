package inbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/time/rate"

	"github.com/throughline/throughline/pkg/messaging"
)

// State is what became of a dead letter.
type State string

// The states. The first two are open.
const (
	// StateDead: a consumer could not deal with it.
	StateDead State = "dead"
	// StateWaiting: it is sound, and waits behind an earlier event.
	StateWaiting State = "waiting"
	// StateReplayed: somebody had it handled again, with success.
	StateReplayed State = "replayed"
	// StateDiscarded: somebody decided that it is not to be dealt with.
	StateDiscarded State = "discarded"
	// StateFollowed: it waited, and was dealt with when its turn came.
	StateFollowed State = "followed"
)

// DefaultReplayRate bounds replays and discards of one process, per second.
const DefaultReplayRate = 20

// MaxLetters bounds one answer of [DeadLetters.List].
const MaxLetters = 500

// Letter is a dead letter.
type Letter struct {
	ID           int64
	Consumer     string
	MessageID    uuid.UUID
	AggregateID  uuid.UUID
	AggregateSeq int64
	Subject      string
	Headers      map[string][]string
	Payload      []byte
	Error        string
	Attempts     int64
	// StreamSequence and StoredAt are its place in its stream, and since when.
	StreamSequence int64
	StoredAt       time.Time
	CreatedAt      time.Time
	State          State
	SettledAt      *time.Time
}

// Open tells whether it waits to be settled.
func (l *Letter) Open() bool { return l.SettledAt == nil }

// Message is the message as it arrived. The error wraps messaging.ErrMalformed.
func (l *Letter) Message() (messaging.Message, error) {
	return messaging.Parse(l.Subject, l.Headers, l.Payload)
}

// Action is what somebody did about a dead letter.
type Action struct {
	Action, Actor, Reason, Outcome, Detail string
	CreatedAt                              time.Time
}

// Outcome says what a replay or a discard led to.
type Outcome string

// The outcomes.
const (
	// Done: the handler has dealt with the message, or the letter is discarded.
	Done Outcome = "done"
	// AlreadyDone: the consumer had dealt with another copy of the message. Nothing was done, and the letter is settled.
	AlreadyDone Outcome = "already_done"
	// Failed: the handler failed again. The letter stays.
	Failed Outcome = "failed"
	// Refused: nothing was tried. The letter stays.
	Refused Outcome = "refused"
	// Would: a dry run found nothing in the way.
	Would Outcome = "would"
)

// Report is what became of a letter that somebody acted on.
type Report struct {
	Letter  Letter
	Outcome Outcome
	// Detail says why it was refused or failed, or what a dry run would touch.
	Detail string
	// Followers is how many events wait behind it. They are dealt with by themselves once it is settled.
	Followers int
}

// Order is who wants something done, and why.
type Order struct {
	Actor, Reason string
	// DryRun looks, and does nothing.
	DryRun bool
}

var (
	// ErrNoLetter says that there is no such dead letter.
	ErrNoLetter = errors.New("no such dead letter")
	// ErrAnonymous says that an action lacks who does it or why.
	ErrAnonymous = errors.New("an action needs to be told who does it and why")
)

// DeadLetters is what one service knows about its dead letters, and what can be done about them. Handlers run in this very
// process, from the stored message: nobody else sees a replay, and its outcome is known.
type DeadLetters struct {
	pool       *pgxpool.Pool
	processors map[string]*Processor
	ttl        time.Duration
	limiter    *rate.Limiter
	log        *slog.Logger
	owner      string
}

// NewDeadLetters makes it for the consumers of one service. ttl is how long their inbox rows live, owner names this instance
// in leases.
func NewDeadLetters(pool *pgxpool.Pool, ttl time.Duration, owner string, log *slog.Logger, processors ...*Processor) *DeadLetters {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	d := &DeadLetters{
		pool: pool, processors: make(map[string]*Processor, len(processors)), ttl: ttl, log: log, owner: owner,
		limiter: rate.NewLimiter(DefaultReplayRate, DefaultReplayRate),
	}
	for _, p := range processors {
		d.processors[p.Consumer] = p
	}
	return d
}

const letterColumns = `dead_letter_id, consumer, message_id, aggregate_id, aggregate_seq, subject, headers, payload, error, attempts,
       stream_sequence, stored_at, created_at, state, settled_at`

func scanLetter(row pgx.CollectableRow) (l Letter, err error) {
	var headers []byte
	if err := row.Scan(&l.ID, &l.Consumer, &l.MessageID, &l.AggregateID, &l.AggregateSeq, &l.Subject, &headers, &l.Payload, &l.Error,
		&l.Attempts, &l.StreamSequence, &l.StoredAt, &l.CreatedAt, &l.State, &l.SettledAt); err != nil {
		return l, err
	}
	return l, json.Unmarshal(headers, &l.Headers)
}

// Filter says which dead letters are listed. The zero value means all that are open.
type Filter struct {
	Consumer    string
	AggregateID uuid.UUID
	// Settled lists the settled ones, too.
	Settled bool
	// After is the id of the last letter of the answer before.
	After int64
	// Limit is at most MaxLetters, which is also what 0 means.
	Limit int
}

const selectLetters = `
SELECT ` + letterColumns + `
  FROM dead_letter
 WHERE ($1 = '' OR consumer = $1) AND ($2::uuid IS NULL OR aggregate_id = $2) AND ($3 OR settled_at IS NULL) AND dead_letter_id > $4
 ORDER BY dead_letter_id
 LIMIT $5`

// List gives dead letters, the oldest first.
func (d *DeadLetters) List(ctx context.Context, f Filter) ([]Letter, error) {
	if f.Limit <= 0 || f.Limit > MaxLetters {
		f.Limit = MaxLetters
	}
	var aggregate *uuid.UUID
	if f.AggregateID != uuid.Nil {
		aggregate = &f.AggregateID
	}
	rows, err := d.pool.Query(ctx, selectLetters, f.Consumer, aggregate, f.Settled, f.After, f.Limit)
	if err != nil {
		return nil, fmt.Errorf("listing dead letters: %w", err)
	}
	letters, err := pgx.CollectRows(rows, scanLetter)
	if err != nil {
		return nil, fmt.Errorf("listing dead letters: %w", err)
	}
	return letters, nil
}

const selectLetter = `SELECT ` + letterColumns + ` FROM dead_letter WHERE dead_letter_id = $1`

const selectActions = `
SELECT action, actor, reason, outcome, detail, created_at
  FROM dead_letter_action WHERE dead_letter_id = $1 ORDER BY action_id`

// Get gives one letter and what was done about it. The error is ErrNoLetter if there is none.
func (d *DeadLetters) Get(ctx context.Context, id int64) (Letter, []Action, error) {
	l, err := d.letter(ctx, id)
	if err != nil {
		return l, nil, err
	}
	rows, err := d.pool.Query(ctx, selectActions, id)
	if err != nil {
		return l, nil, fmt.Errorf("reading what was done about dead letter %d: %w", id, err)
	}
	actions, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Action])
	if err != nil {
		return l, nil, fmt.Errorf("reading what was done about dead letter %d: %w", id, err)
	}
	return l, actions, nil
}

func (d *DeadLetters) letter(ctx context.Context, id int64) (Letter, error) {
	rows, err := d.pool.Query(ctx, selectLetter, id)
	if err != nil {
		return Letter{}, fmt.Errorf("reading dead letter %d: %w", id, err)
	}
	l, err := pgx.CollectExactlyOneRow(rows, scanLetter)
	if errors.Is(err, pgx.ErrNoRows) {
		return l, fmt.Errorf("%w: %d", ErrNoLetter, id)
	}
	if err != nil {
		return l, fmt.Errorf("reading dead letter %d: %w", id, err)
	}
	return l, nil
}
