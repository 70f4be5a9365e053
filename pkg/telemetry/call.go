package telemetry

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// Call is one request to an outside provider, from before it is sent until its answer is understood. Its span and whoever keeps a record of it
// tell the same of it, to the microsecond, since both have it from here. It is for one request, and must be ended with [Call.Done].
type Call struct {
	// Operation is the provider's word for what is asked for. It names the span, so there must be few of them.
	Operation string
	// Key is what the request can be recognised by on the other side; empty for a question.
	Key string
	// Reference is the provider's id of what it is about; empty where that is not known yet.
	Reference string

	mu    sync.Mutex // guards what follows
	began time.Time
	span  trace.Span // nil until it is sent
}

type callKey struct{}

// Begin begins the call, and gives a context whose next request through [Telemetry.ClientTransport] is this call.
func (c *Call) Begin(ctx context.Context) context.Context {
	c.began = time.Now()
	return context.WithValue(ctx, callKey{}, c)
}

func callOf(ctx context.Context) *Call {
	c, _ := ctx.Value(callKey{}).(*Call)
	return c
}

// Done ends the call. answer is the provider's word for how what was asked about is now, such as "requires_capture", or empty; reference the
// provider's id of it, if it is only known now; problem says why there was no answer, or what was wrong with it. It gives when the call began, by
// this process's clock, and how long it took, which are the times of the span.
func (c *Call) Done(answer, reference, problem string) (began time.Time, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	took = time.Since(c.began)
	if c.span == nil {
		return c.began, took
	}
	if answer != "" {
		c.span.SetAttributes(ProviderAnswer.String(answer))
	}
	if reference != "" {
		c.span.SetAttributes(ProviderReference.String(reference))
	}
	if problem != "" {
		// A status that the answer has given stays, and with it whether this is an error.
		c.span.SetAttributes(ProviderError.String(problem))
	}
	c.span.End(trace.WithTimestamp(c.began.Add(took)))
	c.span = nil
	return c.began, took
}

// send starts the span when the request goes out.
func (c *Call) send(ctx context.Context, tracer trace.Tracer, provider string, r *http.Request) (context.Context, trace.Span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ctx, c.span = tracer.Start(ctx, provider+" "+c.Operation, trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(c.began))
	if !c.span.IsRecording() {
		return ctx, c.span
	}
	c.span.SetAttributes(c.attributes()...)
	c.span.SetAttributes(Provider.String(provider), semconv.HTTPRequestMethodKey.String(r.Method), semconv.URLFull(addressOf(r.URL)),
		semconv.ServerAddress(r.URL.Hostname()))
	if port, err := strconv.Atoi(r.URL.Port()); err == nil {
		c.span.SetAttributes(semconv.ServerPort(port))
	}
	return ctx, c.span
}

func (c *Call) attributes() []attribute.KeyValue {
	attrs := []attribute.KeyValue{Operation.String(c.Operation)}
	if c.Key != "" {
		attrs = append(attrs, ProviderKey.String(c.Key))
	}
	if c.Reference != "" {
		attrs = append(attrs, ProviderReference.String(c.Reference))
	}
	return attrs
}

// addressOf is a URL without credentials.
func addressOf(u *url.URL) string {
	plain := *u
	plain.User = nil
	return plain.String()
}

// told puts on a span what has come back, by the conventions for clients of HTTP.
func told(span trace.Span, resp *http.Response, err error) {
	switch {
	case err != nil:
		Fail(span, err)
	case resp.StatusCode >= http.StatusBadRequest:
		span.SetAttributes(semconv.HTTPResponseStatusCode(resp.StatusCode), semconv.ErrorTypeKey.String(strconv.Itoa(resp.StatusCode)))
		span.SetStatus(codes.Error, "")
	default:
		span.SetAttributes(semconv.HTTPResponseStatusCode(resp.StatusCode))
	}
}
