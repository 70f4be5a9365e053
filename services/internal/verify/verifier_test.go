package verify

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	verifyv1 "github.com/throughline/throughline/proto/gen/throughline/verify/v1"
)

// fake is a service that says what a test tells it to. Functions that are nil answer with nothing.
type fake struct {
	orders   func(*verifyv1.ListOrdersRequest) *verifyv1.ListOrdersResponse
	holdings func(*verifyv1.ListHoldingsRequest) *verifyv1.ListHoldingsResponse
	messages func(*verifyv1.CheckMessagesRequest) *verifyv1.CheckMessagesResponse
	receipts func(*verifyv1.CheckReceiptsRequest) *verifyv1.CheckReceiptsResponse
	err      error
}

func (f *fake) ListOrders(_ context.Context, req *verifyv1.ListOrdersRequest, _ ...grpc.CallOption) (*verifyv1.ListOrdersResponse, error) {
	return answer(f.orders, req, f.err)
}

func (f *fake) ListHoldings(_ context.Context, req *verifyv1.ListHoldingsRequest, _ ...grpc.CallOption) (*verifyv1.ListHoldingsResponse, error) {
	return answer(f.holdings, req, f.err)
}

func (f *fake) CheckMessages(_ context.Context, req *verifyv1.CheckMessagesRequest, _ ...grpc.CallOption) (*verifyv1.CheckMessagesResponse, error) {
	return answer(f.messages, req, f.err)
}

func (f *fake) CheckReceipts(_ context.Context, req *verifyv1.CheckReceiptsRequest, _ ...grpc.CallOption) (*verifyv1.CheckReceiptsResponse, error) {
	return answer(f.receipts, req, f.err)
}

func answer[Req, Resp any](say func(Req) *Resp, req Req, err error) (*Resp, error) {
	if err != nil {
		return nil, err
	}
	if say == nil {
		return new(Resp), nil
	}
	return say(req), nil
}

// shop is a system with one order, its payment and its parcel, all as they must be.
type shop struct {
	order                   *verifyv1.Order
	payment, parcel         *verifyv1.Holding
	orders, paying, sending *fake
	looks                   int // at the order by its id
}

func newShop() *shop {
	id := uuid.NewString()
	s := &shop{
		order: &verifyv1.Order{
			OrderId: id, ClientId: "storefront", IdempotencyKey: "k", Status: Confirmed, SagaStatus: Confirmed, Currency: "EUR", Total: 100, Revision: 7,
			CreatedAt: timestamppb.New(time.Now().Add(-time.Minute)),
		},
		payment: &verifyv1.Holding{
			OrderId: id, Intents: []*verifyv1.Intent{{Id: "pi", Status: "succeeded", Currency: "EUR", Amount: 100, Captured: 100}},
			Record: &verifyv1.Record{Status: "captured", Reference: "pi", Currency: "EUR", Amount: 100, Captured: 100},
		},
		parcel: &verifyv1.Holding{
			OrderId: id, Parcels: []*verifyv1.Parcel{{Id: "sh", Status: "dispatched"}}, Record: &verifyv1.Record{Status: "dispatched", Reference: "sh"},
		},
	}
	s.orders = &fake{orders: func(req *verifyv1.ListOrdersRequest) *verifyv1.ListOrdersResponse {
		if len(req.GetOrderIds()) > 0 {
			s.looks++
			if !slices.Contains(req.GetOrderIds(), id) {
				return &verifyv1.ListOrdersResponse{}
			}
		}
		return &verifyv1.ListOrdersResponse{Orders: []*verifyv1.Order{proto.CloneOf(s.order)}}
	}}
	s.paying = &fake{holdings: func(*verifyv1.ListHoldingsRequest) *verifyv1.ListHoldingsResponse {
		return &verifyv1.ListHoldingsResponse{Holdings: []*verifyv1.Holding{s.payment}}
	}}
	s.sending = &fake{holdings: func(*verifyv1.ListHoldingsRequest) *verifyv1.ListHoldingsResponse {
		return &verifyv1.ListHoldingsResponse{Holdings: []*verifyv1.Holding{s.parcel}}
	}}
	return s
}

