package order_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	attentionv1 "github.com/throughline/throughline/proto/gen/throughline/attention/v1"
	stepv1 "github.com/throughline/throughline/proto/gen/throughline/step/v1"
	"github.com/throughline/throughline/services/internal/grpcx"
	"github.com/throughline/throughline/services/order"
)

func (s *witness) ReleaseSteps(context.Context, *stepv1.ReleaseStepsRequest) (*stepv1.ReleaseStepsResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retried = append(s.retried, "release")
	return &stepv1.ReleaseStepsResponse{Due: 7}, nil
}

func (s *witness) releases() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Count(strings.Join(s.retried, " "), "release")
}

// TestReleaseOfDueWork lets due work go at once, everywhere, once for each key, on record.
func TestReleaseOfDueWork(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	// A timer of nothing, which the service removes, or finds due.
	req := &attentionv1.ReleaseRequest{RequestKey: "r-1", Actor: "kim", Reason: "the provider is back"}
	_, err := d.api.Release(t.Context(), req)
	if got := grpcx.ReasonOf(err); got != grpcx.Unavailable {
		t.Fatalf("without shipping: got %v, want UNAVAILABLE", err)
	}
	if n := d.count(`SELECT (SELECT count(*) FROM due_release) + (SELECT count(*) FROM saga_release)`); n != 0 {
		t.Errorf("on record without shipping: got %d rows, want none", n)
	}

	d.addr = d.run(d.url, order.Config{PaymentAddr: d.steps, ShippingAddr: d.steps})
	d.api = d.operator(operatorCredential)
	got, err := d.api.Release(t.Context(), req)
	if err != nil {
		t.Fatalf("releasing: %v", err)
	}
	due := got.GetDueWork()
	if got.GetReplayed() || due.GetSteps()["payment"] != 7 || due.GetSteps()["shipping"] != 7 || due.GetActor() != "kim" || due.GetReason() != req.GetReason() ||
		time.Since(due.GetAt().AsTime()) > patience {
		t.Errorf("release: got %v, want 7 steps at each", got)
	}
	if n := d.count(`SELECT count(*) FROM saga_release WHERE until > now()`); n != 1 {
		t.Errorf("release in force: got %d rows, want 1", n)
	}
	if n := d.count(`SELECT count(*) FROM due_release WHERE request_key = 'r-1' AND actor = 'kim' AND steps = '{"payment": 7, "shipping": 7}'`); n != 1 {
		t.Errorf("record of the release: got %d rows, want 1", n)
	}
	before := d.witness.releases()
	again, err := d.api.Release(t.Context(), req)
	if err != nil || !again.GetReplayed() || !proto.Equal(again.GetDueWork(), due) {
		t.Errorf("released again: got %v, %v, want the same, replayed", again, err)
	}
	if after := d.witness.releases(); after != before {
		t.Errorf("releases at the participants after a repeat: got %d, want %d", after, before)
	}
	other := proto.CloneOf(req)
	other.Reason = "because"
	if _, err := d.api.Release(t.Context(), other); grpcx.ReasonOf(err) != grpcx.KeyMismatch {
		t.Errorf("another release under the key: got %v, want KEY_MISMATCH", err)
	}
	for _, bad := range []*attentionv1.ReleaseRequest{{}, {RequestKey: "k", Actor: "kim"}, {RequestKey: "k", Reason: "r"}, {RequestKey: "ä", Actor: "kim", Reason: "r"}} {
		if _, err := d.api.Release(t.Context(), bad); status.Code(err) != codes.InvalidArgument {
			t.Errorf("release %v: got %v, want INVALID_ARGUMENT", bad, err)
		}
	}
	if _, err := d.operator(credential).Release(t.Context(), req); status.Code(err) == codes.OK {
		t.Error("with the services' credential: got released, want refused")
	}
}
