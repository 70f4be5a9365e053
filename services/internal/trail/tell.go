package trail

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/throughline/throughline/pkg/inbox"
	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/outbox"
	"github.com/throughline/throughline/pkg/participant"
	trailv1 "github.com/throughline/throughline/proto/gen/throughline/trail/v1"
	"github.com/throughline/throughline/services/internal/webhook"
)

// telling collects what a service has on record about an order.
type telling struct {
	*server
	order   uuid.UUID
	reveal  bool
	clock   time.Time
	entries []*trailv1.Entry
	leftOut []string

	histories []participant.History
}

func (t *telling) add(entries ...*trailv1.Entry) { t.entries = append(t.entries, entries...) }

func (t *telling) undo(step string) bool { return slices.Contains(t.cfg.Undos, step) }

func (t *telling) now(ctx context.Context) error {
	return t.cfg.Pool.QueryRow(ctx, `SELECT now()`).Scan(&t.clock)
}

func (t *telling) own(ctx context.Context) error {
	if t.cfg.Own == nil {
		return nil
	}
	entries, leftOut, err := t.cfg.Own.Tell(ctx, t.order, t.reveal)
	if err != nil {
		return err
	}
	t.add(entries...)
	t.leftOut = append(t.leftOut, leftOut...)
	return nil
}

// steps tells of the steps, their attempts, their calls, and what the outside has said by itself.
func (t *telling) steps(ctx context.Context) error {
	if !t.cfg.Participant {
		return nil
	}
	histories, err := participant.Histories(ctx, t.cfg.Pool, t.order)
	if err != nil {
		return err
	}
	t.histories = histories
	for i := range histories {
		t.step(&histories[i])
	}
	return nil
}

func (t *telling) step(h *participant.History) {
	undo, traceID := h.Kind == participant.KindUndo, TraceID(h.Trace.TraceParent)
	if h.UndoneAt != nil {
		tombstone := &trailv1.Entry{
			EntryId: "tombstone/" + h.StepName, At: timestamppb.New(*h.UndoneAt), Kind: trailv1.EntryKind_ENTRY_KIND_TOMBSTONE, Step: h.StepName,
			Title: h.StepName + " may not start any more", TraceId: traceID, Undo: true,
		}
		for i := range t.histories {
			if other := &t.histories[i]; other.Kind == participant.KindUndo && other.CreatedAt.Equal(*h.UndoneAt) {
				tombstone.CausedBy = "step/" + other.StepName
			}
		}
		t.add(tombstone)
	}
	stepKey := keys.StepKey(t.order, h.StepName)
	for _, n := range h.Notices {
		t.add(&trailv1.Entry{
			EntryId: "webhook/" + n.ID, At: timestamppb.New(n.At), Kind: trailv1.EntryKind_ENTRY_KIND_WEBHOOK, Step: h.StepName,
			Title: "notice from " + t.cfg.Peer + ": " + n.Type, MessageId: webhook.MessageID(n.ID).String(), TraceId: traceID,
			Attributes: map[string]string{"peer": t.cfg.Peer, "type": n.Type, "notice_id": n.ID},
		})
	}
	if h.CommandID == uuid.Nil && h.Kind != participant.KindCheck {
		return // only a tombstone
	}
	e := &trailv1.Entry{
		EntryId: "step/" + h.StepName, At: timestamppb.New(h.CreatedAt), Kind: trailv1.EntryKind_ENTRY_KIND_STEP, Step: h.StepName,
		Title: h.StepName + " taken in", Outcome: string(h.State), Reason: h.Reason, Detail: h.LastError, TraceId: traceID, Undo: undo,
		Attributes: attributes("kind", h.Kind, "attempts", strconv.Itoa(h.Attempts), "reference", h.Reference, "step_key", stepKey.String()),
	}
	if h.CommandID != uuid.Nil {
		e.MessageId = h.CommandID.String()
		e.CausedBy = receivedID(t.cfg.Consumers[0], h.CommandID)
	}
	if h.UndoneAt != nil {
		e.Attributes["undone_at"] = stamp(*h.UndoneAt)
	}
	if h.DueAt != nil && h.LeaseOwner == "" {
		e.Attributes["next_attempt_at"] = stamp(*h.DueAt)
	}
	t.add(e)
	next := 1
	for i := range h.Tried {
		a := &h.Tried[i]
		if a.Number > next {
			t.leftOut = append(t.leftOut, fmt.Sprintf("attempts %d to %d at %s: a long history is cut", next, a.Number-1, h.StepName))
		}
		next = a.Number + 1
		t.attempt(h, a, undo, traceID)
	}
}

