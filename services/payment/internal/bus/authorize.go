package bus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/throughline/throughline/pkg/participant"
	paymentv1 "github.com/throughline/throughline/proto/gen/throughline/payment/v1"
	"github.com/throughline/throughline/services/payment/internal/payment"
	"github.com/throughline/throughline/services/payment/internal/provider"
)

// authorize holds the order's money: it makes an intent that holds nothing, and confirms it. Making and confirming are two calls,
// so that the intent's id is known, or can be learnt without moving money, before anything is held.
func (s *Steps) authorize(ctx context.Context, call *participant.Call) participant.Outcome {
	charge, reason := chargeOf(call.OrderID, call.Payload)
	if reason != "" {
		return participant.Refused{Reason: reason}
	}
	p, err := s.cfg.Provider.Payment(charge)
	if err != nil {
		return participant.Refused{Reason: payment.ReasonAmountNotAccepted}
	}
	in, err := s.begin(ctx, call, p)
	if reason, ok := provider.Refusal(err); ok {
		return participant.Refused{Reason: reason} // there is no intent, so nothing that could be confirmed
	}
	if err != nil {
		return participant.Unknown{Err: err}
	}
	return s.confirm(ctx, call, p, charge, in)
}

// begin gives the order's intent: a new one at the first attempt, afterwards the one that is there.
func (s *Steps) begin(ctx context.Context, call *participant.Call, p *provider.Payment) (payment.Intent, error) {
	if call.Reference != "" {
		return p.Retrieve(ctx, call.Reference)
	}
	var failed error
	if call.Attempt > 1 {
		// The key finds the intent of an earlier attempt, if the provider heeds it. Where it does not, a search may still find one
		// that was confirmed; it never proves that there is none.
		found, err := p.Find(ctx)
		if in, ok := payment.Moved(found); ok {
			return p.Retrieve(ctx, in.ID)
		}
		failed = err
	}
	if s.keyForgotten(call.FirstAttemptAt, call.Now) {
		return payment.Intent{}, errors.Join(errKeyForgot, failed)
	}
	in, err := create(ctx, p, call.StepKey)
	if err != nil || call.Attempt == 1 && !in.Replayed {
		return in, err
	}
	return p.Retrieve(ctx, in.ID) // what create repeats is the intent as it was made
}

// create makes the order's intent, or learns of the one that an earlier attempt has made. Where the provider repeats a stored error
// the key is of no use any more, and the next one is taken. Should there be an intent behind that error, nobody knows its id, so
// it has never been confirmed and holds nothing. All attempts go through the keys in the same order, so they stop at the same
// intent.
func create(ctx context.Context, p *provider.Payment, stepKey uuid.UUID) (payment.Intent, error) {
	for n := range maxKeys {
		in, err := p.Create(ctx, providerKey(stepKey, opCreate, n))
		if _, refused := provider.Refusal(err); refused || !provider.Replayed(err) {
			return in, err
		}
	}
	return payment.Intent{}, errKeysUsedUp
}

