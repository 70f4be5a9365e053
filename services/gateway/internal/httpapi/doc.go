// Package httpapi is the HTTP form of the public OrderService: strict on the way in, deterministic on the way out.
//
// A request goes through these checks in this order, and the first that fails answers: what net/http
// refuses before a handler runs (400, 417, 431, 501, 505), path (404), method (405), API key (401), idempotency
// key (400), query (400), media type and encoding (415), body (413, 400). Nothing is read of a body before its sender is
// known. Then grpc-gateway fills the request message and calls the same implementation that serves gRPC, in process.
//
// Headers that mean something are Authorization, Idempotency-Key, Prefer, Content-Type, Content-Encoding, traceparent and
// tracestate. No other header gets past this package, so none can become metadata.
//
// Every answer of 400 or more is a problem document (RFC 9457), those of net/http included; see ProblemListener.
package httpapi
