package verify

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	verifyv1 "github.com/throughline/throughline/proto/gen/throughline/verify/v1"
	"github.com/throughline/throughline/services/internal/topology"
)

// view is all that is known of one order at one look.
type view struct {
	order   *verifyv1.Order // nil if there is none
	account Account
	// findings hold whatever is still to be done; passing ones may be mended by it.
	findings, passing []Finding
	// pending says that something is still to be done for the order.
	pending bool
}

func (v *view) broken() []Finding { return slices.Concat(v.findings, v.passing) }

// same tells whether two looks saw the same.
func (v *view) same(w *view) bool {
	rules := func(v *view) (text []string) {
		for _, f := range v.broken() {
			text = append(text, string(f.Rule))
		}
		return text
	}
	return v.order.GetRevision() == w.order.GetRevision() && v.order.GetStatus() == w.order.GetStatus() && v.account == w.account &&
		slices.Equal(rules(v), rules(w))
}

// timely says what is wrong with how an order that is on its way is looked after.
func timely(o *verifyv1.Order) []Finding {
	if !OnItsWay(o.GetStatus()) {
		return nil
	}
	var found []Finding
	if late := o.GetOverdue().AsDuration(); late > OverdueGrace {
		found = append(found, Finding{PastDeadline, fmt.Sprintf("still %s, and nobody has looked after it since it was due %s ago", o.GetStatus(), late.Round(time.Second))})
	}
	if !o.GetTimed() {
		found = append(found, Finding{NoTimer, fmt.Sprintf("still %s, and nothing reminds of it", o.GetStatus())})
	}
	return found
}

// agrees says whether an order's row and its saga tell the same.
func agrees(o *verifyv1.Order) []Finding {
	if o.GetSagaStatus() == o.GetStatus() {
		return nil
	}
	return []Finding{{OwnRecordAgrees, fmt.Sprintf("the order is %s, and by its saga %q", o.GetStatus(), o.GetSagaStatus())}}
}

// lookAgain looks at what looks wrong until it is known whether it stays so.
func (r *run) lookAgain(ctx context.Context) error {
	if r.more > 0 {
		r.report.Gaps = append(r.report.Gaps, Gap{topology.Order, "orders that look wrong", fmt.Sprintf("%d more than the %d that were looked at again", r.more, maxSuspects)})
	}
	open := slices.SortedFunc(maps.Keys(r.suspects), func(a, b uuid.UUID) int { return strings.Compare(a.String(), b.String()) })
	before := make(map[uuid.UUID]*view)
	for look := 1; len(open) > 0 && look <= r.opts.Looks; look++ {
		if look > 1 {
			wait(ctx, r.opts.Pause<<(look-2))
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var left []uuid.UUID
		for ids := range slices.Chunk(open, MaxHoldings) {
			views, err := r.look(ctx, ids)
			if err != nil {
				continue // the gap is noted; nothing is said of these
			}
			for _, id := range ids {
				if seen := views[id]; !r.settled(id, seen, before[id]) {
					before[id] = seen
					left = append(left, id)
				}
			}
			r.opts.Progress("orders looked at again", int64(len(open)-len(left)))
		}
		open = left
	}
	for _, id := range open {
		r.inFlight(before[id])
	}
	if !r.blind && r.more == 0 {
		r.sums.close(r.report)
	}
	return nil
}

// settled decides about an order that was seen twice, if it can be decided.
func (r *run) settled(id uuid.UUID, seen, before *view) bool {
	broken := seen.broken()
	switch {
	case len(broken) == 0:
		if e := seen.order; e != nil && stageOf(e.GetStatus()).atRest() {
			r.sums.note(e.GetStatus(), e.GetCurrency(), e.GetTotal(), seen.account)
		}
		return true
	case before == nil || !seen.same(before):
		return false
	case len(seen.findings) == 0 && seen.pending:
		r.inFlight(seen)
		return true
	case seen.pending:
		broken = seen.findings
	}
	for _, f := range broken {
		r.report.Violations = append(r.report.Violations, Violation{
			Rule: f.Rule, OrderID: id.String(), ClientID: seen.order.GetClientId(), Key: seen.order.GetIdempotencyKey(), Detail: f.Detail,
		})
	}
	if o := seen.order; o != nil && stageOf(o.GetStatus()).atRest() {
		r.sums.note(o.GetStatus(), o.GetCurrency(), o.GetTotal(), seen.account)
	}
	return true
}

// inFlight counts an order that looks wrong and may pass. Those on their way are counted already.
func (r *run) inFlight(v *view) {
	if v.order == nil || !OnItsWay(v.order.GetStatus()) {
		r.report.InFlight++
	}
}

// look sees all that there is of some orders: the orders first. An error says that something could not be asked, which is noted.
func (r *run) look(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID]*view, error) {
	texts := textsOf(ids)
	client := r.services[topology.Order]
	orders, err := ask(ctx, r, client.ListOrders, &verifyv1.ListOrdersRequest{OrderIds: texts})
	if err != nil {
		r.gap(topology.Order, "orders that look wrong", err)
		return nil, err
	}
	views := make(map[uuid.UUID]*view, len(ids))
	byID := make(map[string]*view, len(ids))
	for i, id := range ids {
		views[id] = new(view)
		byID[texts[i]] = views[id]
	}
	for _, o := range orders.GetOrders() {
		if v := byID[o.GetOrderId()]; v != nil {
			v.order = o
		}
	}
	records, err := r.lookOutside(ctx, ids, byID)
	if err != nil {
		return nil, err
	}
	if err := r.lookAtMessages(ctx, texts, byID); err != nil {
		return nil, err
	}
	for text, v := range byID {
		v.judge(records[text])
	}
	return views, nil
}

