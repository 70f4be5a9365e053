package outbox_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/throughline/throughline/pkg/outbox"
)

// A backlog of any size is published at the sweep's rate, whole and in order, over as many pages as it takes.
func TestBacklogDrainsAtABoundedRate(t *testing.T) {
	t.Parallel()
	pool, conn := newPool(t), connect(t, newServer(t), all)
	const aggregates, rate = 600, 800
	for range aggregates {
		mustChange(t, pool, uuid.New(), uuid.Nil, event(), event())
	}
	began := time.Now()
	r := start(t, pool, conn, outbox.Config{SweepRate: rate, FlushHorizon: never})
	r.open(t)
	took := time.Since(began)
	// The first second's worth goes out at once.
	if least := time.Second * (2*aggregates - rate) / rate; took < least {
		t.Errorf("%d messages at %d a second: took %s, want at least %s", 2*aggregates, rate, took, least)
	}
	found := awaitStream(t, conn, 2*aggregates)
	wantEventOrder(t, found, 2*aggregates)
}

// TestMetrics shows what is pending, how old it is, and what was set aside.
func TestMetrics(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	server := smallServer(t, 8<<10)
	conn := connect(t, server, all)
	reader := metric.NewManualReader()
	meters := metric.NewMeterProvider(metric.WithReader(reader))
	large := event()
	large.Payload = make([]byte, 9<<10)
	mustChange(t, pool, uuid.New(), uuid.Nil, large, event())
	r := start(t, pool, conn, outbox.Config{Meter: meters.Meter("outbox")})
	r.HandOff(mustChange(t, pool, uuid.New(), uuid.Nil, event()))
	want := map[string]float64{"throughline.outbox.pending": 2, "throughline.outbox.set_aside": 1}
	var got map[string]float64
	eventually(t, "the metrics say what is", func() bool {
		got = collect(t, reader)
		for name, value := range want {
			if got[name] != value {
				return false
			}
		}
		// A message may be published again, on a machine that is slow.
		return got["throughline.outbox.published"] >= 1 && got["throughline.outbox.oldest_age"] > 0
	})
}

func collect(t *testing.T, reader metric.Reader) map[string]float64 {
	t.Helper()
	var data metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &data); err != nil {
		t.Fatal(err)
	}
	values := make(map[string]float64)
	for _, scope := range data.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch points := m.Data.(type) {
			case metricdata.Gauge[int64]:
				for _, p := range points.DataPoints {
					values[m.Name] += float64(p.Value)
				}
			case metricdata.Gauge[float64]:
				for _, p := range points.DataPoints {
					values[m.Name] += p.Value
				}
			case metricdata.Sum[int64]:
				for _, p := range points.DataPoints {
					values[m.Name] += float64(p.Value)
				}
			}
		}
	}
	return values
}
