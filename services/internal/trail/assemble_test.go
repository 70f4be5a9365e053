package trail

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/throughline/throughline/pkg/keys"
	trailv1 "github.com/throughline/throughline/proto/gen/throughline/trail/v1"
)

// service is one that tells what it is given.
type service struct {
	trailv1.TrailServiceClient

	err      error
	matches  map[string][]*trailv1.Match
	entries  []*trailv1.Entry
	receipts []*trailv1.Entry
	leftOut  []string
	asked    []string // the messages that receipts were asked for
}

func (s *service) FindOrders(_ context.Context, req *trailv1.FindOrdersRequest, _ ...grpc.CallOption) (*trailv1.FindOrdersResponse, error) {
	return &trailv1.FindOrdersResponse{Matches: s.matches[req.GetId()]}, s.err
}

func (s *service) ListEntries(context.Context, *trailv1.ListEntriesRequest, ...grpc.CallOption) (*trailv1.ListEntriesResponse, error) {
	return &trailv1.ListEntriesResponse{Entries: s.entries, LeftOut: s.leftOut}, s.err
}

func (s *service) ListReceipts(_ context.Context, req *trailv1.ListReceiptsRequest, _ ...grpc.CallOption) (*trailv1.ListReceiptsResponse, error) {
	s.asked = req.GetMessageIds()
	return &trailv1.ListReceiptsResponse{Entries: s.receipts}, s.err
}

var kinds = map[string]trailv1.EntryKind{
	"order": trailv1.EntryKind_ENTRY_KIND_ORDER, "edge": trailv1.EntryKind_ENTRY_KIND_EDGE, "transition": trailv1.EntryKind_ENTRY_KIND_TRANSITION,
	"sent": trailv1.EntryKind_ENTRY_KIND_SENT, "received": trailv1.EntryKind_ENTRY_KIND_RECEIVED, "duplicate": trailv1.EntryKind_ENTRY_KIND_DUPLICATE,
	"step": trailv1.EntryKind_ENTRY_KIND_STEP, "attempt": trailv1.EntryKind_ENTRY_KIND_ATTEMPT, "call": trailv1.EntryKind_ENTRY_KIND_CALL,
	"webhook": trailv1.EntryKind_ENTRY_KIND_WEBHOOK, "operator": trailv1.EntryKind_ENTRY_KIND_OPERATOR,
}

var began = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// entries reads lines of: service kind id milliseconds [cause].
func entries(lines string) []*trailv1.Entry {
	var all []*trailv1.Entry
	for line := range strings.Lines(lines) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		var ms int
		if _, err := fmt.Sscan(f[3], &ms); err != nil {
			panic(err)
		}
		e := &trailv1.Entry{Service: f[0], Kind: kinds[f[1]], EntryId: f[2], At: timestamppb.New(began.Add(time.Duration(ms) * time.Millisecond))}
		if e.Kind == 0 {
			panic(f[1])
		}
		if len(f) > 4 {
			e.CausedBy = f[4]
		}
		all = append(all, e)
	}
	return all
}

func ids(all []*trailv1.Entry) string {
	var s []string
	for _, e := range all {
		s = append(s, e.GetEntryId())
	}
	return strings.Join(s, " ")
}

