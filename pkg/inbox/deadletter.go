package inbox

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/throughline/throughline/pkg/messaging"
)

// countFailure counts a failure of a message that stands alone.
const countFailure = `
INSERT INTO inbox_failure AS f (consumer, message_id, failed, error, aggregate_id, aggregate_seq, subject)
VALUES ($1, $2, 1, $3, $4, $5, $6)
ON CONFLICT ON CONSTRAINT inbox_failure_pkey
DO UPDATE SET failed = f.failed + 1, error = excluded.error
RETURNING failed, now() - first_failed_at`

// forgiveFailures forgets the failures of messages that were dealt with after all.
const forgiveFailures = `DELETE FROM inbox_failure WHERE consumer = $1 AND message_id = ANY ($2::uuid[])`

const insertDeadLetter = `
WITH counted AS (
    DELETE FROM inbox_failure WHERE consumer = $1 AND message_id = $2
)
INSERT INTO dead_letter (consumer, message_id, aggregate_id, aggregate_seq, subject, headers, payload, error, attempts,
                         stream_sequence, stored_at, state)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
ON CONFLICT ON CONSTRAINT dead_letter_message_key
DO UPDATE SET error = excluded.error, attempts = excluded.attempts, state = excluded.state, settled_at = NULL
        WHERE dead_letter.state <> 'dead' OR excluded.state = 'dead'`

// blame counts a failure, and tells how many there were and how long ago the first was.
func (p *Processor) blame(ctx context.Context, d messaging.Delivery, cause error) (failed int, age time.Duration, err error) {
	err = p.Pool.QueryRow(ctx, countFailure, p.Consumer, d.DeadLetterID(), storable(cause.Error()),
		d.AggregateID, d.AggregateSeq, storable(d.Subject)).Scan(&failed, &age)
	if err != nil {
		return 0, 0, fmt.Errorf("counting the failure of message %s: %w", d.ID, err)
	}
	return failed, age, nil
}

// forgive forgets failures. Where it does not, they expire.
func (p *Processor) forgive(ctx context.Context, batch []messaging.Delivery) {
	var ids []uuid.UUID
	for _, d := range batch {
		if d.Attempt > 1 { // only then it may have failed before
			ids = append(ids, d.ID)
		}
	}
	if len(ids) == 0 {
		return
	}
	if _, err := p.Pool.Exec(ctx, forgiveFailures, p.Consumer, ids); err != nil {
		p.logger().Debug("failures not forgotten", "consumer", p.Consumer, "error", err)
	}
}

// bury keeps a message that could not be dealt with, and acknowledges it after that is committed, which it reports. Until
// then the message stays with the broker, however long the database takes.
func (p *Processor) bury(ctx context.Context, d messaging.Delivery, attempts int, cause error) bool {
	return p.keep(ctx, d, StateDead, attempts, cause)
}

// keep is bury for a message in either open state.
func (p *Processor) keep(ctx context.Context, d messaging.Delivery, state State, attempts int, cause error) bool {
	headers := make(map[string][]string, len(d.Headers()))
	for key, values := range d.Headers() {
		for _, v := range values {
			headers[storable(key)] = append(headers[storable(key)], storable(v))
		}
	}
	encoded, err := json.Marshal(headers)
	if err != nil {
		encoded = []byte("{}") // cannot happen: all of it is strings
	}
	payload := d.Payload
	if payload == nil {
		payload = []byte{}
	}
	for wait := pauseFirst; ctx.Err() == nil; wait = min(2*wait, pauseMax) {
		_, err := p.Pool.Exec(ctx, insertDeadLetter, p.Consumer, d.DeadLetterID(), d.AggregateID, d.AggregateSeq, storable(d.Subject),
			encoded, payload, storable(cause.Error()), attempts, int64(d.StreamSequence), storedAt(d), state)
		if err == nil {
			if state == StateDead {
				p.logger().ErrorContext(p.tellDead(ctx, &d, cause), "message dead-lettered", "consumer", p.Consumer, "message_id", d.ID, "subject", d.Subject,
					"attempts", attempts, "error", cause)
			} else {
				p.logger().WarnContext(d.About(ctx), "event waits behind a dead letter", "consumer", p.Consumer, "message_id", d.ID, "subject", d.Subject)
			}
			p.ack(&d)
			return true
		}
		p.logger().ErrorContext(d.About(ctx), "dead letter not stored, trying again", "consumer", p.Consumer, "message_id", d.ID, "in", wait, "error", err)
		pause(ctx, wait)
	}
	return false
}

// storable makes what anybody may have sent fit for a text column: the database takes neither invalid UTF-8 nor the zero
// character, and a dead letter that can never be stored would stop its consumer.
func storable(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

func storedAt(d messaging.Delivery) time.Time {
	if d.StoredAt.IsZero() {
		return time.Now()
	}
	return d.StoredAt
}
