package inbox

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/trace"

	"github.com/throughline/throughline/pkg/fault"
	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/postgres"
)

// Defaults of [Processor].
const (
	// DefaultMaxAttempts and DefaultMinAge say when a message that keeps failing is given up: after both. The delays between
	// eight attempts are 0.5 + 1 + 2 + 4 + 8 + 16 + 32 = 63.5 s, so the age is what a message usually waits for.
	DefaultMaxAttempts = 8
	DefaultMinAge      = 2 * time.Minute

	// conflictRetries bounds how often a batch is repeated because rows it had read were changed by somebody else: a batch
	// that loses this often is split.
	conflictRetries = 5
	// conflictLimit bounds it for a message that stands alone. Somebody else makes progress each time, so this is far
	// more than a race takes, and the message is then treated like any other that fails.
	conflictLimit = 50

	pauseFirst = 100 * time.Millisecond
	pauseMax   = 5 * time.Second
	// A message that failed comes again after these delays.
	nakFirst = 500 * time.Millisecond
	nakMax   = time.Minute
)

// Apply deals with a batch in one transaction: it marks each message ([QueueMarks]) and records its effect, or leaves it out
// because it was dealt with before. It returns nil after the commit. When it returns an error nothing must have
// happened, except after postgres.ErrCommitUnknown, where reading the inbox again tells.
//
// An error of the database pauses the consumer. An error that wraps [ErrPermanent] is the message's own and final; one that wraps
// [ErrElsewhere] is ours and of this release; any other error is the message's own and may pass.
type Apply func(ctx context.Context, batch []messaging.Delivery) error

// Processor runs the batches of one consumer to their end.
type Processor struct {
	Pool     *pgxpool.Pool
	Consumer string
	Apply    Apply
	// MaxAttempts and MinAge default to the constants above. MinAge counts from the first failure.
	MaxAttempts int
	MinAge      time.Duration
	// Sequenced is for consumers of events: later events of an aggregate and service wait while an earlier one fails, and are
	// kept beside it, in sequence, when it ends as a dead letter. They are dealt with after it is settled, by
	// [DeadLetters.Run]. It says nothing about events that two instances have in hand at the same moment. Commands and
	// replies never wait, so that an undo always gets through.
	Sequenced bool
	// Recorded says that Apply knows a repeat by a record of its own that does not expire, as a step is, and not only by its
	// inbox row. Only then a dead letter that is older than the inbox rows may be replayed.
	Recorded bool
	Logger   *slog.Logger
	// Told tells how the consumer does; nil tells nobody.
	Told *Instruments
	// Tracer makes the span of giving a message up; nil makes none.
	Tracer trace.Tracer
}

// Handle is a messaging.Handler. It returns when each message of the batch is acknowledged, dead-lettered, or given back
// with a delay.
func (p *Processor) Handle(ctx context.Context, batch []messaging.Delivery) {
	sound := make([]messaging.Delivery, 0, len(batch))
	first := make(map[uuid.UUID]bool, len(batch))
	var repeats []messaging.Delivery
	for _, d := range batch {
		switch {
		case d.Malformed != nil:
			p.bury(ctx, d, 1, d.Malformed)
		case first[d.ID]:
			repeats = append(repeats, d)
		default:
			first[d.ID] = true
			sound = append(sound, d)
		}
	}
	settled := make(map[uuid.UUID]bool, len(sound))
	if p.Sequenced && len(sound) > 0 {
		sound = p.runInSequence(ctx, sound, settled)
	}
	if len(sound) > 0 {
		p.run(ctx, sound, settled)
	}
	// A copy within the batch shares the fate of the first.
	for i := range repeats {
		if settled[repeats[i].ID] {
			repeats[i].Duplicate = true
			p.Told.done(ctx, p.Consumer, repeats[i:i+1], time.Now(), p.Tracer != nil)
			p.ack(&repeats[i])
		} else {
			p.giveBack(&repeats[i], nakFirst)
		}
	}
}

// run applies a batch, and splits it if it fails by the fault of one of its messages. It notes which messages are done with.
func (p *Processor) run(ctx context.Context, batch []messaging.Delivery, settled map[uuid.UUID]bool) {
	began := time.Now()
	err := p.attempt(ctx, batch)
	switch {
	case err == nil:
		p.Told.done(ctx, p.Consumer, batch, began, p.Tracer != nil)
		for i := range batch {
			settled[batch[i].ID] = true
			fault.At(fault.InboxCommitted, batch[i].AggregateID, batch[i].StepName)
			p.ack(&batch[i])
			fault.At(fault.InboxAcked, batch[i].AggregateID, batch[i].StepName)
		}
		p.forgive(ctx, batch)
	case ctx.Err() != nil:
		// Cut short: whatever is not acknowledged is delivered again.
	case len(batch) > 1:
		level := slog.LevelWarn
		if errors.Is(err, ErrElsewhere) {
			level = slog.LevelDebug // whoever waits for another release says so, and how often
		}
		p.logger().Log(ctx, level, "batch failed, splitting it", "consumer", p.Consumer, "messages", len(batch), "error", err)
		half := len(batch) / 2
		p.run(ctx, batch[:half], settled)
		rest := batch[half:]
		if p.Sequenced { // what failed in the first half holds up what follows it
			rest = p.runInSequence(ctx, rest, settled)
		}
		if len(rest) > 0 {
			p.run(ctx, rest, settled)
		}
	default:
		settled[batch[0].ID] = p.fail(ctx, batch[0], err)
	}
}

