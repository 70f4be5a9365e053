package outbox

import (
	"cmp"
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/throughline/throughline/pkg/fault"
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
	done := make([]sent, 0, len(chains))
	for at := 0; len(active) > 0; at++ {
		pending, done = pending[:0], done[:0]
		for _, c := range active {
			fault.At(fault.OutboxPublishing, c.Messages[at].AggregateID, concern(&c.Messages[at]))
			pending = append(pending, session.Publish(ctx, &c.Messages[at]))
		}
		still := active[:0]
		for i, c := range active {
			m := &c.Messages[at]
			ack, err := pending[i].Wait(ctx)
			if err != nil {
				failures = append(failures, failure{m.ID, fmt.Errorf("publishing %s %s: %w", m.Subject, m.ID, err)})
				continue
			}
			fault.At(fault.OutboxPublished, m.AggregateID, concern(m))
			done = append(done, sent{m.ID, ack.Stream, ack.Sequence})
			if at+1 < len(c.Messages) {
				still = append(still, c)
			}
		}
		active = still
		r.noteAcked(session.Number, done)
	}
	return failures
}

// concern tells what a message is about: a step, or for an event its subject.
func concern(m *messaging.Message) string { return cmp.Or(m.StepName, m.Subject) }

// unsent counts the rows of chains that were not acknowledged, given the failures of [Relay.publish].
func unsent(chains []Chain, failures []failure) (n int) {
	failed := make(map[uuid.UUID]bool, len(failures))
	for _, f := range failures {
		failed[f.id] = true
	}
	for _, c := range chains {
		for i := range c.Messages {
			if failed[c.Messages[i].ID] {
				n += len(c.Messages) - i
				break
			}
		}
	}
	return n
}
