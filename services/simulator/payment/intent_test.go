package payment_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stripe/stripe-go/v82"

	"github.com/throughline/throughline/services/simulator/payment"
)

// Every published method, confirmed by the provider's own client.
func TestPaymentMethods(t *testing.T) {
	t.Parallel()
	s := start(t, payment.Config{})
	const capturable, action, none = stripe.PaymentIntentStatusRequiresCapture,
		stripe.PaymentIntentStatusRequiresAction, stripe.PaymentIntentStatusRequiresPaymentMethod
	tests := []struct {
		method  string
		status  stripe.PaymentIntentStatus
		code    stripe.ErrorCode
		decline stripe.DeclineCode
	}{
		{"pm_card_visa", capturable, "", ""},
		{"pm_card_visa_debit", capturable, "", ""},
		{"pm_card_mastercard", capturable, "", ""},
		{"pm_card_mastercard_prepaid", capturable, "", ""},
		{"pm_card_amex", capturable, "", ""},
		{"pm_card_discover", capturable, "", ""},
		{"pm_card_diners", capturable, "", ""},
		{"pm_card_jcb", capturable, "", ""},
		{"pm_card_unionpay", capturable, "", ""},
		{"pm_card_de", capturable, "", ""},
		{"pm_card_pendingRefund", capturable, "", ""},
		{"pm_card_refundFail", capturable, "", ""},
		{payment.CaptureDeclined, capturable, "", ""},
		{"pm_card_visa_chargeDeclined", none, "card_declined", "generic_decline"},
		{"pm_card_chargeDeclined", none, "card_declined", "generic_decline"},
		{"pm_card_visa_chargeDeclinedInsufficientFunds", none, "card_declined", "insufficient_funds"},
		{"pm_card_chargeDeclinedInsufficientFunds", none, "card_declined", "insufficient_funds"},
		{"pm_card_visa_chargeDeclinedLostCard", none, "card_declined", "lost_card"},
		{"pm_card_chargeDeclinedLostCard", none, "card_declined", "lost_card"},
		{"pm_card_visa_chargeDeclinedStolenCard", none, "card_declined", "stolen_card"},
		{"pm_card_chargeDeclinedStolenCard", none, "card_declined", "stolen_card"},
		{"pm_card_visa_chargeDeclinedVelocityLimitExceeded", none, "card_declined", "card_velocity_exceeded"},
		{"pm_card_chargeDeclinedFraudulent", none, "card_declined", "fraudulent"},
		{"pm_card_radarBlock", none, "card_declined", "fraudulent"},
		{"pm_card_chargeCustomerFail", none, "card_declined", "generic_decline"},
		{"pm_card_chargeDeclinedExpiredCard", none, "expired_card", ""},
		{"pm_card_chargeDeclinedIncorrectCvc", none, "incorrect_cvc", ""},
		{"pm_card_chargeDeclinedProcessingError", none, "processing_error", ""},
		{"pm_card_authenticationRequired", action, "", ""},
		{"pm_card_threeDSecure2Required", action, "", ""},
		{"pm_card_threeDSecureRequiredChargeDeclined", action, "", ""},
	}
	for _, test := range tests {
		t.Run(test.method, func(t *testing.T) {
			t.Parallel()
			pi := s.mustCreate(test.method, test.method)
			if pi.Status != stripe.PaymentIntentStatusRequiresConfirmation {
				t.Fatalf("status after create: got %s, want requires_confirmation", pi.Status)
			}
			confirmed, err := s.confirm(pi.ID, "confirm-"+test.method)
			if test.code != "" {
				e := asStripe(t, err)
				if e.HTTPStatusCode != 402 || e.Type != stripe.ErrorTypeCard || e.Code != test.code || e.DeclineCode != test.decline {
					t.Errorf("error: got %d %s %s %s, want 402 card_error %s %s",
						e.HTTPStatusCode, e.Type, e.Code, e.DeclineCode, test.code, test.decline)
				}
				if e.PaymentIntent == nil || e.PaymentIntent.ID != pi.ID || e.PaymentIntent.Status != test.status {
					t.Errorf("error's intent: got %+v, want %s in %s", e.PaymentIntent, pi.ID, test.status)
				}
			} else if err != nil {
				t.Fatalf("confirming: %v", err)
			} else if confirmed.Status != test.status {
				t.Errorf("status: got %s, want %s", confirmed.Status, test.status)
			}
			got := s.retrieve(pi.ID)
			if got.Status != test.status {
				t.Errorf("status retrieved: got %s, want %s", got.Status, test.status)
			}
			if want := test.status == capturable; (got.AmountCapturable == 1099) != want || got.AmountReceived != 0 {
				t.Errorf("capturable %d, received %d: want capturable %t, nothing received", got.AmountCapturable, got.AmountReceived, want)
			}
			if (got.LastPaymentError != nil) != (test.code != "") {
				t.Errorf("last_payment_error: got %v", got.LastPaymentError)
			}
			if test.code != "" && (got.LastPaymentError.Code != test.code || got.PaymentMethod != nil || got.LatestCharge == nil) {
				t.Errorf("after decline: got %+v, method %v, charge %v", got.LastPaymentError, got.PaymentMethod, got.LatestCharge)
			}
			if isAction := got.NextAction != nil && got.NextAction.Type == "redirect_to_url" && got.NextAction.RedirectToURL.URL != ""; isAction != (test.status == action) {
				t.Errorf("next_action: got %+v", got.NextAction)
			}
		})
	}
}

