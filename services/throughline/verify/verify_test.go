package verify_test

import (
	"testing"

	"github.com/throughline/throughline/services/simulator/control"
	"github.com/throughline/throughline/services/throughline/verify"
)

func TestSettled(t *testing.T) {
	t.Parallel()
	held := control.Intent{OrderID: "o", Status: "requires_capture", Currency: "eur", Amount: 100, AmountCapturable: 100}
	taken := control.Intent{OrderID: "o", Status: "succeeded", Currency: "eur", Amount: 100, AmountCaptured: 100}
	returned := control.Intent{OrderID: "o", Status: "succeeded", Currency: "eur", Amount: 100, AmountCaptured: 100, AmountRefunded: 100}
	released := control.Intent{OrderID: "o", Status: "canceled", Amount: 100}
	dollars, more, back := taken, taken, returned
	dollars.Currency, more.Amount, back.AmountRefunded = "usd", 90, 110
	live, lost := control.Shipment{OrderID: "o", Status: "dispatched"}, control.Shipment{OrderID: "o", Status: "lost"}
	stopped := control.Shipment{OrderID: "o", Status: "cancelled"}
	for _, tc := range []struct {
		name      string
		status    string
		intents   []control.Intent
		shipments []control.Shipment
		want      []string // rules
	}{
		{"sold", verify.Confirmed, []control.Intent{taken}, []control.Shipment{live}, nil},
		{"sold after an undone parcel", verify.Confirmed, []control.Intent{taken}, []control.Shipment{stopped, live}, nil},
		{"sold, and lost on its way", verify.Confirmed, []control.Intent{taken}, []control.Shipment{lost}, nil},
		{"sold for other money", verify.Confirmed, []control.Intent{dollars}, []control.Shipment{live}, []string{"G2"}},
		{"sold, more taken than authorized", verify.Confirmed, []control.Intent{more}, []control.Shipment{live}, []string{"G1"}},
		{"cancelled, more given back than taken", verify.Cancelled, []control.Intent{back}, nil, []string{"G1", "G2"}},
		{"sold, not paid", verify.Confirmed, []control.Intent{held}, []control.Shipment{live}, []string{"G2"}},
		{"sold, not shipped", verify.Confirmed, []control.Intent{taken}, nil, []string{"G2"}},
		{"sold, shipped twice", verify.Confirmed, []control.Intent{taken}, []control.Shipment{live, live}, []string{"G1", "G2"}},
		{"sold, charged twice", verify.Confirmed, []control.Intent{taken, taken}, []control.Shipment{live}, []string{"G1", "G2"}},
		{"sold, charged again and given back", verify.Confirmed, []control.Intent{taken, returned}, []control.Shipment{live}, []string{"G1"}},
		{"failed, nothing began", verify.Failed, nil, nil, nil},
		{"failed, released", verify.Failed, []control.Intent{released}, []control.Shipment{stopped}, nil},
		{"cancelled, refunded", verify.Cancelled, []control.Intent{returned}, nil, nil},
		{"failed, money held", verify.Failed, []control.Intent{held}, nil, []string{"G2"}},
		{"cancelled, parcel live", verify.Cancelled, nil, []control.Shipment{live}, []string{"G2"}},
		{"on its way", verify.Pending, []control.Intent{held}, nil, []string{"G3"}},
		{"being undone", verify.Compensating, []control.Intent{held}, nil, []string{"G3"}},
		{"a person decides", verify.NeedsAttention, []control.Intent{held}, []control.Shipment{live}, nil},
		{"nobody knows", "LOST", nil, nil, []string{"G3"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			order := verify.Order{ID: "o", Status: tc.status, Currency: "EUR", Total: 100}
			got := verify.Settled([]verify.Order{order}, control.PaymentLedger{Intents: tc.intents}, control.CarrierLedger{Shipments: tc.shipments})
			if len(got) != len(tc.want) {
				t.Fatalf("violations: got %v, want rules %v", got, tc.want)
			}
			for i, v := range got {
				if v.Rule != tc.want[i] {
					t.Errorf("violation %d: got %v, want rule %s", i, v, tc.want[i])
				}
			}
		})
	}
}

func TestSettledFindsWhatNobodyOrdered(t *testing.T) {
	t.Parallel()
	got := verify.Settled(nil, control.PaymentLedger{Intents: []control.Intent{{OrderID: "ghost", AmountCaptured: 5}}}, control.CarrierLedger{})
	if len(got) != 1 || got[0].OrderID != "ghost" || got[0].Rule != "G2" {
		t.Fatalf("got %v, want one violation of G2 by ghost", got)
	}
}