// lookOutside asks what is held for some orders, and gives the answers by order and service.
func (r *run) lookOutside(ctx context.Context, ids []uuid.UUID, views map[string]*view) (map[string]map[string]*verifyv1.Holding, error) {
	records := make(map[string]map[string]*verifyv1.Holding)
	req := &verifyv1.ListHoldingsRequest{OrderIds: textsOf(ids)}
	for _, id := range ids {
		for _, odd := range r.odd[id] {
			req.Known = append(req.Known, &verifyv1.Known{OrderId: id.String(), Id: odd})
		}
	}
	for _, service := range []string{topology.Payment, topology.Shipping} {
		client := r.services[service]
		if client == nil {
			r.gap(service, "what the outside holds", errNoReceiver)
			return nil, errNoReceiver
		}
		resp, err := ask(ctx, r, client.ListHoldings, req)
		if err != nil {
			r.gap(service, "what the outside holds for orders that look wrong", err)
			return nil, err
		}
		for _, h := range resp.GetHoldings() {
			v := views[h.GetOrderId()]
			if v == nil {
				continue
			}
			addTo(&v.account, v.order.GetCurrency(), h)
			v.pending = v.pending || h.GetStepDue()
			if records[h.GetOrderId()] == nil {
				records[h.GetOrderId()] = make(map[string]*verifyv1.Holding)
			}
			records[h.GetOrderId()][service] = h
		}
	}
	return records, nil
}

// lookAtMessages looks what became of the messages about some orders.
func (r *run) lookAtMessages(ctx context.Context, texts []string, views map[string]*view) error {
	gaps := len(r.report.Gaps)
	for _, service := range slices.Sorted(maps.Keys(r.services)) {
		client := r.services[service]
		resp, err := ask(ctx, r, client.CheckMessages, &verifyv1.CheckMessagesRequest{OrderIds: texts})
		if err != nil {
			r.gap(service, "messages about orders that look wrong", err)
			return err
		}
		waiting, missing := r.receipts(ctx, resp.GetAcknowledged())
		for _, m := range slices.Concat(resp.GetPending(), waiting) {
			if v := views[m.GetOrderId()]; v != nil {
				v.pending = true
			}
		}
		for _, f := range slices.Concat(resp.GetFindings(), missing) {
			if v := views[f.GetMessage().GetOrderId()]; v != nil {
				v.findings = append(v.findings, Finding{
					Rule(f.GetRule()), fmt.Sprintf("message %s, %s: %s", f.GetMessage().GetMessageId(), f.GetMessage().GetSubject(), f.GetDetail()),
				})
			}
		}
	}
	if len(r.report.Gaps) > gaps {
		return errNoReceiver
	}
	return nil
}

// judge says what is wrong with an order. Messages were judged before.
func (v *view) judge(holdings map[string]*verifyv1.Holding) {
	o := v.order
	if o == nil {
		if !v.account.Empty() {
			v.passing = append(v.passing, Finding{UnknownOrder, "no such order, yet " + v.account.String()})
		}
		return
	}
	v.findings = slices.Concat(v.findings, timely(o), agrees(o))
	if !stageOf(o.GetStatus()).atRest() {
		return
	}
	v.passing = append(v.passing, Judge(o.GetStatus(), o.GetCurrency(), o.GetTotal(), v.account)...)
	if o.GetMarkedDone() {
		return // what a person has done outside is on no service's record
	}
	for _, service := range slices.Sorted(maps.Keys(holdings)) {
		v.passing = append(v.passing, own(service, o.GetStatus(), o.GetCurrency(), o.GetTotal(), holdings[service])...)
	}
}