func TestShapeOfAnIntent(t *testing.T) {
	t.Parallel()
	s := start(t, payment.Config{})
	r := s.post("/v1/payment_intents", "k", createForm)
	for _, want := range []string{
		`"object":"payment_intent"`, `"amount":1099`, `"amount_capturable":0`, `"amount_received":0`, `"currency":"eur"`,
		`"capture_method":"manual"`, `"latest_charge":null`, `"last_payment_error":null`, `"next_action":null`,
		`"canceled_at":null`, `"cancellation_reason":null`, `"metadata":{"order_id":"o1"}`, `"status":"requires_confirmation"`,
		`"payment_method":"pm_card_visa"`, `"client_secret":"pi_`, `"livemode":false`,
	} {
		if !strings.Contains(r.body, want) {
			t.Errorf("answer lacks %s: %s", want, r.body)
		}
	}
	if !strings.HasPrefix(r.header.Get("Request-Id"), "req_") {
		t.Errorf("Request-Id: got %q", r.header.Get("Request-Id"))
	}
}

// Which operation is possible in which status.
func TestStatuses(t *testing.T) {
	t.Parallel()
	s := start(t, payment.Config{})
	const unexpected = stripe.ErrorCodePaymentIntentUnexpectedState
	tests := []struct {
		status                   stripe.PaymentIntentStatus
		confirm, capture, cancel stripe.ErrorCode
	}{
		{stripe.PaymentIntentStatusRequiresPaymentMethod, unexpected, unexpected, ""},
		{stripe.PaymentIntentStatusRequiresConfirmation, "", unexpected, ""},
		{stripe.PaymentIntentStatusRequiresAction, "", unexpected, ""},
		{stripe.PaymentIntentStatusRequiresCapture, unexpected, "", ""},
		{stripe.PaymentIntentStatusSucceeded, unexpected, unexpected, unexpected},
		{stripe.PaymentIntentStatusCanceled, unexpected, unexpected, unexpected},
	}
	for _, test := range tests {
		for name, op := range map[string]struct {
			do   func(id, key string) (*stripe.PaymentIntent, error)
			want stripe.ErrorCode
		}{
			"confirm": {s.confirm, test.confirm}, "capture": {s.capture, test.capture}, "cancel": {s.cancel, test.cancel},
		} {
			t.Run(string(test.status)+"/"+name, func(t *testing.T) {
				t.Parallel()
				order := string(test.status) + name
				pi := s.in(order, test.status)
				_, err := op.do(pi.ID, "again-"+order)
				if op.want == "" {
					if err != nil {
						t.Errorf("got %v, want success", err)
					}
					return
				}
				e := asStripe(t, err)
				if e.HTTPStatusCode != 400 || e.Type != stripe.ErrorTypeInvalidRequest || e.Code != op.want {
					t.Errorf("got %d %s %s, want 400 invalid_request_error %s", e.HTTPStatusCode, e.Type, e.Code, op.want)
				}
				if e.PaymentIntent == nil || e.PaymentIntent.Status != test.status {
					t.Errorf("error's intent: got %+v, want status %s", e.PaymentIntent, test.status)
				}
				if got := s.retrieve(pi.ID).Status; got != test.status {
					t.Errorf("status afterwards: got %s, want %s", got, test.status)
				}
			})
		}
	}
}

