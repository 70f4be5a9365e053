package verify

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	verifyv1 "github.com/throughline/throughline/proto/gen/throughline/verify/v1"
)

// memory is a Memory of one process.
type memory struct {
	Remembered

	complete, incomplete int
}

func (m *memory) Last(context.Context) (Remembered, error) { return m.Remembered, nil }

func (m *memory) Save(_ context.Context, r Remembered, complete bool, _ time.Duration) error {
	m.CoveredUntil, m.Violations = r.CoveredUntil, r.Violations
	if complete {
		m.complete++
	} else {
		m.incomplete++
	}
	return nil
}

func (m *memory) State(context.Context) (State, error) {
	s := State{Counts: make(map[Rule]int), Age: time.Minute}
	for _, v := range m.Violations {
		s.Counts[v.Rule]++
	}
	return s, nil
}

// TestSchedule: a violation is known until a later run sees it mended; a run that cannot look at all changes nothing about what is known, and the
// next one looks from where the last complete one has begun.
func TestSchedule(t *testing.T) {
	t.Parallel()
	s := newShop()
	var since []time.Time
	list := s.orders.orders
	s.orders.orders = func(req *verifyv1.ListOrdersRequest) *verifyv1.ListOrdersResponse {
		if len(req.GetOrderIds()) == 0 {
			since = append(since, req.GetSince().AsTime())
			if len(since) > 1 {
				return &verifyv1.ListOrdersResponse{} // nothing has happened since the first run
			}
		}
		return list(req)
	}
	s.paying.holdings = func(req *verifyv1.ListHoldingsRequest) *verifyv1.ListHoldingsResponse {
		if len(since) > 1 && len(req.GetOrderIds()) == 0 {
			return &verifyv1.ListHoldingsResponse{}
		}
		return &verifyv1.ListHoldingsResponse{Holdings: []*verifyv1.Holding{s.payment}}
	}
	s.sending.holdings = func(req *verifyv1.ListHoldingsRequest) *verifyv1.ListHoldingsResponse {
		if len(since) > 1 && len(req.GetOrderIds()) == 0 {
			return &verifyv1.ListHoldingsResponse{}
		}
		return &verifyv1.ListHoldingsResponse{Holdings: []*verifyv1.Holding{s.parcel}}
	}
	began := time.Now()
	m := &memory{Remembered: Remembered{CoveredUntil: began.Add(-time.Hour), Ago: time.Hour}}
	reader := sdk.NewManualReader()
	var log bytes.Buffer
	schedule, err := NewSchedule(Schedule{
		Verifier: &Verifier{Services: map[string]verifyv1.VerifyServiceClient{"order": s.orders, "payment": s.paying, "shipping": s.sending}},
		Memory:   m, Every: time.Minute, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Meter: sdk.NewMeterProvider(sdk.WithReader(reader)).Meter("test"),
	})
	if err != nil {
		t.Fatal(err)
	}
	run := func() {
		t.Helper()
		if err := schedule.once(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	wrong := s.payment.Intents[0]
	wrong.Captured, wrong.Held = 0, 100
	run()
	if len(m.Violations) != 1 || m.Violations[0].Rule != ConfirmedIsPaidAndShipped || m.complete != 1 || m.CoveredUntil.Before(began) {
		t.Fatalf("after a violation: got %+v, want it known, and all covered", m)
	}
	if got := gauge(t, reader, ConfirmedIsPaidAndShipped); got != 1 {
		t.Errorf("gauge: got %d, want 1", got)
	}
	if !strings.Contains(log.String(), `level=ERROR msg="effects do not agree" rule=confirmed-is-paid-and-shipped order_id=`+s.order.GetOrderId()) {
		t.Errorf("log: got %s, want a line about the order", &log)
	}
	covered := m.CoveredUntil
	s.sending.err = status.Error(codes.Unavailable, "away")
	run()
	if len(m.Violations) != 1 || m.incomplete != 1 || !m.CoveredUntil.Equal(covered) {
		t.Errorf("after a run that could not look at all: got %+v, want nothing changed", m)
	}
	s.sending.err = nil
	run()
	if len(m.Violations) != 1 || m.complete != 2 {
		t.Errorf("not mended: got %+v, want it known still", m)
	}
	wrong.Captured, wrong.Held = 100, 0
	run()
	if len(m.Violations) != 0 || gauge(t, reader, ConfirmedIsPaidAndShipped) != 0 {
		t.Errorf("mended: got %+v, want nothing known", m)
	}
	if len(since) != 4 || !since[0].Equal(began.Add(-time.Hour-overlap).UTC()) || !since[1].Equal(since[2]) || !since[1].Equal(covered.Add(-overlap).UTC()) {
		t.Errorf("looked since %v, want each complete run to be where the next begins", since)
	}
}

func gauge(t *testing.T, reader *sdk.ManualReader, rule Rule) int64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			points, ok := m.Data.(metricdata.Gauge[int64])
			if !ok || m.Name != "throughline.verify.violations" {
				continue
			}
			for _, p := range points.DataPoints {
				if v, ok := p.Attributes.Value(attribute.Key("rule")); ok && v.AsString() == string(rule) {
					return p.Value
				}
			}
		}
	}
	t.Fatalf("the metric does not tell of %s", rule)
	return 0
}
