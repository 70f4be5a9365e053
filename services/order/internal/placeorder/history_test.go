package placeorder_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/throughline/throughline/pkg/saga"
	"github.com/throughline/throughline/pkg/saga/sagatest"
	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	"github.com/throughline/throughline/services/order/internal/placeorder"
)

// histories are the courses of orders that are recorded of each version.
func histories() map[string][]saga.Input {
	reply := func(step string, o saga.Outcome, reason string) saga.Input {
		return saga.Replied{Step: step, Outcome: o, Reason: reason}
	}
	done := func(steps ...string) (inputs []saga.Input) {
		for _, s := range steps {
			inputs = append(inputs, reply(s, saga.OutcomeDone, ""))
		}
		return inputs
	}
	asked := func(step string, f saga.Finding, times int) (inputs []saga.Input) {
		for range times {
			inputs = append(inputs, saga.Asked{Step: step, Answer: saga.Answer{Finding: f}})
		}
		return inputs
	}
	list := slices.Concat[[]saga.Input]
	const authorize, create, capture, dispatch, void, cancel = "authorize_payment", "create_shipment", "capture_payment", "dispatch_shipment", "void_payment", "cancel_shipment"
	// Some six questions in a row take as long as the budget of two minutes.
	return map[string][]saga.Input{
		"confirmed":         done(authorize, create, capture, dispatch),
		"card_declined":     {reply(authorize, saga.OutcomeRefused, "card_declined")},
		"address_refused":   list(done(authorize), []saga.Input{reply(create, saga.OutcomeRefused, "address_refused")}, done(void)),
		"no_funds":          list(done(authorize, create), []saga.Input{reply(capture, saga.OutcomeRefused, "insufficient_funds")}, done(cancel, void)),
		"lost_at_carrier":   list(done(authorize, create, capture), []saga.Input{reply(dispatch, saga.OutcomeRefused, "lost_at_carrier")}, done(cancel, void)),
		"cancelled":         list(done(authorize), []saga.Input{saga.CancelRequested{}}, done(create, cancel, void)),
		"customer_pays":     list([]saga.Input{saga.Replied{Step: authorize, Outcome: saga.OutcomeWaiting, Detail: []byte("3ds")}}, asked(authorize, saga.FoundWaiting, 3), done(authorize, create, capture, dispatch)),
		"command_lost":      list(asked(authorize, saga.FoundNothing, 2), done(authorize), asked(create, saga.FoundDone, 1), done(capture, dispatch)),
		"create_in_doubt":   list(done(authorize), asked(create, saga.Silent, 5), asked(create, saga.FoundRunning, 1), done(cancel), asked(void, saga.FoundRunning, 2), done(void)),
		"late_success":      list([]saga.Input{reply(authorize, saga.OutcomeRefused, "card_declined")}, done(authorize, void)),
		"capture_parked":    list(done(authorize, create), asked(capture, saga.Silent, 6), []saga.Input{saga.Resolved{Decision: saga.RetryNow}}, done(capture, dispatch)),
		"capture_given_up":  list(done(authorize, create), asked(capture, saga.Silent, 6), []saga.Input{saga.Resolved{Decision: saga.UndoOtherWay}}, done(cancel, void)),
		"undo_refused":      list(done(authorize, create, capture), []saga.Input{reply(dispatch, saga.OutcomeRefused, "lost_at_carrier"), reply(cancel, saga.OutcomeRefused, "already_dispatched"), saga.Resolved{Decision: saga.MarkDone}}, done(void)),
		"undo_takes_longer": list(done(authorize), []saga.Input{saga.CancelRequested{}}, asked(cancel, saga.Silent, 7), done(cancel), asked(void, saga.FoundNothing, 2), done(void)),
	}
}

// TestRecordedHistories replays the orders that were recorded with each version that unfinished orders may have. Of a new version they
// are recorded by
//
//	RECORD_HISTORIES=1 go test ./order/internal/placeorder -run TestRecordedHistories
//
// on a Postgres of the test's own, into files that are committed with the version. A file that is there is never written again: it goes when
// its version does.
func TestRecordedHistories(t *testing.T) {
	t.Parallel()
	for _, d := range placeorder.Versions() {
		dir := filepath.Join("testdata", "histories", fmt.Sprintf("%s-%d", d.Name(), d.Version()))
		for name, inputs := range histories() {
			file := filepath.Join(dir, name+".json")
			t.Run(fmt.Sprintf("%d/%s", d.Version(), name), func(t *testing.T) {
				t.Parallel()
				raw, err := os.ReadFile(file)
				if errors.Is(err, os.ErrNotExist) && os.Getenv("RECORD_HISTORIES") != "" {
					raw = record(t, file, d, inputs)
				} else if err != nil {
					t.Fatalf("reading the recording: %v", err)
				}
				var r sagatest.Recording
				if err := json.Unmarshal(raw, &r); err != nil {
					t.Fatalf("reading the recording: %v", err)
				}
				if len(r.Events) != len(inputs)+1 {
					t.Errorf("recording: got %d events, want %d", len(r.Events), len(inputs)+1)
				}
				if err := sagatest.Replay(d, &r); err != nil {
					t.Errorf("replaying: %v", err)
				}
			})
		}
	}
}

func record(t *testing.T, file string, d *saga.Definition[*orderv1.PlaceOrder], inputs []saga.Input) []byte {
	t.Helper()
	raw, err := json.MarshalIndent(sagatest.Record(t, d, sagatest.ID, "key-1", data(), inputs...), "", "  ")
	if err != nil {
		t.Fatalf("encoding the recording: %v", err)
	}
	raw = append(raw, '\n')
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatalf("making the folder: %v", err)
	}
	if err := os.WriteFile(file, raw, 0o644); err != nil {
		t.Fatalf("writing the recording: %v", err)
	}
	return raw
}

// TestChangedDefinitionIsFound changes what is recorded, and shows that the recordings tell.
func TestChangedDefinitionIsFound(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(filepath.Join("testdata", "histories", "place-order-1", "no_funds.json"))
	if err != nil {
		t.Fatalf("reading a recording: %v", err)
	}
	command := func(participant, step string) saga.Builder[*orderv1.PlaceOrder] {
		return func(o *orderv1.PlaceOrder) saga.Command { return saga.To(participant, step, o) }
	}
	pay := saga.Compensatable("authorize_payment", command("payment", "authorize_payment"), command("payment", "void_payment"))
	ship := saga.Compensatable("create_shipment", command("shipping", "create_shipment"), command("shipping", "cancel_shipment"))
	take, send := saga.Pivot("capture_payment", command("payment", "capture_payment")), saga.Retriable("dispatch_shipment", command("shipping", "dispatch_shipment"))
	for name, d := range map[string]*saga.Definition[*orderv1.PlaceOrder]{
		"the shipment first":        saga.MustDefine("place-order", 1, ship, pay, take, send),
		"both at once":              saga.MustDefine("place-order", 1, saga.Parallel(pay, ship), take, send),
		"no dispatch":               saga.MustDefine("place-order", 1, pay, ship, take),
		"other messages, same plan": saga.MustDefine("place-order", 1, pay, ship, take, send),
	} {
		var r sagatest.Recording
		if err := json.Unmarshal(raw, &r); err != nil {
			t.Fatalf("reading a recording: %v", err)
		}
		if err := sagatest.Replay(d, &r); !errors.Is(err, sagatest.ErrOtherwise) {
			t.Errorf("%s: got %v, want %v", name, err, sagatest.ErrOtherwise)
		}
	}
}
