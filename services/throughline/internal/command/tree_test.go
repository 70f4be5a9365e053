package command

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	trailv1 "github.com/throughline/throughline/proto/gen/throughline/trail/v1"
	"github.com/throughline/throughline/services/internal/trail"
)

// at is a time after the order was placed.
func at(ms int) *timestamppb.Timestamp {
	return timestamppb.New(time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC).Add(time.Duration(ms) * time.Millisecond))
}

// lostAnswer is the story of an order whose authorization was not answered at first, and whose shipment was refused.
func lostAnswer() *trailv1.Timeline {
	return &trailv1.Timeline{
		OrderId: "bc765b28-bc4d-58fd-a83e-d135647f37a8", Status: "FAILED",
		Entries: []*trailv1.Entry{
			{EntryId: "order", At: at(0), Service: "order", Kind: trailv1.EntryKind_ENTRY_KIND_ORDER, Outcome: "FAILED", Reason: "address_refused", TraceId: "abc",
				Attributes: map[string]string{"client_id": "shop", "idempotency_key": "k\x1b[2J", "currency": "EUR", "total": "2500", "lines": "1",
					"ship_to": "(masked)", "payment_method": "(masked)"}},
			{EntryId: "edge", At: at(1), Service: "order", Kind: trailv1.EntryKind_ENTRY_KIND_EDGE, Title: "key answered; 1 replay, 0 mismatches", Instance: "order/0"},
			{EntryId: "t1", At: at(1), Service: "order", Kind: trailv1.EntryKind_ENTRY_KIND_TRANSITION, Step: "authorize_payment", Title: "authorize_payment: idle → sent",
				Outcome: "sent", Attributes: map[string]string{"cause": "started"}},
			{EntryId: "m1", At: at(1), Service: "order", Kind: trailv1.EntryKind_ENTRY_KIND_SENT, Step: "authorize_payment", Title: "command authorize_payment", Stream: "CMD",
				StreamSequence: 7, MessageId: "m-1", Outcome: "acknowledged"},
			{EntryId: "s1", At: at(5), Service: "payment", Kind: trailv1.EntryKind_ENTRY_KIND_STEP, Step: "authorize_payment", Title: "authorize_payment taken in", Outcome: "done"},
			{EntryId: "a1", At: at(6), Service: "payment", Kind: trailv1.EntryKind_ENTRY_KIND_ATTEMPT, Step: "authorize_payment",
				Title: "attempt 1 at authorize_payment: unknown", Outcome: "unknown", Detail: "no answer", Duration: durationpb.New(5 * time.Second), Instance: "payment/0"},
			{EntryId: "c1", At: at(7), Service: "payment", Kind: trailv1.EntryKind_ENTRY_KIND_CALL, Step: "authorize_payment", CausedBy: "a1",
				Title: "payment_provider: confirm", Outcome: "no_answer", Duration: durationpb.New(4999 * time.Millisecond), Attributes: map[string]string{"key": "pk-1"}},
			{EntryId: "a2", At: at(6000), Service: "payment", Kind: trailv1.EntryKind_ENTRY_KIND_ATTEMPT, Step: "authorize_payment",
				Title: "attempt 2 at authorize_payment: done", Outcome: "done", Duration: durationpb.New(2500 * time.Microsecond), Instance: "payment/1"},
			{EntryId: "t2", At: at(6100), Service: "order", Kind: trailv1.EntryKind_ENTRY_KIND_TRANSITION, Title: "saga: running → compensating", Undo: true,
				Attributes: map[string]string{"cause": "reply"}},
			{EntryId: "s2", At: at(6200), Service: "payment", Kind: trailv1.EntryKind_ENTRY_KIND_STEP, Step: "void_payment", Title: "void_payment taken in", Outcome: "pending", Undo: true},
		},
		Gaps:             []*trailv1.Gap{{Service: "shipping", Reason: trail.GapUnreachable, Detail: "no answer from shipping: unreachable"}},
		ClockDifferences: []*trailv1.ClockDifference{{Behind: "payment", AheadService: "order", AtLeast: durationpb.New(1200 * time.Millisecond)}},
	}
}

const lostAnswerTree = `order bc765b28-bc4d-58fd-a83e-d135647f37a8  FAILED (address_refused) after 6.100s
client shop, key k [2J
placed 2026-11-29 12:00:00.000 UTC, 25.00 EUR in 1 line
ship to (masked), paid by (masked)
trace abc
├─ +1.0ms    order    key answered; 1 replay, 0 mismatches by instance 0
├─ authorize_payment  done  +1.0ms, took 6.002s
│  ├─ +1.0ms    order    authorize_payment: idle → sent by started
│  ├─ +1.0ms    order    command authorize_payment CMD#7 message m-1
│  ├─ +5.0ms    payment  authorize_payment taken in
│  ├─ +6.0ms    payment  attempt 1 at authorize_payment: unknown 5.000s “no answer” by instance 0
│  │  └─ +7.0ms    payment  payment_provider: confirm 4.999s → no answer key pk-1
│  └─ +6.000s   payment  attempt 2 at authorize_payment: done 2.5ms by instance 1
├─ +6.100s   order    saga: running → compensating by reply
└─ void_payment (undo)  pending  +6.200s, took 0.0ms
   └─ +6.200s   payment  void_payment taken in
gap: no answer from shipping: unreachable
clock: the clock of payment is behind that of order by at least 1.200s
`

// The tree is the same for everybody; colours only add to it, and what others have written cannot steer the terminal.
func TestTree(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := drawTree(&b, lostAnswer(), styleFor(&b, nil)); err != nil {
		t.Fatal(err)
	}
	if b.String() != lostAnswerTree {
		t.Errorf("tree: got\n%s\nwant\n%s", &b, lostAnswerTree)
	}
	var coloured bytes.Buffer
	if err := drawTree(&coloured, lostAnswer(), style{colour: true}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\x1b[31mFAILED\x1b[0m", "\x1b[33mvoid_payment (undo)\x1b[0m", "\x1b[31munknown\x1b[0m"} {
		if !strings.Contains(coloured.String(), want) {
			t.Errorf("tree in colours: got no %q in\n%q", want, coloured.String())
		}
	}
	if strings.Contains(coloured.String(), "\x1b[2J") {
		t.Errorf("tree: got what clears the screen, from a key: %q", coloured.String())
	}
}

// Scripts tell from the code what happened.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	gaps := lostAnswer()
	leftOut := &trailv1.Timeline{Gaps: []*trailv1.Gap{{Reason: trail.GapLeftOut}}}
	for name, tt := range map[string]struct {
		err  error
		want int
	}{
		"success":          {nil, 0},
		"failure":          {errors.New("x"), ExitFailed},
		"not found":        {notFound(fmt.Errorf("%w: x", trail.ErrNotFound)), ExitNotFound},
		"several":          {notFound(&trail.AmbiguousError{ID: "x"}), ExitFailed},
		"gaps":             {incomplete(gaps), ExitIncomplete},
		"only left out":    {incomplete(leftOut), 0},
		"wrapped":          {fmt.Errorf("tracing: %w", incomplete(gaps)), ExitIncomplete},
		"joined with more": {errors.Join(errors.New("x"), notFound(trail.ErrNotFound)), ExitNotFound},
	} {
		if got := ExitCode(tt.err); got != tt.want {
			t.Errorf("%s: got %d, want %d", name, got, tt.want)
		}
	}
}