// Entries stand behind their causes, whatever the clocks say, and by time where that leaves a choice. The order in which they are told
// changes nothing.
func TestArrange(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, told, want, clocks string }{
		{"a story with good clocks", `
			order order order 0
			order edge edge 0 order
			order transition t1 1 order
			order sent m1 1 t1
			payment received r1 5 m1
			payment step s1 5 r1
			payment attempt a1 6 s1
			payment call c1 7 a1
			payment webhook w1 8
			payment attempt a2 20 s1
			payment sent m2 30 a2
			order received r2 33 m2
			order transition t2 33 r2`,
			"order edge t1 m1 r1 s1 a1 c1 w1 a2 m2 r2 t2", ""},
		{"a clock that is behind", `
			order order order 0
			order sent m1 10 order
			payment received r1 -990 m1
			payment attempt a1 -985 r1
			payment sent m2 -980 a1
			order received r2 30 m2
			order operator o1 20`,
			"order m1 r1 a1 m2 o1 r2", "payment behind order by 1s"},
		{"a clock that is ahead", `
			order order order 0
			payment received r1 5000 order
			payment sent m1 5001 r1
			order received r2 11 m1
			order transition t2 11 r2`,
			"order r1 m1 r2 t2", "order behind payment by 4.99s"},
		{"a cause that is not there", `
			order transition t9 9 received/gone
			order order order 0
			shipping attempt a1 5 step/gone`,
			"order a1 t9", ""},
		{"one time, one transaction", `
			order sent m2 5 t1
			order sent m1 5 t1
			order transition t1 5 r1
			order received r1 5`,
			"r1 t1 m1 m2", ""},
		{"causes in a circle", `
			order order order 0
			order sent a 2 b
			order sent b 1 a`,
			"order b a", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			told := entries(tt.told)
			for range 2 {
				got, clocks := arrange(slices.Clone(told))
				if ids(got) != tt.want {
					t.Errorf("arranged: got %s, want %s", ids(got), tt.want)
				}
				said := ""
				for _, c := range clocks {
					said += fmt.Sprintf("%s behind %s by %s", c.GetBehind(), c.GetAheadService(), c.GetAtLeast().AsDuration())
				}
				if said != tt.clocks {
					t.Errorf("clocks: got %q, want %q", said, tt.clocks)
				}
				slices.Reverse(told)
			}
		})
	}
}

// What follows from a message is in its trace, about its step, and by the instance that has dealt with it.
func TestRelate(t *testing.T) {
	t.Parallel()
	all := entries(`
		order sent m1 1
		payment received r1 5 m1
		payment duplicate d1 9 r1
		payment step s1 5 r1
		payment attempt a1 6 s1
		payment sent m2 7 a1
		order received r2 8 m2
		order transition t2 8 r2
		payment webhook w1 8
		payment duplicate d2 9`)
	by := make(map[string]*trailv1.Entry)
	for _, e := range all {
		by[e.GetEntryId()] = e
	}
	by["m1"].TraceId, by["m1"].Step, by["m1"].Undo = "abc", "void_payment", true
	by["r1"].Instance, by["a1"].Instance, by["r2"].Instance = "payment/0", "payment/1", "order/0"
	by["a1"].Step = "void_payment"
	by["w1"].MessageId, by["d2"].MessageId = "x", "x"
	relate(all)
	for id, want := range map[string][3]string{
		"r1": {"payment/0", "abc", "void_payment"}, "d1": {"", "abc", "void_payment"}, "s1": {"payment/0", "abc", ""}, "m2": {"payment/1", "abc", "void_payment"},
		"r2": {"order/0", "abc", "void_payment"}, "t2": {"order/0", "abc", ""}, "m1": {"", "abc", "void_payment"},
	} {
		if e := by[id]; [3]string{e.GetInstance(), e.GetTraceId(), e.GetStep()} != want {
			t.Errorf("%s: got instance %q, trace %q, step %q, want %q", id, e.GetInstance(), e.GetTraceId(), e.GetStep(), want)
		}
	}
	if !by["r1"].GetUndo() || by["d2"].GetCausedBy() != "w1" {
		t.Errorf("got undo %v of r1, cause %q of d2, want true and w1", by["r1"].GetUndo(), by["d2"].GetCausedBy())
	}
}

const order = "bc765b28-bc4d-58fd-a83e-d135647f37a8"

func assembler(services map[string]*service) *Assembler {
	a := new(Assembler)
	for _, name := range []string{"order", "payment", "shipping"} {
		if services[name] == nil {
			services[name] = new(service)
		}
		a.Sources = append(a.Sources, Source{Service: name, Client: services[name]})
	}
	return a
}

