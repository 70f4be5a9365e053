package payment

import (
	"net/http"
	"slices"
)

// orderSource says where the order id of a call is to be found.
type orderSource int

const (
	orderInMetadata orderSource = iota // of the request
	orderInQuery                       // of a search
	orderOfIntent                      // named by the path
	orderOfRefund                      // named by the path
	orderOfParam                       // named by payment_intent or charge
	orderOfNone                        // it is about all
)

// An operation is one entry of the provider's interface. prepare reads the
// parameters, leaving errors in the form, and returns what to do once the
// store is locked.
type operation struct {
	name    string // as fault rules and the ledger call it
	pattern string
	order   orderSource
	prepare func(f *form, id string) func(*tx) outcome
}

func operations() []operation {
	return []operation{
		{"payment_intents.create", "POST /v1/payment_intents", orderInMetadata, create},
		{"payment_intents.list", "GET /v1/payment_intents", orderOfNone, list},
		{"payment_intents.retrieve", "GET /v1/payment_intents/{id}", orderOfIntent, retrieve},
		{"payment_intents.search", "GET /v1/payment_intents/search", orderInQuery, search},
		{"payment_intents.confirm", "POST /v1/payment_intents/{id}/confirm", orderOfIntent, confirm},
		{"payment_intents.capture", "POST /v1/payment_intents/{id}/capture", orderOfIntent, capture},
		{"payment_intents.cancel", "POST /v1/payment_intents/{id}/cancel", orderOfIntent, cancel},
		{"refunds.create", "POST /v1/refunds", orderOfParam, createRefund},
		{"refunds.list", "GET /v1/refunds", orderOfParam, listRefunds},
		{"refunds.retrieve", "GET /v1/refunds/{id}", orderOfRefund, retrieveRefund},
	}
}

func operationNames() []string {
	var names []string
	for _, op := range operations() {
		names = append(names, op.name)
	}
	return names
}

// confirmParams may come with create (confirm=true) and with confirm. Those
// that change nothing here are accepted all the same.
var confirmParams = []string{
	"payment_method", "return_url", "off_session", "error_on_requires_action", "payment_method_options",
	"payment_method_types", "receipt_email", "setup_future_usage", "shipping", "use_stripe_sdk", "capture_method",
	"mandate_data", "radar_options",
}

var createParams = append([]string{
	"amount", "currency", "confirm", "confirmation_method", "description", "metadata", "customer",
	"automatic_payment_methods", "statement_descriptor", "statement_descriptor_suffix", "transfer_group",
}, confirmParams...)

func readConfirmation(f *form) confirmation {
	c := confirmation{
		paymentMethod: f.str("payment_method"), returnURL: f.str("return_url"), baseURL: f.baseURL,
		// off_session also has two word-like values, "one_off" and "recurring".
		noAction: f.boolean("error_on_requires_action") || !slices.Contains([]string{"", "false"}, f.str("off_session")),
	}
	if c.returnURL != "" && !validReturnURL(c.returnURL) {
		f.fail(invalidParam("return_url", "url_invalid", "Not a valid URL"))
	}
	return c
}

