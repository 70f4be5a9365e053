package fault

import (
	"path/filepath"
	"slices"

	"github.com/google/uuid"
)

// The declared points. "Committed" means durable in our database. Where a passage is about an order, what it concerns is a step, a
// message's subject or an operation; it stands behind the name.
const (
	// IdempotencyClaiming: a new order is complete in memory; nothing of it is committed.
	IdempotencyClaiming = "idempotency.claiming"
	// IdempotencyClaimed: the order, its saga, its messages and its key are committed; nothing is published, and the client has no answer.
	IdempotencyClaimed = "idempotency.claimed"
	// IdempotencyAnswering: all is committed and handed off; the answer has not left.
	IdempotencyAnswering = "idempotency.answering"

	// InboxCommitted: a message's effect, mark and replies are committed; the broker has no ack and will deliver again.
	InboxCommitted = "inbox.committed"
	// InboxAcked: the ack is on its way.
	InboxAcked = "inbox.acked"

	// OutboxPublishing: before one publish; the row is committed.
	OutboxPublishing = "outbox.publishing"
	// OutboxPublished: the broker has acked; the row is still pending, and nobody remembers the ack.
	OutboxPublished = "outbox.published"
	// OutboxSwept: the sweeper holds its lease and has read rows; nothing is published.
	OutboxSwept = "outbox.swept"
	// OutboxRemoving: rows are safe at the broker; they are still pending.
	OutboxRemoving = "outbox.removing"
	// OutboxRemoved: the rows are removed, in a commit that need not have reached the disk.
	OutboxRemoved = "outbox.removed"

	// SagaCommitting: what a reply or a request means for its saga is decided; nothing of it is committed.
	SagaCommitting = "saga.committing"
	// SagaCommitted: a saga's advance and its commands are committed; nothing is published or acked.
	SagaCommitted = "saga.committed"
	// SagaTimerFired: a timer is due and read; nobody was asked.
	SagaTimerFired = "saga.timer_fired"
	// SagaAsked: the participant has answered; the saga has not moved.
	SagaAsked = "saga.asked"
	// SagaAnswered: what the answer means is committed; nothing is published.
	SagaAnswered = "saga.answered"

	// StepTaking: a command is read; its intent is not committed.
	StepTaking = "step.taking"
	// StepIntended: the intent is committed, with an undo its tombstone; nothing was called, and the command is not acked.
	StepIntended = "step.intended"
	// StepClaimed: the lease on a step is committed; the outside was not called.
	StepClaimed = "step.claimed"
	// StepCalled: the outside has answered; nothing of it is recorded.
	StepCalled = "step.called"
	// StepRecording: result and reply are complete in memory; nothing of them is committed.
	StepRecording = "step.recording"
	// StepRecorded: result and reply are committed; nothing is published.
	StepRecorded = "step.recorded"

	// WebhookCommitting: a notice from outside is read and its signature is right; nothing of it is committed.
	WebhookCommitting = "webhook.committing"
	// WebhookCommitted: what follows from the notice is committed, and that it came; its sender has no answer.
	WebhookCommitted = "webhook.committed"
)

// EnvVar names the environment variable that arms points in a tagged build.
const EnvVar = "THROUGHLINE_FAULT_POINTS"

// Points returns the names of all declared points, sorted.
func Points() []string {
	p := []string{
		IdempotencyClaiming, IdempotencyClaimed, IdempotencyAnswering,
		InboxCommitted, InboxAcked,
		OutboxPublishing, OutboxPublished, OutboxSwept, OutboxRemoving, OutboxRemoved,
		SagaCommitting, SagaCommitted, SagaTimerFired, SagaAsked, SagaAnswered,
		StepTaking, StepIntended, StepClaimed, StepCalled, StepRecording, StepRecorded,
		WebhookCommitting, WebhookCommitted,
	}
	slices.Sort(p)
	return p
}

// Wire gives the path of the file that trips a passage, for a process armed with *=trip:dir. order and what are those of [At]; for a
// passage of [Point] they are empty.
func Wire(dir, point string, order uuid.UUID, what string) string {
	return filepath.Join(dir, point+","+order.String()+","+what)
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