// A service that does not answer is a gap, and the rest is told. Nobody is asked twice who is away.
func TestGaps(t *testing.T) {
	t.Parallel()
	payment := &service{entries: entries("payment sent m1 5"), leftOut: []string{"messages sent before"}}
	payment.entries[0].MessageId = "01a22979-01dc-7b78-b334-a2348394848e"
	shipping := &service{err: status.Error(codes.Unavailable, "connection refused")}
	orders := &service{entries: entries("order order order 0"), receipts: entries("order received r1 6 m1"), matches: map[string][]*trailv1.Match{
		"key": {{OrderId: order, Kind: trailv1.IdKind_ID_KIND_IDEMPOTENCY_KEY, ClientId: "shop"}},
	}}
	orders.entries[0].Outcome = "FAILED"
	got, err := assembler(map[string]*service{"order": orders, "payment": payment, "shipping": shipping}).Assemble(t.Context(), Question{ID: "key"})
	if err != nil {
		t.Fatal(err)
	}
	var gaps []string
	for _, g := range got.GetGaps() {
		gaps = append(gaps, g.GetReason()+": "+g.GetDetail())
	}
	want := []string{"left_out: payment does not tell messages sent before", "unreachable: no answer from shipping: unreachable"}
	if ids(got.GetEntries()) != "order m1 r1" || !slices.Equal(gaps, want) || got.GetStatus() != "FAILED" || got.GetClientId() != "shop" {
		t.Errorf("got %s, gaps %q, status %s, client %s, want order m1 r1, %q, FAILED, shop", ids(got.GetEntries()), gaps, got.GetStatus(), got.GetClientId(), want)
	}
	if !slices.Equal(orders.asked, []string{payment.entries[0].GetMessageId()}) || shipping.asked != nil {
		t.Errorf("receipts asked for: got %v of order, %v of shipping, want the message of order only", orders.asked, shipping.asked)
	}
}

// An id that nobody knows, one that belongs to several orders, and one that only a service knows that is away.
func TestFind(t *testing.T) {
	t.Parallel()
	const other = "3fd5c1a2-0b1e-5f6a-9d2e-8a7b6c5d4e3f"
	match := func(order, client string, kind trailv1.IdKind) *trailv1.Match {
		return &trailv1.Match{OrderId: order, ClientId: client, Kind: kind}
	}
	byKey, byMessage := trailv1.IdKind_ID_KIND_IDEMPOTENCY_KEY, trailv1.IdKind_ID_KIND_MESSAGE_ID
	matches := map[string][]*trailv1.Match{
		"both": {match(order, "a", byKey), match(other, "b", byKey)}, "one": {match(order, "", byMessage)},
	}
	a := assembler(map[string]*service{"order": {matches: matches}, "payment": {matches: map[string][]*trailv1.Match{"one": {match(order, "", byMessage)}}}})
	if m, gaps, err := a.Find(t.Context(), "one", ""); err != nil || m.GetOrderId() != order || m.GetKind() != byMessage || len(gaps) > 0 {
		t.Errorf("by one id: got %v, %v, %v, want order %s", m, gaps, err, order)
	}
	if _, _, err := a.Find(t.Context(), "both", ""); err == nil || err.Error() != fmt.Sprintf("%q belongs to several orders: %s of b, %s of a", "both", other, order) {
		t.Errorf("by a key of two clients: got %v, want both named", err)
	}
	if _, _, err := a.Find(t.Context(), "none", ""); !errors.Is(err, ErrNotFound) || errors.Is(err, ErrIncomplete) {
		t.Errorf("by an unknown id: got %v, want ErrNotFound", err)
	}
	away := &service{err: status.Error(codes.DeadlineExceeded, "")}
	known := keys.OrderID("shop", "my-key").String()
	a = assembler(map[string]*service{"order": away, "payment": {matches: map[string][]*trailv1.Match{known: {match(known, "", trailv1.IdKind_ID_KIND_ORDER_ID)}}}})
	if _, _, err := a.Find(t.Context(), "my-key", ""); !errors.Is(err, ErrNotFound) || !errors.Is(err, ErrIncomplete) {
		t.Errorf("with the order service away: got %v, want ErrNotFound that is incomplete", err)
	}
	if m, gaps, err := a.Find(t.Context(), "my-key", "shop"); err != nil || m.GetOrderId() != known || len(gaps) != 1 {
		t.Errorf("by client and key with the order service away: got %v, %v, %v, want %s and a gap", m, gaps, err, known)
	}
}

// A credential that is refused is said as such.
func TestGapOf(t *testing.T) {
	t.Parallel()
	for code, want := range map[codes.Code]string{
		codes.Unauthenticated: GapRefused, codes.PermissionDenied: GapRefused, codes.Unavailable: GapUnreachable, codes.DeadlineExceeded: GapUnreachable,
		codes.Internal: GapError,
	} {
		if g := GapOf("payment", status.Error(code, "why")); g.GetReason() != want || !strings.HasPrefix(g.GetDetail(), "no answer from payment: ") {
			t.Errorf("%s: got %v, want %s", code, g, want)
		}
	}
}