func (t *telling) attempt(h *participant.History, a *participant.Attempt, undo bool, traceID string) {
	outcome := cmp.Or(a.Outcome, "running")
	id := fmt.Sprintf("attempt/%s/%d", h.StepName, a.Token)
	e := &trailv1.Entry{
		EntryId: id, At: timestamppb.New(a.At), Instance: a.Owner, Kind: trailv1.EntryKind_ENTRY_KIND_ATTEMPT, Step: h.StepName,
		Title: fmt.Sprintf("attempt %d at %s: %s", a.Number, h.StepName, outcome), Outcome: outcome, TraceId: traceID,
		CausedBy: "step/" + h.StepName, Undo: undo,
		Attributes: attributes("number", strconv.Itoa(a.Number), "token", strconv.FormatInt(a.Token, 10)),
	}
	if a.Took > 0 {
		e.Duration = durationpb.New(a.Took)
	}
	if outcome == messaging.OutcomeRefused {
		e.Reason = a.Error
	} else {
		e.Detail = cmp.Or(a.Error, participant.Settled(a.Exchanges))
	}
	t.add(e)
	for i, x := range a.Exchanges {
		c := &trailv1.Entry{
			EntryId: fmt.Sprintf("call/%s/%d/%d", h.StepName, a.Token, i+1), At: timestamppb.New(x.Began), Instance: a.Owner,
			Kind: trailv1.EntryKind_ENTRY_KIND_CALL, Step: h.StepName, Title: t.cfg.Peer + ": " + x.Operation, Outcome: "answered", Detail: x.Error,
			Duration: durationpb.New(x.Took), TraceId: traceID, CausedBy: id, Undo: undo,
			Attributes: attributes("peer", t.cfg.Peer, "operation", x.Operation, "key", x.Key, "reference", x.Reference, "answer", x.Answer),
		}
		if x.Status == 0 {
			c.Outcome = "no_answer"
		} else {
			c.Attributes["status"] = strconv.Itoa(x.Status)
		}
		t.add(c)
	}
	if a.Dropped > 0 {
		t.leftOut = append(t.leftOut, fmt.Sprintf("%d calls of attempt %d at %s: too many", a.Dropped, a.Number, h.StepName))
	}
}

// sent tells of the messages that the service has written, and of those that were published again by hand.
func (t *telling) sent(ctx context.Context) error {
	found, err := outbox.Trail(ctx, t.cfg.Pool, t.order, maxOfKind+1)
	if err != nil {
		return err
	}
	if len(found) > maxOfKind {
		found = found[:maxOfKind]
		t.leftOut = append(t.leftOut, fmt.Sprintf("messages after the first %d", maxOfKind))
	}
	ids := make([]uuid.UUID, len(found))
	for i := range found {
		m := &found[i]
		ids[i] = m.ID
		e := sentEntry(m)
		e.Undo = t.undo(m.StepName)
		e.CausedBy = t.causeOf(m, found)
		t.add(e)
	}
	for _, e := range t.entries { // they are told before the oldest could have been dropped
		if e.GetKind() == trailv1.EntryKind_ENTRY_KIND_ORDER || e.GetKind() == trailv1.EntryKind_ENTRY_KIND_STEP {
			if before := t.clock.Add(-t.cfg.Retention); e.GetAt().AsTime().Before(before) {
				t.leftOut = append(t.leftOut, "messages sent before "+stamp(before)+": they are kept for "+t.cfg.Retention.String())
				break
			}
		}
	}
	again, err := outbox.Republishes(ctx, t.cfg.Pool, ids)
	if err != nil {
		return err
	}
	for _, r := range again {
		t.add(&trailv1.Entry{
			EntryId: fmt.Sprintf("republish/%s/%d", t.cfg.Service, r.No), At: timestamppb.New(r.CreatedAt), Kind: trailv1.EntryKind_ENTRY_KIND_OPERATOR,
			Title: "message published again", Actor: r.Actor, Reason: r.Reason, MessageId: r.MessageID.String(), CausedBy: sentID(r.MessageID),
			Attributes: map[string]string{"action": "republish"},
		})
	}
	return nil
}

