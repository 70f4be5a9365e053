package participant

import (
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/outbox"
)

// Row is the part of a service's business row, one per order, that this package needs: it keeps the order's events in
// sequence.
type Row struct {
	outbox.Aggregate
	// Revision is the row's revision as it was read; 0 if the row does not exist yet.
	Revision int64
}

// Intent is a command that was taken in.
type Intent struct {
	OrderID  uuid.UUID
	StepName string
	Payload  []byte
}

// Result is the outcome of a step, [Done], [Refused] or, the first time, [Waiting], that is about to be recorded.
type Result struct {
	OrderID  uuid.UUID
	StepName string
	Payload  []byte
	Outcome  Outcome
}

// Change is what one transaction does to one business row.
type Change struct {
	// Row holds the new sequence and last message, and the revision to compare with.
	Row     Row
	Intents []Intent
	Results []Result
}

// Projector keeps the service's business rows in step with its steps.
type Projector interface {
	// QueueLoad adds the reading of the orders' business rows to a batch.
	QueueLoad(b *pgx.Batch, orders []uuid.UUID, into map[uuid.UUID]*Row)
	// Events gives the events that a result means. Of each it fills in Subject, Type, Source and Payload. It must be a
	// pure function.
	Events(Result) ([]messaging.Message, error)
	// QueueStore adds the statements that store changes, sorted by order id: an insert where Row.Revision is 0, else an
	// update by compare-and-set that raises through throughline_require when a row has another revision. Both set
	// revision to Row.Revision + 1.
	QueueStore(b *pgx.Batch, changes []Change) error
}
