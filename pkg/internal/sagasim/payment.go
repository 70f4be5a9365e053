package sagasim

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/participant"
)

// customerTime is how long a customer may take.
const customerTime = 3 * time.Minute

// tries bounds the acts of one attempt.
const tries = 8

// payments performs the payment steps as a payment service must: first the own record, then the provider, and only then act again.
// The service that Throughline has cannot be used here, since it speaks HTTP; this follows it decision by decision.
type payments struct{ world *world }

func (p payments) steps() []participant.Step {
	return p.world.watched(
		participant.Step{Name: authorize, Perform: p.authorize},
		participant.Step{Name: capture, Perform: p.capture},
		participant.Step{Name: void, Undoes: []string{authorize, capture}, Perform: p.void},
	)
}

// watched notes for each call which step it is about.
func (w *world) watched(steps ...participant.Step) []participant.Step {
	for i := range steps {
		perform := steps[i].Perform
		steps[i].Perform = func(ctx context.Context, c *participant.Call) participant.Outcome {
			actorOf(ctx).steps = []string{c.StepName}
			if w.mutation == NoAsking {
				blind := *c
				blind.Attempt = 1
				c = &blind
			}
			return perform(ctx, c)
		}
	}
	return steps
}

func (p payments) create(ctx context.Context, order, stepKey uuid.UUID) (intent, error) {
	for n := range tries {
		in, err := outside(ctx, "create intent", false, func() (intent, error) {
			return p.world.provider.create(p.nth(stepKey, opCreate, n), order, p.world.orderOf(order).amount)
		})
		if err == nil || !replayed(in, err) {
			return in, err
		}
	}
	return intent{}, errAnswerNot
}

// nth is the nth key of an operation. The next one is taken only when an answer that is repeated shows that the one before is used up.
func (p payments) nth(stepKey uuid.UUID, operation string, n int) uuid.UUID {
	if n > 0 && p.world.mutation != OneKey {
		operation += "." + strconv.Itoa(n)
	}
	return keys.ProviderKey(stepKey, operation)
}

func (p payments) retrieve(ctx context.Context, id string) (intent, error) {
	return outside(ctx, "retrieve "+id, true, func() (intent, error) { return p.world.provider.retrieve(id) })
}

// act makes one write and gives the intent as it is afterwards. An error says that it must not be sent again before somebody has asked
// once more; nil that it may be, under the next key.
func (p payments) act(ctx context.Context, stepKey uuid.UUID, operation, id string, used *int) (intent, error) {
	answer, err := outside(ctx, operation+" "+id, false, func() (intent, error) {
		return p.world.provider.change(p.nth(stepKey, operation, *used), operation, id)
	})
	if err == nil && !answer.Replayed {
		return answer, errAnswerNot // which holds only if it shows no effect
	}
	now, askErr := p.retrieve(ctx, id)
	switch {
	case askErr != nil:
		return intent{ID: id}, errors.Join(err, askErr)
	case replayed(answer, err):
		*used++
		return now, nil
	case err == nil:
		err = errAnswerNot
	}
	return now, err
}

func (p payments) authorize(ctx context.Context, c *participant.Call) participant.Outcome {
	in, err := p.begin(ctx, c)
	if err != nil {
		return participant.Unknown{Err: err, Reference: c.Reference}
	}
	var last string
	var failed error
	used := 0
	for range tries {
		act := notAnAct
		switch in.Status {
		case toCapture:
			return participant.Done{Reference: in.ID}
		case succeeded:
			if in.Refunds == in.Captured {
				return participant.Refused{Reason: "refunded_at_provider", Reference: in.ID}
			}
			return participant.Done{Reference: in.ID}
		case noMethod:
			return participant.Refused{Reason: declinedBy, Reference: in.ID}
		case canceled:
			return participant.Refused{Reason: "canceled_at_provider", Reference: in.ID}
		case toConfirm:
			act = opConfirm
		case toAct:
			left := c.FirstAttemptAt.Add(customerTime).Sub(c.Now)
			if left > 0 {
				return participant.Waiting{Ask: min(10*time.Second, left), Reference: in.ID}
			}
			act = opCancel
		}
		if act == "" || string(act) == last && failed != nil {
			return participant.Unknown{Err: errors.Join(errAnswerNot, failed), Reference: in.ID}
		}
		if last != string(act) {
			used = 0
		}
		last = string(act)
		in, failed = p.act(ctx, c.StepKey, last, in.ID, &used)
		if in.Status == notAnAct {
			return participant.Unknown{Err: failed, Reference: in.ID}
		}
	}
	return participant.Unknown{Err: errAnswerNot, Reference: in.ID}
}