func TestCancelShowsWhenAndWhy(t *testing.T) {
	t.Parallel()
	s := start(t, payment.Config{})
	pi := s.in("o", stripe.PaymentIntentStatusRequiresCapture)
	got, err := s.cancel(pi.ID, "c")
	if err != nil {
		t.Fatal(err)
	}
	if got.AmountCapturable != 0 || got.CanceledAt == 0 || got.CancellationReason != "requested_by_customer" {
		t.Errorf("got capturable %d, canceled_at %d, reason %q", got.AmountCapturable, got.CanceledAt, got.CancellationReason)
	}
}

func TestCaptureDeclinedLeavesTheAuthorization(t *testing.T) {
	t.Parallel()
	s := start(t, payment.Config{})
	pi := s.mustCreate("o", payment.CaptureDeclined)
	if _, err := s.confirm(pi.ID, "c"); err != nil {
		t.Fatal(err)
	}
	_, err := s.capture(pi.ID, "p")
	e := asStripe(t, err)
	if e.HTTPStatusCode != 402 || e.Type != stripe.ErrorTypeCard || e.DeclineCode != "do_not_honor" {
		t.Errorf("capture: got %d %s %s, want 402 card_error do_not_honor", e.HTTPStatusCode, e.Type, e.DeclineCode)
	}
	if got := s.retrieve(pi.ID); got.Status != "requires_capture" || got.AmountCapturable != 1099 {
		t.Errorf("afterwards: got %s, %d capturable; want requires_capture, 1099", got.Status, got.AmountCapturable)
	}
	if _, err := s.cancel(pi.ID, "v"); err != nil {
		t.Errorf("voiding: %v", err)
	}
}

func TestOffSessionCannotAuthenticate(t *testing.T) {
	t.Parallel()
	s := start(t, payment.Config{})
	r := s.post("/v1/payment_intents", "", "amount=5&currency=usd&confirm=true&off_session=true&payment_method=pm_card_authenticationRequired")
	if r.status != 402 || !strings.Contains(r.body, `"code":"authentication_required"`) {
		t.Errorf("got %d %s, want 402 authentication_required", r.status, r.body)
	}
}

func TestPartialCaptureAndExpandedCharge(t *testing.T) {
	t.Parallel()
	s := start(t, payment.Config{})
	pi := s.in("o", stripe.PaymentIntentStatusRequiresCapture)
	p := &stripe.PaymentIntentCaptureParams{AmountToCapture: stripe.Int64(1000)}
	p.AddExpand("latest_charge")
	got, err := s.stripe.V1PaymentIntents.Capture(t.Context(), pi.ID, p)
	if err != nil {
		t.Fatal(err)
	}
	c := got.LatestCharge
	if got.Status != "succeeded" || got.AmountReceived != 1000 || c.AmountCaptured != 1000 || c.AmountRefunded != 99 || c.PaymentIntent.ID != pi.ID {
		t.Errorf("got %s, received %d, charge %+v; want succeeded, 1000 and a charge with 99 released", got.Status, got.AmountReceived, c)
	}
}

func TestRefunds(t *testing.T) {
	t.Parallel()
	s := start(t, payment.Config{})
	pi := s.in("o", stripe.PaymentIntentStatusSucceeded)
	first, err := s.refund(pi.ID, "r1", 99)
	if err != nil {
		t.Fatal(err)
	}
	if first.Status != "succeeded" || first.Amount != 99 || first.PaymentIntent.ID != pi.ID || first.Charge.ID != pi.LatestCharge.ID {
		t.Errorf("refund: got %+v", first)
	}
	_, err = s.refund(pi.ID, "r2", 1001)
	if e := asStripe(t, err); e.HTTPStatusCode != 400 || e.Param != "amount" {
		t.Errorf("too much: got %d, param %q; want 400, amount", e.HTTPStatusCode, e.Param)
	}
	if rest, err := s.refund(pi.ID, "r3", 0); err != nil || rest.Amount != 1000 {
		t.Errorf("rest: got %+v, %v; want 1000", rest, err)
	}
	_, err = s.refund(pi.ID, "r4", 0)
	if e := asStripe(t, err); e.Code != stripe.ErrorCodeChargeAlreadyRefunded {
		t.Errorf("nothing left: got %s, want charge_already_refunded", e.Code)
	}
	var amounts []int64
	for r, err := range s.stripe.V1Refunds.List(t.Context(), &stripe.RefundListParams{PaymentIntent: stripe.String(pi.ID)}) {
		if err != nil {
			t.Fatal(err)
		}
		amounts = append(amounts, r.Amount)
	}
	if len(amounts) != 2 || amounts[0] != 1000 || amounts[1] != 99 {
		t.Errorf("list: got %v, want [1000 99]", amounts)
	}
	l := s.ledger("o")
	if in := l.Intents[0]; in.AmountCaptured != 1099 || in.AmountRefunded != 1099 || len(l.Refunds) != 2 {
		t.Errorf("ledger: got %+v and %d refunds", in, len(l.Refunds))
	}
}

