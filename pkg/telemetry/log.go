package telemetry

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"go.opentelemetry.io/otel/trace"
)

// NewLogger returns a logger that writes one line per record to w, each with
// service and instance, unless these are empty, and with trace_id and span_id of the context it was called with. The format
// is "json" or "text"; another one is [ErrLogFormat].
func NewLogger(w io.Writer, format string, level slog.Leveler, service, instance string) (*slog.Logger, error) {
	opts := &slog.HandlerOptions{Level: level}
	var h slog.Handler
	switch format {
	case "json":
		h = slog.NewJSONHandler(w, opts)
	case "text":
		h = slog.NewTextHandler(w, opts)
	default:
		return nil, fmt.Errorf("%w, not %q", ErrLogFormat, format)
	}
	l := slog.New(LogHandler(h))
	if service != "" {
		l = l.With(LogService, service)
	}
	if instance != "" {
		l = l.With(LogInstance, instance)
	}
	return l, nil
}

// LogHandler adds to each record of h what the context says: trace_id and span_id, and of an order that [WithAttributes] has put there
// its id, its key as [Masked], and the step, unless the record says these itself. Under slog's WithGroup they are inside the group.
func LogHandler(h slog.Handler) slog.Handler { return logHandler{h} }

type logHandler struct{ slog.Handler }

func (h logHandler) Handle(ctx context.Context, r slog.Record) error {
	var more [5]slog.Attr
	n := 0
	if sc := trace.SpanContextFromContext(ctx); sc.IsValid() {
		more[0], more[1] = slog.String(LogTraceID, sc.TraceID().String()), slog.String(LogSpanID, sc.SpanID().String())
		n = 2
	}
	var said [3]bool // of the three keys
	r.Attrs(func(a slog.Attr) bool {
		if i := keyOf(a.Key); i >= 0 {
			said[i] = true
		}
		return true
	})
	attrs := Attributes(ctx)
	for i := len(attrs) - 1; i >= 0 && n < len(more); i-- { // the newest of each holds
		var a slog.Attr
		switch value := attrs[i].Value; attrs[i].Key {
		case OrderID:
			a = slog.String(LogOrderID, value.AsString())
		case IdempotencyKey:
			a = slog.Any(LogIdempotencyKey, Masked(value.AsString()))
		case Step:
			a = slog.String(LogStep, value.AsString())
		default:
			continue
		}
		if i := keyOf(a.Key); !said[i] {
			more[n], said[i] = a, true
			n++
		}
	}
	if n > 0 {
		r = r.Clone()
		r.AddAttrs(more[:n]...)
	}
	return h.Handler.Handle(ctx, r)
}

// keyOf numbers the keys whose values come from the context's attributes; -1 is none of them.
func keyOf(key string) int {
	switch key {
	case LogOrderID:
		return 0
	case LogIdempotencyKey:
		return 1
	case LogStep:
		return 2
	default:
		return -1
	}
}

func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return logHandler{h.Handler.WithAttrs(attrs)}
}
func (h logHandler) WithGroup(name string) slog.Handler { return logHandler{h.Handler.WithGroup(name)} }

// maskShown is how many characters of a masked value are shown: enough to tell
// neighbours in a log apart, useless for guessing the rest.
const maskShown = 4

// Masked is a key or token that is logged without being told: its first
// characters and its length, and nothing of one that is shorter than 12. It
// masks in slog and in fmt alike; convert to string to get the value.
type Masked string

// LogValue makes Masked a slog.LogValuer.
func (m Masked) LogValue() slog.Value { return slog.StringValue(m.String()) }

// String returns the masked form.
func (m Masked) String() string {
	switch {
	case m == "":
		return ""
	case len(m) < 3*maskShown:
		return fmt.Sprintf("…(%d)", len(m))
	}
	return fmt.Sprintf("%s…(%d)", string(m[:maskShown]), len(m))
}

// GoString masks in %#v too.
func (m Masked) GoString() string { return m.String() }
