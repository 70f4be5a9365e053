package demo

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"sync"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/services/simulator/control"
	"github.com/throughline/throughline/services/throughline/verify"
)

// scene is one story.
type scene struct {
	title string
	play  func(ctx context.Context, st *stage) error
}

// What the simulators' fixed test data mean.
const (
	goodCard     = "pm_card_visa"
	declinedCard = "pm_card_visa_chargeDeclined"
	goodCode     = "10115"
	refusedCode  = "00000"
)

var scenes = []scene{
	{"An order", anOrder},
	{"The same order again, because its answer was lost on the way", lostAnswer},
	{"Two identical requests at the same moment", twoAtOnce},
	{"The same key with another order", otherBody},
	{"A card that is declined: nothing is shipped", declined},
	{"An address that the carrier refuses: the authorization is voided", refusedAddress},
	{"A provider that acts and drops its answer: it is asked, not charged again", droppedAnswer},
	{"A client that cancels while the carrier books the parcel: everything is undone", cancelled},
}

func anOrder(ctx context.Context, st *stage) error {
	const key = "demo-1"
	a, err := st.shop.place(ctx, key, basket(2, goodCard, goodCode))
	if err != nil {
		return err
	}
	st.say("POST with key %s: %s", key, a)
	return st.ends(ctx, a.order.ID, verify.Confirmed)
}

func lostAnswer(ctx context.Context, st *stage) error {
	const key = "demo-2"
	body := basket(1, goodCard, goodCode)
	if err := st.shop.placeAndLose(ctx, key, body); err != nil {
		return err
	}
	st.say("POST with key %s: connection cut, the client cannot know whether there is an order", key)
	a, err := st.shop.place(ctx, key, body)
	if err != nil {
		return err
	}
	st.say("the same POST again: %s", a)
	if a.status != http.StatusCreated || !a.replayed {
		return fmt.Errorf("the second POST answered %s, want a replay of the first", a)
	}
	return st.ends(ctx, a.order.ID, verify.Confirmed)
}

func twoAtOnce(ctx context.Context, st *stage) error {
	const key = "demo-3"
	body := basket(3, goodCard, goodCode)
	var (
		wg      sync.WaitGroup
		answers [2]*answer
		errs    [2]error
		start   = make(chan struct{})
	)
	for i := range answers {
		wg.Go(func() {
			<-start
			answers[i], errs[i] = st.shop.place(ctx, key, body)
		})
	}
	close(start)
	wg.Wait()
	firsts := 0
	for i, a := range answers {
		if errs[i] != nil {
			return errs[i]
		}
		st.say("POST %d of 2 with key %s: %s", i+1, key, a)
		if a.status == http.StatusCreated && !a.replayed {
			firsts++
		}
	}
	if firsts != 1 || answers[0].status == answers[1].status && !bytes.Equal(answers[0].body, answers[1].body) {
		return fmt.Errorf("%d requests were executed, want 1 and a replay with the same bytes", firsts)
	}
	return st.ends(ctx, keys.OrderID(st.shop.id, key).String(), verify.Confirmed)
}

func otherBody(ctx context.Context, st *stage) error {
	const key = "demo-1"
	a, err := st.shop.place(ctx, key, basket(200, goodCard, goodCode))
	if err != nil {
		return err
	}
	st.say("POST with key %s, but 200 books instead of 2: %s", key, a)
	if a.status != http.StatusUnprocessableEntity {
		return fmt.Errorf("answer %s, want 422", a)
	}
	return nil
}

func declined(ctx context.Context, st *stage) error {
	const key = "demo-5"
	a, err := st.shop.place(ctx, key, basket(1, declinedCard, goodCode))
	if err != nil {
		return err
	}
	st.say("POST with key %s: %s", key, a)
	return st.ends(ctx, a.order.ID, verify.Failed)
}

func refusedAddress(ctx context.Context, st *stage) error {
	const key = "demo-6"
	a, err := st.shop.place(ctx, key, basket(1, goodCard, refusedCode))
	if err != nil {
		return err
	}
	st.say("POST with key %s: %s", key, a)
	return st.ends(ctx, a.order.ID, verify.Failed)
}

func droppedAnswer(ctx context.Context, st *stage) error {
	const key = "demo-7"
	id := keys.OrderID(st.shop.id, key).String()
	for _, operation := range []string{"payment_intents.confirm", "payment_intents.capture"} {
		if _, err := st.provider.AddFault(ctx, control.Fault{Operation: operation, OrderID: id, Times: 1, Action: control.DropAfter}); err != nil {
			return err
		}
	}
	a, err := st.shop.place(ctx, key, basket(1, goodCard, goodCode))
	if err != nil {
		return err
	}
	st.say("POST with key %s: %s", key, a)
	return st.ends(ctx, id, verify.Confirmed)
}

func cancelled(ctx context.Context, st *stage) error {
	const key = "demo-8"
	id := keys.OrderID(st.shop.id, key).String()
	if _, err := st.carrier.AddFault(ctx, control.Fault{Operation: "shipments.create", OrderID: id, Times: 1, Action: control.Hold}); err != nil {
		return err
	}
	a, err := st.shop.place(ctx, key, basket(1, goodCard, goodCode))
	if err != nil {
		return err
	}
	st.say("POST with key %s: %s", key, a)
	if err := st.awaitHeld(ctx); err != nil {
		return err
	}
	if a, err = st.shop.cancel(ctx, id, "demo-8-cancel"); err != nil {
		return err
	}
	st.say("POST cancel with key demo-8-cancel: %s", a)
	if a.status != http.StatusOK {
		return fmt.Errorf("the cancel was answered %s, want 200", a)
	}
	if _, err := st.carrier.Release(ctx, ""); err != nil {
		return err
	}
	return st.ends(ctx, id, verify.Cancelled)
}
