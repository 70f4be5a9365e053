package telemetry

import (
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// Attributes of our own, on spans. Those of an order are on every span of it.
const (
	OrderID        = attribute.Key("throughline.order_id")
	IdempotencyKey = attribute.Key("throughline.idempotency_key")
	ClientID       = attribute.Key("throughline.client_id")
	Step           = attribute.Key("throughline.step")
	StepKey        = attribute.Key("throughline.step_key")
	Saga           = attribute.Key("throughline.saga")
	SagaState      = attribute.Key("throughline.saga_state")
	Outcome        = attribute.Key("throughline.outcome")
	Reason         = attribute.Key("throughline.reason")
	Attempt        = attribute.Key("throughline.attempt")
	Replayed       = attribute.Key("throughline.replayed")
	Duplicate      = attribute.Key("throughline.duplicate")
	OutboxWaitMS   = attribute.Key("throughline.outbox_wait_ms")
	Provider       = attribute.Key("throughline.provider")
	// Operation is a provider's word for what it was asked for, such as "confirm"; ProviderKey what the request can be recognised by there: the
	// idempotency key or the reference that it carried; ProviderReference the provider's id of what it was about, where that was known.
	Operation         = attribute.Key("throughline.operation")
	ProviderKey       = attribute.Key("throughline.provider_key")
	ProviderReference = attribute.Key("throughline.provider_reference")
	// ProviderAnswer is the provider's word for how what was asked about is then; ProviderError what was wrong with an answer, or why none came.
	ProviderAnswer = attribute.Key("throughline.provider_answer")
	ProviderError  = attribute.Key("throughline.provider_error")
	// Settled is on the span of an attempt that came to know what had become of a call that was not answered: how.
	Settled = attribute.Key("throughline.settled")
	// OrderStatus is an order's status, on the span of the change that led to it.
	OrderStatus = attribute.Key("throughline.order_status")
	// EdgeAnswer is how a request with an idempotency key was answered: one of the kinds that throughline.edge.answers counts by.
	EdgeAnswer = attribute.Key("throughline.edge_answer")
	// From and Cause are on the span of a saga's change: the state before, and what brought the change about.
	From  = attribute.Key("throughline.from")
	Cause = attribute.Key("throughline.cause")
	// Attention is why a person is needed.
	Attention = attribute.Key("throughline.attention")
	// Undo is on the spans of what undoes another step.
	Undo = attribute.Key("throughline.undo")
	// Delivery is how often the broker has delivered the message.
	Delivery = attribute.Key("throughline.delivery")
	// Consumer is the durable name of a consumer, on metrics.
	Consumer = attribute.Key("throughline.consumer")
	// PublishedBy is hand_off or sweep.
	PublishedBy = attribute.Key("throughline.published_by")
	// DeadLetter is on the span of giving a message up.
	DeadLetter = attribute.Key("throughline.dead_letter")
	// Relation, on a link, is one of the Relation… values.
	Relation = attribute.Key("throughline.relation")
)

// What a span may be to the one that it links to.
const (
	// RelationRetry: a client's request with the key of an earlier one.
	RelationRetry = "retry"
	// RelationRedelivery: another delivery of a message.
	RelationRedelivery = "redelivery"
	// RelationLate: a delivery so late that it is not in its sender's trace.
	RelationLate = "late_delivery"
	// RelationReplay: a message that an operator has dealt with, or sent, again.
	RelationReplay = "replay"
	// RelationRequest: what somebody asked to be done to an order, in that order's trace.
	RelationRequest = "request"
	// RelationNotice: what the outside has said by itself, about what is done in that trace.
	RelationNotice = "notice"
)

// Attributes of the messaging semantic conventions, v1.43.0, that we set.
const (
	MessagingSystem        = semconv.MessagingSystemKey
	MessagingDestination   = semconv.MessagingDestinationNameKey
	MessagingSubscription  = semconv.MessagingDestinationSubscriptionNameKey
	MessagingConsumerGroup = semconv.MessagingConsumerGroupNameKey
	MessagingMessageID     = semconv.MessagingMessageIDKey
	MessagingOperationName = semconv.MessagingOperationNameKey
	MessagingOperationType = semconv.MessagingOperationTypeKey
	MessagingBatchCount    = semconv.MessagingBatchMessageCountKey
)

// Values of messaging attributes. The conventions have none for NATS as a system.
const (
	SystemNATS       = "nats"
	OperationSend    = "send"
	OperationProcess = "process"
	OperationReceive = "receive"
)

// Keys of log records. One thing has one key everywhere.
const (
	LogService        = "service"
	LogInstance       = "instance"
	LogTraceID        = "trace_id"
	LogSpanID         = "span_id"
	LogError          = "error"
	LogOrderID        = "order_id"
	LogIdempotencyKey = "idempotency_key" // always as Masked
	LogClientID       = "client_id"
	LogSaga           = "saga"
	LogState          = "state"
	LogStep           = "step"
	LogStepKey        = "step_key"
	LogMessageID      = "message_id"
	LogMessageType    = "message_type"
	LogSubject        = "subject"
	LogStream         = "stream"
	LogConsumer       = "consumer"
	LogOutcome        = "outcome"
	LogReason         = "reason"
	LogAttempt        = "attempt"
	LogCount          = "count"
	LogDuration       = "duration"
	LogDelay          = "delay"
	LogAddr           = "addr"
	LogComponent      = "component"
	LogProvider       = "provider"
	LogMethod         = "method"
	LogPath           = "path"
	LogStatus         = "status"
)

// Names of the headers (HTTP, messages) and metadata (gRPC) that carry a trace.
const (
	HeaderTraceParent = "traceparent"
	HeaderTraceState  = "tracestate"
)
