package webhook

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

// MeterName names the meter of webhooks.
const MeterName = "github.com/throughline/throughline/services/internal/webhook"

// The outcomes of a notice, as the counter has them.
const (
	outcomeApplied  = "applied"
	outcomeRepeated = "repeated" // it was dealt with before
	outcomeForeign  = "foreign"  // it is about no order of ours
	outcomeRefused  = "refused"  // its signature is wrong or too old, or it cannot be read
	outcomeFailed   = "failed"   // it is to come again
)

// newCounter makes the counter of notices, by what came of them. The sender's word for what has happened is no label: whoever reaches the
// port could make any number of them.
func newCounter(cfg *Config) (count func(ctx context.Context, outcome string)) {
	m := cfg.Meter
	if m == nil {
		m = noop.Meter{}
	}
	notices, err := m.Int64Counter("throughline.webhook.notices", metric.WithUnit("{notice}"),
		metric.WithDescription("Notices of the outside, by what came of them: applied, repeated, foreign, refused or failed."))
	if err != nil {
		return func(context.Context, string) {} // they are dealt with all the same
	}
	return func(ctx context.Context, outcome string) {
		notices.Add(ctx, 1, metric.WithAttributes(attribute.String("consumer", cfg.Consumer), attribute.String("outcome", outcome)))
	}
}
