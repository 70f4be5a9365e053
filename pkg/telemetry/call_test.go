package telemetry_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/throughline/throughline/pkg/telemetry"
)

// A call's span tells what its caller comes to know, at the times that he is given; and nothing of it leaves with the request.
func TestCall(t *testing.T) {
	t.Parallel()
	e := tracetest.NewInMemoryExporter()
	tel := setup(t, telemetry.Config{ServiceName: "payment", Exporter: e})
	headers := make(chan http.Header, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		headers <- r.Header
		w.WriteHeader(http.StatusPaymentRequired)
	}))
	t.Cleanup(srv.Close)
	ctx, root := tel.Tracer("test").Start(telemetry.WithAttributes(t.Context(), telemetry.OrderID.String("o-1")), "root")
	client := &http.Client{Transport: tel.ClientTransport(srv.Client().Transport, "stripe")}

	call := &telemetry.Call{Operation: "confirm", Key: "k-1"}
	req, err := http.NewRequestWithContext(call.Begin(ctx), http.MethodPost, srv.URL+"/v1/confirm", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	began, took := call.Done("requires_payment_method", "pi_1", "card_declined")
	root.End()

	sent := <-headers
	for _, name := range []string{"Traceparent", "Tracestate", "Baggage"} {
		if got := sent.Get(name); got != "" {
			t.Errorf("got %s %q, want none", name, got)
		}
	}
	got := spans(t, tel, e)
	if len(got) != 2 {
		t.Fatalf("got %d spans, want the call's and root: %+v", len(got), got)
	}
	s := got[0]
	if s.Name != "stripe confirm" || s.SpanKind != trace.SpanKindClient || s.Status.Code != codes.Error || s.Parent.SpanID() != root.SpanContext().SpanID() {
		t.Errorf("got %s of kind %v, status %v, under %v, want a client span that failed, under root", s.Name, s.SpanKind, s.Status, s.Parent.SpanID())
	}
	for key, want := range map[string]string{
		"throughline.provider": "stripe", "throughline.operation": "confirm", "throughline.provider_key": "k-1", "throughline.provider_reference": "pi_1",
		"throughline.provider_answer": "requires_payment_method", "throughline.provider_error": "card_declined", "throughline.order_id": "o-1",
		"http.request.method": "POST", "http.response.status_code": "402", "error.type": "402", "url.full": srv.URL + "/v1/confirm", "server.address": "127.0.0.1",
	} {
		found := ""
		for _, a := range s.Attributes {
			if string(a.Key) == key {
				found = a.Value.String()
			}
		}
		if found != want {
			t.Errorf("%s: got %q, want %q", key, found, want)
		}
	}
	if !s.StartTime.Equal(began) || s.EndTime.Sub(s.StartTime) != took || took <= 0 {
		t.Errorf("times: got %s for %s, want those that the caller got, %s for %s", s.StartTime, s.EndTime.Sub(s.StartTime), began, took)
	}
}

// A call that is not answered, and one that is not even sent, have an end, too.
func TestCallWithoutAnswer(t *testing.T) {
	t.Parallel()
	e := tracetest.NewInMemoryExporter()
	tel := setup(t, telemetry.Config{ServiceName: "payment", Exporter: e})
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	t.Cleanup(srv.Close)
	call := &telemetry.Call{Operation: "cancel"}
	req, err := http.NewRequestWithContext(call.Begin(t.Context()), http.MethodPost, srv.URL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tel.ClientTransport(srv.Client().Transport, "stripe").RoundTrip(req); err == nil { //nolint:bodyclose // there is none
		t.Fatal("got an answer, want none")
	}
	call.Done("", "", "no answer")
	if got := spans(t, tel, e); len(got) != 1 || got[0].Status.Code != codes.Error || attr(got[0], telemetry.ProviderError) != "no answer" {
		t.Errorf("got %+v, want one span that failed", got)
	}
	unsent := &telemetry.Call{Operation: "create"}
	unsent.Begin(t.Context())
	if began, took := unsent.Done("", "", "refused before it was sent"); time.Since(began) < took || took < 0 {
		t.Errorf("not sent: got %s for %s", began, took)
	}
}

// The route is an attribute of a request's span, without the method.
func TestRoute(t *testing.T) {
	t.Parallel()
	e := tracetest.NewInMemoryExporter()
	tel := setup(t, telemetry.Config{ServiceName: "gateway", Exporter: e})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/orders/{id}", func(http.ResponseWriter, *http.Request) {})
	tel.ServerMiddleware(mux).ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/orders/7", http.NoBody))
	if got := spans(t, tel, e); len(got) != 1 || attr(got[0], "http.route") != "/v1/orders/{id}" {
		t.Errorf("got %+v, want one span with the route", got)
	}
}
