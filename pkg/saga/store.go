package saga

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/throughline/throughline/pkg/outbox"
	"github.com/throughline/throughline/pkg/telemetry"
)

// Store keeps the sagas of an [Engine], with the timers, the inbox and the outbox beside them. The engine decides and the store
// remembers: what is promised of sagas rests on what is said here. There is one on Postgres, which is what an engine has unless
// it is given another, and one in memory for simulations (package sagatest, which also has the suite that both pass).
type Store interface {
	// Load gives those of the sagas that exist, which of the messages were dealt with before, and the store's time. What it
	// gives is a guess by the time it is used: only Commit is the truth.
	Load(ctx context.Context, sagas, messages []uuid.UUID) (Loaded, error)
	// Commit writes a unit of work, all of it or nothing, and takes the proof from chains that must be left to the sweep. For its
	// errors see [postgres.SendAtomic]; it fails with the class [postgres.Conflict] if a saga has another revision than it
	// was read with, and with a unique violation if a saga that begins exists, or a message was dealt with before.
	Commit(ctx context.Context, unit *Unit) error
	// Due gives timers that are due, the earliest first, at most limit. It leaves out those of sagas that have not ended and have none of
	// the plans.
	Due(ctx context.Context, plans []Plan, limit int) ([]Timer, error)
}

// Loaded is what a [Store] knows of some sagas and messages.
type Loaded struct {
	Sagas map[uuid.UUID]*Record
	// Seen holds the messages that were dealt with before.
	Seen map[uuid.UUID]bool
	Now  time.Time
}

// Unit is what one transaction writes.
type Unit struct {
	// Births are sagas that begin, at revision 1.
	Births []*Record
	// Updates are sagas that change. Each has the revision that it was read with, and is stored with the next.
	Updates []*Record
	// Histories are the transitions that led there.
	Histories []History
	// Fired are timers that fall away; Set are new ones. A timer that is there already is left as it is.
	Fired, Set []Timer
	// Chains go to the outbox.
	Chains []outbox.Chain
	// Marks are messages that this unit deals with.
	Marks []uuid.UUID
	// Before and After add the owner's own statements, which run before and after those of this package. A store that is not on
	// Postgres leaves them out.
	Before, After func(*pgx.Batch) error
}

// Record is a saga with what its row holds beside the state.
type Record struct {
	Instance
	// Data is the saga's data, as it was encoded when it began.
	Data      []byte
	Aggregate outbox.Aggregate
	// Trace is the trace that the saga began in.
	Trace                telemetry.Carrier
	CreatedAt, UpdatedAt time.Time
}

// History is the transitions of one saga at one revision.
type History struct {
	SagaID      uuid.UUID
	Revision    int64
	Transitions []Transition
}

// Timer says when to look at a saga. It is a hint: a saga that is not due then is left alone.
type Timer struct {
	Due    time.Time
	SagaID uuid.UUID
	// Failures is how often in a row it was put off, because the saga could not be dealt with. It is not part of what a timer is known by.
	Failures int
}
