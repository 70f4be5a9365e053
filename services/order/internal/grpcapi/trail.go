package grpcapi

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/throughline/throughline/pkg/idempotency"
	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/saga"
	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	trailv1 "github.com/throughline/throughline/proto/gen/throughline/trail/v1"
	"github.com/throughline/throughline/services/internal/topology"
	"github.com/throughline/throughline/services/internal/trail"
	"github.com/throughline/throughline/services/order/internal/placeorder"
	"github.com/throughline/throughline/services/order/internal/postgres"
)

// Trail tells of an order what only the order service knows: the order, the record of its key, its saga, cancellations, and what persons
// have decided. It is a trail.Own.
type Trail struct{ Pool *pgxpool.Pool }

// Find implements trail.Own: it knows orders, and the keys of clients. A key is looked for at every client, unless one is named, since the
// order's id follows from both.
func (t Trail) Find(ctx context.Context, id, clientID string) ([]*trailv1.Match, error) {
	kinds := make(map[uuid.UUID]trailv1.IdKind)
	var orders, cancellations []uuid.UUID
	if order, err := uuid.Parse(id); err == nil && len(id) == 36 && clientID == "" {
		orders, kinds[order] = append(orders, order), trailv1.IdKind_ID_KIND_ORDER_ID
	}
	if key, err := keys.ParseHeader([]string{id}); err == nil {
		clients := []string{clientID}
		if clientID == "" {
			if clients, err = postgres.ClientsWithOrders(ctx, t.Pool); err != nil {
				return nil, err
			}
		}
		for _, client := range clients {
			orders, cancellations = append(orders, keys.OrderID(client, key)), append(cancellations, keys.RequestID(client, operationCancel, key))
		}
	}
	found, err := postgres.FindAny(ctx, t.Pool, orders, cancellations)
	if err != nil {
		return nil, err
	}
	matches := make([]*trailv1.Match, len(found))
	for i, f := range found {
		kind := kinds[f.OrderID]
		if kind == trailv1.IdKind_ID_KIND_UNSPECIFIED {
			kind = trailv1.IdKind_ID_KIND_IDEMPOTENCY_KEY
		}
		matches[i] = &trailv1.Match{OrderId: f.OrderID.String(), Kind: kind, ClientId: f.ClientID}
	}
	return matches, nil
}

// Tell implements trail.Own.
func (t Trail) Tell(ctx context.Context, id uuid.UUID, reveal bool) (entries []*trailv1.Entry, leftOut []string, err error) {
	row, err := postgres.Any(ctx, t.Pool, id)
	if errors.Is(err, postgres.ErrNotFound) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	carrier, err := saga.ReadTrace(ctx, t.Pool, id)
	if err != nil {
		return nil, nil, err
	}
	order, err := orderEntry(&row, reveal)
	if err != nil {
		return nil, nil, err
	}
	order.TraceId = trail.TraceID(carrier.TraceParent)
	entries = []*trailv1.Entry{order}
	for _, part := range []func(context.Context, *postgres.Row, bool) ([]*trailv1.Entry, error){t.edge, t.cancellations, t.persons} {
		more, err := part(ctx, &row, reveal)
		if err != nil {
			return nil, nil, err
		}
		entries = append(entries, more...)
	}
	transitions, leftOut, err := t.transitions(ctx, &row)
	if err != nil {
		return nil, nil, err
	}
	entries = append(entries, transitions...)
	order.Instance = entries[1].GetInstance() // the record of the key is written with the order
	relateDecisions(entries)
	return entries, leftOut, nil
}