func sentEntry(m *outbox.Sent) *trailv1.Entry {
	e := &trailv1.Entry{
		EntryId: sentID(m.ID), At: timestamppb.New(m.WrittenAt), Kind: trailv1.EntryKind_ENTRY_KIND_SENT, Step: m.StepName,
		Title: kindWord(m.Kind) + " " + cmp.Or(m.StepName, m.Subject), Outcome: "acknowledged", MessageId: m.ID.String(), Stream: m.Stream,
		StreamSequence: int64(m.Sequence), TraceId: TraceID(m.TraceParent), //nolint:gosec // JetStream's numbers are far below
		Attributes: attributes("kind", kindWord(m.Kind), "subject", m.Subject, "type", m.Type, "step_outcome", m.Outcome, "step_reason", m.Reason),
	}
	switch m.Kind {
	case messaging.Event:
		e.Title = "event " + strings.TrimPrefix(m.Subject, messaging.EventPrefix)
		e.Attributes["sequence"] = strconv.FormatInt(m.AggregateSeq, 10)
	case messaging.Reply:
		e.Title = "reply " + m.StepName + ": " + strings.TrimSpace(m.Outcome+" "+m.Reason)
	case messaging.Command:
	}
	switch {
	case m.SetAside != "":
		e.Outcome, e.Reason = "set_aside", m.SetAside
	case m.Pending:
		e.Outcome = "pending"
	}
	if !m.SentAt.IsZero() {
		e.Attributes["sent_at"] = stamp(m.SentAt)
	}
	return e
}

// causeOf finds what led to a message. What one transaction has written has one time, to the microsecond: that of its begin.
func (t *telling) causeOf(m *outbox.Sent, all []outbox.Sent) string {
	cause := ""
	for _, e := range t.entries {
		if e.GetKind() == trailv1.EntryKind_ENTRY_KIND_TRANSITION && e.GetAt().AsTime().Equal(m.WrittenAt.UTC()) &&
			(cause == "" || e.GetAttributes()["command"] == m.StepName) {
			cause = e.GetEntryId() // the one that sent this command; for an event, the last one that sent none
		}
	}
	if cause != "" || !t.cfg.Participant {
		return cause
	}
	// An event goes with the reply beside it.
	step, command := m.StepName, m.LastSeen
	for i := range all {
		if step == "" && all[i].StepName != "" && all[i].WrittenAt.Equal(m.WrittenAt) {
			step, command = all[i].StepName, all[i].LastSeen
		}
	}
	for _, e := range t.entries {
		if e.GetKind() == trailv1.EntryKind_ENTRY_KIND_ATTEMPT && e.GetStep() == step && !e.GetAt().AsTime().After(m.WrittenAt) {
			cause = e.GetEntryId() // the last one that had begun by then
		}
	}
	if cause == "" && command != uuid.Nil {
		cause = receivedID(t.cfg.Consumers[0], command) // answered from the record
	}
	return cause
}

