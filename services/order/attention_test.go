package order_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/throughline/throughline/pkg/messaging"
	attentionv1 "github.com/throughline/throughline/proto/gen/throughline/attention/v1"
	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	stepv1 "github.com/throughline/throughline/proto/gen/throughline/step/v1"
	"github.com/throughline/throughline/services/internal/grpcx"
	"github.com/throughline/throughline/services/order"
)

// witness is a participant's StepService.
type witness struct {
	stepv1.UnimplementedStepServiceServer
	mu      sync.Mutex
	retried []string
	// deaf: it has heard of nothing.
	deaf bool
	// onRetry is called at each retry.
	onRetry func(orderID, step string)
}

func (s *witness) GetStep(_ context.Context, req *stepv1.GetStepRequest) (*stepv1.GetStepResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.deaf {
		return &stepv1.GetStepResponse{State: stepv1.StepState_STEP_STATE_NOT_FOUND}, nil
	}
	return &stepv1.GetStepResponse{State: stepv1.StepState_STEP_STATE_REFUSED, Reason: "refund_refused", Reference: "pi_1 " + req.GetStepName(), Attempts: 3}, nil
}

func (s *witness) RetryStep(_ context.Context, req *stepv1.RetryStepRequest) (*stepv1.RetryStepResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retried = append(s.retried, req.GetStepName())
	if s.onRetry != nil {
		s.onRetry(req.GetOrderId(), req.GetStepName())
	}
	return &stepv1.RetryStepResponse{Retried: true}, nil
}

// desk is the order service with an operator in front of it, and a payment service behind it whose undos are refused.
type desk struct {
	*world
	client  *client
	api     attentionv1.AttentionServiceClient
	addr    string
	steps   string // where the witness serves
	witness *witness
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	d := &desk{world: newWorld(t), witness: &witness{}}
	server, err := grpcx.NewServer(grpcx.ServerConfig{Credentials: []string{credential}})
	if err != nil {
		t.Fatal(err)
	}
	stepv1.RegisterStepServiceServer(server, d.witness)
	var lc net.ListenConfig
	ln, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Errorf("serving the steps: %v", err)
		}
	})
	d.steps = ln.Addr().String()
	// Nobody listens for shipping.
	d.addr = d.run(d.url, order.Config{PaymentAddr: d.steps, ShippingAddr: "127.0.0.1:1"})
	d.client = d.dial(d.addr)
	d.api = d.operator(operatorCredential)
	d.participants(func(step string) (string, string) {
		switch step {
		case "create_shipment":
			return messaging.OutcomeRefused, "address_refused"
		case "void_payment":
			return messaging.OutcomeRefused, "refund_refused"
		}
		return messaging.OutcomeDone, ""
	})
	return d
}

func (d *desk) operator(credential string) attentionv1.AttentionServiceClient {
	d.t.Helper()
	conn, err := grpcx.Dial(grpcx.ClientConfig{Addr: d.addr, Credential: credential})
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = conn.Close() })
	return attentionv1.NewAttentionServiceClient(conn)
}

// stuck places an order whose undo is refused.
func (d *desk) stuck(key string) string {
	d.t.Helper()
	id := d.client.must(d.client.create("storefront", key, request())).order.GetOrderId()
	d.client.await("storefront", id, orderv1.OrderStatus_ORDER_STATUS_NEEDS_ATTENTION)
	return id
}

func resolution(id, key string, r attentionv1.Resolution) *attentionv1.ResolveRequest {
	return &attentionv1.ResolveRequest{RequestKey: key, OrderId: id, Resolution: r, Actor: "kim", Reason: "refunded by bank transfer 4711"}
}

const (
	retry    = attentionv1.Resolution_RESOLUTION_RETRY
	otherWay = attentionv1.Resolution_RESOLUTION_UNDO_OTHER_WAY
	markDone = attentionv1.Resolution_RESOLUTION_MARK_DONE
)

