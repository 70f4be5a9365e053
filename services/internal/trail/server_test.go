package trail

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/throughline/throughline/pkg/inbox"
	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/outbox"
	"github.com/throughline/throughline/pkg/participant"
	"github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/pkg/postgres/pgtest"
	trailv1 "github.com/throughline/throughline/proto/gen/throughline/trail/v1"
	"github.com/throughline/throughline/services/internal/grpcx"
)

// own tells one entry, and whether personal data was asked for.
type own struct{}

func (own) Find(_ context.Context, id, client string) ([]*trailv1.Match, error) {
	if id != "pi_1" {
		return nil, nil
	}
	return []*trailv1.Match{{OrderId: order, Kind: trailv1.IdKind_ID_KIND_PROVIDER_ID, ClientId: client}}, nil
}

func (own) Tell(_ context.Context, _ uuid.UUID, reveal bool) ([]*trailv1.Entry, []string, error) {
	e := &trailv1.Entry{EntryId: "record/payment", Kind: trailv1.EntryKind_ENTRY_KIND_RECORD, Detail: "masked"}
	if reveal {
		e.Detail = "revealed"
	}
	return []*trailv1.Entry{e}, []string{"what it leaves out"}, nil
}

const consumer = "payment-commands"

type bench struct {
	*testing.T
	pool *pgxpool.Pool
	api  *server
}

func newBench(t *testing.T) *bench {
	t.Helper()
	pool := pgtest.New(t, outbox.Migrations(), inbox.Migrations(), participant.Migrations(), Migrations())
	log := slog.New(slog.DiscardHandler)
	return &bench{T: t, pool: pool, api: &server{cfg: Config{
		Service: "payment", Pool: pool, Letters: inbox.NewDeadLetters(pool, time.Hour, "payment/0", log), Consumers: []string{consumer, "hooks"},
		Retention: time.Hour, Participant: true, Peer: "payment_provider", Webhooks: "hooks", Operations: []string{"create"},
		Undos: []string{"void_payment"}, Own: own{}, Logger: log,
	}}}
}

func (b *bench) exec(sql string, args ...any) {
	b.Helper()
	if _, err := b.pool.Exec(b.Context(), sql, args...); err != nil {
		b.Fatalf("%s: %v", sql, err)
	}
}

