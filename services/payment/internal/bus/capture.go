package bus

import (
	"context"
	"fmt"

	"github.com/throughline/throughline/pkg/participant"
	paymentv1 "github.com/throughline/throughline/proto/gen/throughline/payment/v1"
	"github.com/throughline/throughline/services/payment/internal/payment"
	"github.com/throughline/throughline/services/payment/internal/provider"
)

// capture takes the money that authorize_payment holds.
func (s *Steps) capture(ctx context.Context, call *participant.Call) participant.Outcome {
	auth, ok, err := call.Sibling(ctx, AuthorizePayment)
	if err != nil {
		return participant.Unknown{Err: err}
	}
	if !ok || auth.State != participant.StateDone || auth.Reference == "" {
		return participant.Refused{Reason: payment.ReasonNotAuthorized}
	}
	p, charge, err := s.authorized(call.OrderID, auth)
	if err != nil {
		return participant.Unknown{Err: err}
	}
	// At the first attempt the intent is as the authorization has left it, or the provider will say otherwise.
	in := payment.Intent{ID: auth.Reference, Status: payment.RequiresCapture, Amount: charge.Amount.Minor, Held: charge.Amount.Minor}
	if call.Attempt > 1 {
		if in, err = p.Retrieve(ctx, auth.Reference); err != nil {
			return participant.Unknown{Err: err, Reference: auth.Reference}
		}
	}
	var lastErr error // why the capture may not be repeated now, if it shows no effect
	var used counter
	for range maxKeys {
		d := payment.ForCapture(in)
		switch d.Act {
		case payment.Finish:
			return participant.Done{Reference: in.ID, Result: &paymentv1.PaymentCaptured{
				OrderId: call.OrderID.String(), PaymentIntentId: in.ID, Currency: string(charge.Amount.Currency), AmountCaptured: in.Captured,
			}}
		case payment.Refuse:
			return participant.Refused{Reason: d.Reason, Reference: in.ID}
		case payment.Capture:
		default:
			return unknown(in, fmt.Errorf("%w: %q", errUnplanned, in.Status))
		}
		if reason, ok := provider.Refusal(lastErr); ok {
			// What is held stays held until the undo, which the refusal leads to, releases it.
			return participant.Refused{Reason: reason, Reference: in.ID}
		}
		if lastErr != nil {
			return unknown(in, lastErr)
		}
		in, lastErr = s.act(ctx, p, in, &used, func(n int) (payment.Intent, error) {
			return p.Capture(ctx, providerKey(call.StepKey, opCapture, n), in.ID)
		})
	}
	return unknown(in, errKeysUsedUp)
}
