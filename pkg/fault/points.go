package fault

import "slices"

// The declared points. "Committed" means durable in our database.
const (
	// IdempotencyClaimed: the order, its saga, its messages and its key are committed;
	// the client has no answer.
	IdempotencyClaimed = "idempotency.claimed"

	// InboxCommitted: a batch's effects, marks and messages are committed; the
	// broker has no ack and will deliver again.
	InboxCommitted = "inbox.committed"

	// OutboxCommitted: outbox rows are committed; nothing is published.
	OutboxCommitted = "outbox.committed"
	// OutboxPublish: before one publish. An error here is a publish that failed.
	OutboxPublish = "outbox.publish"
	// OutboxPublished: the broker has acked; the row is still pending.
	OutboxPublished = "outbox.published"
	// OutboxMarked: the row is marked as published.
	OutboxMarked = "outbox.marked"
	// OutboxSwept: the sweeper holds its lease and has read rows; nothing is published.
	OutboxSwept = "outbox.swept"

	// SagaCommitted: a saga's advance and its commands are committed; nothing is published or acked.
	SagaCommitted = "saga.committed"
	// SagaTimerFired: a timer is due and read; the saga has not moved.
	SagaTimerFired = "saga.timer_fired"

	// StepClaimed: the lease on a step is committed; the provider was not called.
	StepClaimed = "step.claimed"
	// StepCalled: the provider has answered; nothing of it is recorded.
	StepCalled = "step.called"
	// StepRecorded: result and reply are committed; nothing is published.
	StepRecorded = "step.recorded"
	// StepTombstoned: an undo's tombstone is committed; the provider was not asked.
	StepTombstoned = "step.tombstoned"
)

// EnvVar names the environment variable that arms points in a tagged build.
const EnvVar = "THROUGHLINE_FAULT_POINTS"

// Points returns the names of all declared points, sorted.
func Points() []string {
	p := []string{
		IdempotencyClaimed,
		InboxCommitted,
		OutboxCommitted, OutboxPublish, OutboxPublished, OutboxMarked, OutboxSwept,
		SagaCommitted, SagaTimerFired,
		StepClaimed, StepCalled, StepRecorded, StepTombstoned,
	}
	slices.Sort(p)
	return p
}

// value returns the last setting of EnvVar in environ, in the form of os.Environ.
func value(environ []string) string {
	v := ""
	for _, e := range environ {
		if len(e) > len(EnvVar) && e[:len(EnvVar)] == EnvVar && e[len(EnvVar)] == '=' {
			v = e[len(EnvVar)+1:]
		}
	}
	return v
}
