package bus

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/throughline/throughline/pkg/saga"
	"github.com/throughline/throughline/pkg/telemetry"
	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	"github.com/throughline/throughline/services/order/internal/order"
	"github.com/throughline/throughline/services/order/internal/placeorder"
)

// outcomes are the states of an order that are told of when it enters them.
var outcomes = []order.Status{order.Confirmed, order.Failed, order.Cancelled, order.NeedsAttention}

// observer counts what becomes of orders. It is saga.Config's Observe.
func observer(m metric.Meter, log *slog.Logger) func(context.Context, saga.Change[*orderv1.PlaceOrder]) {
	orders, err := m.Int64Counter("throughline.orders", metric.WithUnit("{order}"),
		metric.WithDescription("Orders that entered a state, by outcome: confirmed, failed, cancelled or needs_attention."))
	if err != nil {
		log.Error("orders are not counted", telemetry.LogError, fmt.Errorf("making an instrument: %w", err)) // they are served all the same
		return nil
	}
	by := make(map[order.Status]metric.MeasurementOption, len(outcomes))
	for _, status := range outcomes {
		by[status] = metric.WithAttributeSet(attribute.NewSet(telemetry.Outcome.String(strings.ToLower(string(status)))))
		orders.Add(context.Background(), 0, by[status]) // rates have a beginning
	}
	return func(ctx context.Context, c saga.Change[*orderv1.PlaceOrder]) {
		before, after := placeorder.StatusOf(&c.Before), placeorder.StatusOf(&c.After)
		if before == after {
			return
		}
		if outcome, ok := by[after]; ok {
			orders.Add(ctx, 1, outcome)
		}
		trace.SpanFromContext(ctx).SetAttributes(telemetry.OrderStatus.String(string(after)))
		log.InfoContext(ctx, "order changed", "from", before, telemetry.LogState, after)
	}
}