func orderEntry(row *postgres.Row, reveal bool) (*trailv1.Entry, error) {
	var req orderv1.CreateOrderRequest
	if err := proto.Unmarshal(row.Request, &req); err != nil {
		return nil, fmt.Errorf("decoding the request of order %s: %w", row.OrderID, err)
	}
	e := &trailv1.Entry{
		EntryId: "order", At: timestamppb.New(row.CreatedAt), Kind: trailv1.EntryKind_ENTRY_KIND_ORDER, Title: "order placed by " + row.ClientID,
		Outcome: string(row.Status), Reason: row.FailureReason, Attributes: map[string]string{
			"client_id": row.ClientID, "idempotency_key": row.IdempotencyKey, "status": string(row.Status), "currency": row.Currency,
			"total": strconv.FormatInt(row.Total, 10), "lines": strconv.Itoa(len(req.GetLines())), "updated_at": row.UpdatedAt.UTC().Format(time.RFC3339Nano),
		},
	}
	to := req.GetShipTo()
	personal := map[string]string{
		"ship_to": joinLines(to.GetName(), to.GetLine1(), to.GetLine2(), strings.TrimSpace(to.GetPostalCode()+" "+to.GetCity()), to.GetRegion(), to.GetCountry()),
		"note":    req.GetNote(), "payment_method": req.GetPaymentMethod(),
	}
	for name, value := range personal {
		e.Attributes[name] = masked(value, reveal)
	}
	return e, nil
}

func joinLines(parts ...string) string {
	var said []string
	for _, p := range parts {
		if p != "" {
			said = append(said, p)
		}
	}
	return strings.Join(said, ", ")
}

// masked tells whether there is something personal, and not what.
func masked(value string, reveal bool) string {
	if reveal || value == "" {
		return value
	}
	return "(masked)"
}

// edge tells of the record that repeats are answered from.
func (t Trail) edge(ctx context.Context, row *postgres.Row, _ bool) ([]*trailv1.Entry, error) {
	found, err := idempotency.Find(ctx, t.Pool, row.OrderID)
	if err != nil {
		return nil, err
	}
	e := &trailv1.Entry{
		EntryId: "edge", At: timestamppb.New(row.CreatedAt), Kind: trailv1.EntryKind_ENTRY_KIND_EDGE, CausedBy: "order",
		Title: "the key's answer has expired", Outcome: "expired",
	}
	if r, ok := found[row.OrderID]; ok {
		e.At, e.Instance, e.Outcome = timestamppb.New(r.CreatedAt), r.Instance, "kept"
		e.Title = "key first seen and answered; " + times(r.Replays, "replay") + ", " + times(r.Mismatches, "mismatch")
		e.Attributes = map[string]string{
			"replays": strconv.FormatInt(r.Replays, 10), "mismatches": strconv.FormatInt(r.Mismatches, 10), "expires_at": r.ExpiresAt.UTC().Format(time.RFC3339Nano),
		}
		for name, at := range map[string]*time.Time{"last_replay_at": r.LastReplayAt, "last_mismatch_at": r.LastMismatchAt} {
			if at != nil {
				e.Attributes[name] = at.UTC().Format(time.RFC3339Nano)
			}
		}
	}
	return []*trailv1.Entry{e}, nil
}

// times counts in words.
func times(n int64, word string) string {
	switch {
	case n == 1:
		return "1 " + word
	case strings.HasSuffix(word, "ch"):
		return strconv.FormatInt(n, 10) + " " + word + "es"
	}
	return strconv.FormatInt(n, 10) + " " + word + "s"
}

func (t Trail) cancellations(ctx context.Context, row *postgres.Row, reveal bool) ([]*trailv1.Entry, error) {
	found, err := postgres.ListCancellations(ctx, t.Pool, row.OrderID)
	if err != nil {
		return nil, err
	}
	var entries []*trailv1.Entry
	for _, c := range found {
		var req orderv1.CancelOrderRequest
		if err := proto.Unmarshal(c.Request, &req); err != nil {
			return nil, fmt.Errorf("decoding a cancellation of order %s: %w", row.OrderID, err)
		}
		entries = append(entries, &trailv1.Entry{
			EntryId: "cancellation/" + c.RequestID.String(), At: timestamppb.New(c.CreatedAt), Kind: trailv1.EntryKind_ENTRY_KIND_CANCELLATION,
			Title: "cancellation accepted", Reason: masked(req.GetReason(), reveal), CausedBy: "order", Undo: true,
		})
	}
	return entries, nil
}

// maxTransitions bounds the history in an answer. One that is longer is of an order that was retried for days, whose middle tells nothing.
const maxTransitions = 500