func create(f *form, _ string) func(*tx) outcome {
	f.only(createParams...)
	amount, ok := f.integer("amount")
	if !ok {
		f.need("amount")
	}
	currency := f.need("currency")
	if f.err == nil && !currencies[currency] {
		f.fail(invalidParam("currency", "", "Invalid currency: "+currency+". Currencies are lower-case three-letter codes."))
	}
	if f.err == nil {
		if e := checkAmount(amount, currency); e != nil {
			f.fail(e)
		}
	}
	now, expand := f.boolean("confirm"), f.expands("latest_charge")
	template := intent{
		Amount: amount, Currency: currency, Description: f.str("description"), Metadata: f.metadata(),
		CaptureMethod:      f.choice("capture_method", "automatic_async", "automatic", "manual"),
		ConfirmationMethod: f.choice("confirmation_method", "automatic", "manual"),
		PaymentMethod:      f.str("payment_method"), ReturnURL: f.str("return_url"), Status: requiresPaymentMethod,
		MethodTypes: []string{"card"},
	}
	template.OrderID = template.Metadata["order_id"]
	c := readConfirmation(f)
	if !now && f.str("return_url") != "" {
		f.fail(invalidParam("return_url", "", "return_url can only be given together with confirm=true."))
	}
	return func(t *tx) outcome {
		if pm := template.PaymentMethod; pm != "" {
			if _, ok := lookupMethod(pm); !ok {
				return outcome{err: noSuch(http.StatusBadRequest, "PaymentMethod", pm, "payment_method")}
			}
			template.Status = requiresConfirmation
		}
		in := &template
		in.ID, in.CreatedAt = newID("pi_"), t.now
		in.ClientSecret = newID(in.ID + "_secret_")
		if !now {
			t.changed(in, "payment_intent.created")
			return outcome{body: in.render(expand), effect: true}
		}
		if in.PaymentMethod == "" {
			return outcome{err: missingParam("payment_method")}
		}
		t.changed(in, "payment_intent.created")
		return confirmNow(t, in, c, expand)
	}
}

// withIntent finds the intent that the path names.
func withIntent(id string, do func(*tx, *intent) outcome) func(*tx) outcome {
	return func(t *tx) outcome {
		in := t.s.intents[id]
		if in == nil {
			return outcome{err: noSuch(http.StatusNotFound, "payment_intent", id, "intent")}
		}
		return do(t, in)
	}
}

func retrieve(f *form, id string) func(*tx) outcome {
	f.only("client_secret")
	expand := f.expands("latest_charge")
	return withIntent(id, func(_ *tx, in *intent) outcome { return outcome{body: in.render(expand)} })
}

func confirm(f *form, id string) func(*tx) outcome {
	f.only(confirmParams...)
	c, expand := readConfirmation(f), f.expands("latest_charge")
	return withIntent(id, func(t *tx, in *intent) outcome { return confirmNow(t, in, c, expand) })
}

func confirmNow(t *tx, in *intent, c confirmation, expand bool) outcome {
	if e := in.confirm(c, t.now); e != nil {
		if e.status == http.StatusPaymentRequired {
			t.changed(in, "payment_intent.payment_failed")
		}
		return outcome{err: e}
	}
	t.changed(in, eventOf(in.Status))
	return outcome{body: in.render(expand), effect: true}
}

// eventOf is the event that tells of a status just reached.
func eventOf(status string) string {
	switch status {
	case requiresAction:
		return "payment_intent.requires_action"
	case requiresCapture:
		return "payment_intent.amount_capturable_updated"
	case succeeded:
		return "payment_intent.succeeded"
	case canceled:
		return "payment_intent.canceled"
	}
	return "payment_intent.payment_failed"
}

func capture(f *form, id string) func(*tx) outcome {
	f.only("amount_to_capture", "final_capture", "metadata", "statement_descriptor", "statement_descriptor_suffix", "application_fee_amount", "transfer_data")
	amount, given := f.integer("amount_to_capture")
	if given && amount < 1 {
		f.fail(invalidParam("amount_to_capture", "parameter_invalid_integer", "This value must be greater than or equal to 1."))
	}
	expand := f.expands("latest_charge")
	return withIntent(id, func(t *tx, in *intent) outcome {
		if e := in.capture(amount); e != nil {
			return outcome{err: e}
		}
		t.changed(in, "payment_intent.succeeded")
		t.emit("charge.captured", in.OrderID, in.renderCharge())
		return outcome{body: in.render(expand), effect: true}
	})
}

func cancel(f *form, id string) func(*tx) outcome {
	f.only("cancellation_reason")
	reason := ""
	if f.str("cancellation_reason") != "" {
		reason = f.choice("cancellation_reason", "duplicate", "fraudulent", "requested_by_customer", "abandoned")
	}
	expand := f.expands("latest_charge")
	return withIntent(id, func(t *tx, in *intent) outcome {
		if e := in.cancel(reason, t.now); e != nil {
			return outcome{err: e}
		}
		t.changed(in, "payment_intent.canceled")
		return outcome{body: in.render(expand), effect: true}
	})
}
