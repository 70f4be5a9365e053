package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/time/rate"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/messaging"
)

const (
	// MaxSelection bounds what one call of [Archive.Find] or [Archive.Republish] looks at.
	MaxSelection = 500
	// DefaultRepublishRate bounds what a process publishes again, in messages per second: an operator's tool must not be felt.
	DefaultRepublishRate = 500
)

// ErrSelection says that a selection names nothing, or contradicts itself.
var ErrSelection = errors.New("bad selection of messages")

// Selection says which messages are meant: those for which all that is set holds. At least one thing must be set.
type Selection struct {
	// From and To bound when a message was written: From <= t < To.
	From, To time.Time
	// AggregateID is the order.
	AggregateID uuid.UUID
	// Stream, First and Last are a part of a stream by sequence numbers, both included: a gap in it, say.
	Stream      string
	First, Last uint64
	// After is where an earlier look ended: the cursor of its last message.
	After Cursor
	// Limit is at most MaxSelection, which is also what 0 means.
	Limit int
}

// Cursor is a place in the sequence in which messages were written. The zero value is its beginning.
type Cursor struct {
	CreatedAt time.Time
	MessageID uuid.UUID
}

// Sent is a message of the archive and what is known about it.
type Sent struct {
	messaging.Message
	// WrittenAt is when its transaction began, by the database.
	WrittenAt time.Time
	// Pending says that it is in the outbox still: the relay is about to publish it, or it was set aside.
	Pending bool
	// SetAside says why the broker will not take it; empty unless it was set aside.
	SetAside string
	// Stream and Sequence are its last known place; they are empty while it is pending.
	Stream   string
	Sequence uint64
	// SentAt is when that was acknowledged; the zero time while it is pending.
	SentAt time.Time
	// Expired says that it is older than the inboxes remember: consumers would take it for new.
	Expired bool
}

// Cursor is the place behind the message.
func (s *Sent) Cursor() Cursor { return Cursor{s.WrittenAt, s.ID} }

// Republished is what became of a message that was to be published again.
type Republished struct {
	Sent
	// Skipped says why it was not published: "pending" or "expired". Empty if it was.
	Skipped string
	// NewSequence is its new place in its stream.
	NewSequence uint64
	// Err says that it was not acknowledged; it may be in the stream all the same.
	Err error
}

// Archive reads what was sent, and sends it again.
type Archive struct {
	pool    *pgxpool.Pool
	conn    *messaging.Conn
	maxAge  time.Duration
	limiter *rate.Limiter
}

// NewArchive makes an archive. maxAge is how long the inboxes of all consumers remember: what is older is never published
// again.
func NewArchive(pool *pgxpool.Pool, conn *messaging.Conn, maxAge time.Duration) *Archive {
	return &Archive{pool: pool, conn: conn, maxAge: maxAge, limiter: rate.NewLimiter(DefaultRepublishRate, DefaultRepublishRate/10)}
}

// sentRow are what scanSent reads; $1 is the age from which on a message is too old to be sent again. The one that was sent twice has
// two places; the later one counts.
const sentRow = messageColumns + `, m.created_at, o.message_id IS NOT NULL, coalesce(s.stream, ''), coalesce(s.stream_sequence, 0),
       s.sent_at, m.created_at < now() - $1::interval, CASE WHEN o.set_aside_at IS NULL THEN '' ELSE coalesce(o.set_aside_reason, 'refused') END
  FROM outbox_message m
  LEFT JOIN outbox o ON o.message_id = m.message_id
  LEFT JOIN LATERAL (SELECT stream, stream_sequence, sent_at FROM outbox_sent s
                      WHERE s.message_id = m.message_id AND s.sent_at >= m.created_at
                      ORDER BY sent_at DESC LIMIT 1) s ON true`

// selectSent finds messages.
const selectSent = `
SELECT ` + sentRow + `
 WHERE ($2::timestamptz IS NULL OR m.created_at >= $2) AND ($3::timestamptz IS NULL OR m.created_at < $3)
   AND ($4::uuid IS NULL OR m.aggregate_id = $4)
   AND ($5 = '' OR m.message_id IN (SELECT message_id FROM outbox_sent
                                     WHERE stream = $5 AND stream_sequence BETWEEN $6 AND $7
                                       AND ($2::timestamptz IS NULL OR sent_at >= $2)))
   AND ($8::timestamptz IS NULL OR (m.created_at, m.message_id) > ($8, $9))
 ORDER BY m.created_at, m.message_id
 LIMIT $10`