func TestAttentionDesk(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	id := d.stuck("k")
	list, err := d.api.ListAttention(t.Context(), &attentionv1.ListAttentionRequest{})
	if err != nil || len(list.GetCases()) != 1 {
		t.Fatalf("list: got %v, %v, want one case", list, err)
	}
	c := list.GetCases()[0]
	want := &attentionv1.Case{
		OrderId: id, ClientId: "storefront", IdempotencyKey: "k", Status: "NEEDS_ATTENTION", Currency: "EUR", Total: 2500, Reason: "undo_refused",
		Detail: "void_payment was refused: refund_refused", Step: "void_payment", Since: c.GetSince(), FailureReason: "address_refused",
	}
	if !proto.Equal(c, want) || time.Since(c.GetSince().AsTime()) > patience {
		t.Errorf("case: got %v, want %v", c, want)
	}
	got, err := d.api.GetAttention(t.Context(), &attentionv1.GetAttentionRequest{OrderId: id})
	if err != nil || !proto.Equal(got.GetCase(), want) || got.GetSagaStatus() != "compensating" || len(got.GetSteps()) != 4 {
		t.Fatalf("case: got %v, %v, want one with 4 steps", got, err)
	}
	if s := got.GetSteps()[0]; s.GetPhase() != "undo_refused" || s.GetReason() != "refund_refused" {
		t.Errorf("first step: got %v, want undo_refused for refund_refused", s)
	}
	if last := got.GetHistory()[len(got.GetHistory())-1]; last.GetTo() != "needs_attention" || last.GetCause() != "reply" {
		t.Errorf("end of the history: got %v, want needs_attention by a reply", last)
	}
	records := make(map[string]*attentionv1.Record)
	for _, r := range got.GetRecords() {
		records[r.GetStep()] = r
	}
	if r := records["void_payment"]; r.GetState() != "REFUSED" || r.GetReference() != "pi_1 void_payment" || r.GetError() != "" {
		t.Errorf("what payment has on record: got %v, want REFUSED with a reference", r)
	}
	if r := records["create_shipment"]; r.GetState() != "" || r.GetError() == "" {
		t.Errorf("what shipping has on record: got %v, want why it did not answer", r)
	}

	req := resolution(id, "r-1", markDone)
	first, err := d.api.Resolve(t.Context(), req)
	if err != nil || first.GetStatus() != "FAILED" || first.GetReplayed() || first.GetAction().GetStep() != "void_payment" {
		t.Fatalf("resolving: got %v, %v, want FAILED", first, err)
	}
	d.client.await("storefront", id, orderv1.OrderStatus_ORDER_STATUS_FAILED)
	again, err := d.api.Resolve(t.Context(), req)
	if err != nil || !again.GetReplayed() || again.GetStatus() != "FAILED" || !sameAction(again.GetAction(), first.GetAction()) {
		t.Errorf("the same decision again: got %v, %v, want the first again: %v", again, err, first)
	}
	for name, change := range map[string]func(*attentionv1.ResolveRequest){
		"another resolution": func(r *attentionv1.ResolveRequest) { r.Resolution = otherWay },
		"another actor":      func(r *attentionv1.ResolveRequest) { r.Actor = "lee" },
		"another reason":     func(r *attentionv1.ResolveRequest) { r.Reason = "because" },
		"another step":       func(r *attentionv1.ResolveRequest) { r.Step = "cancel_shipment" },
	} {
		other := proto.Clone(req).(*attentionv1.ResolveRequest)
		change(other)
		if _, err := d.api.Resolve(t.Context(), other); grpcx.ReasonOf(err) != grpcx.KeyMismatch {
			t.Errorf("%s under the key: got %v, want %s", name, err, grpcx.KeyMismatch)
		}
	}
	if _, err := d.api.Resolve(t.Context(), resolution(id, "r-2", markDone)); grpcx.ReasonOf(err) != grpcx.NothingToResolve {
		t.Errorf("resolving what needs nobody: got %v, want %s", err, grpcx.NothingToResolve)
	}
	got, err = d.api.GetAttention(t.Context(), &attentionv1.GetAttentionRequest{OrderId: id})
	if err != nil || len(got.GetActions()) != 1 || got.GetCase().GetSince() != nil || got.GetCase().GetReason() != "" {
		t.Fatalf("case afterwards: got %v, %v, want one action and no reason", got, err)
	}
	checkAction(t, got.GetActions()[0])
	if list, err := d.api.ListAttention(t.Context(), &attentionv1.ListAttentionRequest{}); err != nil || len(list.GetCases()) != 0 {
		t.Errorf("list afterwards: got %v, %v, want none", list, err)
	}
}

// sameAction compares decisions; the spaces within their JSON are the database's.
func sameAction(a, b *attentionv1.Action) bool {
	a, b = proto.Clone(a).(*attentionv1.Action), proto.Clone(b).(*attentionv1.Action)
	for _, m := range []*attentionv1.Action{a, b} {
		for _, text := range []*string{&m.Before, &m.After} {
			var v any
			if json.Unmarshal([]byte(*text), &v) != nil {
				return false
			}
			canonical, err := json.Marshal(v)
			if err != nil {
				return false
			}
			*text = string(canonical)
		}
	}
	return proto.Equal(a, b)
}

