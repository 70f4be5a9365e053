package participant

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/throughline/throughline/pkg/outbox"
	"github.com/throughline/throughline/pkg/telemetry"
)

// Store keeps the steps of a [Runner], with the business rows, the inbox and the outbox beside them. There is one on Postgres,
// which is what a runner has unless it is given another, and one in memory for simulations (package participanttest, which
// also has the suite that both pass).
//
// For errors see postgres.SendAtomic; "conflict" below is an error of the class postgres.Conflict, or a unique violation.
type Store interface {
	// Load gives all steps of the orders, their business rows, which of the messages were dealt with before, and the store's
	// time.
	Load(ctx context.Context, orders, messages []uuid.UUID) (Loaded, error)
	// TakeIn writes an intake, all of it or nothing. It is a conflict if an intent is on record already, a business row has
	// another revision than it was read with, or a message was dealt with before.
	TakeIn(ctx context.Context, in *Intake) error
	// Claim takes up to limit steps of the given names that are due, the longest due first: each has a new token, one more attempt,
	// the owner, and the end of its lease as the time when it is due again. Actions that were undone are not due. fresh leaves out those
	// that were attempted before.
	Claim(ctx context.Context, owner string, lease time.Duration, steps []string, limit int, fresh bool) (Claimed, error)
	// InFlight tells whether one of the actions of an order, all of them with a tombstone, may still have an effect on the way:
	// one with an owner, until its lease and the settling time have passed; one whose last attempt ended without an answer, until the
	// settling time has. It shuts owners out whose time is over. Once it says no, only their undo changes the actions.
	InFlight(ctx context.Context, order uuid.UUID, actions []string, settle time.Duration) (bool, error)
	// Record writes the ends of attempts, all of them or nothing. It is a conflict if a step has another token than it was claimed
	// with, or a business row another revision. The token moves on, so that an attempt is recorded once. A step that was undone does
	// not become due again.
	Record(ctx context.Context, f *Findings) error
	// Reload gives the business rows of orders, and the tokens of their steps.
	Reload(ctx context.Context, orders []uuid.UUID) (map[uuid.UUID]*Row, map[Key]int64, error)
	// Find reads the record of a step; false if there is none.
	Find(ctx context.Context, order uuid.UUID, step string) (Record, bool, error)
}

// Key names a step of an order.
type Key struct {
	OrderID  uuid.UUID
	StepName string
}

// Loaded is what a [Store] knows of some orders and messages.
type Loaded struct {
	Steps map[Key]*Record
	// Rows holds the business rows that exist.
	Rows map[uuid.UUID]*Row
	// Seen holds the messages that were dealt with before.
	Seen map[uuid.UUID]bool
	Now  time.Time
}

// Intake is what one transaction writes that takes commands in.
type Intake struct {
	// Intents are steps that are new. One with a LeaseOwner is leased to it at once, from the store's time on; the others are due.
	Intents []*Record
	Lease   time.Duration
	// Tombstones are actions that were undone, whether they are on record or not. One that is not, is refused with ReasonUndone. One
	// that has no owner is due no more.
	Tombstones []Key
	Changes    []Change
	Chains     []outbox.Chain
	Marks      []uuid.UUID
}

// Claimed is what a [Store] has given to an owner.
type Claimed struct {
	Steps []Record
	// Rows are the business rows of the steps' orders.
	Rows map[uuid.UUID]*Row
	// Now is the store's time of the claim.
	Now time.Time
}

// Findings is what one transaction writes about attempts that have ended.
type Findings struct {
	Ends []End
	// Undone are actions that an undo has dealt with. What has no outcome is closed as refused with ReasonUndone.
	Undone []Key
	// Follow are checks that begin, or that look again if they are on record.
	Follow  []Follow
	Changes []Change
	Chains  []outbox.Chain
}

// Follow is a check that is to look at its order, no later than After from now. While it has an owner, it is due again when he is
// done.
type Follow struct {
	Key
	After          time.Duration
	IdempotencyKey string
	Trace          telemetry.Carrier
}

// End is how an attempt ended.
type End struct {
	Key
	// Token is the one that the step was claimed with.
	Token int64
	State State
	// Reference takes the place of the one on record unless it is empty.
	Reason, Reference, LastError string
	ResultType                   string
	Result                       []byte
	// ReplyID takes the place of the one on record unless it is the zero id.
	ReplyID uuid.UUID
	// Again is when to attempt again; nil is never.
	Again *time.Duration
	// Deferred says that the attempt could not start, and does not count.
	Deferred bool
	// History is what is kept of how the attempt went. It decides nothing, and a store may leave it out.
	History string
}

// State says how far a step is.
type State string

// The states of a step.
const (
	StatePending State = "pending"
	StateWaiting State = "waiting"
	StateDone    State = "done"
	StateRefused State = "refused"
)

// Finished tells whether the step has its outcome.
func (s State) Finished() bool { return s == StateDone || s == StateRefused }

// The kinds of a step.
const (
	KindAction = "action"
	KindUndo   = "undo"
	KindCheck  = "check"
)

// Record is a step as it is stored.
type Record struct {
	OrderID        uuid.UUID
	StepName       string
	Kind           string
	State          State
	UndoneAt       *time.Time
	CommandID      uuid.UUID
	CommandType    string
	Payload        []byte
	IdempotencyKey string
	LastSeen       uuid.UUID
	Trace          telemetry.Carrier
	DueAt          *time.Time
	LeaseOwner     string
	Token          int64
	Attempts       int
	FirstAttemptAt *time.Time
	LastError      string
	Reason         string
	Reference      string
	ResultType     string
	Result         []byte
	ReplyID        uuid.UUID
	UpdatedAt      time.Time
}

// Undone tells whether the step carries a tombstone.
func (r *Record) Undone() bool { return r.UndoneAt != nil }

// Key names the step.
func (r *Record) Key() Key { return Key{r.OrderID, r.StepName} }