// letters tells of messages that could not be dealt with.
func (t *telling) letters(ctx context.Context) error {
	letters, err := t.cfg.Letters.List(ctx, inbox.Filter{AggregateID: t.order, Settled: true})
	if err != nil {
		return err
	}
	for i := range letters {
		l, actions, err := t.cfg.Letters.Get(ctx, letters[i].ID)
		if err != nil {
			return err
		}
		id := fmt.Sprintf("dead-letter/%s/%d", t.cfg.Service, l.ID)
		e := &trailv1.Entry{
			EntryId: id, At: timestamppb.New(l.CreatedAt), Kind: trailv1.EntryKind_ENTRY_KIND_DEAD_LETTER, Title: "dead letter of " + l.Consumer,
			Outcome: string(l.State), Detail: l.Error, MessageId: l.MessageID.String(), StreamSequence: l.StreamSequence, CausedBy: sentID(l.MessageID),
			Attributes: attributes("consumer", l.Consumer, "dead_letter_id", strconv.FormatInt(l.ID, 10), "attempts", strconv.FormatInt(l.Attempts, 10)),
		}
		if m, err := l.Message(); err == nil {
			e.Step, e.TraceId, e.Attributes["type"] = m.StepName, TraceID(m.TraceParent), m.Type
		}
		if l.SettledAt != nil {
			e.Attributes["settled_at"] = stamp(*l.SettledAt)
		}
		t.add(e)
		for n, a := range actions {
			t.add(&trailv1.Entry{
				EntryId: fmt.Sprintf("%s/%d", id, n+1), At: timestamppb.New(a.CreatedAt), Kind: trailv1.EntryKind_ENTRY_KIND_OPERATOR,
				Title: "dead letter: " + a.Action, Actor: a.Actor, Reason: a.Reason, Outcome: a.Outcome, Detail: a.Detail, MessageId: l.MessageID.String(),
				CausedBy: id, Attributes: map[string]string{"action": a.Action},
			})
		}
	}
	return nil
}

const selectReveals = `SELECT reveal_no, actor, reason, created_at FROM trail_reveal WHERE order_id = $1 ORDER BY reveal_no LIMIT $2`

func (t *telling) reveals(ctx context.Context) error {
	rows, err := t.cfg.Pool.Query(ctx, selectReveals, t.order, maxOfKind)
	if err != nil {
		return err
	}
	var (
		no            int64
		actor, reason string
		at            time.Time
	)
	_, err = pgx.ForEachRow(rows, []any{&no, &actor, &reason, &at}, func() error {
		t.add(&trailv1.Entry{
			EntryId: fmt.Sprintf("reveal/%s/%d", t.cfg.Service, no), At: timestamppb.New(at), Kind: trailv1.EntryKind_ENTRY_KIND_OPERATOR,
			Title: "personal data shown", Actor: actor, Reason: reason, Attributes: map[string]string{"action": "reveal"},
		})
		return nil
	})
	return err
}

// receiptEntries tells of an inbox row.
func (s *server) receiptEntries(r *inbox.Receipt) []*trailv1.Entry {
	id := receivedID(r.Consumer, r.MessageID)
	var entries []*trailv1.Entry
	if r.Consumer == s.cfg.Webhooks {
		id = "" // the notice itself is on record with its step
	} else {
		entries = append(entries, &trailv1.Entry{
			EntryId: id, At: timestamppb.New(r.ReceivedAt), Instance: r.Instance, Kind: trailv1.EntryKind_ENTRY_KIND_RECEIVED,
			Title: "received by " + r.Consumer, MessageId: r.MessageID.String(), CausedBy: sentID(r.MessageID),
			Attributes: map[string]string{"consumer": r.Consumer},
		})
	}
	if r.Repeats > 0 && r.RepeatedAt != nil {
		entries = append(entries, &trailv1.Entry{
			EntryId: "duplicate/" + r.Consumer + "/" + r.MessageID.String(), At: timestamppb.New(*r.RepeatedAt),
			Kind: trailv1.EntryKind_ENTRY_KIND_DUPLICATE, Title: fmt.Sprintf("came again %d times, without effect", r.Repeats),
			MessageId: r.MessageID.String(), CausedBy: id,
			Attributes: attributes("consumer", r.Consumer, "count", strconv.FormatInt(r.Repeats, 10)),
		})
	}
	return entries
}

func sentID(message uuid.UUID) string { return "message/" + message.String() }

func receivedID(consumer string, message uuid.UUID) string {
	return "received/" + consumer + "/" + message.String()
}

func kindWord(k messaging.Kind) string {
	switch k {
	case messaging.Command:
		return "command"
	case messaging.Reply:
		return "reply"
	default:
		return "event"
	}
}

// attributes makes a map of pairs, without those that are empty.
func attributes(pairs ...string) map[string]string {
	m := make(map[string]string, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			m[pairs[i]] = pairs[i+1]
		}
	}
	return m
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z") }

// TraceID gives the trace id of a traceparent, or nothing.
func TraceID(traceparent string) string {
	parts := strings.Split(traceparent, "-")
	if len(parts) < 4 {
		return ""
	}
	return parts[1]
}
