package outbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/throughline/throughline/pkg/messaging"
)

// errSessionEnded says that the connection was interrupted since the chains were admitted.
var errSessionEnded = errors.New("the connection to the broker was interrupted")

// failure is a row that could not be published. The rows after it in its chain were not tried.
type failure struct {
	id  uuid.UUID
	err error
}

// publish sends chains side by side, and the rows of each one after another, each after the acknowledgement of the one
// before. It gives the first failure of each chain that failed.
func (r *Relay) publish(ctx context.Context, session uint64, chains []Chain) []failure {
	var failures []failure
	active := make([]*Chain, len(chains))
	for i := range chains {
		active[i] = &chains[i]
	}
	pending := make([]*messaging.Pending, 0, len(chains))
	done := make([]uuid.UUID, 0, len(chains))
	for at := 0; len(active) > 0; at++ {
		if now := r.conn.Session(); !now.Connected || now.Number != session {
			for _, c := range active {
				failures = append(failures, failure{c.Messages[at].ID, errSessionEnded})
			}
			return failures
		}
		pending, done = pending[:0], done[:0]
		for _, c := range active {
			pending = append(pending, r.conn.Publish(ctx, &c.Messages[at]))
		}
		still := active[:0]
		for i, c := range active {
			m := &c.Messages[at]
			if _, err := pending[i].Wait(ctx); err != nil {
				failures = append(failures, failure{m.ID, fmt.Errorf("publishing %s %s: %w", m.Subject, m.ID, err)})
				continue
			}
			done = append(done, m.ID)
			if at+1 < len(c.Messages) {
				still = append(still, c)
			}
		}
		active = still
		r.noteAcked(session, done)
	}
	return failures
}