func (t Trail) transitions(ctx context.Context, row *postgres.Row) (entries []*trailv1.Entry, leftOut []string, err error) {
	history, err := saga.ReadHistory(ctx, t.Pool, row.OrderID)
	if err != nil {
		return nil, nil, err
	}
	if n := len(history) - maxTransitions; n > 0 {
		leftOut = append(leftOut, fmt.Sprintf("%d transitions of the saga: only the first and the last %d are told", n, maxTransitions/2))
	}
	var revision, position int64
	for i := range history {
		h := &history[i]
		if position++; h.Revision != revision {
			revision, position = h.Revision, 1
		}
		if i >= maxTransitions/2 && i < len(history)-maxTransitions/2 {
			continue
		}
		e := transition(h, position)
		if h.Step == "" && h.Undoing() {
			e.Reason = row.FailureReason
		}
		entries = append(entries, e)
	}
	return entries, leftOut, nil
}

func transition(h *saga.Entry, position int64) *trailv1.Entry {
	e := &trailv1.Entry{
		EntryId: fmt.Sprintf("transition/%d/%d", h.Revision, position), At: timestamppb.New(h.At), Kind: trailv1.EntryKind_ENTRY_KIND_TRANSITION, Step: h.Step,
		Title: h.Title(placeorder.Definition.Undoes(h.Step)), Outcome: h.To, Undo: h.Undoing(),
		Attributes: map[string]string{
			"from": h.From, "to": h.To, "cause": h.Cause, "revision": strconv.FormatInt(h.Revision, 10), "place": fmt.Sprintf("%08d/%04d", h.Revision, position),
		},
	}
	if h.Attempt > 0 {
		e.Attributes["attempt"] = strconv.Itoa(h.Attempt)
	}
	switch saga.Phase(h.To) {
	case saga.Sent, saga.Undoing:
		e.Attributes["command"] = h.Step
	}
	switch {
	case h.CauseID != uuid.Nil:
		e.MessageId = h.CauseID.String()
		e.CausedBy = "received/" + topology.OrderRepliesConsumer + "/" + e.GetMessageId()
	case h.Revision == 1:
		e.CausedBy = "order"
	}
	return e
}

// persons tells that a person is needed, and what persons have decided.
func (t Trail) persons(ctx context.Context, row *postgres.Row, _ bool) ([]*trailv1.Entry, error) {
	c, err := postgres.GetCase(ctx, t.Pool, row.OrderID)
	if err != nil {
		return nil, err
	}
	var entries []*trailv1.Entry
	if c.Reason != "" {
		entries = append(entries, &trailv1.Entry{
			EntryId: "attention", At: timestamppb.New(c.Since), Kind: trailv1.EntryKind_ENTRY_KIND_ATTENTION, Title: "waits for a person", Reason: c.Reason,
			Detail: c.Detail,
		})
	}
	actions, err := postgres.ListActions(ctx, t.Pool, row.OrderID)
	if err != nil {
		return nil, err
	}
	for _, a := range actions {
		entries = append(entries, &trailv1.Entry{
			EntryId: "decision/" + a.RequestKey, At: timestamppb.New(a.CreatedAt), Kind: trailv1.EntryKind_ENTRY_KIND_OPERATOR, Step: a.Step,
			Title: "decided: " + a.Resolution, Actor: a.Actor, Reason: a.Reason, Attributes: map[string]string{"action": a.Resolution},
		})
	}
	return entries, nil
}

// relateDecisions finds what led to transitions that no message has caused: what one transaction has written has one time.
func relateDecisions(entries []*trailv1.Entry) {
	causes := make(map[time.Time]string)
	last := make(map[time.Time]string)
	for _, e := range entries {
		switch e.GetKind() {
		case trailv1.EntryKind_ENTRY_KIND_CANCELLATION, trailv1.EntryKind_ENTRY_KIND_OPERATOR:
			causes[e.GetAt().AsTime()] = e.GetEntryId()
		case trailv1.EntryKind_ENTRY_KIND_TRANSITION:
			last[e.GetAt().AsTime()] = e.GetEntryId()
		default:
		}
	}
	for _, e := range entries {
		if e.GetCausedBy() != "" {
			continue
		}
		switch e.GetKind() {
		case trailv1.EntryKind_ENTRY_KIND_TRANSITION:
			e.CausedBy = causes[e.GetAt().AsTime()]
		case trailv1.EntryKind_ENTRY_KIND_ATTENTION:
			e.CausedBy = last[e.GetAt().AsTime()]
		default:
		}
	}
}
