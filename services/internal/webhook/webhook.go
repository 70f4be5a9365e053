// Package webhook takes the notices by which an outside system says that something has changed there.
//
// A notice is a hint, and never the truth: anybody may have delayed it, repeated it or put it into another order, even where its
// signature proves who wrote it. So a notice only lets the steps that it may concern ask at once what is the case. A service that gets
// none asks all the same, only later.
//
// What a notice leads to, and the mark in the inbox that it was dealt with, are committed in one transaction before it is answered
// with 2xx. The sender repeats what was not.
package webhook

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/throughline/throughline/pkg/fault"
	"github.com/throughline/throughline/pkg/inbox"
	"github.com/throughline/throughline/pkg/participant"
	"github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/pkg/telemetry"
)

const (
	// MaxBody bounds a notice, in bytes. One object of the outside is a few kB; with hundreds of lines, some tens.
	MaxBody = 256 << 10
	// MaxAge is how old, or how far ahead of our clock, a signature may be. It bounds how long a copy that somebody else has got hold of
	// is good for.
	MaxAge = 5 * time.Minute
	// timeout bounds the transaction. Senders wait for some seconds.
	timeout = 5 * time.Second
	// quiet is how long nothing is logged after a refusal: the port is open to everybody.
	quiet = time.Second
)

// ErrRefused says that a notice is not what it claims to be: its signature is wrong or too old, or it cannot be read.
var ErrRefused = errors.New("webhook refused")

// Notice is a notice whose signature is right.
type Notice struct {
	// ID is the sender's name for the event; repeats have the same.
	ID string
	// Type is the sender's word for what has happened.
	Type string
	// OrderID is the order that it is about; the zero id if it is about none of ours.
	OrderID uuid.UUID
	// Queue adds to a transaction what follows from it: sets and nudges, and nothing that may not be repeated. It gives what is filled in
	// then of what the notice is about.
	Queue func(b *pgx.Batch) *participant.Noticed
}

// Config makes a handler.
type Config struct {
	Pool *pgxpool.Pool
	// Consumer is the inbox consumer under which notices are marked.
	Consumer string
	// Read checks a notice and reads it. Its error is ErrRefused; it must not quote the secret or the body.
	Read func(body []byte, header http.Header) (Notice, error)
	// Wake is called after the commit.
	Wake   func()
	Logger *slog.Logger
	// Tracer makes a span of each notice that is about an order, in a trace of its own with a link to the order's; nil makes none.
	Tracer trace.Tracer
	// Meter counts notices; nil counts none.
	Meter metric.Meter
}

type handler struct {
	cfg     Config
	log     *slog.Logger
	told    func(ctx context.Context, outcome string)
	refused atomic.Int64 // when a refusal was logged last, in nanoseconds of Unix time
}

