package webhook_test

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/throughline/throughline/pkg/inbox"
	"github.com/throughline/throughline/pkg/participant"
	"github.com/throughline/throughline/pkg/postgres/pgtest"
	"github.com/throughline/throughline/services/internal/webhook"
)

var orderID = uuid.MustParse("5d1c2f0e-6c1b-5f57-9d5e-0c8f3a1b2c4d")

// receiver is a handler whose notices are "event order"; "forged" is refused.
type receiver struct {
	t    *testing.T
	pool *pgxpool.Pool
	http.Handler

	reader *sdkmetric.ManualReader

	mu    sync.Mutex
	woken int
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{t: t, pool: pgtest.New(t, inbox.Migrations()), reader: sdkmetric.NewManualReader()}
	if _, err := r.pool.Exec(t.Context(), `CREATE TABLE hint (event text NOT NULL)`); err != nil {
		t.Fatal(err)
	}
	r.Handler = webhook.New(webhook.Config{
		Pool: r.pool, Consumer: "test-webhooks", Meter: sdkmetric.NewMeterProvider(sdkmetric.WithReader(r.reader)).Meter("test"),
		Wake: func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.woken++
		},
		Read: func(body []byte, _ http.Header) (webhook.Notice, error) {
			id, order, _ := strings.Cut(string(body), " ")
			if id == "forged" {
				return webhook.Notice{}, fmt.Errorf("%w: forged", webhook.ErrRefused)
			}
			n := webhook.Notice{ID: id, Type: "test", Queue: func(b *pgx.Batch) *participant.Noticed {
				b.Queue(`INSERT INTO hint VALUES ($1)`, id)
				return nil
			}}
			if order != "" {
				n.OrderID = orderID
			}
			return n, nil
		},
	})
	return r
}

func (r *receiver) post(body io.Reader) int {
	r.t.Helper()
	w := httptest.NewRecorder()
	r.ServeHTTP(w, httptest.NewRequestWithContext(r.t.Context(), http.MethodPost, "/", body))
	return w.Code
}

func (r *receiver) stored() (hints, marks int) {
	r.t.Helper()
	err := r.pool.QueryRow(r.t.Context(), `SELECT (SELECT count(*) FROM hint), (SELECT count(*) FROM inbox WHERE consumer = 'test-webhooks')`).Scan(&hints, &marks)
	if err != nil {
		r.t.Fatal(err)
	}
	return hints, marks
}

// told checks how many notices were counted, by what came of them.
func (r *receiver) told(want map[string]int64) {
	r.t.Helper()
	var all metricdata.ResourceMetrics
	if err := r.reader.Collect(r.t.Context(), &all); err != nil {
		r.t.Fatal(err)
	}
	got := make(map[string]int64)
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if sum, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == "throughline.webhook.notices" {
				for _, p := range sum.DataPoints {
					outcome, _ := p.Attributes.Value("outcome")
					got[outcome.AsString()] += p.Value
				}
			}
		}
	}
	if !maps.Equal(got, want) {
		r.t.Errorf("notices counted: got %v, want %v", got, want)
	}
}

// TestNoticesAreCounted has a notice of each outcome.
func TestNoticesAreCounted(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	for _, body := range []string{"e1 order", "e1 order", "e2 order", "e3", "forged order", "e1 " + strings.Repeat("x", webhook.MaxBody)} {
		r.post(strings.NewReader(body))
	}
	r.told(map[string]int64{"applied": 2, "repeated": 1, "foreign": 1, "refused": 2})
	r.pool.Close()
	r.post(strings.NewReader("e4 order"))
	r.told(map[string]int64{"applied": 2, "repeated": 1, "foreign": 1, "refused": 2, "failed": 1})
}

func TestWebhook(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		bodies []string
		status []int
		stored int
	}{
		"one":             {[]string{"e1 order"}, []int{204}, 1},
		"the same again":  {[]string{"e1 order", "e1 order", "e1 order"}, []int{204, 204, 204}, 1},
		"another":         {[]string{"e1 order", "e2 order"}, []int{204, 204}, 2},
		"not about ours":  {[]string{"e1"}, []int{204}, 0},
		"forged":          {[]string{"forged order"}, []int{400}, 0},
		"too long":        {[]string{"e1 " + strings.Repeat("x", webhook.MaxBody)}, []int{413}, 0},
		"as long as may":  {[]string{"e1 " + strings.Repeat("x", webhook.MaxBody-3)}, []int{204}, 1},
		"forged, then so": {[]string{"forged order", "e1 order"}, []int{400, 204}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReceiver(t)
			for i, body := range tt.bodies {
				if got := r.post(strings.NewReader(body)); got != tt.status[i] {
					t.Errorf("answer %d: got %d, want %d", i, got, tt.status[i])
				}
			}
			if hints, marks := r.stored(); hints != tt.stored || marks != tt.stored {
				t.Errorf("stored: got %d hints and %d marks, want %d of each", hints, marks, tt.stored)
			}
			var repeats, want int
			if err := r.pool.QueryRow(t.Context(), `SELECT coalesce(sum(repeats), 0) FROM inbox`).Scan(&repeats); err != nil {
				t.Fatal(err)
			}
			if name == "the same again" {
				want = 2
			}
			if repeats != want {
				t.Errorf("repeats on record: got %d, want %d", repeats, want)
			}
			if r.woken != tt.stored {
				t.Errorf("woken: got %d times, want %d", r.woken, tt.stored)
			}
		})
	}
}

// Copies that come at one moment have their effect once, and none is an error.
func TestCopiesAtOneMoment(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if got := r.post(strings.NewReader("e1 order")); got != http.StatusNoContent {
				t.Errorf("answer: got %d, want 204", got)
			}
		})
	}
	wg.Wait()
	if hints, marks := r.stored(); hints != 1 || marks != 1 {
		t.Errorf("stored: got %d hints and %d marks, want 1 of each", hints, marks)
	}
}

// What cannot be stored is not accepted: the sender has to send it again.
func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	r.pool.Close()
	if got := r.post(strings.NewReader("e1 order")); got != http.StatusServiceUnavailable {
		t.Errorf("answer: got %d, want 503", got)
	}
}
