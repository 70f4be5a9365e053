package payment

import (
	"fmt"
	"net/http"
	"slices"
)

func createRefund(f *form, _ string) func(*tx) outcome {
	f.only("payment_intent", "charge", "amount", "reason", "metadata", "refund_application_fee", "reverse_transfer", "currency", "instructions_email", "origin", "customer")
	if f.str("payment_intent") == "" && f.str("charge") == "" {
		f.fail(invalidParam("", "parameter_missing", "One of the following params should be provided for this request: payment_intent or charge."))
	}
	amount, given := f.integer("amount")
	if given && amount < 1 {
		f.fail(invalidParam("amount", "parameter_invalid_integer", "This value must be greater than or equal to 1."))
	}
	reason := ""
	if f.str("reason") != "" {
		reason = f.choice("reason", "duplicate", "fraudulent", "requested_by_customer")
	}
	metadata := f.metadata()
	return func(t *tx) outcome {
		in, e := refundable(t, f)
		if e != nil {
			return outcome{err: e}
		}
		if given {
			if g := granularity[in.Currency]; g > 1 && amount%g != 0 {
				return outcome{err: invalidParam("amount", "parameter_invalid_integer",
					fmt.Sprintf("Invalid amount: in %s it must be a multiple of %d.", in.Currency, g))}
			}
		}
		return refundNow(t, in, amount, reason, metadata)
	}
}

// refundable finds the intent whose charge is to be refunded.
func refundable(t *tx, f *form) (*intent, *apiError) {
	if id := f.str("payment_intent"); id != "" {
		if in := t.s.intents[id]; in != nil {
			return in, nil
		}
		return nil, noSuch(http.StatusNotFound, "payment_intent", id, "payment_intent")
	}
	id := f.str("charge")
	if in := t.s.byCharge[id]; in != nil {
		return in, nil
	}
	return nil, noSuch(http.StatusNotFound, "charge", id, "charge")
}

func refundNow(t *tx, in *intent, amount int64, reason string, metadata map[string]string) outcome {
	r, e := in.refund(amount, reason, metadata, t.now)
	if e != nil {
		return outcome{err: e}
	}
	t.changed(in)
	t.refunded(r, "refund.created")
	t.emit("charge.refunded", in.OrderID, in.renderCharge())
	if r.Status == succeeded {
		t.emit("refund.updated", r.OrderID, r.render())
	}
	return outcome{body: r.render(), effect: true}
}

// settleRefund gives a refund the status that it is still to get.
func settleRefund(t *tx, id string) {
	r := t.s.refunds[id]
	if r == nil || r.Ends == "" {
		return // forgotten by a reset, or settled before
	}
	in := t.s.intents[r.IntentID]
	r.Status, r.Ends = r.Ends, ""
	if r.Status == "failed" {
		in.Refunded -= r.Amount // the money is back with the merchant
		t.changed(in)
		t.refunded(r, "refund.failed")
		return
	}
	t.refunded(r, "refund.updated")
}

func retrieveRefund(f *form, id string) func(*tx) outcome {
	f.only()
	return func(t *tx) outcome {
		r := t.s.refunds[id]
		if r == nil {
			return outcome{err: noSuch(http.StatusNotFound, "refund", id, "id")}
		}
		return outcome{body: r.render()}
	}
}

// The provider's page sizes.
const (
	defaultPage = 10
	maxPage     = 100
)

func pageSize(f *form) int {
	n, ok := f.integer("limit")
	if !ok {
		return defaultPage
	}
	if n < 1 || n > maxPage {
		f.fail(invalidParam("limit", "parameter_invalid_integer", fmt.Sprintf("This value must be between 1 and %d.", maxPage)))
	}
	return int(n)
}

func listRefunds(f *form, _ string) func(*tx) outcome {
	f.only("payment_intent", "charge", "limit", "starting_after")
	limit := pageSize(f)
	return func(t *tx) outcome {
		list := t.s.refundOrder
		if pi, ch := f.str("payment_intent"), f.str("charge"); pi != "" || ch != "" {
			in, e := refundable(t, f)
			if e != nil {
				return outcome{err: e}
			}
			list = t.s.byIntent[in.ID]
		}
		data := []*refundJSON{}
		more, started := false, f.str("starting_after") == ""
		for _, r := range slices.Backward(list) {
			if !started {
				started = r.ID == f.str("starting_after")
				continue
			}
			if more = len(data) == limit; more {
				break
			}
			data = append(data, r.render())
		}
		return outcome{body: listJSON{Object: "list", URL: "/v1/refunds", HasMore: more, Data: data}}
	}
}