// New gives a handler of POST requests that carry one notice each. It answers 204 for one that is dealt with, also before; 400 for one
// that is refused, of which nothing is kept; 413 for one that is too long; 503 if it is to be sent again.
func New(cfg Config) http.Handler {
	h := &handler{cfg: cfg, log: cfg.Logger, told: newCounter(&cfg)}
	if h.log == nil {
		h.log = slog.New(slog.DiscardHandler)
	}
	return h
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	if _, tooLong := errors.AsType[*http.MaxBytesError](err); tooLong {
		h.told(r.Context(), outcomeRefused)
		http.Error(w, "too long", http.StatusRequestEntityTooLarge)
		return
	}
	if err != nil {
		http.Error(w, "not read", http.StatusBadRequest)
		return
	}
	n, err := h.cfg.Read(body, r.Header)
	if err != nil {
		h.told(r.Context(), outcomeRefused)
		h.refuse(r.Context(), err)
		http.Error(w, "refused", http.StatusBadRequest)
		return
	}
	ctx, span := h.span(r.Context(), &n)
	outcome, err := h.apply(ctx, n)
	h.told(ctx, outcome)
	span.SetAttributes(telemetry.Outcome.String(outcome))
	telemetry.Fail(span, err)
	span.End()
	if err != nil {
		h.log.ErrorContext(ctx, "webhook not dealt with, it will come again", "event_id", n.ID, "type", n.Type,
			telemetry.LogOrderID, n.OrderID, telemetry.LogError, err)
		w.Header().Set("Retry-After", "1")
		http.Error(w, "try again", http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// span starts the span of a notice. The sender's own trace, should he send one, is not ours.
func (h *handler) span(ctx context.Context, n *Notice) (context.Context, trace.Span) {
	if h.cfg.Tracer == nil || n.OrderID == uuid.Nil {
		return ctx, noop.Span{}
	}
	return h.cfg.Tracer.Start(telemetry.WithAttributes(ctx, telemetry.OrderID.String(n.OrderID.String())), "notice "+n.Type, trace.WithNewRoot(),
		trace.WithSpanKind(trace.SpanKindServer))
}

// relate leads from the span of a notice to the trace of what it is about.
func relate(ctx context.Context, of *participant.Noticed) {
	span := trace.SpanFromContext(ctx)
	if of == nil || !span.IsRecording() {
		return
	}
	if of.IdempotencyKey != "" {
		span.SetAttributes(telemetry.IdempotencyKey.String(of.IdempotencyKey))
	}
	if link, ok := telemetry.LinkFrom(of.Trace); ok {
		link.Attributes = []attribute.KeyValue{telemetry.Relation.String(telemetry.RelationNotice)}
		span.AddLink(link)
	}
}

// refuse logs a refusal, unless it has just done so.
func (h *handler) refuse(ctx context.Context, err error) {
	now, last := time.Now().UnixNano(), h.refused.Load()
	if now-last >= int64(quiet) && h.refused.CompareAndSwap(last, now) {
		h.log.WarnContext(ctx, "webhook refused", telemetry.LogError, err)
	}
}

// apply does what follows from a notice, once, and gives what came of it.
func (h *handler) apply(ctx context.Context, n Notice) (outcome string, err error) {
	if n.OrderID == uuid.Nil || n.Queue == nil {
		return outcomeForeign, nil // others use the outside system, too
	}
	// The sender may hang up: what has begun is finished all the same.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	var b pgx.Batch
	of := n.Queue(&b)
	inbox.QueueMarks(&b, h.cfg.Consumer, []uuid.UUID{MessageID(n.ID)})
	fault.At(fault.WebhookCommitting, n.OrderID, n.Type)
	switch err := postgres.SendAtomic(ctx, h.cfg.Pool, &b); {
	case postgres.IsUniqueViolation(err, inbox.Constraint):
		h.log.DebugContext(ctx, "webhook came again", "event_id", n.ID, "type", n.Type)
		h.count(ctx, n)
		return outcomeRepeated, nil
	case err != nil:
		return outcomeFailed, fmt.Errorf("recording webhook: %w", err)
	}
	fault.At(fault.WebhookCommitted, n.OrderID, n.Type)
	relate(ctx, of)
	h.log.DebugContext(ctx, "webhook", "event_id", n.ID, "type", n.Type)
	if h.cfg.Wake != nil {
		h.cfg.Wake()
	}
	return outcomeApplied, nil
}

// count counts a notice that came again. Whether that succeeds changes nothing.
func (h *handler) count(ctx context.Context, n Notice) {
	var b pgx.Batch
	inbox.QueueRepeats(&b, h.cfg.Consumer, []uuid.UUID{MessageID(n.ID)}, make(map[uuid.UUID]bool))
	if err := h.cfg.Pool.SendBatch(ctx, &b).Close(); err != nil {
		h.log.DebugContext(ctx, "repeated webhook not counted", "event_id", n.ID, telemetry.LogError, err)
	}
}

// MessageID is the id of an event in the inbox.
func MessageID(event string) uuid.UUID { return uuid.NewSHA1(namespace(), []byte(event)) }

// namespace is fixed for ever: another one would let events in again.
func namespace() uuid.UUID {
	return uuid.UUID{0x6e, 0x0f, 0x4a, 0x3d, 0x52, 0x8b, 0x4c, 0x1e, 0x9d, 0x27, 0x3b, 0x7f, 0x10, 0xc4, 0x88, 0x5a}
}
