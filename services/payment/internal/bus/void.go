package bus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/participant"
	paymentv1 "github.com/throughline/throughline/proto/gen/throughline/payment/v1"
	"github.com/throughline/throughline/services/payment/internal/payment"
	"github.com/throughline/throughline/services/payment/internal/provider"
)

// void makes the order's net money zero, whatever it finds. Its runner has put the tombstones and waited for calls in flight.
func (s *Steps) void(ctx context.Context, call *participant.Call) participant.Outcome {
	auth, ok, err := call.Sibling(ctx, AuthorizePayment)
	if err != nil {
		return participant.Unknown{Err: err}
	}
	result := &paymentv1.PaymentVoided{OrderId: call.OrderID.String()}
	if !ok || neverBegan(&auth) {
		return participant.Done{Result: result}
	}
	p, charge, err := s.authorized(call.OrderID, auth)
	if err != nil {
		return participant.Unknown{Err: err}
	}
	result.Currency = string(charge.Amount.Currency)
	intents, err := s.intents(ctx, &auth, p, call.Now)
	if err != nil {
		return participant.Unknown{Err: err}
	}
	for _, id := range intents {
		refunded, out := s.zero(ctx, call.StepKey, p, id)
		if out != nil {
			return out
		}
		result.PaymentIntentId = id
		result.AmountRefunded += refunded
	}
	return participant.Done{Result: result, Reference: result.PaymentIntentId}
}

// neverBegan tells whether no intent can have come of the authorization: its command never came, it was never attempted, or it
// was refused before there was one.
func neverBegan(auth *participant.Record) bool {
	switch {
	case auth.CommandID == uuid.Nil, auth.Attempts == 0:
		return true
	case auth.Reference != "":
		return false
	}
	return auth.State == participant.StateRefused && auth.Reason != participant.ReasonUndone
}

// intents gives the ids of the order's intents: the one on record, or else all that can be found, and the one that the key
// stands for. Repeating the create may make that one only now; cancelled, it is the fence against whatever is still on its way.
func (s *Steps) intents(ctx context.Context, auth *participant.Record, p *provider.Payment, now time.Time) ([]string, error) {
	if auth.Reference != "" {
		return []string{auth.Reference}, nil
	}
	found, searchErr := p.Find(ctx)
	var ids []string
	seen := make(map[string]bool)
	add := func(id string) {
		if !seen[id] {
			seen[id] = true
			ids = append(ids, id)
		}
	}
	for _, in := range found {
		add(in.ID)
	}
	if auth.FirstAttemptAt != nil && s.keyForgotten(*auth.FirstAttemptAt, now) {
		if len(ids) == 0 {
			return nil, errors.Join(errKeyForgot, searchErr)
		}
		return ids, nil
	}
	in, err := create(ctx, p, keys.StepKey(auth.OrderID, AuthorizePayment))
	switch _, refused := provider.Refusal(err); {
	case err == nil:
		add(in.ID)
	case !refused: // a refusal proves that the key never made one
		return nil, err
	}
	return ids, nil
}

// zero brings one intent to where no money is held and none is kept. It gives what was refunded, or the outcome of the
// attempt if that is not known yet, or is a refusal.
func (s *Steps) zero(ctx context.Context, stepKey uuid.UUID, p *provider.Payment, id string) (int64, participant.Outcome) {
	in := payment.Intent{ID: id}
	var last payment.Act
	var lastErr error // why the last act may not be repeated now, if it shows no effect
	var cancels, refundKeys counter
	for range maxKeys {
		var err error
		if in, err = p.Retrieve(ctx, id); err != nil {
			return 0, participant.Unknown{Err: errors.Join(lastErr, err), Reference: id}
		}
		var refunds []payment.Refund
		if in.Captured > 0 {
			if refunds, err = p.Refunds(ctx, id); err != nil {
				return 0, participant.Unknown{Err: errors.Join(lastErr, err), Reference: id}
			}
		}
		d := payment.ForVoid(in, refunds)
		if d.Act == last && lastErr != nil {
			if reason, ok := provider.Refusal(lastErr); ok && d.Act == payment.RefundRest {
				return 0, participant.Refused{Reason: reason, Reference: id}
			}
			return 0, unknown(in, lastErr)
		}
		switch d.Act {
		case payment.Finish:
			done, _ := payment.Returned(refunds)
			return done, nil
		case payment.AwaitRefund:
			return 0, participant.Unknown{Err: errors.New("a refund is on its way"), RetryAfter: refundPoll, Reference: id}
		case payment.Cancel:
			canceled, err := p.Cancel(ctx, providerKey(stepKey, opCancel, cancels.n), id, payment.RequestedByCustomer)
			if err == nil && !canceled.Replayed && canceled.Status == payment.Canceled {
				return 0, nil
			}
			lastErr = again(&cancels, canceled.Replayed, err)
		case payment.RefundRest:
			refund, err := p.RefundRest(ctx, providerKey(stepKey, opRefund, refundKeys.n), id)
			lastErr = again(&refundKeys, refund.Replayed, err)
		default:
			return 0, unknown(in, fmt.Errorf("%w: %q", errUnplanned, in.Status))
		}
		last = d.Act
	}
	return 0, unknown(in, errKeysUsedUp)
}

// again tells why a write may not be repeated now if it shows no effect; nil if its key is used up, so that the next one may
// be.
func again(used *counter, replay bool, err error) error {
	switch {
	case replay || provider.Replayed(err):
		used.n++
		return nil
	case err == nil:
		return errNoEffect
	}
	return err
}