// confirm brings an intent to where the money is held, or it is clear that it never will be.
func (s *Steps) confirm(ctx context.Context, call *participant.Call, p *provider.Payment, charge payment.Charge, in payment.Intent) participant.Outcome {
	forgotten := s.keyForgotten(call.FirstAttemptAt, call.Now)
	var last payment.Act
	var lastErr error // why the last act, if it was last's, may not be repeated now
	var used counter
	for range maxKeys {
		d := payment.ForAuthorize(in)
		if d.Act == last && lastErr != nil {
			return s.unconfirmed(ctx, call, p, in, lastErr)
		}
		switch d.Act {
		case payment.Finish:
			return participant.Done{Reference: in.ID, Result: &paymentv1.PaymentAuthorized{
				OrderId: call.OrderID.String(), PaymentIntentId: in.ID, Currency: string(charge.Amount.Currency), Amount: charge.Amount.Minor,
			}}
		case payment.Refuse:
			return participant.Refused{Reason: d.Reason, Reference: in.ID}
		case payment.AwaitCustomer:
			if left := call.FirstAttemptAt.Add(s.cfg.CustomerTime).Sub(call.Now); left > 0 {
				return s.waiting(call, in, left)
			}
			// A customer who confirms at this moment is the first or the second at the provider: either the intent is cancelled, or it
			// cannot be any more, and its status says what came of it.
			in, lastErr = s.act(ctx, p, in, &used, func(n int) (payment.Intent, error) {
				return p.Cancel(ctx, providerKey(call.StepKey, opCancel, n), in.ID, payment.Abandoned)
			})
		case payment.Confirm:
			if forgotten {
				return unknown(in, errTooLate)
			}
			in, lastErr = s.act(ctx, p, in, &used, func(n int) (payment.Intent, error) {
				return p.Confirm(ctx, providerKey(call.StepKey, opConfirm, n), in.ID)
			})
		default:
			return unknown(in, fmt.Errorf("%w: %q", errUnplanned, in.Status))
		}
		last = d.Act
	}
	return unknown(in, errKeysUsedUp)
}

// waiting says what the customer has to do, and until when.
func (s *Steps) waiting(call *participant.Call, in payment.Intent, left time.Duration) participant.Outcome {
	return participant.Waiting{
		Ask: customerPoll(call.Now.Sub(call.FirstAttemptAt), left), Reference: in.ID, Result: &paymentv1.PaymentActionRequired{
			OrderId: call.OrderID.String(), PaymentIntentId: in.ID, Type: in.Action.Type, Url: in.Action.URL,
			ExpiresAt: timestamppb.New(call.FirstAttemptAt.Add(s.cfg.CustomerTime)),
		},
	}
}

// unconfirmed ends an attempt whose confirmation had no effect. A definite no is final only behind the fence of a cancelled
// intent: an earlier confirmation may still be on its way.
func (s *Steps) unconfirmed(ctx context.Context, call *participant.Call, p *provider.Payment, in payment.Intent, err error) participant.Outcome {
	reason, ok := provider.Refusal(err)
	if !ok {
		return unknown(in, err)
	}
	canceled, err := p.Cancel(ctx, providerKey(call.StepKey, opCancel, 0), in.ID, payment.RequestedByCustomer)
	if err != nil || canceled.Status != payment.Canceled {
		return unknown(in, fmt.Errorf("cancelling the intent of a refused confirmation: %w", errors.Join(err, errNoEffect)))
	}
	return participant.Refused{Reason: reason, Reference: in.ID}
}

// counter counts the keys that were found used up.
type counter struct{ n int }

// act makes one write and gives the intent as it is afterwards. A fresh answer is taken as it is. After anything else the intent
// is asked. An error says that the write must not be sent again before somebody has asked once more, unless the intent shows
// that it is done; nil, when the answer was a repeated one, that it may be sent under the next key.
func (s *Steps) act(ctx context.Context, p *provider.Payment, in payment.Intent, used *counter, write func(n int) (payment.Intent, error)) (payment.Intent, error) {
	next, err := write(used.n)
	if err == nil && !next.Replayed {
		return next, errNoEffect // which holds only if it shows none
	}
	old := next.Replayed || provider.Replayed(err)
	if e, ok := errors.AsType[*provider.Error](err); ok && e.Intent != nil && !old && e.Intent.ID == in.ID && e.Intent.Status != payment.Succeeded {
		return *e.Intent, err // of captured money the refunds are missing in it
	}
	now, askErr := p.Retrieve(ctx, in.ID)
	switch {
	case askErr != nil:
		return in, errors.Join(err, askErr)
	case old:
		used.n++
		return now, nil
	}
	return now, err
}

func (s *Steps) keyForgotten(first, now time.Time) bool { return now.Sub(first) >= s.cfg.KeyLifetime }

// customerPoll asks again after a quarter of the time that has passed.
func customerPoll(passed, left time.Duration) time.Duration {
	return min(max(passed/4, customerPollMin), customerPollMax, left)
}