func (s *shop) run(t *testing.T, opts Options) *Report {
	t.Helper()
	opts.Pause = time.Millisecond
	v := &Verifier{Services: map[string]verifyv1.VerifyServiceClient{"order": s.orders, "payment": s.paying, "shipping": s.sending}}
	r, err := v.Run(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// rules gives the broken rules, sorted.
func rules(r *Report) string {
	var list []string
	for _, v := range r.Violations {
		list = append(list, string(v.Rule))
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

func TestRules(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		do   func(*shop)
		want string
	}{
		"as it must be": {func(*shop) {}, ""},
		"more taken than authorized": {func(s *shop) {
			s.payment.Intents[0].Amount = 90
		}, "captured-within-authorized"},
		"more given back than taken": {func(s *shop) {
			s.payment.Intents = append(s.payment.Intents, &verifyv1.Intent{Id: "other", Currency: "EUR", Amount: 100, Refunded: 0, Captured: 0, Held: 0})
			s.payment.Intents[1].Refunded = 1
			s.payment.Intents[0].Captured = 101
			s.payment.Intents[0].Amount = 101
		}, "refunded-within-captured"},
		"other money": {func(s *shop) {
			s.payment.Intents[0].Currency = "USD"
		}, "confirmed-is-paid-and-shipped"},
		"not taken": {func(s *shop) {
			s.payment.Intents[0].Captured, s.payment.Intents[0].Held = 0, 100
		}, "confirmed-is-paid-and-shipped"},
		"not sent": {func(s *shop) {
			s.parcel.Parcels[0].Status = "cancelled"
		}, "confirmed-is-paid-and-shipped"},
		"lost on its way": {func(s *shop) {
			s.parcel.Parcels[0].Status = "lost"
		}, ""},
		"failed, and still held": {func(s *shop) {
			s.order.Status, s.order.SagaStatus, s.parcel.Parcels[0].Status = Failed, Failed, "cancelled"
			s.payment.Record.Status, s.parcel.Record.Status = "voided", "cancelled"
			s.payment.Intents[0].Captured, s.payment.Intents[0].Held = 0, 100
		}, "closed-is-undone"},
		"another intent on record": {func(s *shop) { s.payment.Record.Reference = "other" }, "own-record-agrees"},
		"another parcel on record": {func(s *shop) { s.parcel.Record.Reference = "other" }, "own-record-agrees"},
		"no record of the payment": {func(s *shop) { s.payment.Record = nil }, "own-record-agrees"},
		"undone by a person": {func(s *shop) {
			s.order.Status, s.order.SagaStatus, s.order.MarkedDone = Failed, Failed, true
			s.payment.Intents[0].Refunded, s.parcel.Parcels[0].Status = 100, "cancelled"
		}, ""},
		"undone by nobody knows whom": {func(s *shop) {
			s.order.Status, s.order.SagaStatus = Failed, Failed
			s.payment.Intents[0].Refunded, s.parcel.Parcels[0].Status = 100, "cancelled"
		}, "own-record-agrees own-record-agrees"},
		"not what the saga says": {func(s *shop) { s.order.SagaStatus = Failed }, "own-record-agrees"},
		"a person decides": {func(s *shop) {
			s.order.Status, s.order.SagaStatus, s.payment.Intents[0].Captured = NeedsAttention, NeedsAttention, 0
		}, ""},
		"overdue": {func(s *shop) {
			s.order.Status, s.order.SagaStatus, s.order.Timed, s.order.Overdue = Pending, Pending, true, durationpb.New(OverdueGrace+time.Second)
		}, "past-deadline"},
		"a little late": {func(s *shop) {
			s.order.Status, s.order.SagaStatus, s.order.Timed, s.order.Overdue = Pending, Pending, true, durationpb.New(OverdueGrace-time.Second)
		}, ""},
		"without a timer": {func(s *shop) { s.order.Status, s.order.SagaStatus = Compensating, Compensating }, "no-timer"},
		"nobody's": {func(s *shop) {
			s.parcel = &verifyv1.Holding{OrderId: s.order.OrderId}
			s.orders.orders = nil
		}, "unknown-order"},
		"lost on the way out": {func(s *shop) {
			s.paying.messages = func(*verifyv1.CheckMessagesRequest) *verifyv1.CheckMessagesResponse {
				return &verifyv1.CheckMessagesResponse{Findings: []*verifyv1.MessageFinding{{Rule: string(OutboxLost), Message: &verifyv1.Message{OrderId: s.order.OrderId}}}}
			}
		}, "outbox-lost"},
		"taken by nobody": {func(s *shop) {
			s.orders.messages = func(*verifyv1.CheckMessagesRequest) *verifyv1.CheckMessagesResponse {
				return &verifyv1.CheckMessagesResponse{Acknowledged: []*verifyv1.Message{{OrderId: s.order.OrderId, Subject: "cmd.payment.authorize_payment"}}}
			}
			s.paying.receipts = func(*verifyv1.CheckReceiptsRequest) *verifyv1.CheckReceiptsResponse {
				return &verifyv1.CheckReceiptsResponse{Receipts: []*verifyv1.Receipt{{State: verifyv1.ReceiptState_RECEIPT_STATE_NOT_TAKEN}}}
			}
		}, "inbox-missing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop()
			tc.do(s)
			r := s.run(t, Options{})
			if got := rules(r); got != tc.want || len(r.Gaps) > 0 {
				t.Errorf("got %q (%v) and gaps %v, want %q and none", got, r.Violations, r.Gaps, tc.want)
			}
			for _, v := range r.Violations {
				if v.OrderID != s.order.GetOrderId() || v.Rule != UnknownOrder && (v.ClientID != "storefront" || v.Key != "k") {
					t.Errorf("violation: got %+v, want it to name order %s of storefront", v, s.order.GetOrderId())
				}
			}
		})
	}
}

// TestOrderMovesBetweenLooks: what changes from look to look is in flight, and not a violation; what comes right is nothing.
func TestOrderMovesBetweenLooks(t *testing.T) {
	t.Parallel()
	s := newShop()
	s.payment.Intents[0].Held, s.payment.Intents[0].Captured = 100, 0
	list := s.orders.orders
	s.orders.orders = func(req *verifyv1.ListOrdersRequest) *verifyv1.ListOrdersResponse {
		s.order.Revision++
		return list(req)
	}
	if r := s.run(t, Options{Looks: 4}); r.Outcome() != Clean || r.InFlight != 1 || s.looks != 4 {
		t.Errorf("an order that goes on moving: got %s, %d in flight after %d looks, want clean, 1 and 4", r.Outcome(), r.InFlight, s.looks)
	}
	s.looks = 0
	s.orders.orders = func(req *verifyv1.ListOrdersRequest) *verifyv1.ListOrdersResponse {
		if s.looks == 1 {
			s.payment.Intents[0].Held, s.payment.Intents[0].Captured = 0, 100
		}
		return list(req)
	}
	r := s.run(t, Options{})
	if r.Outcome() != Clean || r.InFlight != 0 || len(r.Money) != 1 || r.Money[0] != (Money{"EUR", 100, 100}) {
		t.Errorf("an order that comes right: got %s, %d in flight, money %v, want clean, none and 100 for 100", r.Outcome(), r.InFlight, r.Money)
	}
}

// TestPending: while something is still to be done for an order, what is wrong outside may be mended.
func TestPending(t *testing.T) {
	t.Parallel()
	message := func(s *shop) *verifyv1.Message {
		return &verifyv1.Message{OrderId: s.order.GetOrderId(), Subject: "rpl.order.place-order"}
	}
	for name, do := range map[string]func(*shop){
		"a step is due": func(s *shop) { s.parcel.StepDue = true },
		"a message is not out": func(s *shop) {
			s.paying.messages = func(*verifyv1.CheckMessagesRequest) *verifyv1.CheckMessagesResponse {
				return &verifyv1.CheckMessagesResponse{Pending: []*verifyv1.Message{message(s)}}
			}
		},
		"a message is not taken in": func(s *shop) {
			s.paying.messages = func(*verifyv1.CheckMessagesRequest) *verifyv1.CheckMessagesResponse {
				return &verifyv1.CheckMessagesResponse{Acknowledged: []*verifyv1.Message{message(s)}}
			}
			s.orders.receipts = func(*verifyv1.CheckReceiptsRequest) *verifyv1.CheckReceiptsResponse {
				return &verifyv1.CheckReceiptsResponse{Receipts: []*verifyv1.Receipt{{State: verifyv1.ReceiptState_RECEIPT_STATE_WAITING}}}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop()
			s.parcel.Parcels = append(s.parcel.Parcels, &verifyv1.Parcel{Id: "late", Status: "created"})
			do(s)
			if r := s.run(t, Options{}); r.Outcome() != Clean || r.InFlight != 1 {
				t.Errorf("got %s (%v) and %d in flight, want clean and 1", r.Outcome(), r.Violations, r.InFlight)
			}
			// What nothing can mend is a violation all the same.
			s.order.SagaStatus = Failed
			if r := s.run(t, Options{}); rules(r) != "own-record-agrees" {
				t.Errorf("got %q, want own-record-agrees alone", rules(r))
			}
		})
	}
}

// TestGaps: what cannot be asked is said, and is never clean.
func TestGaps(t *testing.T) {
	t.Parallel()
	away := status.Error(codes.Unavailable, "it is away")
	for service, tc := range map[string]struct {
		down func(*shop)
		what string
	}{
		"order":    {func(s *shop) { s.orders.err = away }, "orders"},
		"payment":  {func(s *shop) { s.paying.err = away }, "what the outside holds"},
		"shipping": {func(s *shop) { s.sending.err = away }, "what the outside holds"},
	} {
		t.Run(service, func(t *testing.T) {
			t.Parallel()
			s := newShop()
			s.payment.Intents[0].Captured = 0 // nothing can be said of it
			tc.down(s)
			r := s.run(t, Options{})
			if r.Outcome() != Incomplete || r.Complete() || s.looks > 0 {
				t.Fatalf("got %s with %v after %d looks, want incomplete, and no order judged", r.Outcome(), r.Gaps, s.looks)
			}
			if !slices.Contains(r.Gaps, Gap{service, tc.what, "it is away"}) {
				t.Errorf("gaps: got %v, want that of %s", r.Gaps, tc.what)
			}
			for _, g := range r.Gaps {
				if g.Service != service || g.Why != "it is away" {
					t.Errorf("gap: got %s, want one of %s that says why", g, service)
				}
			}
		})
	}
}

// TestStrangers: money of an order that was placed after the run had begun is left to the next run, that of an older one is looked at.
func TestStrangers(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		created time.Time
		want    int // looks by the order's id
	}{
		"a newer order":  {time.Now().Add(time.Hour), 2},      // once to meet it, for the payment and for the parcel
		"an older order": {time.Now().Add(-time.Hour), 2 + 1}, // and once to look
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop()
			s.order.CreatedAt = timestamppb.New(tc.created)
			list := s.orders.orders
			s.orders.orders = func(req *verifyv1.ListOrdersRequest) *verifyv1.ListOrdersResponse {
				if len(req.GetOrderIds()) == 0 {
					return &verifyv1.ListOrdersResponse{}
				}
				return list(req)
			}
			if r := s.run(t, Options{Since: time.Now().Add(-time.Minute)}); r.Outcome() != Clean || s.looks != tc.want {
				t.Errorf("got %s (%v) after %d looks, want clean after %d", r.Outcome(), r.Violations, s.looks, tc.want)
			}
		})
	}
}

