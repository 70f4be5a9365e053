// Package bus is the order service's side of the broker: the replies of the participants, the deadlines of the sagas, and the
// question what became of a step.
package bus

import (
	"context"

	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/saga"
	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	"github.com/throughline/throughline/services/internal/service"
	"github.com/throughline/throughline/services/internal/topology"
	"github.com/throughline/throughline/services/order/internal/ending"
	"github.com/throughline/throughline/services/order/internal/placeorder"
)

// meterName names the meter of sagas.
const meterName = "github.com/throughline/throughline/pkg/saga"

// ordersMeter names the meter of orders.
const ordersMeter = "github.com/throughline/throughline/services/order"

// NewEngine makes the engine of the saga place-order, in all versions that there are. dueRate is that of saga.Config.
func NewEngine(rt *service.Runtime, asker saga.Asker, dueRate int) *saga.Engine[*orderv1.PlaceOrder] {
	return saga.NewEngine(saga.Config[*orderv1.PlaceOrder]{
		Pool: rt.Pool, Conn: rt.Conn, Relay: rt.Relay, Projector: placeorder.Projector{}, Asker: asker,
		Source: topology.OrderSource, Consumer: topology.OrderRepliesConsumer, Owner: rt.Owner, Logger: rt.Logger,
		DueRate: dueRate, Meter: rt.Telemetry.Meter(meterName), Observe: observer(rt.Telemetry.Meter(ordersMeter), rt.Logger),
	}, placeorder.Versions()...)
}

// Replies is the consumer that advances sagas. What it has advanced it tells to those who wait for the orders' ends.
func Replies(engine *saga.Engine[*orderv1.PlaceOrder], endings *ending.Watcher) service.Consumer {
	return service.Consumer{
		ConsumerConfig: topology.OrderReplies(),
		Recorded:       true, // a saga keeps its state for ever, and a reply to what is settled changes nothing
		Apply: func(ctx context.Context, batch []messaging.Delivery) error {
			if err := engine.ApplyReplies(ctx, batch); err != nil {
				return err
			}
			for i := range batch {
				endings.Nudge(batch[i].AggregateID)
			}
			return nil
		},
	}
}

// Timers looks after sagas whose deadline has passed.
func Timers(engine *saga.Engine[*orderv1.PlaceOrder]) service.Component {
	return service.Runs("timers", func(stop, _ context.Context) error { return engine.RunTimers(stop) })
}