// begin gives the order's intent: a new one at the first attempt, afterwards the one that is there.
func (p payments) begin(ctx context.Context, c *participant.Call) (intent, error) {
	if c.Reference != "" {
		return p.retrieve(ctx, c.Reference)
	}
	if c.Attempt > 1 {
		found, err := outside(ctx, "search intents", true, func() ([]intent, error) { return p.world.provider.search(c.OrderID), nil })
		if err == nil && len(found) > 0 {
			return p.retrieve(ctx, found[0].ID)
		}
	}
	in, err := p.create(ctx, c.OrderID, c.StepKey)
	if err != nil || c.Attempt == 1 && !in.Replayed {
		return in, err
	}
	return p.retrieve(ctx, in.ID)
}

func (p payments) capture(ctx context.Context, c *participant.Call) participant.Outcome {
	auth, ok, err := c.Sibling(ctx, authorize)
	if err != nil {
		return participant.Unknown{Err: err}
	}
	if !ok || auth.State != participant.StateDone || auth.Reference == "" {
		return participant.Refused{Reason: "not_authorized"}
	}
	in := intent{ID: auth.Reference, Status: toCapture}
	if c.Attempt > 1 {
		if in, err = p.retrieve(ctx, auth.Reference); err != nil {
			return participant.Unknown{Err: err, Reference: auth.Reference}
		}
	}
	var failed error
	used := 0
	for range tries {
		switch in.Status {
		case succeeded:
			if in.Refunds > 0 {
				return participant.Refused{Reason: "refunded_at_provider", Reference: in.ID}
			}
			return participant.Done{Reference: in.ID}
		case canceled:
			return participant.Refused{Reason: "authorization_expired", Reference: in.ID}
		case toCapture:
		default:
			return participant.Unknown{Err: errors.Join(errAnswerNot, failed), Reference: auth.Reference}
		}
		if failed != nil {
			return participant.Unknown{Err: failed, Reference: in.ID}
		}
		in, failed = p.act(ctx, c.StepKey, opCapture, in.ID, &used)
	}
	return participant.Unknown{Err: errAnswerNot, Reference: in.ID}
}

// void makes the order's net money zero, whatever it finds.
func (p payments) void(ctx context.Context, c *participant.Call) participant.Outcome {
	auth, ok, err := c.Sibling(ctx, authorize)
	if err != nil {
		return participant.Unknown{Err: err}
	}
	if !ok || neverBegan(&auth) {
		return participant.Done{}
	}
	ids, err := p.intents(ctx, c, &auth)
	if err != nil {
		return participant.Unknown{Err: err}
	}
	for _, id := range ids {
		if err := p.zero(ctx, c.StepKey, id); err != nil {
			return participant.Unknown{Err: err, Reference: id}
		}
	}
	return participant.Done{Reference: ids[len(ids)-1]}
}

func neverBegan(r *participant.Record) bool {
	switch {
	case r.CommandID == uuid.Nil, r.Attempts == 0:
		return true
	case r.Reference != "":
		return false
	}
	return r.State == participant.StateRefused && r.Reason != participant.ReasonUndone
}

// intents gives the ids of the order's intents. Repeating the create may make one only now; cancelled, it is the fence against
// whatever is still on its way.
func (p payments) intents(ctx context.Context, c *participant.Call, auth *participant.Record) ([]string, error) {
	if auth.Reference != "" {
		return []string{auth.Reference}, nil
	}
	in, err := p.create(ctx, c.OrderID, keys.StepKey(c.OrderID, authorize))
	if err != nil {
		return nil, err
	}
	return []string{in.ID}, nil
}

func (p payments) zero(ctx context.Context, stepKey uuid.UUID, id string) error {
	var last string
	var failed error
	used := make(map[string]int)
	for range tries {
		in, err := p.retrieve(ctx, id)
		if err != nil {
			return errors.Join(failed, err)
		}
		act := opCancel
		switch {
		case in.Status == canceled, in.Status == succeeded && in.Refunds == in.Captured:
			return nil
		case in.Status == succeeded:
			act = opRefund
		}
		if act == last && failed != nil {
			return failed
		}
		last = act
		answer, err := outside(ctx, act+" "+id, false, func() (intent, error) {
			return p.world.provider.change(p.nth(stepKey, act, used[act]), act, id)
		})
		failed = err
		switch {
		case replayed(answer, err):
			used[act]++
			failed = nil
		case err == nil:
			failed = errAnswerNot
		}
	}
	return errAnswerNot
}
