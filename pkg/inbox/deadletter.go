package inbox

import (
	"context"
	"encoding/json"
	"time"

	"github.com/throughline/throughline/pkg/messaging"
)

const insertDeadLetter = `
INSERT INTO dead_letter (consumer, message_id, aggregate_id, aggregate_seq, subject, headers, payload, error, attempts,
                         stream_sequence, stored_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
ON CONFLICT ON CONSTRAINT dead_letter_message_key
DO UPDATE SET error = excluded.error, attempts = excluded.attempts`

// bury keeps a message that could not be dealt with, and acknowledges it after that is committed. Until it is, the message
// stays with the broker, however long the database takes.
func (p *Processor) bury(ctx context.Context, d messaging.Delivery, cause error) {
	headers, err := json.Marshal(d.Headers())
	if err != nil {
		headers = []byte("{}") // cannot happen: headers are strings
	}
	payload := d.Payload
	if payload == nil {
		payload = []byte{}
	}
	wait := pauseFirst
	for ctx.Err() == nil {
		_, err := p.Pool.Exec(ctx, insertDeadLetter, p.Consumer, d.DeadLetterID(), d.AggregateID, d.AggregateSeq, d.Subject, headers,
			payload, cause.Error(), int64(d.Attempt), int64(d.StreamSequence), storedAt(d))
		if err == nil {
			p.logger().Error("message dead-lettered", "consumer", p.Consumer, "message_id", d.ID, "subject", d.Subject,
				"attempts", d.Attempt, "error", cause)
			p.ack(&d)
			return
		}
		p.logger().Error("dead letter not stored, trying again", "consumer", p.Consumer, "message_id", d.ID, "error", err)
		pause(ctx, wait)
		wait = min(2*wait, pauseMax)
	}
}

func storedAt(d messaging.Delivery) time.Time {
	if d.StoredAt.IsZero() {
		return time.Now()
	}
	return d.StoredAt
}
