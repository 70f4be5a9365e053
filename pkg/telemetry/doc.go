// Package telemetry gives a service its traces, metrics and logs, and carries
// one trace through every hop of an order.
//
// Nothing here is global. Several services may live in one process, so [Setup]
// returns a [Telemetry] that is passed on, and neither otel.SetTracerProvider nor
// its siblings are ever called.
//
// # One trace for one order
//
// The W3C trace context is the only thing that is carried, as traceparent and
// tracestate: in gRPC metadata, in the outbox row, in the message's headers.
// [Inject] and [Extract] convert between a context and the [Carrier] that is
// stored. Baggage is neither read nor written, so none can reach a provider.
//
// With an exporter the OpenTelemetry SDK makes the spans. Without one the tracer
// makes none, but still keeps the trace whole: a span that would be a
// root gets a new random trace id, marked as not sampled; every span beneath it, and one beneath
// an incoming traceparent, is that parent itself, unchanged. So all logs and messages of
// a saga share one trace id also where nothing is exported, at the price of two
// small allocations per root and none per child.
//
// # Attributes on every span
//
// [WithAttributes] puts attributes into a context; every span that is started under it carries
// them, also those of libraries (database, gRPC, HTTP). That is how each span of
// an order has its id and its key. The names are in names.go.
//
// Spans carry idempotency keys in full, since one searches by them; log lines
// carry them as [Masked].
package telemetry