// checkAction checks the record of a decision: who, why, and from where to where.
func checkAction(t *testing.T, a *attentionv1.Action) {
	t.Helper()
	var before, after struct {
		Status string `json:"status"`
		Steps  []struct {
			Name, Phase string
		} `json:"steps"`
	}
	if err := json.Unmarshal([]byte(a.GetBefore()), &before); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(a.GetAfter()), &after); err != nil {
		t.Fatal(err)
	}
	if before.Status != "NEEDS_ATTENTION" || after.Status != "FAILED" || before.Steps[0].Phase != "undo_refused" || after.Steps[0].Phase != "undone" {
		t.Errorf("record: got %+v to %+v, want NEEDS_ATTENTION to FAILED", before, after)
	}
	if a.GetActor() != "kim" || a.GetReason() != "refunded by bank transfer 4711" || a.GetResolution() != markDone || a.GetAt() == nil {
		t.Errorf("record: got %v, want who and why", a)
	}
}

// A retry reaches the participant, and the participant's new reply ends the order.
func TestAttentionRetry(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	nc := d.connect()
	t.Run("the saga hears of it first", func(t *testing.T) {
		id := d.stuck("first")
		resp, err := d.api.Resolve(t.Context(), resolution(id, "r-first", retry))
		if err != nil || resp.GetAction().GetResolution() != retry {
			t.Fatalf("retrying: got %v, %v, want it on record", resp, err)
		}
		d.say(nc, id, "void_payment", messaging.OutcomeDone, nil)
		d.client.await("storefront", id, orderv1.OrderStatus_ORDER_STATUS_FAILED)
	})
	t.Run("the participant is faster", func(t *testing.T) {
		id := d.stuck("second")
		d.witness.mu.Lock()
		d.witness.onRetry = func(orderID, step string) {
			d.say(nc, orderID, step, messaging.OutcomeDone, nil)
			d.client.await("storefront", orderID, orderv1.OrderStatus_ORDER_STATUS_FAILED)
		}
		d.witness.mu.Unlock()
		req := resolution(id, "r-second", retry)
		if resp, err := d.api.Resolve(t.Context(), req); err != nil || resp.GetStatus() != "FAILED" {
			t.Fatalf("retrying: got %v, %v, want FAILED", resp, err)
		}
		if resp, err := d.api.Resolve(t.Context(), req); err != nil || !resp.GetReplayed() {
			t.Errorf("the same decision again: got %v, %v, want a replay", resp, err)
		}
	})
	d.witness.mu.Lock()
	defer d.witness.mu.Unlock()
	if want := []string{"void_payment", "void_payment"}; !slices.Equal(d.witness.retried, want) {
		t.Errorf("retries at the participant: got %v, want %v", d.witness.retried, want)
	}
}

// Of several decisions at one moment one holds; with one key all callers hear of it.
func TestDecisionsAtOnce(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	for _, oneKey := range []bool{false, true} {
		id := d.stuck(fmt.Sprintf("at-once-%t", oneKey))
		var mu sync.Mutex
		var wg sync.WaitGroup
		outcomes := make(map[string]int)
		for i := range 8 {
			wg.Go(func() {
				key := fmt.Sprintf("r-%t-%d", oneKey, i)
				if oneKey {
					key = "r-one"
				}
				resp, err := d.api.Resolve(t.Context(), resolution(id, key, markDone))
				outcome := fmt.Sprintf("replayed %t", resp.GetReplayed())
				if err != nil {
					outcome = string(grpcx.ReasonOf(err))
				}
				mu.Lock()
				defer mu.Unlock()
				outcomes[outcome]++
			})
		}
		wg.Wait()
		rest := string(grpcx.NothingToResolve)
		if oneKey {
			rest = "replayed true"
		}
		if outcomes["replayed false"] != 1 || outcomes[rest] != 7 {
			t.Errorf("one key %t: got %v, want one decision and 7 of %s", oneKey, outcomes, rest)
		}
		if n := d.count(`SELECT count(*) FROM attention_action WHERE order_id = $1`, id); n != 1 {
			t.Errorf("one key %t: decisions on record: got %d, want 1", oneKey, n)
		}
	}
}