func TestRefundListPages(t *testing.T) {
	t.Parallel()
	s := start(t, payment.Config{})
	pi := s.in("o", stripe.PaymentIntentStatusSucceeded)
	for _, key := range []string{"a", "b", "c", "d", "e"} {
		if _, err := s.refund(pi.ID, key, 10); err != nil {
			t.Fatal(err)
		}
	}
	p := &stripe.RefundListParams{PaymentIntent: stripe.String(pi.ID)}
	p.Limit = stripe.Int64(2) // three pages
	n := 0
	for _, err := range s.stripe.V1Refunds.List(t.Context(), p) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != 5 {
		t.Errorf("refunds over all pages: got %d, want 5", n)
	}
}

func TestRefundOfWhatWasNotCaptured(t *testing.T) {
	t.Parallel()
	s := start(t, payment.Config{})
	for _, status := range []stripe.PaymentIntentStatus{"requires_confirmation", "requires_capture", "canceled"} {
		pi := s.in(string(status), status)
		_, err := s.refund(pi.ID, "r-"+string(status), 0)
		if e := asStripe(t, err); e.HTTPStatusCode != 400 || !strings.Contains(e.Msg, "does not have a successful charge") {
			t.Errorf("%s: got %d %s", status, e.HTTPStatusCode, e.Msg)
		}
	}
}

func TestRefundsThatSettleLater(t *testing.T) {
	t.Parallel()
	s := start(t, payment.Config{RefundDelay: time.Millisecond})
	for method, want := range map[string]struct {
		status   string
		refunded int64
	}{"pm_card_pendingRefund": {"succeeded", 1099}, "pm_card_refundFail": {"failed", 0}} {
		pi := s.mustCreate(method, method)
		if _, err := s.confirm(pi.ID, "c-"+method); err != nil {
			t.Fatal(err)
		}
		if _, err := s.capture(pi.ID, "p-"+method); err != nil {
			t.Fatal(err)
		}
		r, err := s.refund(pi.ID, "r-"+method, 0)
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, method+" settled", func() bool {
			got, err := s.stripe.V1Refunds.Retrieve(t.Context(), r.ID, nil)
			return err == nil && string(got.Status) == want.status
		})
		if got := s.ledger(method).Intents[0].AmountRefunded; got != want.refunded {
			t.Errorf("%s: refunded %d, want %d", method, got, want.refunded)
		}
	}
}

func TestSearch(t *testing.T) {
	t.Parallel()
	now := time.Now()
	clock := &clock{now: now}
	s := start(t, payment.Config{SearchLag: 10 * time.Second, Now: clock.Now})
	pi := s.in("o1", stripe.PaymentIntentStatusRequiresCapture)
	s.in("o2", stripe.PaymentIntentStatusRequiresCapture)
	find := func(query string) (ids []string) {
		p := &stripe.PaymentIntentSearchParams{}
		p.Query, p.Limit = query, stripe.Int64(1)
		for pi, err := range s.stripe.V1PaymentIntents.Search(t.Context(), p) {
			if err != nil {
				t.Fatalf("searching: %v", err)
			}
			ids = append(ids, pi.ID)
		}
		return ids
	}
	if got := find("metadata['order_id']:'o1'"); len(got) != 0 {
		t.Errorf("within the lag: got %v, want nothing", got)
	}
	clock.advance(10 * time.Second)
	if got := find("metadata['order_id']:'o1' AND status:'requires_capture'"); len(got) != 1 || got[0] != pi.ID {
		t.Errorf("by order: got %v, want [%s]", got, pi.ID)
	}
	if got := find(`status:"requires_capture"`); len(got) != 2 {
		t.Errorf("over two pages: got %v, want two", got)
	}
	if got := find("metadata['order_id']:'o1' AND status:'canceled'"); len(got) != 0 {
		t.Errorf("other status: got %v, want nothing", got)
	}
}

