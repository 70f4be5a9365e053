// Package topology names every subject, stream and durable consumer of the system, and says how long messages are kept.
//
// Commands and replies are work queues: a message stays until the one service that it is for has acknowledged it, for however
// long that service is away. Events are kept by age, for anyone who reads them.
//
// A stream or consumer is never renamed: a new name is a new, empty one beside the old.
package topology

import (
	"time"

	"github.com/throughline/throughline/pkg/messaging"
)

// Names of streams.
const (
	Commands = "CMD"
	Replies  = "RPL"
	Events   = "EVT"
)

// EventAge is how long events are kept. Who reads events and is away for longer misses some, and it bounds how old a
// message can be that still arrives: inbox rows must live longer.
const EventAge = 14 * 24 * time.Hour

// Names of the services in subjects and, behind a slash, as the source of messages.
const (
	Order    = "order"
	Payment  = "payment"
	Shipping = "shipping"

	OrderSource    = "/" + Order
	PaymentSource  = "/" + Payment
	ShippingSource = "/" + Shipping
)

// Subjects of commands, by the service that performs them. The last word is the step.
const (
	PaymentCommands  = messaging.CommandPrefix + Payment + ".*"
	ShippingCommands = messaging.CommandPrefix + Shipping + ".*"
)

// PlaceOrderReplies is where participants of the saga place-order reply to.
const PlaceOrderReplies = messaging.ReplyPrefix + Order + ".place-order"

// Subjects of events. Aggregate-Seq counts those of one order and one service without a gap.
const (
	OrderCreated        = messaging.EventPrefix + Order + ".created"
	OrderCompensating   = messaging.EventPrefix + Order + ".compensating"
	OrderConfirmed      = messaging.EventPrefix + Order + ".confirmed"
	OrderFailed         = messaging.EventPrefix + Order + ".failed"
	OrderCancelled      = messaging.EventPrefix + Order + ".cancelled"
	OrderNeedsAttention = messaging.EventPrefix + Order + ".needs_attention"

	PaymentAuthorized     = messaging.EventPrefix + Payment + ".authorized"
	PaymentActionRequired = messaging.EventPrefix + Payment + ".action_required"
	PaymentCaptured       = messaging.EventPrefix + Payment + ".captured"
	PaymentVoided         = messaging.EventPrefix + Payment + ".voided"
	PaymentDeclined       = messaging.EventPrefix + Payment + ".declined"

	ShipmentCreated    = messaging.EventPrefix + Shipping + ".created"
	ShipmentDispatched = messaging.EventPrefix + Shipping + ".dispatched"
	ShipmentCancelled  = messaging.EventPrefix + Shipping + ".cancelled"
	ShipmentRefused    = messaging.EventPrefix + Shipping + ".refused"
)

// Durable names of consumers, which are also the consumers' names in the inbox. All instances of a service share theirs.
const (
	OrderRepliesConsumer     = "order-replies"
	PaymentCommandsConsumer  = "payment-commands"
	ShippingCommandsConsumer = "shipping-commands"
)

// Names in the inbox of what comes by webhook, and not over the broker.
const (
	ProviderWebhooks = "provider-webhooks"
	CarrierWebhooks  = "carrier-webhooks"
)

// Streams are all streams, each in so many copies on servers of their own. Every service ensures all of them at its start, so that
// services start in any order; so all are told the same number.
func Streams(replicas int) []messaging.Stream {
	return []messaging.Stream{
		{Name: Commands, Subjects: []string{messaging.CommandPrefix + ">"}, WorkQueue: true, Replicas: replicas},
		{Name: Replies, Subjects: []string{messaging.ReplyPrefix + ">"}, WorkQueue: true, Replicas: replicas},
		{Name: Events, Subjects: []string{messaging.EventPrefix + ">"}, MaxAge: EventAge, Replicas: replicas},
	}
}

// OrderReplies is the order service's consumer.
func OrderReplies() messaging.ConsumerConfig {
	return messaging.ConsumerConfig{Stream: Replies, Name: OrderRepliesConsumer, Filter: []string{PlaceOrderReplies}}
}

// PaymentConsumer is the payment service's consumer.
func PaymentConsumer() messaging.ConsumerConfig {
	return messaging.ConsumerConfig{Stream: Commands, Name: PaymentCommandsConsumer, Filter: []string{PaymentCommands}}
}

// ShippingConsumer is the shipping service's consumer.
func ShippingConsumer() messaging.ConsumerConfig {
	return messaging.ConsumerConfig{Stream: Commands, Name: ShippingCommandsConsumer, Filter: []string{ShippingCommands}}
}