func (s *Selection) check() error {
	switch {
	case s.From.IsZero() && s.To.IsZero() && s.AggregateID == uuid.Nil && s.Stream == "":
		return fmt.Errorf("%w: it names no time, no aggregate and no part of a stream", ErrSelection)
	case !s.From.IsZero() && !s.To.IsZero() && !s.From.Before(s.To):
		return fmt.Errorf("%w: it ends at %s, before it begins at %s", ErrSelection, s.To, s.From)
	case s.Stream == "" && (s.First > 0 || s.Last > 0):
		return fmt.Errorf("%w: sequence numbers need a stream", ErrSelection)
	case s.Stream != "" && (s.First == 0 || s.Last < s.First):
		return fmt.Errorf("%w: a stream needs the first and the last sequence number, got %d and %d", ErrSelection, s.First, s.Last)
	case s.Limit < 0 || s.Limit > MaxSelection:
		return fmt.Errorf("%w: the limit is %d, not 1 to %d", ErrSelection, s.Limit, MaxSelection)
	}
	return nil
}

// Find gives the selected messages in the sequence in which they were written. Events of one aggregate are then in sequence.
// The error wraps [ErrSelection] for a bad selection.
func (a *Archive) Find(ctx context.Context, s Selection) ([]Sent, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	limit := s.Limit
	if limit == 0 {
		limit = MaxSelection
	}
	// A plan of its own for each question: which index serves depends on what is asked.
	rows, err := a.pool.Query(ctx, selectSent, pgx.QueryExecModeExec, a.maxAge, orNoTime(s.From), orNoTime(s.To), orNil(s.AggregateID),
		s.Stream, int64(s.First), int64(s.Last), orNoTime(s.After.CreatedAt), s.After.MessageID, limit)
	if err != nil {
		return nil, fmt.Errorf("reading what was sent: %w", err)
	}
	found, err := pgx.CollectRows(rows, scanSent)
	if err != nil {
		return nil, fmt.Errorf("reading what was sent: %w", err)
	}
	return found, nil
}

func orNoTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func scanSent(row pgx.CollectableRow) (s Sent, err error) {
	var (
		sequence int64
		at       *time.Time
	)
	if s.Message, err = scanMessage(row, &s.WrittenAt, &s.Pending, &s.Stream, &sequence, &at, &s.Expired, &s.SetAside); err != nil {
		return s, err
	}
	s.Sequence = uint64(sequence)
	if at != nil {
		s.SentAt = *at
	}
	return s, nil
}

// noteRepublish is written before anything is sent: it says what was meant to be done, whatever happens then.
const noteRepublish = `
INSERT INTO outbox_republish (message_id, actor, reason)
SELECT id, $2, $3 FROM unnest($1::uuid[]) AS u (id)`

// Republish sends the selected messages again, at a bounded rate, and notes who did it and why. What is pending is left to
// the relay; what is older than the inboxes remember is refused. Consumers see a message again whose first copy they had, or
// for the first time one that the broker has lost, then behind later events of its aggregate.
func (a *Archive) Republish(ctx context.Context, s Selection, actor, reason string) ([]Republished, error) {
	if actor == "" || reason == "" {
		return nil, fmt.Errorf("%w: publishing again needs to be told who does it and why", ErrSelection)
	}
	found, err := a.Find(ctx, s)
	if err != nil {
		return nil, err
	}
	results := make([]Republished, len(found))
	at := make(map[uuid.UUID]*Republished, len(found))
	var messages []messaging.Message
	var ids []uuid.UUID
	for i, f := range found {
		results[i] = Republished{Sent: f}
		switch {
		case f.Pending:
			results[i].Skipped = "pending"
		case f.Expired:
			results[i].Skipped = "expired"
		default:
			messages, ids = append(messages, f.Message), append(ids, f.ID)
			at[f.ID] = &results[i]
		}
	}
	if len(ids) == 0 {
		return results, nil
	}
	if err := a.conn.WaitConnected(ctx); err != nil {
		return nil, err
	}
	session := a.conn.Session()
	if _, err := a.pool.Exec(ctx, noteRepublish, ids, actor, reason); err != nil {
		return nil, fmt.Errorf("noting what is published again: %w", err)
	}
	for _, chain := range chainsOf(messages) {
		a.republish(ctx, session, chain.Messages, at)
	}
	return results, nil
}

// republish sends the messages of one aggregate, each after the acknowledgement of the one before.
func (a *Archive) republish(ctx context.Context, session messaging.Session, messages []messaging.Message, at map[uuid.UUID]*Republished) {
	var failed error
	for i := range messages {
		result := at[messages[i].ID]
		if failed == nil {
			failed = a.limiter.Wait(ctx)
		}
		if failed != nil {
			result.Err = fmt.Errorf("not sent: %w", failed)
			continue
		}
		ack, err := session.Republish(ctx, &messages[i], keys.NewMessageID()).Wait(ctx)
		if err != nil {
			failed, result.Err = err, err
			continue
		}
		result.NewSequence = ack.Sequence
	}
}