func TestInvalidRequests(t *testing.T) {
	t.Parallel()
	s := start(t, payment.Config{})
	tests := map[string]struct {
		path, form string
		status     int
		code       string
	}{
		"no amount":              {"/v1/payment_intents", "currency=eur", 400, "parameter_missing"},
		"no currency":            {"/v1/payment_intents", "amount=5", 400, "parameter_missing"},
		"unknown currency":       {"/v1/payment_intents", "amount=5&currency=xxx", 400, "Invalid currency"},
		"upper case currency":    {"/v1/payment_intents", "amount=5&currency=EUR", 400, "Invalid currency"},
		"zero":                   {"/v1/payment_intents", "amount=0&currency=eur", 400, "parameter_invalid_integer"},
		"fraction":               {"/v1/payment_intents", "amount=1.5&currency=eur", 400, "parameter_invalid_integer"},
		"too large":              {"/v1/payment_intents", "amount=100000000&currency=eur", 400, "amount_too_large"},
		"three decimals":         {"/v1/payment_intents", "amount=1501&currency=kwd", 400, "multiple of 10"},
		"no decimals, sent with": {"/v1/payment_intents", "amount=150&currency=isk", 400, "multiple of 100"},
		"unknown parameter":      {"/v1/payment_intents", "amount=5&currency=eur&colour=red", 400, "parameter_unknown"},
		"unknown method":         {"/v1/payment_intents", "amount=5&currency=eur&payment_method=pm_nope", 400, "resource_missing"},
		"bad capture method":     {"/v1/payment_intents", "amount=5&currency=eur&capture_method=later", 400, "capture_method"},
		"unknown intent":         {"/v1/payment_intents/pi_nope/confirm", "", 404, "resource_missing"},
		"refund of nothing":      {"/v1/refunds", "", 400, "parameter_missing"},
		"refund of unknown":      {"/v1/refunds", "payment_intent=pi_nope", 404, "resource_missing"},
		"unknown path":           {"/v1/nope", "", 404, "Unrecognized request URL"},
		"broken form":            {"/v1/payment_intents", "amount=%zz", 400, "could not be read"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := s.post(test.path, "", test.form)
			if r.status != test.status || !strings.Contains(r.body, test.code) || !strings.Contains(r.body, `"type":"invalid_request_error"`) {
				t.Errorf("got %d %s, want %d with %s", r.status, r.body, test.status, test.code)
			}
		})
	}
}

func TestAmountsAreTakenAsTheyAre(t *testing.T) {
	t.Parallel()
	s := start(t, payment.Config{})
	for _, form := range []string{"amount=500&currency=jpy", "amount=1500&currency=kwd", "amount=2500&currency=eur", "amount=500&currency=isk"} {
		if r := s.post("/v1/payment_intents", "", form); r.status != 200 || !strings.Contains(r.body, strings.SplitN(form, "&", 2)[0][7:]) {
			t.Errorf("%s: got %d %s", form, r.status, r.body)
		}
	}
	var got []int64
	for _, in := range s.ledger("").Intents {
		got = append(got, in.Amount)
	}
	if len(got) != 4 || got[0] != 500 || got[1] != 1500 || got[2] != 2500 || got[3] != 500 {
		t.Errorf("ledger: got %v, want [500 1500 2500 500]", got)
	}
}

func TestAuthorizationHeader(t *testing.T) {
	t.Parallel()
	s := start(t, payment.Config{APIKey: "sk_test_1"})
	if _, err := s.create("o", "pm_card_visa", "k"); err != nil {
		t.Errorf("right key: %v", err)
	}
	other := newStripe(s.url)
	s.stripe = stripe.NewClient("sk_wrong", stripe.WithBackends(&stripe.Backends{
		API: other.V1PaymentIntents.B, Connect: other.V1PaymentIntents.B, Uploads: other.V1PaymentIntents.B, MeterEvents: other.V1PaymentIntents.B,
	}))
	_, err := s.create("o", "pm_card_visa", "k2")
	if e := asStripe(t, err); e.HTTPStatusCode != 401 {
		t.Errorf("wrong key: got %d, want 401", e.HTTPStatusCode)
	}
}
