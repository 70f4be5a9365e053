package outbox

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/throughline/throughline/pkg/messaging"
)

// failure is a row that could not be published. The rows after it in its chain were not tried.
type failure struct {
	id  uuid.UUID
	err error
}

// publish sends chains side by side, and the rows of each one after another, each after the acknowledgement of the one
// before, all over one connection. It gives the failure of each chain that failed.
func (r *Relay) publish(ctx context.Context, session messaging.Session, chains []Chain) []failure {
	var failures []failure
	active := make([]*Chain, len(chains))
	for i := range chains {
		active[i] = &chains[i]
	}
	pending := make([]*messaging.Pending, 0, len(chains))
	done := make([]uuid.UUID, 0, len(chains))
	for at := 0; len(active) > 0; at++ {
		pending, done = pending[:0], done[:0]
		for _, c := range active {
			pending = append(pending, session.Publish(ctx, &c.Messages[at]))
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
		r.noteAcked(session.Number, done)
	}
	return failures
}