func TestTooManySuspects(t *testing.T) {
	t.Parallel()
	s := newShop()
	s.orders.orders = func(req *verifyv1.ListOrdersRequest) *verifyv1.ListOrdersResponse {
		resp := new(verifyv1.ListOrdersResponse)
		for i := range maxSuspects + 5 {
			id := fmt.Sprintf("00000000-0000-0000-0000-%012d", i)
			if len(req.GetOrderIds()) == 0 || slices.Contains(req.GetOrderIds(), id) {
				resp.Orders = append(resp.Orders, &verifyv1.Order{OrderId: id, Status: Pending, SagaStatus: Pending})
			}
		}
		return resp
	}
	r := s.run(t, Options{})
	if len(r.Violations) < maxSuspects || r.Complete() || !strings.Contains(fmt.Sprint(r.Gaps), "more than the 1000") {
		t.Errorf("got %d violations and gaps %v, want %d, and that there are more", len(r.Violations), r.Gaps, maxSuspects)
	}
}

func TestMoneyAddsUp(t *testing.T) {
	t.Parallel()
	sums := make(ledger)
	sums.note(Confirmed, "EUR", 100, Account{Captured: 100})
	sums.note(Failed, "eur", 100, Account{Captured: 70, Refunded: 69})
	r := new(Report)
	sums.close(r)
	if rules(r) != "money-adds-up" || !strings.Contains(r.Violations[0].Detail, "100") || !strings.Contains(r.Violations[0].Detail, "101") {
		t.Errorf("100 for 101: got %v, want money-adds-up with both sums", r.Violations)
	}
	r = &Report{Violations: []Violation{{Rule: ClosedIsUndone}}}
	if sums.close(r); rules(r) != "closed-is-undone" {
		t.Errorf("with an order that says why: got %q, want nothing more", rules(r))
	}
}

func TestBook(t *testing.T) {
	t.Parallel()
	if got := unsafe.Sizeof(entry{}); got != 56 {
		t.Errorf("an order takes %d bytes, the package says 56", got)
	}
	var b book
	one, two := uuid.New(), uuid.New()
	b.add(one, Pending, "EUR", 1)
	b.add(two, Failed, "USD", 2)
	b.add(one, Confirmed, "EUR", 1)
	b.seal()
	if len(b.entries) != 2 || b.find(one).status != confirmed || b.currencies[b.find(two).currency] != "USD" || b.find(uuid.New()) != nil {
		t.Errorf("got %+v, want two orders, each as it was read last", b.entries)
	}
	a := Account{Charges: 300, Live: 2, Lost: 1, Held: 5, Captured: 6, Refunded: 7, Overcaptured: true, Foreign: true}
	b.find(one).put(a)
	a.Charges = 255
	if got := b.find(one).account(); got != a {
		t.Errorf("account: got %+v, want %+v", got, a)
	}
}
