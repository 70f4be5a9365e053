package telemetry_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/throughline/throughline/pkg/telemetry"
)

func TestLogger(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	l, err := telemetry.NewLogger(&out, "json", slog.LevelInfo, "order", "order-1")
	if err != nil {
		t.Fatal(err)
	}
	ctx := telemetry.Extract(t.Context(), telemetry.Carrier{TraceParent: parent})
	l.DebugContext(ctx, "hidden")
	l.With(telemetry.LogStep, "s").InfoContext(ctx, "inside a trace", telemetry.LogIdempotencyKey, telemetry.Masked("tl_dev_storefront"))
	l.Info("outside")

	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 {
		t.Fatalf("got %d lines, want 2: %s", len(lines), &out)
	}
	for i, want := range []map[string]any{
		{"msg": "inside a trace", "service": "order", "instance": "order-1", "step": "s", "idempotency_key": "tl_d…(17)",
			"trace_id": "4bf92f3577b34da6a3ce929d0e0e4736", "span_id": "00f067aa0ba902b7"},
		{"msg": "outside", "service": "order", "instance": "order-1", "trace_id": nil, "span_id": nil},
	} {
		var got map[string]any
		if err := json.Unmarshal([]byte(lines[i]), &got); err != nil {
			t.Fatal(err)
		}
		for k, v := range want {
			if got[k] != v {
				t.Errorf("line %d: got %s %v, want %v", i, k, got[k], v)
			}
		}
	}
}

func TestLoggerRefusesFormats(t *testing.T) {
	t.Parallel()
	if _, err := telemetry.NewLogger(os.Stderr, "xml", nil, "order", ""); !errors.Is(err, telemetry.ErrLogFormat) {
		t.Errorf("got %v, want %v", err, telemetry.ErrLogFormat)
	}
}

func TestMasked(t *testing.T) {
	t.Parallel()
	for in, want := range map[telemetry.Masked]string{
		"": "", "short": "…(5)", "elevenchars": "…(11)", "twelve chars": "twel…(12)", "ééééééé": "éé…(14)",
	} {
		for verb, got := range map[string]string{
			"String": in.String(), "LogValue": in.LogValue().String(), "%v": fmt.Sprintf("%v", in), "%#v": fmt.Sprintf("%#v", in),
		} {
			if got != want {
				t.Errorf("%s of %q: got %q, want %q", verb, string(in), got, want)
			}
		}
	}
}

func ExampleMasked() {
	l := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
	l.Info("order placed", telemetry.LogIdempotencyKey, telemetry.Masked("8e03978e-40d5-43e8-bc93-6894a57f9324"))
	// Output: level=INFO msg="order placed" idempotency_key=8e03…(36)
}

// A line that is written in an order's context says which order, step and trace it is about; what the line says itself holds.
func TestLogSaysWhatTheContextIsAbout(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	l, err := telemetry.NewLogger(&out, "json", slog.LevelInfo, "order", "1")
	if err != nil {
		t.Fatal(err)
	}
	ctx := telemetry.Extract(t.Context(), telemetry.Carrier{TraceParent: parent})
	ctx = telemetry.WithAttributes(ctx, telemetry.OrderID.String("o-1"), telemetry.IdempotencyKey.String("a-long-secret-key"), telemetry.Step.String("first"))
	ctx = telemetry.WithAttributes(ctx, telemetry.Step.String("second"))
	for _, tc := range []struct {
		name string
		args []any
		want map[string]string
	}{
		{"nothing said", nil, map[string]string{"order_id": "o-1", "idempotency_key": "a-lo…(17)", "step": "second"}},
		{"said itself", []any{telemetry.LogOrderID, "o-2", telemetry.LogStep, "third"}, map[string]string{"order_id": "o-2", "step": "third"}},
	} {
		out.Reset()
		l.InfoContext(ctx, "changed", tc.args...)
		var got map[string]any
		if err := json.Unmarshal(out.Bytes(), &got); err != nil {
			t.Fatalf("%s: %v in %s", tc.name, err, out.String())
		}
		tc.want["trace_id"] = strings.Split(parent, "-")[1]
		for key, want := range tc.want {
			if got[key] != want {
				t.Errorf("%s: %s is %v, want %q", tc.name, key, got[key], want)
			}
			if n := strings.Count(out.String(), `"`+key+`":`); n != 1 {
				t.Errorf("%s: %s is there %d times, want once: %s", tc.name, key, n, out.String())
			}
		}
	}
	out.Reset()
	l.InfoContext(t.Context(), "elsewhere")
	if strings.Contains(out.String(), "order_id") {
		t.Errorf("outside of an order: got %s, want no order", out.String())
	}
}
