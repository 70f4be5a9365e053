package participant

import (
	"errors"
	"testing"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/throughline/throughline/pkg/inbox"
	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/messaging"
)

func TestCommandIsPerformedOnceAndAnswered(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	var calls counter
	cfg, stores := d.config(), 0
	cfg.Projector = hotel{fail: func([]Change) error {
		stores++
		return nil
	}}
	r := d.runnerWith(cfg, calls.step(hold, held))
	cmd := command(uuid.New(), hold)
	order := cmd.AggregateID

	d.apply(r, cmd)
	if !d.marked(cmd.ID) {
		t.Error("inbox mark: got none, want one with the intent")
	}
	rec := d.is(order, hold, StatePending)
	if rec.LeaseOwner != r.cfg.Owner || rec.Token != 1 || rec.Attempts != 1 {
		t.Errorf("intent: got owner %q, token %d, attempts %d, want %q, 1, 1", rec.LeaseOwner, rec.Token, rec.Attempts, r.cfg.Owner)
	}
	d.told(order)

	d.finish(r)
	calls.is(d, 1)
	rec = d.is(order, hold, StateDone)
	if rec.DueAt != nil || rec.LeaseOwner != "" || rec.Reference != "r12" {
		t.Errorf("record: got due %v, owner %q, reference %q, want none, none, r12", rec.DueAt, rec.LeaseOwner, rec.Reference)
	}
	rows := d.told(order, "evt.hotel.held 1", "hold_room done")
	event, reply := rows[0], rows[1]
	if event.IdempotencyKey != "key-1" || event.TraceParent != cmd.TraceParent || event.Left {
		t.Errorf("event: got key %q, trace %q, left to sweep %t, want key-1, %q, false", event.IdempotencyKey, event.TraceParent, event.Left, cmd.TraceParent)
	}
	var result wrapperspb.StringValue
	if err := proto.Unmarshal(reply.Payload, &result); err != nil || result.GetValue() != "room 12" {
		t.Errorf("reply payload: got %q, %v, want room 12", result.GetValue(), err)
	}
	reply.Payload = nil
	want := reply
	want.Subject, want.Type, want.Source, want.IdempotencyKey = "rpl.order.stay", "google.protobuf.StringValue", "/hotel", "key-1"
	want.StepKey, want.LastSeen, want.TraceParent, want.Left, want.ID = keys.StepKey(order, hold), cmd.ID, cmd.TraceParent, false, rec.ReplyID
	if got := reply; got.Subject != want.Subject || got.Type != want.Type || got.Source != want.Source || got.IdempotencyKey != want.IdempotencyKey ||
		got.StepKey != want.StepKey || got.LastSeen != want.LastSeen || got.TraceParent != want.TraceParent || got.Left != want.Left || got.ID != want.ID {
		t.Errorf("reply: got %+v, want %+v", got, want)
	}
	if status, revision := d.status(order); status != "hold_room participant.Done" || revision != 2 {
		t.Errorf("business row: got %q at revision %d, want it done at 2", status, revision)
	}
	if stores != 2 {
		t.Errorf("transactions that stored the business row: got %d, want 2: what the intake knows of it is right", stores)
	}
	d.claim(r)
	d.idle(r)
}

func TestRepeatedMessageDoesNothing(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	var calls counter
	r := d.runner(calls.step(hold, held))
	cmd := command(uuid.New(), hold)
	d.apply(r, cmd)
	d.finish(r)
	d.apply(r, cmd)
	calls.is(d, 1)
	d.told(cmd.AggregateID, "evt.hotel.held 1", "hold_room done")
	d.idle(r)
}

func TestUnknownStepIsPermanent(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	var calls counter
	r := d.runner(calls.step(hold, held))
	good, bad := command(uuid.New(), hold), command(uuid.New(), "paint_room")
	err := r.ApplyCommands(t.Context(), []messaging.Delivery{good, bad})
	if !errors.Is(err, inbox.ErrPermanent) || !errors.Is(err, ErrUnknownStep) {
		t.Errorf("got %v, want a permanent error about the step", err)
	}
	if d.marked(good.ID) || d.marked(bad.ID) {
		t.Error("inbox marks: got some, want none")
	}
	d.idle(r)
}
