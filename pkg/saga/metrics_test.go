package saga_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/throughline/throughline/pkg/saga"
)

// TestSagasAreMeasured shows what an operator is alarmed by: sagas that need a person, sagas that nothing here looks after, and work that is
// due for too long.
func TestSagasAreMeasured(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ids := f.begin(3)
	parked, strange, late := ids[0], ids[1], ids[2]
	f.upTo(parked, "ship")
	f.apply(reply(parked, "ship", saga.OutcomeRefused, uuid.Nil), reply(parked, "void", saga.OutcomeRefused, uuid.Nil))
	f.exec(`DELETE FROM saga_timer WHERE saga_id = $1`, parked)
	f.exec(`UPDATE saga_instance SET definition_version = 7 WHERE saga_id = $1`, strange)
	f.pass(late, 3*time.Hour)

	reader := sdkmetric.NewManualReader()
	saga.NewEngine(saga.Config[order]{
		Pool: f.pool, Relay: f.relay, Projector: rows{}, Meter: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Meter("test"),
		Consumer: consumer,
	}, definition(slow))
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	got := make(map[string]float64)
	for _, m := range all.ScopeMetrics[0].Metrics {
		switch data := m.Data.(type) {
		case metricdata.Gauge[int64]:
			for _, p := range data.DataPoints {
				got[m.Name] += float64(p.Value)
				if version, ok := p.Attributes.Value("version"); m.Name == "throughline.saga.unknown" && p.Value > 0 && (!ok || version.AsInt64() != 7) {
					t.Errorf("sagas that are left alone: got attributes %v, want version 7", p.Attributes)
				}
			}
		case metricdata.Gauge[float64]:
			got[m.Name] = data.DataPoints[0].Value
		}
	}
	for name, want := range map[string]float64{"throughline.saga.attention": 1, "throughline.saga.unknown": 1, "throughline.saga.due": 1} {
		if got[name] != want {
			t.Errorf("%s: got %v, want %v", name, got[name], want)
		}
	}
	if age := got["throughline.saga.due_age"]; age < 3600 || age > 3*3600 {
		t.Errorf("age of the first due timer: got %v s, want one to three hours", age)
	}
}
