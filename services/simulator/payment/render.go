package payment

import "net/url"

// The objects as they go over the wire; null is written where the provider
// writes it, since clients tell null from absent.

type intentJSON struct {
	ID                 string            `json:"id"`
	Object             string            `json:"object"`
	Amount             int64             `json:"amount"`
	AmountCapturable   int64             `json:"amount_capturable"`
	AmountReceived     int64             `json:"amount_received"`
	CanceledAt         *int64            `json:"canceled_at"`
	CancellationReason *string           `json:"cancellation_reason"`
	CaptureMethod      string            `json:"capture_method"`
	ClientSecret       string            `json:"client_secret"`
	ConfirmationMethod string            `json:"confirmation_method"`
	Created            int64             `json:"created"`
	Currency           string            `json:"currency"`
	Customer           *string           `json:"customer"`
	Description        *string           `json:"description"`
	LastPaymentError   *apiError         `json:"last_payment_error"`
	LatestCharge       any               `json:"latest_charge"`
	Livemode           bool              `json:"livemode"`
	Metadata           map[string]string `json:"metadata"`
	NextAction         *nextActionJSON   `json:"next_action"`
	PaymentMethod      *string           `json:"payment_method"`
	PaymentMethodTypes []string          `json:"payment_method_types"`
	Processing         *string           `json:"processing"`
	Status             string            `json:"status"`
}

type nextActionJSON struct {
	Type          string `json:"type"`
	RedirectToURL struct {
		ReturnURL *string `json:"return_url"`
		URL       string  `json:"url"`
	} `json:"redirect_to_url"`
}

type chargeJSON struct {
	ID             string            `json:"id"`
	Object         string            `json:"object"`
	Amount         int64             `json:"amount"`
	AmountCaptured int64             `json:"amount_captured"`
	AmountRefunded int64             `json:"amount_refunded"`
	Captured       bool              `json:"captured"`
	Created        int64             `json:"created"`
	Currency       string            `json:"currency"`
	FailureCode    *string           `json:"failure_code"`
	FailureMessage *string           `json:"failure_message"`
	Livemode       bool              `json:"livemode"`
	Metadata       map[string]string `json:"metadata"`
	Paid           bool              `json:"paid"`
	PaymentIntent  string            `json:"payment_intent"`
	PaymentMethod  string            `json:"payment_method"`
	Refunded       bool              `json:"refunded"`
	Status         string            `json:"status"`
}

type refundJSON struct {
	ID            string            `json:"id"`
	Object        string            `json:"object"`
	Amount        int64             `json:"amount"`
	Charge        string            `json:"charge"`
	Created       int64             `json:"created"`
	Currency      string            `json:"currency"`
	FailureReason string            `json:"failure_reason,omitempty"`
	Metadata      map[string]string `json:"metadata"`
	PaymentIntent string            `json:"payment_intent"`
	Reason        *string           `json:"reason"`
	Status        string            `json:"status"`
}

type paymentMethodJSON struct {
	ID     string            `json:"id"`
	Object string            `json:"object"`
	Type   string            `json:"type"`
	Card   map[string]string `json:"card"`
}

type listJSON struct {
	Object   string  `json:"object"`
	URL      string  `json:"url"`
	HasMore  bool    `json:"has_more"`
	NextPage *string `json:"next_page,omitempty"`
	Data     any     `json:"data"`
}

// optional is nil for the empty string, which stands for null here.
func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func notNil(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

// render returns the intent as it is now; nothing in it is shared with what
// may change later.
func (in *intent) render(expandCharge bool) *intentJSON {
	j := &intentJSON{
		ID: in.ID, Object: "payment_intent", Amount: in.Amount, AmountCapturable: in.Capturable,
		AmountReceived: in.Captured, CancellationReason: optional(in.CancellationReason), CaptureMethod: in.CaptureMethod,
		ClientSecret: in.ClientSecret, ConfirmationMethod: in.ConfirmationMethod, Created: in.CreatedAt.Unix(),
		Currency: in.Currency, Description: optional(in.Description), LastPaymentError: in.LastError,
		Metadata: notNil(in.Metadata), PaymentMethod: optional(in.PaymentMethod), PaymentMethodTypes: in.MethodTypes,
		Status: in.Status,
	}
	if !in.CanceledAt.IsZero() {
		at := in.CanceledAt.Unix()
		j.CanceledAt = &at
	}
	if in.AuthenticateURL != "" {
		next := &nextActionJSON{Type: "redirect_to_url"}
		next.RedirectToURL.URL, next.RedirectToURL.ReturnURL = in.AuthenticateURL, optional(in.ReturnURL)
		j.NextAction = next
	}
	switch {
	case in.Charge == nil:
	case expandCharge:
		j.LatestCharge = in.renderCharge()
	default:
		j.LatestCharge = in.Charge.ID
	}
	return j
}

func (in *intent) renderCharge() *chargeJSON {
	c := in.Charge
	j := &chargeJSON{
		ID: c.ID, Object: "charge", Amount: in.Amount, AmountCaptured: in.Captured, AmountRefunded: in.Refunded,
		Captured: in.Captured > 0, Created: c.CreatedAt.Unix(), Currency: in.Currency,
		FailureCode: optional(c.FailureCode), FailureMessage: optional(c.FailureText), Metadata: notNil(in.Metadata),
		Paid: c.FailureCode == "", PaymentIntent: in.ID, PaymentMethod: c.PaymentMethod, Status: "succeeded",
	}
	if c.FailureCode != "" {
		j.Status = "failed"
	}
	// What is released, by a cancel or by a smaller capture, shows as refunded.
	if c.Released {
		j.AmountRefunded = in.Amount
	} else if in.Captured > 0 {
		j.AmountRefunded += in.Amount - in.Captured
	}
	j.Refunded = j.AmountRefunded == in.Amount
	return j
}

func (r *refund) render() *refundJSON {
	j := &refundJSON{
		ID: r.ID, Object: "refund", Amount: r.Amount, Charge: r.ChargeID, Created: r.CreatedAt.Unix(),
		Currency: r.Currency, Metadata: notNil(r.Metadata), PaymentIntent: r.IntentID, Reason: optional(r.Reason),
		Status: r.Status,
	}
	if r.Status == "failed" {
		j.FailureReason = "unknown"
	}
	return j
}

func renderMethod(id string) *paymentMethodJSON {
	m, _ := lookupMethod(id)
	return &paymentMethodJSON{ID: id, Object: "payment_method", Type: "card", Card: map[string]string{"brand": m.brand}}
}

// validReturnURL accepts what a browser may be sent to.
func validReturnURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}
