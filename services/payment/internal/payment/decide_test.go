package payment_test

import (
	"testing"

	"github.com/throughline/throughline/services/payment/internal/payment"
)

func TestDecisions(t *testing.T) {
	t.Parallel()
	refuse := func(reason string) payment.Decision { return payment.Decision{Act: payment.Refuse, Reason: reason} }
	do := func(a payment.Act) payment.Decision { return payment.Decision{Act: a} }
	refunds := func(list ...payment.Refund) []payment.Refund { return list }
	for name, tt := range map[string]struct {
		in                       payment.Intent
		refunds                  []payment.Refund
		authorize, capture, void payment.Decision
	}{
		"held": {
			payment.Intent{Status: payment.RequiresCapture, Amount: 10, Held: 10}, nil,
			do(payment.Finish), do(payment.Capture), do(payment.Cancel),
		},
		"held in part": {
			payment.Intent{Status: payment.RequiresCapture, Amount: 10, Held: 9}, nil,
			do(payment.Ask), do(payment.Capture), do(payment.Cancel),
		},
		"captured": {
			payment.Intent{Status: payment.Succeeded, Amount: 10, Captured: 10}, nil,
			do(payment.Finish), do(payment.Finish), do(payment.RefundRest),
		},
		"captured in part": {
			payment.Intent{Status: payment.Succeeded, Amount: 10, Captured: 4}, nil,
			do(payment.Ask), refuse("captured_in_part"), do(payment.RefundRest),
		},
		"refunded": {
			payment.Intent{Status: payment.Succeeded, Amount: 10, Captured: 10, Refunded: 10},
			refunds(payment.Refund{Status: payment.RefundSucceeded, Amount: 10}),
			refuse("refunded_at_provider"), refuse("refunded_at_provider"), do(payment.Finish),
		},
		"refunded in part": {
			payment.Intent{Status: payment.Succeeded, Amount: 10, Captured: 10, Refunded: 4},
			refunds(payment.Refund{Status: payment.RefundSucceeded, Amount: 4}),
			do(payment.Ask), refuse("refunded_at_provider"), do(payment.RefundRest),
		},
		"a refund on its way": {
			payment.Intent{Status: payment.Succeeded, Amount: 10, Captured: 10, Refunded: 10},
			refunds(payment.Refund{Status: payment.RefundSucceeded, Amount: 4}, payment.Refund{Status: payment.RefundPending, Amount: 6}),
			refuse("refunded_at_provider"), refuse("refunded_at_provider"), do(payment.AwaitRefund),
		},
		"a refund nobody knows": {
			payment.Intent{Status: payment.Succeeded, Amount: 10, Captured: 10},
			refunds(payment.Refund{Status: "thought_about", Amount: 10}),
			do(payment.Finish), do(payment.Finish), do(payment.AwaitRefund),
		},
		"a failed refund": {
			payment.Intent{Status: payment.Succeeded, Amount: 10, Captured: 10},
			refunds(payment.Refund{Status: payment.RefundFailed, Amount: 10}, payment.Refund{Status: payment.RefundCanceled, Amount: 10}),
			do(payment.Finish), do(payment.Finish), do(payment.RefundRest),
		},
		"declined": {
			payment.Intent{Status: payment.RequiresPaymentMethod, Amount: 10, Decline: "card_declined"}, nil,
			refuse("card_declined"), do(payment.Ask), do(payment.Cancel),
		},
		"without a method": {
			payment.Intent{Status: payment.RequiresPaymentMethod, Amount: 10}, nil,
			refuse("invalid_payment_method"), do(payment.Ask), do(payment.Cancel),
		},
		"not confirmed": {
			payment.Intent{Status: payment.RequiresConfirmation, Amount: 10}, nil,
			do(payment.Confirm), do(payment.Ask), do(payment.Cancel),
		},
		"the customer's turn": {
			payment.Intent{Status: payment.RequiresAction, Amount: 10}, nil,
			do(payment.AwaitCustomer), do(payment.Ask), do(payment.Cancel),
		},
		"canceled by hand": {
			payment.Intent{Status: payment.Canceled, Amount: 10, Cancellation: payment.RequestedByCustomer}, nil,
			refuse("canceled_at_provider"), refuse("canceled_at_provider"), do(payment.Finish),
		},
		"expired": {
			payment.Intent{Status: payment.Canceled, Amount: 10, Cancellation: payment.Automatic}, nil,
			refuse("authorization_expired"), refuse("authorization_expired"), do(payment.Finish),
		},
		"abandoned": {
			payment.Intent{Status: payment.Canceled, Amount: 10, Cancellation: payment.Abandoned}, nil,
			refuse("authentication_required"), refuse("authentication_required"), do(payment.Finish),
		},
		"processing":       {payment.Intent{Status: payment.Processing, Amount: 10}, nil, do(payment.Ask), do(payment.Ask), do(payment.Ask)},
		"a status of 2040": {payment.Intent{Status: "beamed", Amount: 10}, nil, do(payment.Ask), do(payment.Ask), do(payment.Ask)},
		"no status at all": {payment.Intent{Amount: 10}, nil, do(payment.Ask), do(payment.Ask), do(payment.Ask)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := payment.ForAuthorize(tt.in); got != tt.authorize {
				t.Errorf("authorize: got %+v, want %+v", got, tt.authorize)
			}
			if got := payment.ForCapture(tt.in); got != tt.capture {
				t.Errorf("capture: got %+v, want %+v", got, tt.capture)
			}
			if got := payment.ForVoid(tt.in, tt.refunds); got != tt.void {
				t.Errorf("void: got %+v, want %+v", got, tt.void)
			}
		})
	}
}

func TestMoved(t *testing.T) {
	t.Parallel()
	idle := payment.Intent{ID: "idle", Status: payment.RequiresConfirmation}
	gone := payment.Intent{ID: "gone", Status: payment.Canceled}
	held := payment.Intent{ID: "held", Status: payment.RequiresCapture, Held: 10}
	declined := payment.Intent{ID: "declined", Status: payment.RequiresPaymentMethod, Decline: "card_declined"}
	for name, tt := range map[string]struct {
		found []payment.Intent
		want  string
	}{
		"none":                  {nil, ""},
		"none that was tried":   {[]payment.Intent{idle, gone}, ""},
		"the one that holds":    {[]payment.Intent{declined, idle, held, gone}, "held"},
		"the one that declined": {[]payment.Intent{idle, declined}, "declined"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, ok := payment.Moved(tt.found); got.ID != tt.want || ok != (tt.want != "") {
				t.Errorf("got %q, %t, want %q", got.ID, ok, tt.want)
			}
		})
	}
}
