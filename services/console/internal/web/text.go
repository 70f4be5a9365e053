package web

import (
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/throughline/throughline/pkg/money"
	attentionv1 "github.com/throughline/throughline/proto/gen/throughline/attention/v1"
	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	trailv1 "github.com/throughline/throughline/proto/gen/throughline/trail/v1"
	"github.com/throughline/throughline/services/internal/grpcx"
	"github.com/throughline/throughline/services/internal/trail"
)

// funcs are what templates call.
func (p *pages) funcs() template.FuncMap {
	return template.FuncMap{
		"asset":      func(name string) string { return "/static/" + p.names[name] },
		"amount":     amount,
		"status":     statusWord,
		"words":      words,
		"tone":       tone,
		"clock":      clock,
		"stamp":      stamp,
		"ago":        ago,
		"took":       took,
		"took_pb":    func(d *durationpb.Duration) string { return took(d.AsDuration()) },
		"brief":      trail.Brief,
		"brief_pb":   func(d *durationpb.Duration) string { return trail.Brief(d.AsDuration()) },
		"short":      short,
		"trace":      p.traceLink,
		"idkind":     func(k trailv1.IdKind) string { return words(strings.TrimPrefix(k.String(), "ID_KIND_")) },
		"resolution": func(r attentionv1.Resolution) string { return words(resolutionWord(r)) },
		"bytesize":   byteSize,
		"letter":     letterPath,
		"first":      func(n int, s string) string { return clip(s, n) },
	}
}

// amount writes minor units with the decimals of their currency.
func amount(minor int64, currency string) string {
	m, err := money.New(currency, minor)
	if err != nil {
		return fmt.Sprintf("%d %s (minor units)", minor, currency)
	}
	return m.String()
}

// amountText is amount for a number that came as text; empty if it is none.
func amountText(minor, currency string) string {
	n, err := strconv.ParseInt(minor, 10, 64)
	if err != nil {
		return ""
	}
	return amount(n, currency)
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

func statusWord(s orderv1.OrderStatus) string {
	return strings.TrimPrefix(s.String(), "ORDER_STATUS_")
}

// words writes a stable word for people: NEEDS_ATTENTION as "needs attention".
func words(s string) string { return strings.ToLower(strings.ReplaceAll(s, "_", " ")) }

// tone says how a stable word feels; the word itself is always beside it.
func tone(word string) string {
	switch strings.ToLower(word) {
	case "confirmed", "done", "acknowledged", "replayed", "answered", "undone", "completed", "kept", "captured", "dispatched", "already_done", "found":
		return "good"
	case "failed", "refused", "dead", "lost", "undo_refused", "no_answer", "declined", "error":
		return "bad"
	case "needs_attention", "unknown", "waiting", "set_aside", "blocked", "no_outcome", "late_success", "would":
		return "warn"
	case "compensating", "undoing", "cancelled", "compensated", "voided":
		return "undo"
	case "pending", "running", "sent":
		return "busy"
	default:
		return "plain"
	}
}

// clock writes the time of day in UTC, and the date too if it is not today's.
func clock(t *timestamppb.Timestamp) string {
	if t == nil {
		return "–"
	}
	at := t.AsTime()
	if time.Since(at) < 20*time.Hour {
		return at.Format("15:04:05")
	}
	return at.Format("2006-01-02 15:04:05")
}

// stamp writes a time for machines, and for people who want all of it.
func stamp(t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	return t.AsTime().Format("2006-01-02T15:04:05.000000Z07:00")
}

// ago writes how long ago something was.
func ago(t *timestamppb.Timestamp) string {
	if t == nil {
		return "–"
	}
	return took(max(0, time.Since(t.AsTime())))
}

// took writes a duration with two or three digits that matter.
func took(d time.Duration) string {
	switch {
	case d < 0:
		return "–" + took(-d)
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", d.Microseconds())
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.2f s", d.Seconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d < 2*time.Hour:
		return fmt.Sprintf("%.0f min", d.Minutes())
	case d < 48*time.Hour:
		return fmt.Sprintf("%.0f h", d.Hours())
	default:
		return fmt.Sprintf("%.0f days", d.Hours()/24)
	}
}

func byteSize(n int) string {
	if n < 1024 {
		return fmt.Sprintf("%d bytes", n)
	}
	return fmt.Sprintf("%.1f KiB", float64(n)/1024)
}

// short cuts an id for a list; the whole id is behind it.
func short(id string) string {
	if len(id) == 36 {
		return id[:8]
	}
	return clip(id, 24)
}

// clip cuts a text after so many characters.
func clip(s string, n int) string {
	for i := range s {
		if n == 0 {
			return s[:i] + "…"
		}
		n--
	}
	return s
}

// traceLink is where Jaeger shows a trace; empty where there is none.
func (p *pages) traceLink(traceID string) string {
	if p.jaeger == "" || traceID == "" {
		return ""
	}
	return p.jaeger + "/trace/" + url.PathEscape(traceID)
}

// traceOf takes the trace id out of a traceparent.
func traceOf(traceparent string) string {
	if parts := strings.Split(traceparent, "-"); len(parts) == 4 && len(parts[1]) == 32 {
		return parts[1]
	}
	return ""
}

func letterPath(service string, id int64) string {
	return fmt.Sprintf("/dead-letters/%s/%d", service, id)
}

// explain gives the status and the text for people of an error of a service.
func explain(service string, err error) (code int, title, detail string) {
	for _, v := range grpcx.Violations(err) {
		return http.StatusUnprocessableEntity, "Refused", v.Path + " " + v.Detail
	}
	switch reason := grpcx.ReasonOf(err); {
	case reason == grpcx.OrderNotFound:
		return http.StatusNotFound, "Not found", "There is no such order."
	case reason == grpcx.UnknownName:
		return http.StatusNotFound, "Not found", service + ": " + status.Convert(err).Message() + "."
	case reason == grpcx.NothingToResolve:
		return http.StatusConflict, "Nothing to decide", "The order does not wait for this decision any more. Nothing was done."
	case reason == grpcx.Unauthenticated:
		return http.StatusBadGateway, "Not let in", service + " does not take the operator credential of the console."
	case reason == grpcx.Deadline, status.Code(err) == codes.DeadlineExceeded:
		return http.StatusGatewayTimeout, "No answer", service + " did not answer in time. What was asked for may still happen; look again."
	case reason == grpcx.Unavailable, status.Code(err) == codes.Unavailable:
		return http.StatusBadGateway, "No answer", service + " cannot be reached, or its database cannot. What was asked for may have happened; look again."
	default:
		return http.StatusBadGateway, "It did not work", service + ": " + status.Convert(err).Message()
	}
}