// attempt applies a batch as often as it takes while it is not the messages' fault that it fails.
func (p *Processor) attempt(ctx context.Context, batch []messaging.Delivery) error {
	wait := pauseFirst
	conflicts := 0
	for {
		err := p.Apply(ctx, batch)
		switch Blame(err) {
		case Nobody:
			return nil
		case Race:
			conflicts++
			if conflicts > conflictLimit || conflicts > conflictRetries && len(batch) > 1 {
				return err
			}
			if conflicts > conflictRetries {
				pause(ctx, pauseFirst)
			}
		case Ourselves:
			p.logger().Error("consumer paused: the database does not answer", "consumer", p.Consumer, "in", wait, "error", err)
			pause(ctx, wait)
			wait = min(2*wait, pauseMax)
		case Message:
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// Culprit says whose fault an error is.
type Culprit int

// The culprits.
const (
	// Nobody: there is no error.
	Nobody Culprit = iota
	// Race: rows were changed by somebody else since they were read.
	Race
	// Ourselves: our own database or broker failed.
	Ourselves
	// Message: the message can not be handled, now or ever.
	Message
)

// Blame says whose fault an error of an [Apply] is.
func Blame(err error) Culprit {
	switch {
	case err == nil:
		return Nobody
	case errors.Is(err, ErrPermanent):
		return Message
	case errors.Is(err, postgres.ErrCommitUnknown), postgres.IsUniqueViolation(err):
		return Race
	}
	switch postgres.Classify(err) {
	case postgres.Conflict, postgres.LockTimeout:
		return Race
	case postgres.Unavailable:
		return Ourselves
	default:
		return Message
	}
}

// fail decides about a message that stands alone, and reports whether it is done with: dead-lettered. The attempts counted
// are those that failed by the message's own fault. The broker's count of deliveries is of no use: it also grows while
// we are stopped or paused.
func (p *Processor) fail(ctx context.Context, d messaging.Delivery, cause error) bool {
	if errors.Is(cause, ErrElsewhere) {
		delay := nakDelay(int(min(d.Attempt, 1000))) //nolint:gosec // bounded
		p.logger().DebugContext(d.About(ctx), "message left to another release", "consumer", p.Consumer, "message_id", d.ID, "in", delay, "error", cause)
		p.giveBack(&d, delay)
		return false
	}
	p.Told.count(ctx, p.Consumer, false)
	failed, age, err := p.blame(ctx, d, cause)
	switch {
	case errors.Is(cause, ErrPermanent):
		return p.bury(ctx, d, max(failed, 1), cause) // whether it could be counted or not
	case err != nil:
		p.logger().ErrorContext(d.About(ctx), "failure not counted", "consumer", p.Consumer, "message_id", d.ID, "error", err)
		p.giveBack(&d, nakFirst)
		return false
	}
	attempts, minAge := p.MaxAttempts, p.MinAge
	if attempts == 0 {
		attempts = DefaultMaxAttempts
	}
	if minAge == 0 {
		minAge = DefaultMinAge
	}
	if failed >= attempts && age >= minAge {
		return p.bury(ctx, d, failed, cause)
	}
	delay := nakDelay(failed)
	p.logger().WarnContext(d.About(ctx), "message failed, it will be delivered again", "consumer", p.Consumer, "message_id", d.ID,
		"failed", failed, "in", delay, "error", cause)
	p.giveBack(&d, delay)
	return false
}

// nakDelay doubles with each failure.
func nakDelay(failed int) time.Duration {
	if failed < 1 || failed > 16 {
		return nakMax
	}
	return min(nakFirst<<(failed-1), nakMax)
}

func (p *Processor) ack(d *messaging.Delivery) {
	if err := d.Ack(); err != nil {
		p.logger().DebugContext(d.About(context.Background()), "ack lost, the message will be delivered again", "consumer", p.Consumer, "message_id", d.ID, "error", err)
	}
}

func (p *Processor) giveBack(d *messaging.Delivery, delay time.Duration) {
	if err := d.Nak(delay); err != nil {
		p.logger().DebugContext(d.About(context.Background()), "nak lost, the message will be delivered again", "consumer", p.Consumer, "message_id", d.ID, "error", err)
	}
}

func (p *Processor) logger() *slog.Logger {
	if p.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return p.Logger
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
