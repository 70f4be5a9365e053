package payment_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/throughline/throughline/services/simulator/payment"
)

// BenchmarkOrder is what one order costs here: create, confirm and capture,
// each with its key, with the ledger on disk.
func BenchmarkOrder(b *testing.B) {
	server, err := payment.New(payment.Config{DataDir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = server.Close() })
	handler := server.Handler()
	var n atomic.Int64
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		post := func(path, key, form string) string {
			r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, path, strings.NewReader(form))
			if err != nil {
				b.Error(err)
			}
			r.Header.Set("Authorization", "Bearer sk")
			r.Header.Set("Idempotency-Key", key)
			w := &answerWriter{header: http.Header{}}
			handler.ServeHTTP(w, r)
			if w.status != http.StatusOK {
				b.Errorf("%s: %d %s", path, w.status, w.body.String())
			}
			return w.body.String()
		}
		for pb.Next() {
			order := fmt.Sprint("o", n.Add(1))
			body := post("/v1/payment_intents", "a"+order, "amount=5&currency=eur&capture_method=manual&payment_method=pm_card_visa&metadata[order_id]="+order)
			id := body[len(`{"id":"`):][:27]
			post("/v1/payment_intents/"+id+"/confirm", "b"+order, "")
			post("/v1/payment_intents/"+id+"/capture", "c"+order, "")
		}
	})
}

// BenchmarkList is what a page of 100 intents costs from the middle of 200,000.
func BenchmarkList(b *testing.B) {
	server, err := payment.New(payment.Config{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = server.Close() })
	do := func(method, path, form string) string {
		r, err := http.NewRequestWithContext(b.Context(), method, path, strings.NewReader(form))
		if err != nil {
			b.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer sk")
		w := &answerWriter{header: http.Header{}}
		server.Handler().ServeHTTP(w, r)
		if w.status != http.StatusOK {
			b.Fatalf("%s: %d %s", path, w.status, w.body.String())
		}
		return w.body.String()
	}
	const intents = 200_000
	var middle string
	for i := range intents {
		body := do(http.MethodPost, "/v1/payment_intents", fmt.Sprintf("amount=5&currency=eur&metadata[order_id]=o%d", i))
		if i == intents/2 {
			middle = body[len(`{"id":"`):][:27]
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		do(http.MethodGet, "/v1/payment_intents?limit=100&created[gte]=1&starting_after="+middle, "")
	}
}

type answerWriter struct {
	header http.Header
	status int
	body   strings.Builder
}

func (w *answerWriter) Header() http.Header         { return w.header }
func (w *answerWriter) WriteHeader(status int)      { w.status = status }
func (w *answerWriter) Write(b []byte) (int, error) { return w.body.Write(b) }
