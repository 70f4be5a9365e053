package verify

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	verifyv1 "github.com/throughline/throughline/proto/gen/throughline/verify/v1"
	"github.com/throughline/throughline/services/internal/topology"
)

// maxOdd bounds the payments of one order that are remembered.
const maxOdd = 20

// clocks is by how much the clock of the outside may differ from ours.
const clocks = time.Minute

// readOutside reads what the outside holds, page by page, into the book, and judges it.
func (r *run) readOutside(ctx context.Context) error {
	if r.blind {
		return nil // without the orders nothing of it means anything
	}
	for _, service := range []string{topology.Payment, topology.Shipping} {
		if err := r.readHoldings(ctx, service); err != nil {
			return err
		}
	}
	if r.blind {
		return nil
	}
	for i := range r.book.entries {
		e := &r.book.entries[i]
		if !e.status.atRest() {
			continue
		}
		account, currency := e.account(), r.book.currencies[e.currency]
		switch {
		case r.suspects[e.id]: // its last look says what counts
		case e.flags&ownDiffers != 0, len(Judge(e.status.status(), currency, e.total, account)) > 0:
			r.suspect(e.id)
		default:
			r.sums.note(e.status.status(), currency, e.total, account)
		}
	}
	return nil
}

// readHoldings reads what one service's outside holds.
func (r *run) readHoldings(ctx context.Context, service string) error {
	client := r.services[service]
	if client == nil {
		r.gap(service, "what the outside holds", errNoReceiver)
		r.blind = true
		return nil
	}
	// Whatever orders at rest must have was made before they were read.
	req := &verifyv1.ListHoldingsRequest{Since: timestampOf(r.opts.Since), Until: timestampOf(time.Now().Add(clocks))}
	strangers := make(map[uuid.UUID]bool)
	for {
		resp, err := ask(ctx, r, client.ListHoldings, req)
		if err != nil {
			r.gap(service, "what the outside holds", err)
			r.blind = true
			return nil
		}
		for _, h := range resp.GetHoldings() {
			r.report.Payments += int64(len(h.GetIntents()))
			r.report.Parcels += int64(len(h.GetParcels()))
			id, err := uuid.Parse(h.GetOrderId())
			if err != nil {
				return fmt.Errorf("reading what the outside holds: %q is no order id: %w", h.GetOrderId(), err)
			}
			e := r.book.find(id)
			if e != nil {
				r.enter(service, e, h)
			} else if !accountOf("", h).Empty() {
				strangers[id] = true
			}
			if e == nil || e.status.atRest() {
				r.noteOdd(id, h)
			}
		}
		r.opts.Progress(map[string]string{topology.Payment: "payments", topology.Shipping: "parcels"}[service], r.report.Payments+r.report.Parcels)
		req.PageToken = resp.GetNextPageToken()
		last := req.GetPageToken() == ""
		if last && len(strangers) > 0 || len(strangers) >= MaxOrders {
			r.introduce(ctx, strangers)
			clear(strangers)
		}
		if last {
			return nil
		}
	}
}

// enter adds a holding to an entry.
func (r *run) enter(service string, e *entry, h *verifyv1.Holding) {
	a, currency := e.account(), r.book.currencies[e.currency]
	addTo(&a, currency, h)
	e.put(a)
	e.mark(ownDiffers, e.status.atRest() && len(own(service, e.status.status(), currency, e.total, h)) > 0)
}

// noteOdd remembers payments that the service does not have on record.
func (r *run) noteOdd(id uuid.UUID, h *verifyv1.Holding) {
	for _, in := range h.GetIntents() {
		p := Payment{Held: in.GetHeld(), Captured: in.GetCaptured()}
		if p.moved() && in.GetId() != h.GetRecord().GetReference() && (len(r.odd) < maxSuspects || r.odd[id] != nil) && len(r.odd[id]) < maxOdd {
			r.odd[id] = append(r.odd[id], in.GetId())
		}
	}
}

// introduce asks about orders that something is held for and that are not in the book. Those that began after the run has are left to the next one.
// The others are looked at one by one, as are those that nobody knows.
func (r *run) introduce(ctx context.Context, strangers map[uuid.UUID]bool) {
	client := r.services[topology.Order]
	for ids := range slices.Chunk(slices.Collect(maps.Keys(strangers)), MaxOrders) {
		resp, err := ask(ctx, r, client.ListOrders, &verifyv1.ListOrdersRequest{OrderIds: textsOf(ids)})
		if err != nil {
			r.gap(topology.Order, "orders that money or parcels belong to", err)
			continue
		}
		fresh := make(map[string]bool)
		for _, o := range resp.GetOrders() {
			fresh[o.GetOrderId()] = o.GetCreatedAt().AsTime().After(r.report.Began)
		}
		for _, id := range ids {
			if !fresh[id.String()] {
				r.suspect(id)
			}
		}
	}
}

func textsOf(ids []uuid.UUID) []string {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = id.String()
	}
	return texts
}

// accountOf adds a holding up for an order in a currency.
func accountOf(currency string, h *verifyv1.Holding) Account {
	var a Account
	addTo(&a, currency, h)
	return a
}

func addTo(a *Account, currency string, h *verifyv1.Holding) {
	for _, in := range h.GetIntents() {
		a.AddPayment(currency, Payment{
			Currency: in.GetCurrency(), Amount: in.GetAmount(), Held: in.GetHeld(), Captured: in.GetCaptured(), Refunded: in.GetRefunded(),
		})
	}
	for _, p := range h.GetParcels() {
		a.AddParcel(p.GetStatus())
	}
}

// own compares a service's own record of an order at rest with the order, and with the ids of what the outside holds.
func own(service, status, currency string, total int64, h *verifyv1.Holding) []Finding {
	record := h.GetRecord()
	differs := func(format string, args ...any) []Finding {
		return []Finding{{OwnRecordAgrees, service + ": " + fmt.Sprintf(format, args...)}}
	}
	if record == nil {
		if len(h.GetIntents())+len(h.GetParcels()) == 0 {
			return nil
		}
		return differs("the order is %s, something was made for it outside, and there is no record of it", status)
	}
	if status != Confirmed {
		switch s := record.GetStatus(); s {
		case "authorized", "captured", "created", "dispatched":
			return differs("the order is %s, and on record as %s", status, s)
		}
		return nil
	}
	if service == topology.Payment && (record.GetStatus() != "captured" || record.GetCaptured()-record.GetRefunded() != total || record.GetCurrency() != currency) {
		return differs("the order is CONFIRMED for %d %s, and on record as %s, captured %d and refunded %d %s", total, currency,
			record.GetStatus(), record.GetCaptured(), record.GetRefunded(), record.GetCurrency())
	}
	if service == topology.Shipping && record.GetStatus() != "dispatched" {
		return differs("the order is CONFIRMED, and on record as %s", record.GetStatus())
	}
	// With several, which is a matter of other rules, one of them must be the one on record.
	var others []string
	for _, in := range h.GetIntents() {
		switch {
		case in.GetId() == record.GetReference():
			return nil
		case in.GetCaptured() > 0:
			others = append(others, in.GetId())
		}
	}
	for _, p := range h.GetParcels() {
		switch {
		case p.GetId() == record.GetReference():
			return nil
		case p.GetStatus() != "cancelled":
			others = append(others, p.GetId())
		}
	}
	if len(others) > 0 {
		return differs("%q is on record, and the outside has %q", record.GetReference(), others)
	}
	return nil
}