// write commits an event and a reply about an order, and marks as dealt with.
func (b *bench) write(id uuid.UUID, marks ...uuid.UUID) outbox.Chain {
	b.Helper()
	row := outbox.Aggregate{ID: id}
	chain := row.Begin(uuid.Nil)
	row.Append(&chain, messaging.Message{Kind: messaging.Event, Subject: "evt.payment.authorized", Type: "t.Authorized", Source: "/payment",
		TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"})
	row.Append(&chain, messaging.Message{Kind: messaging.Reply, Subject: "rpl.order.place-order", Type: "t.Authorized", Source: "/payment",
		StepName: "authorize_payment", StepKey: keys.StepKey(id, "authorize_payment"), Outcome: "done", LastSeen: marks[0]})
	var batch pgx.Batch
	inbox.QueueMarks(&batch, consumer, marks)
	if err := outbox.Queue(&batch, []outbox.Chain{chain}); err != nil {
		b.Fatal(err)
	}
	if err := postgres.SendAtomic(b.Context(), b.pool, &batch); err != nil {
		b.Fatal(err)
	}
	return chain
}

func (b *bench) list(req *trailv1.ListEntriesRequest) (*trailv1.ListEntriesResponse, map[string]*trailv1.Entry) {
	b.Helper()
	resp, err := b.api.ListEntries(b.Context(), req)
	if err != nil {
		b.Fatal(err)
	}
	by := make(map[string]*trailv1.Entry)
	for _, e := range resp.GetEntries() {
		by[e.GetEntryId()] = e
		if e.GetService() != "payment" || e.GetOrderId() != req.GetOrderId() {
			b.Errorf("entry %s: got service %q, order %q, want payment, %s", e.GetEntryId(), e.GetService(), e.GetOrderId(), req.GetOrderId())
		}
	}
	return resp, by
}

// What was sent, received, repeated, given up and decided is told, each with what led to it.
func TestServer(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id, command := uuid.MustParse(order), keys.NewMessageID()
	chain := b.write(id, command)
	event, reply := chain.Messages[0], chain.Messages[1]
	b.exec(`INSERT INTO outbox_sent (message_id, stream, stream_sequence, sent_at) VALUES ($1, 'EVT', 7, now())`, event.ID)
	b.exec(`DELETE FROM outbox WHERE message_id = $1`, event.ID)
	b.exec(`INSERT INTO outbox_republish (message_id, actor, reason) VALUES ($1, 'kim', 'lost')`, event.ID)
	b.exec(`INSERT INTO step (order_id, step_name, kind, state, command_id, attempts, created_at) VALUES ($1, 'authorize_payment', 'action', 'done', $2, 1, now() - interval '2 hours')`, id, command)
	b.exec(`INSERT INTO dead_letter (consumer, message_id, aggregate_id, aggregate_seq, subject, headers, payload, error, attempts, stream_sequence, stored_at)
	        VALUES ($1, $2, $3, 0, 'cmd.payment.x', '{}', '', 'cannot be read', 8, 3, now())`, consumer, keys.NewMessageID(), id)

	resp, by := b.list(&trailv1.ListEntriesRequest{OrderId: order})
	sent := by["message/"+event.ID.String()]
	if sent.GetStream() != "EVT" || sent.GetStreamSequence() != 7 || sent.GetOutcome() != "acknowledged" || sent.GetTraceId() != "0af7651916cd43dd8448eb211c80319c" ||
		sent.GetAttributes()["sequence"] != "1" || sent.GetCausedBy() != "received/"+consumer+"/"+command.String() {
		t.Errorf("event: got %v, want it acknowledged in EVT at 7, event 1, caused by the command beside whose reply it is", sent)
	}
	if r := by["message/"+reply.ID.String()]; r.GetOutcome() != "pending" || r.GetStep() != "authorize_payment" || r.GetAttributes()["step_outcome"] != "done" {
		t.Errorf("reply: got %v, want it pending, about authorize_payment, done", r)
	}
	if e := by["republish/payment/1"]; e.GetActor() != "kim" || e.GetCausedBy() != sent.GetEntryId() {
		t.Errorf("republish: got %v, want kim's, of the event", e)
	}
	if e := by["dead-letter/payment/1"]; e.GetOutcome() != "dead" || e.GetDetail() != "cannot be read" {
		t.Errorf("dead letter: got %v, want it dead, with its error", e)
	}
	if by["step/authorize_payment"].GetCausedBy() != "received/"+consumer+"/"+command.String() || by["record/payment"].GetDetail() != "masked" {
		t.Errorf("step and record: got %v, %v, want the command as the cause, and no personal data", by["step/authorize_payment"], by["record/payment"])
	}
	if left := strings.Join(resp.GetLeftOut(), "; "); !strings.Contains(left, "what it leaves out") || !strings.Contains(left, "messages sent before") {
		t.Errorf("left out: got %q, want the service's own, and messages that were dropped", left)
	}

	var read pgx.Batch
	inbox.QueueRepeats(&read, consumer, []uuid.UUID{command}, map[uuid.UUID]bool{})
	if err := b.pool.SendBatch(t.Context(), &read).Close(); err != nil {
		t.Fatal(err)
	}
	receipts, err := b.api.ListReceipts(t.Context(), &trailv1.ListReceiptsRequest{OrderId: order, MessageIds: []string{command.String(), event.ID.String()}})
	if err != nil {
		t.Fatal(err)
	}
	if got := receipts.GetEntries(); len(got) != 2 || got[0].GetInstance() != t.Name() || got[0].GetCausedBy() != "message/"+command.String() ||
		got[1].GetKind() != trailv1.EntryKind_ENTRY_KIND_DUPLICATE || got[1].GetAttributes()["count"] != "1" || got[1].GetCausedBy() != got[0].GetEntryId() {
		t.Errorf("receipts: got %v, want the command's, and its duplicate", got)
	}
}

// Personal data is told only with a name and a reason, which are on record before.
func TestReveal(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, req := range []*trailv1.ListEntriesRequest{{OrderId: order, Reveal: true, Actor: "kim"}, {OrderId: order, Reveal: true, Reason: "why"}} {
		if _, err := b.api.ListEntries(t.Context(), req); grpcx.ReasonOf(err) != grpcx.RequestInvalid {
			t.Errorf("%v: got %v, want REQUEST_INVALID", req, err)
		}
	}
	if _, by := b.list(&trailv1.ListEntriesRequest{OrderId: order, Actor: "kim", Reason: "curious"}); len(by) != 1 {
		t.Errorf("without asking: got %v, want nothing on record", by)
	}
	_, by := b.list(&trailv1.ListEntriesRequest{OrderId: order, Reveal: true, Actor: "kim", Reason: "a complaint"})
	if e := by["reveal/payment/1"]; by["record/payment"].GetDetail() != "revealed" || e.GetActor() != "kim" || e.GetReason() != "a complaint" {
		t.Errorf("asked for: got %v, want it, and that kim was shown it", by)
	}
}

// Every kind of id leads to its order.
func TestFindOrders(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id, command := uuid.MustParse(order), keys.NewMessageID()
	chain := b.write(id, command)
	b.exec(`INSERT INTO step (order_id, step_name, kind, state) SELECT gen_random_uuid(), 'authorize_payment', 'action', 'done' FROM generate_series(1, 20000)`)
	b.exec(`INSERT INTO step (order_id, step_name, kind, state, command_id) VALUES ($1, 'authorize_payment', 'action', 'done', $2)`, id, command)
	step := keys.StepKey(id, "authorize_payment")
	for text, want := range map[string]trailv1.IdKind{
		order: trailv1.IdKind_ID_KIND_ORDER_ID, " " + order + "\n": trailv1.IdKind_ID_KIND_ORDER_ID, "pi_1": trailv1.IdKind_ID_KIND_PROVIDER_ID,
		chain.Messages[0].ID.String(): trailv1.IdKind_ID_KIND_MESSAGE_ID, step.String(): trailv1.IdKind_ID_KIND_STEP_KEY,
		keys.ProviderKey(step, "create").String(): trailv1.IdKind_ID_KIND_PROVIDER_KEY,
	} {
		resp, err := b.api.FindOrders(t.Context(), &trailv1.FindOrdersRequest{Id: text})
		if m := resp.GetMatches(); err != nil || len(m) != 1 || m[0].GetOrderId() != order || m[0].GetKind() != want {
			t.Errorf("%q: got %v, %v, want %s by %s", text, m, err, order, want)
		}
	}
	for _, text := range []string{"pi_2", keys.NewMessageID().String(), keys.ProviderKey(step, "capture").String()} {
		if resp, err := b.api.FindOrders(t.Context(), &trailv1.FindOrdersRequest{Id: text}); err != nil || len(resp.GetMatches()) > 0 {
			t.Errorf("%q: got %v, %v, want nothing", text, resp.GetMatches(), err)
		}
	}
	if _, err := b.api.FindOrders(t.Context(), &trailv1.FindOrdersRequest{Id: " "}); grpcx.ReasonOf(err) != grpcx.RequestInvalid {
		t.Errorf("no id: got %v, want REQUEST_INVALID", err)
	}
}

// Who follows misses nothing, however many messages there are, and sees what was committed late.
func TestListActivity(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var want []string
	for range 5 {
		for _, m := range b.write(uuid.New(), keys.NewMessageID()).Messages {
			want = append(want, "message/"+m.ID.String())
		}
	}
	seen := make(map[string]bool)
	var got []string
	cursor := ""
	next := func() (n int) {
		resp, err := b.api.ListActivity(t.Context(), &trailv1.ListActivityRequest{Cursor: cursor, PageSize: 3})
		if err != nil {
			t.Fatal(err)
		}
		cursor = resp.GetNextCursor()
		for _, e := range resp.GetEntries() {
			if !seen[e.GetEntryId()] {
				seen[e.GetEntryId()] = true
				got = append(got, e.GetEntryId())
			}
		}
		return len(resp.GetEntries())
	}
	for next() == 3 {
	}
	if !slices.Equal(got, want) {
		t.Errorf("followed: got %v, want %v", got, want)
	}
	// One whose id was minted before those that were seen.
	late := b.write(uuid.New(), keys.NewMessageID()).Messages[0].ID
	b.exec(`UPDATE outbox_message SET message_id = $2 WHERE message_id = $1`, late, firstMessageAt(keys.MessageTime(late).Add(-3*time.Second)))
	for next() == 3 {
	}
	if n := len(got) - len(want); n != 2 {
		t.Errorf("after a late commit: got %d new messages, want 2", n)
	}
	if _, err := b.api.ListActivity(t.Context(), &trailv1.ListActivityRequest{Cursor: "x"}); grpcx.ReasonOf(err) != grpcx.RequestInvalid {
		t.Errorf("a cursor of nobody: got %v, want REQUEST_INVALID", err)
	}
}
