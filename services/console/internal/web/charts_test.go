package web

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	doctorv1 "github.com/throughline/throughline/proto/gen/throughline/doctor/v1"
	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	"github.com/throughline/throughline/services/console/internal/live"
	"github.com/throughline/throughline/services/console/internal/operator"
)

func TestCharts(t *testing.T) {
	t.Parallel()
	gap := math.NaN()
	for name, tt := range map[string]struct {
		values []float64
		room   int
		want   chart
	}{
		"nothing":         {nil, 5, chart{Top: "1"}},
		"from the bottom": {[]float64{0, 4}, 2, chart{Line: "M0.0 26.0L120.0 2.0", Area: "M0.0 26.0L120.0 2.0L120.0 28.0L0.0 28.0Z", EndX: "120.0", EndY: "2.0", Top: "4"}},
		"keeps right":     {[]float64{4}, 5, chart{Line: "M120.0 2.0", Area: "M120.0 2.0L120.0 28.0L120.0 28.0Z", EndX: "120.0", EndY: "2.0", Top: "4"}},
		"level":           {[]float64{0, 0, 0, 0}, 4, chart{Line: "M0.0 26.0L120.0 26.0", Area: "M0.0 26.0L120.0 26.0L120.0 28.0L0.0 28.0Z", EndX: "120.0", EndY: "26.0", Top: "1"}},
		"broken where not known": {[]float64{1, gap, 1}, 3, chart{
			Line: "M0.0 2.0M120.0 2.0", Area: "M0.0 2.0L0.0 28.0L0.0 28.0ZM120.0 2.0L120.0 28.0L120.0 28.0Z", EndX: "120.0", EndY: "2.0", Top: "1",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := newChart(tt.values, tt.room); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func answering(e *doctorv1.ExamineResponse) map[string]live.Examined {
	all := make(map[string]live.Examined)
	for _, name := range operator.Names() {
		all[name] = live.Examined{ExamineResponse: e}
	}
	return all
}

// A figure that one service does not tell is not known; it is neither zero nor the sum of the others.
func TestFigures(t *testing.T) {
	t.Parallel()
	all := answering(&doctorv1.ExamineResponse{
		PendingMessages: 2, OpenDeadLetters: 1, Consumers: []*doctorv1.Consumer{{Pending: 3, Unacknowledged: 4}},
	})
	unfinished := &orderv1.CountUnfinishedResponse{Pending: 7, Compensating: 2, NeedsAttention: 1}
	figures := func(v live.Vitals) map[string]tile {
		named := make(map[string]tile)
		for _, tile := range measureVitals(live.NewBoard(nil), []live.Vitals{v}).Tiles {
			named[tile.Name] = tile
		}
		return named
	}
	now := time.Now()
	got := figures(live.Vitals{At: now, Services: all, Unfinished: unfinished})
	for name, want := range map[string]string{
		"Outbox": "6", "Consumer lag": "21", "Dead letters": "3", "In flight": "9", "Need a person": "1", "Placed": "0",
	} {
		if got[name].Value != want {
			t.Errorf("%s: got %q, want %q", name, got[name].Value, want)
		}
	}
	if !got["Dead letters"].Alert || !got["Need a person"].Alert || got["Outbox"].Alert {
		t.Errorf("alerts: got %+v, want them for what waits for a person", got)
	}
	if note := got["In flight"].Note; !strings.HasPrefix(note, "2 being undone, oldest ") {
		t.Errorf("in flight: got note %q, want how many are being undone", note)
	}
	silent := answering(&doctorv1.ExamineResponse{PendingMessages: 2})
	silent["payment"] = live.Examined{Err: errors.New("unreachable")}
	v := live.Vitals{At: now, Services: silent}
	got = figures(v)
	for _, name := range []string{"Outbox", "Dead letters", "In flight", "Need a person"} {
		if got[name].Value != "–" || got[name].Alert {
			t.Errorf("%s without payment and counts: got %+v, want it not known", name, got[name])
		}
	}
	if s := measureVitals(live.NewBoard(nil), []live.Vitals{v}).Silent; len(s) != 1 || s[0] != "payment" {
		t.Errorf("who does not answer: got %v, want payment", s)
	}
	if n := openLetters(v); n != -1 {
		t.Errorf("open dead letters: got %d, want them not known", n)
	}
}

func TestTexts(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		took(1500 * time.Microsecond): "1 ms", took(90 * time.Microsecond): "90 µs", took(2340 * time.Millisecond): "2.34 s", took(75 * time.Second): "75 s",
		took(10 * time.Minute): "10 min", took(5 * time.Hour): "5 h", took(72 * time.Hour): "3 days", took(-time.Second): "–1.00 s",
		amount(1250, "EUR"): "12.50 EUR", amount(1250, "JPY"): "1250 JPY", amountText("x", "EUR"): "", clip("äöü", 2): "äö…", clip("äö", 2): "äö",
		words("NEEDS_ATTENTION"): "needs attention", short("0f0e0d0c-0b0a-4000-8000-000000000000"): "0f0e0d0c",
		traceOf("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"): "0af7651916cd43dd8448eb211c80319c", traceOf("x"): "", traceOf(""): "",
		byteSize(12): "12 bytes", byteSize(2048): "2.0 KiB", figure(12345): "12k", figure(7): "7", figure(2.5e6): "2.5M",
		local("/orders/x?messages=1"): "/orders/x?messages=1", local("https://evil.example/"): "/", local("//evil.example/"): "/",
		local(`/\evil.example`): "/", local("/login"): "/", local(""): "/", local("/a\r\nb"): "/", local("javascript:alert(1)"): "/",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	for name, want := range map[string]bool{
		"Kim": true, "Kim O'Neill": true, "Ötzi": true, "": false, "  ": false, "a\nb": false, "a\x00": false, strings.Repeat("x", 61): false, "\xff": false,
	} {
		if got := validName(name); got != want {
			t.Errorf("name %q: got %t, want %t", name, got, want)
		}
	}
}
