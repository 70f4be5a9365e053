package grpcapi

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"github.com/throughline/throughline/pkg/saga"
	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	"github.com/throughline/throughline/services/order/internal/order"
	"github.com/throughline/throughline/services/order/internal/postgres"
)

// past reads lines of: revision step from to, where - is nothing.
func past(lines string) []saga.Entry {
	var entries []saga.Entry
	for line := range strings.Lines(lines) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		for i, w := range words {
			words[i] = strings.TrimPrefix(w, "-")
		}
		var revision int64
		if _, err := fmt.Sscan(words[0], &revision); err != nil {
			panic(err)
		}
		entries = append(entries, saga.Entry{Revision: revision, Transition: saga.Transition{Step: words[1], From: words[2], To: words[3]}, At: time.Unix(revision, 0)})
	}
	return entries
}

// The client is told what concerns it, in words that stay, and nothing of how it is done.
func TestClientsView(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		reason, history string
		want            []string
	}{
		"sold": {"", `
			1 - - running
			1 authorize_payment - sent
			2 authorize_payment sent waiting
			3 authorize_payment waiting done
			3 create_shipment - sent
			4 create_shipment sent done
			4 capture_payment - sent
			5 capture_payment sent done
			6 dispatch_shipment sent done
			6 - running completed`,
			[]string{
				"1001 order_placed", "2001 payment_action_required", "3001 payment_authorized", "4001 shipment_created", "5001 payment_captured",
				"6001 shipment_dispatched", "6002 order_confirmed",
			}},
		"cancelled": {"cancelled", `
			1 - - running
			2 authorize_payment sent done
			3 - running compensating
			3 void_payment done undoing
			4 void_payment undoing undone
			4 - compensating compensated`,
			[]string{"1001 order_placed", "2001 payment_authorized", "3001 order_compensating cancelled", "4001 payment_voided", "4002 order_cancelled cancelled"}},
		"refused, and waiting for a person meanwhile": {"card_declined", `
			1 - - running
			2 authorize_payment sent refused
			2 - running compensating
			3 cancel_shipment undoing undo_refused
			3 - compensating needs_attention
			4 - needs_attention compensating
			5 cancel_shipment undo_refused undone
			5 - compensating compensated`,
			[]string{
				"1001 order_placed", "2001 payment_declined card_declined", "2002 order_compensating card_declined", "3002 order_needs_attention",
				"5001 shipment_cancelled", "5002 order_failed card_declined",
			}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, e := range clientsView(&postgres.Row{FailureReason: tt.reason}, past(tt.history)) {
				got = append(got, strings.TrimSpace(fmt.Sprintf("%d %s %s", e.GetPosition(), e.GetEvent(), e.GetReason())))
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// Nothing personal is told of an order unless it is asked for.
func TestOrderEntryIsMasked(t *testing.T) {
	t.Parallel()
	form, err := proto.Marshal(&orderv1.CreateOrderRequest{
		ShipTo: &orderv1.Address{Name: "A. Buyer", Line1: "1 High St", City: "Berlin", PostalCode: "10115", Country: "DE"}, Note: "ring twice", PaymentMethod: "pm_card_visa",
		Metadata: map[string]string{"phone": "0123"},
	})
	if err != nil {
		t.Fatal(err)
	}
	row := &postgres.Row{OrderID: uuid.New(), ClientID: "shop", IdempotencyKey: "k", Status: order.Pending, Request: form}
	for _, reveal := range []bool{false, true} {
		e, err := orderEntry(row, reveal)
		if err != nil {
			t.Fatal(err)
		}
		text := e.String()
		for _, personal := range []string{"A. Buyer", "1 High St", "Berlin", "10115", "ring twice", "pm_card_visa"} {
			if got := strings.Contains(text, personal); got != reveal {
				t.Errorf("reveal %v: got %q told %v: %s", reveal, personal, got, text)
			}
		}
		if !reveal && e.GetAttributes()["note"] != "(masked)" {
			t.Errorf("note: got %q, want it said that there is one", e.GetAttributes()["note"])
		}
	}
	if to := masked("", false); to != "" {
		t.Errorf("nothing: got %q, want nothing", to)
	}
}