func TestAttentionRefuses(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	id := d.stuck("k")
	for name, api := range map[string]attentionv1.AttentionServiceClient{
		"the service credential": d.operator(credential),
	} {
		if _, err := api.ListAttention(t.Context(), &attentionv1.ListAttentionRequest{}); status.Code(err) != codes.Unauthenticated {
			t.Errorf("%s: got %v, want %s", name, err, codes.Unauthenticated)
		}
		if _, err := api.Resolve(t.Context(), resolution(id, "r", markDone)); status.Code(err) != codes.Unauthenticated {
			t.Errorf("%s: got %v, want %s", name, err, codes.Unauthenticated)
		}
	}
	for name, tt := range map[string]struct {
		change func(*attentionv1.ResolveRequest)
		want   grpcx.Reason
	}{
		"no key":        {func(r *attentionv1.ResolveRequest) { r.RequestKey = "" }, grpcx.RequestInvalid},
		"no order":      {func(r *attentionv1.ResolveRequest) { r.OrderId = "x" }, grpcx.RequestInvalid},
		"no resolution": {func(r *attentionv1.ResolveRequest) { r.Resolution = 0 }, grpcx.RequestInvalid},
		"nobody":        {func(r *attentionv1.ResolveRequest) { r.Actor = "" }, grpcx.RequestInvalid},
		"no reason":     {func(r *attentionv1.ResolveRequest) { r.Reason = "" }, grpcx.RequestInvalid},
		"unknown order": {func(r *attentionv1.ResolveRequest) { r.OrderId = "5d1c2f0e-6c1b-5f57-9d5e-0c8f3a1b2c4d" }, grpcx.OrderNotFound},
		"another step":  {func(r *attentionv1.ResolveRequest) { r.Step = "capture_payment" }, grpcx.NothingToResolve},
		"no such step":  {func(r *attentionv1.ResolveRequest) { r.Step = "gift_wrap" }, grpcx.NothingToResolve},
	} {
		req := resolution(id, "r-"+name, markDone)
		tt.change(req)
		if _, err := d.api.Resolve(t.Context(), req); grpcx.ReasonOf(err) != tt.want {
			t.Errorf("%s: got %v, want %s", name, err, tt.want)
		}
	}
	if _, err := d.api.GetAttention(t.Context(), &attentionv1.GetAttentionRequest{OrderId: "x"}); grpcx.ReasonOf(err) != grpcx.OrderNotFound {
		t.Errorf("getting no order: got %v, want %s", err, grpcx.OrderNotFound)
	}
	if n := d.count(`SELECT count(*) FROM attention_action`); n != 0 {
		t.Errorf("decisions on record: got %d, want 0", n)
	}
}

func TestAttentionPages(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	var want []string
	for i := range 5 {
		want = append(want, d.stuck(fmt.Sprintf("page-%d", i)))
	}
	var got []string
	for token := ""; ; {
		page, err := d.api.ListAttention(t.Context(), &attentionv1.ListAttentionRequest{PageSize: 2, PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range page.GetCases() {
			got = append(got, c.GetOrderId())
		}
		if token = page.GetNextPageToken(); token == "" {
			break
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("pages: got %v, want %v", got, want)
	}
	for _, req := range []*attentionv1.ListAttentionRequest{{PageSize: 501}, {PageSize: -1}, {PageToken: "x"}} {
		if _, err := d.api.ListAttention(t.Context(), req); grpcx.ReasonOf(err) != grpcx.RequestInvalid {
			t.Errorf("list %v: got %v, want %s", req, err, grpcx.RequestInvalid)
		}
	}
}

// TestUndoThatWasNotHeardOf has an undo without an outcome whose participant has no record of it: it is not taken as done, on anybody's word.
func TestUndoThatWasNotHeardOf(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	id := d.stuck("k")
	if _, err := d.db.Exec(t.Context(), `UPDATE saga_instance SET state = jsonb_set(state, '{steps,0,phase}', '"undoing"') WHERE saga_id = $1`, id); err != nil {
		t.Fatal(err)
	}
	hear := func(deaf bool) {
		d.witness.mu.Lock()
		defer d.witness.mu.Unlock()
		d.witness.deaf = deaf
	}
	hear(true)
	for _, r := range []attentionv1.Resolution{markDone, otherWay} {
		if _, err := d.api.Resolve(t.Context(), resolution(id, "early "+r.String(), r)); grpcx.ReasonOf(err) != grpcx.NothingToResolve {
			t.Errorf("%s of an undo that was not heard of: got %v, want NOTHING_TO_RESOLVE", r, err)
		}
	}
	if n := d.count(`SELECT count(*) FROM attention_action`); n != 0 {
		t.Errorf("decisions on record: got %d, want none", n)
	}
	hear(false)
	got, err := d.api.Resolve(t.Context(), resolution(id, "in time", markDone))
	if err != nil || got.GetStatus() != "FAILED" {
		t.Errorf("of one that was heard of: got %v, %v, want FAILED", got, err)
	}
}
