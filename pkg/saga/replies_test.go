package saga_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/throughline/throughline/pkg/inbox"
	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/pkg/postgres/pgtest"
	"github.com/throughline/throughline/pkg/saga"
	"github.com/throughline/throughline/pkg/telemetry"
)

const traceParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func TestBirth(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.newID()
	ctx := telemetry.Extract(t.Context(), telemetry.Carrier{TraceParent: traceParent})
	if err := f.queueBirths([]*saga.Birth{f.birth(ctx, definition(slow), id)}); err != nil {
		t.Fatalf("beginning: %v", err)
	}

	f.wantSubjects(id, "evt.sale.running", "cmd.payment.authorize")
	event, command := f.outbox(id)[0], f.outbox(id)[1]
	if event.Seq != 1 || event.Key != "key of "+id.String() || event.TraceParent != traceParent || event.Left {
		t.Errorf("event: got %+v, want number 1 with the saga's key and trace, ready for hand-off", event)
	}
	payload, err := proto.Marshal(wrapperspb.String("authorize of " + id.String()))
	if err != nil {
		t.Fatalf("encoding: %v", err)
	}
	want := written{
		ID: command.ID, Subject: "cmd.payment.authorize", Type: "google.protobuf.StringValue", Source: "/sale",
		Key: "key of " + id.String(), Step: "authorize", StepKey: keys.StepKey(id, "authorize"),
		TraceParent: traceParent, Payload: payload,
	}
	if got := fmt.Sprintf("%+v", command); got != fmt.Sprintf("%+v", want) {
		t.Errorf("command:\n got %s\nwant %+v", got, want)
	}
	f.wantTimers(id, 1)
	in := f.get(id)
	if in.Status != saga.Running || in.Revision != 1 || in.IdempotencyKey != "key of "+id.String() ||
		in.Definition != "place-order" || in.Version != 1 || !slices.Equal(in.Hash, definition(slow).Hash()) {
		t.Errorf("saga: got %+v, want it running at revision 1 with its key and plan", in)
	}
	f.wantNumber("the timer is that of the step", 1,
		`SELECT count(*) FROM saga_timer WHERE saga_id = $1 AND due_at = $2`, id, in.Steps[0].Due)

	// The saga goes on in its own trace when what happens has none.
	f.apply(reply(id, "authorize", saga.OutcomeDone, uuid.Nil))
	if got := f.lastWritten(id); got.Step != "ship" || got.TraceParent != traceParent {
		t.Errorf("next command: got %+v, want ship in trace %s", got, traceParent)
	}
	const other = "00-11111111111111111111111111111111-2222222222222222-01"
	d := reply(id, "ship", saga.OutcomeDone, uuid.Nil)
	d.TraceParent = other
	f.apply(d)
	if got := f.lastWritten(id); got.Step != "capture" || got.TraceParent != other {
		t.Errorf("next command: got %+v, want capture in the reply's trace %s", got, other)
	}
}

func TestBirthOfAnIDThatExists(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	old := f.begin(1)[0]
	before := f.subjects(old)
	other := f.newID()
	err := f.queueBirths([]*saga.Birth{f.birth(t.Context(), definition(slow), other), f.birth(t.Context(), definition(slow), old)})
	if !postgres.IsUniqueViolation(err, "saga_instance_pkey") {
		t.Fatalf("beginning again: got %v, want a violation of saga_instance_pkey", err)
	}
	if _, err := f.engine.Get(t.Context(), other); !errors.Is(err, saga.ErrNotFound) {
		t.Errorf("the other saga of the batch: got %v, want %v", err, saga.ErrNotFound)
	}
	f.wantSubjects(old, before...)
	f.wantSubjects(other)
	f.wantTimers(other, 0)
}

func TestHistory(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.begin(1)[0]
	authorized, refused, voided := reply(id, "authorize", saga.OutcomeDone, uuid.Nil), reply(id, "ship", saga.OutcomeRefused, uuid.Nil), reply(id, "void", saga.OutcomeDone, uuid.Nil)
	f.apply(authorized)
	f.apply(refused)
	f.apply(voided)
	rows, err := f.pool.Query(t.Context(), `
		SELECT t.revision, t.position, t.step, t.from_state, t.to_state, t.cause, coalesce(t.cause_id::text, ''), t.attempt
		  FROM saga_transition t JOIN saga_instance s USING (saga_no) WHERE saga_id = $1 ORDER BY t.revision, t.position`, id)
	if err != nil {
		t.Fatalf("reading history: %v", err)
	}
	got, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
		v, err := row.Values()
		return strings.TrimSuffix(fmt.Sprintln(v...), "\n"), err
	})
	if err != nil {
		t.Fatalf("reading history: %v", err)
	}
	want := []string{
		"1 0   running started  0",
		"1 1 authorize  sent started  1",
		"2 0 authorize sent done reply " + authorized.ID.String() + " 0",
		"2 1 ship  sent reply " + authorized.ID.String() + " 1",
		"3 0 ship sent refused reply " + refused.ID.String() + " 0",
		"3 1  running compensating reply " + refused.ID.String() + " 0",
		"3 2 void done undoing reply " + refused.ID.String() + " 1",
		"4 0 void undoing undone reply " + voided.ID.String() + " 0",
		"4 1  compensating compensated reply " + voided.ID.String() + " 0",
	}
	if !slices.Equal(got, want) {
		t.Errorf("history:\n got %s\nwant %s", strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
	in := f.get(id)
	if in.Revision != 4 || in.Reason != "because" || in.Steps[1].Reason != "because" || in.Seen["payment"] != voided.ID || in.Seen["shipping"] != refused.ID {
		t.Errorf("saga: got %+v, want revision 4, the reason, and the last replies seen", in)
	}
}

func TestBatchOfReplies(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ids := f.begin(20)
	var batch []messaging.Delivery
	for _, id := range ids { // folded: the whole saga in one batch, one row changed
		for _, step := range []string{"authorize", "ship", "capture", "dispatch", "thank"} {
			d := reply(id, step, saga.OutcomeDone, uuid.Nil)
			batch = append(batch, d, d) // each twice
		}
	}
	f.apply(batch...)
	for _, id := range ids {
		f.wantStatus(id, saga.Completed)
		f.wantSubjects(id, "evt.sale.running", "cmd.payment.authorize", "cmd.shipping.ship", "cmd.payment.capture",
			"cmd.shipping.dispatch", "cmd.mail.thank", "evt.sale.completed")
		if in := f.get(id); in.Revision != 2 {
			t.Errorf("revision of saga %s: got %d, want 2", id, in.Revision)
		}
	}
	f.wantNumber("inbox rows", 100, `SELECT count(*) FROM inbox WHERE consumer = $1`, consumer)
	f.wantNumber("projected changes", 20, `SELECT sum(changes) FROM sale`)

	f.apply(batch...) // all of it again
	f.apply(append([]messaging.Delivery{reply(ids[0], "thank", saga.OutcomeDone, uuid.Nil)}, batch[:10]...)...)
	for _, id := range ids {
		f.wantStatus(id, saga.Completed)
	}
	f.wantNumber("messages", 20*7, `SELECT count(*) FROM outbox`)
	f.wantNumber("inbox rows", 101, `SELECT count(*) FROM inbox WHERE consumer = $1`, consumer)
}

func TestRepliesThatCannotBeHandled(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.begin(1)[0]
	good := reply(id, "authorize", saga.OutcomeDone, uuid.Nil)
	foreign := reply(id, "authorize", saga.OutcomeDone, uuid.Nil)
	foreign.StepKey = keys.StepKey(id, "void")
	tests := map[string]messaging.Delivery{
		"foreign step key": foreign,
		"unknown saga":     reply(f.newID(), "authorize", saga.OutcomeDone, uuid.Nil),
		"unknown step":     reply(id, "nonsense", saga.OutcomeDone, uuid.Nil),
		"no step":          reply(id, "", saga.OutcomeDone, uuid.Nil),
		"unknown outcome":  reply(id, "authorize", "perhaps", uuid.Nil),
		"no outcome":       reply(id, "authorize", "", uuid.Nil),
	}
	for name, bad := range tests {
		if err := f.engine.ApplyReplies(t.Context(), []messaging.Delivery{good, bad}); !errors.Is(err, inbox.ErrPermanent) {
			t.Errorf("%s: got %v, want %v", name, err, inbox.ErrPermanent)
		}
	}
	f.wantNumber("inbox rows", 0, `SELECT count(*) FROM inbox`)
	if in := f.get(id); in.Revision != 1 {
		t.Errorf("revision: got %d, want 1", in.Revision)
	}
}

func TestUnknownDefinitionIsLeftAlone(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.begin(1)[0]
	tests := map[string]*saga.Definition[order]{
		"another version": saga.MustDefine("place-order", 2, saga.Pivot("authorize", command("payment", "authorize"))),
		"another plan under the same version": saga.MustDefine("place-order", 1,
			saga.Compensatable("authorize", command("payment", "authorize"), command("payment", "void"))),
	}
	for name, d := range tests {
		e := f.newEngine(f.pool, rows{}, d)
		err := e.ApplyReplies(t.Context(), []messaging.Delivery{reply(id, "authorize", saga.OutcomeDone, uuid.Nil)})
		if !errors.Is(err, saga.ErrUnknownDefinition) || errors.Is(err, inbox.ErrPermanent) {
			t.Errorf("%s, a reply: got %v, want %v, not for ever", name, err, saga.ErrUnknownDefinition)
		}
		if _, err := e.Cancel(t.Context(), id, nil); !errors.Is(err, saga.ErrUnknownDefinition) {
			t.Errorf("%s, a cancel: got %v, want %v", name, err, saga.ErrUnknownDefinition)
		}
	}
	if in := f.get(id); in.Revision != 1 {
		t.Errorf("revision: got %d, want 1", in.Revision)
	}
}

// TestProof shows which messages may be handed off from memory: those that answer to the last message that was written.
func TestProof(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ids := f.begin(3)

	proven, stale, both := ids[0], ids[1], ids[2]
	r := reply(proven, "authorize", saga.OutcomeDone, f.lastWritten(proven).ID)
	f.apply(r)
	if got := f.lastWritten(proven); got.Left || got.Step != "ship" || got.LastSeen != uuid.Nil {
		t.Errorf("after the reply to the last command: got %+v, want ship, proven, without a proof for shipping", got)
	}
	f.apply(reply(proven, "ship", saga.OutcomeDone, f.lastWritten(proven).ID))
	if got := f.lastWritten(proven); got.Left || got.Step != "capture" || got.LastSeen != r.ID {
		t.Errorf("after the next: got %+v, want capture, proven, with last seen %s", got, r.ID)
	}

	f.apply(reply(stale, "authorize", saga.OutcomeDone, f.outbox(stale)[0].ID))
	if got := f.lastWritten(stale); !got.Left || got.Step != "ship" {
		t.Errorf("after a reply to something else: got %+v, want ship, left to the sweep", got)
	}
	f.apply(reply(stale, "ship", saga.OutcomeDone, uuid.Nil))
	if got := f.lastWritten(stale); !got.Left || got.Step != "capture" {
		t.Errorf("after a reply without a proof: got %+v, want capture, left to the sweep", got)
	}

	last := f.lastWritten(both).ID
	f.apply(reply(both, "void", saga.OutcomeDone, uuid.Nil), reply(both, "authorize", saga.OutcomeDone, last))
	if got := f.lastWritten(both); got.Left || got.Step != "ship" {
		t.Errorf("after two replies of which one proves: got %+v, want ship, proven", got)
	}
	if _, err := f.engine.Cancel(t.Context(), both, nil); err != nil {
		t.Fatalf("cancelling: %v", err)
	}
	if got := f.lastWritten(both); !got.Left || got.Step != "unship" {
		t.Errorf("after a cancel: got %+v, want unship, left to the sweep", got)
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ids := f.begin(3)
	early, late, refused := ids[0], ids[1], ids[2]
	extra := func(b *pgx.Batch, after saga.Instance) error {
		b.Queue(`INSERT INTO sale (id, status, changes) VALUES ($1, $2, 0)`, uuid.NewSHA1(after.ID, nil), string(after.Status))
		return nil
	}
	in, err := f.engine.Cancel(t.Context(), early, extra)
	if err != nil || in.Status != saga.Compensating || !in.Cancelled() {
		t.Errorf("cancelling: got %+v, %v, want it compensating, cancelled", in, err)
	}
	f.wantStatus(early, saga.Compensating)
	f.wantSubjects(early, "evt.sale.running", "cmd.payment.authorize", "evt.sale.compensating", "cmd.payment.void")
	f.wantNumber("rows of the caller", 1, `SELECT count(*) FROM sale WHERE id = $1 AND status = 'compensating'`, uuid.NewSHA1(early, nil))

	// A failure of the caller's own statement undoes the cancel, and comes back as it is.
	messages := f.subjects(early)
	if _, err := f.engine.Cancel(t.Context(), early, extra); !postgres.IsUniqueViolation(err, "sale_pkey") {
		t.Errorf("cancelling with a statement that fails: got %v, want a violation of sale_pkey", err)
	}
	if in, err := f.engine.Cancel(t.Context(), early, nil); err != nil || in.Status != saga.Compensating {
		t.Errorf("cancelling again: got %+v, %v, want it compensating", in, err)
	}
	f.wantSubjects(early, messages...)

	f.upTo(late, "capture")
	in, err = f.engine.Cancel(t.Context(), late, extra)
	if !errors.Is(err, saga.ErrTooLate) || in.Status != saga.Running {
		t.Errorf("cancelling too late: got %+v, %v, want it running, %v", in, err, saga.ErrTooLate)
	}
	f.wantNumber("rows of the caller", 0, `SELECT count(*) FROM sale WHERE id = $1`, uuid.NewSHA1(late, nil))

	boom := errors.New("boom")
	if _, err := f.engine.Cancel(t.Context(), refused, func(*pgx.Batch, saga.Instance) error { return boom }); !errors.Is(err, boom) {
		t.Errorf("cancelling: got %v, want %v", err, boom)
	}
	if got := f.get(refused); got.Status != saga.Running {
		t.Errorf("status after a cancel that failed: got %s, want running", got.Status)
	}
	if _, err := f.engine.Cancel(t.Context(), f.newID(), nil); !errors.Is(err, saga.ErrNotFound) {
		t.Errorf("cancelling nothing: got %v, want %v", err, saga.ErrNotFound)
	}
}

// TestTwoInstancesWithTheSameReplies lets two engines apply the same batches at once.
func TestTwoInstancesWithTheSameReplies(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	engines := []*saga.Engine[order]{f.engine, f.newEngine(pgtest.Open(t, f.url), rows{}, definition(slow))}
	ids := f.begin(10)
	for _, step := range []string{"authorize", "ship", "capture", "dispatch", "thank"} {
		var batch []messaging.Delivery
		for _, id := range ids {
			batch = append(batch, reply(id, step, saga.OutcomeDone, uuid.Nil))
		}
		gate := make(chan struct{})
		var group sync.WaitGroup
		errs := make([]error, 2)
		for i, e := range engines {
			mine := slices.Clone(batch)
			if i == 1 {
				slices.Reverse(mine)
			}
			group.Go(func() {
				<-gate
				errs[i] = apply(t.Context(), e, mine...)
			})
		}
		close(gate)
		group.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatalf("applying replies to %s twice at once: %v", step, err)
		}
	}
	for _, id := range ids {
		f.wantStatus(id, saga.Completed)
		if in := f.get(id); in.Revision != 6 {
			t.Errorf("revision of saga %s: got %d, want 6: one for each reply", id, in.Revision)
		}
	}
	f.wantNumber("messages", 10*7, `SELECT count(*) FROM outbox`)
	f.wantNumber("projected changes", 10*5, `SELECT sum(changes) FROM sale`)
}

// TestTwoInstancesWithDifferentReplies lets two engines change the same sagas at once with different messages, which the
// inbox does not keep apart.
func TestTwoInstancesWithDifferentReplies(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	engines := []*saga.Engine[order]{f.engine, f.newEngine(pgtest.Open(t, f.url), rows{}, definition(slow))}
	for round := range 50 {
		id := f.begin(1)[0]
		gate := make(chan struct{})
		var group sync.WaitGroup
		errs := make([]error, 2)
		for i, e := range engines {
			group.Go(func() {
				<-gate
				errs[i] = apply(t.Context(), e, reply(id, "authorize", saga.OutcomeDone, uuid.Nil))
			})
		}
		close(gate)
		group.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		f.wantSubjects(id, "evt.sale.running", "cmd.payment.authorize", "cmd.shipping.ship")
		if in := f.get(id); in.Revision != 3 {
			t.Errorf("round %d: revision: got %d, want 3", round, in.Revision)
		}
	}
}

// TestCancelRacesReply lets a client cancel while the reply arrives after which it is too late.
func TestCancelRacesReply(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	other := f.newEngine(pgtest.Open(t, f.url), rows{}, definition(slow))
	ids := f.begin(100)
	cancelled := 0
	for round, id := range ids {
		outcome := saga.OutcomeDone
		if round%4 == 3 {
			outcome = saga.OutcomeRefused
		}
		f.upTo(id, "ship")
		gate := make(chan struct{})
		var (
			group          sync.WaitGroup
			after          saga.Instance
			cancel, replyE error
		)
		group.Go(func() {
			<-gate
			after, cancel = other.Cancel(t.Context(), id, nil)
		})
		group.Go(func() {
			<-gate
			replyE = apply(t.Context(), f.engine, reply(id, "ship", outcome, uuid.Nil))
		})
		close(gate)
		group.Wait()
		if replyE != nil {
			t.Fatalf("round %d: applying the reply: %v", round, replyE)
		}
		subjects := f.subjects(id)
		captured := slices.Contains(subjects, "cmd.payment.capture")
		undone := slices.Contains(subjects, "cmd.shipping.unship") || slices.Contains(subjects, "cmd.payment.void")
		switch {
		case cancel == nil:
			cancelled++
			if captured || !undone || after.Status != saga.Compensating {
				t.Errorf("round %d: cancelled, but the messages are %v and the state is %+v", round, subjects, after)
			}
		case errors.Is(cancel, saga.ErrTooLate) && outcome == saga.OutcomeDone:
			if !captured || undone {
				t.Errorf("round %d: too late to cancel, but the messages are %v", round, subjects)
			}
		default:
			t.Errorf("round %d: cancelling: got %v", round, cancel)
		}
		// Play it to its end.
		f.apply(reply(id, "unship", saga.OutcomeDone, uuid.Nil))
		f.apply(reply(id, "void", saga.OutcomeDone, uuid.Nil))
		want := saga.Compensated
		if cancel != nil {
			want = saga.Completed
			for _, step := range []string{"capture", "dispatch", "thank"} {
				f.apply(reply(id, step, saga.OutcomeDone, uuid.Nil))
			}
		}
		f.wantStatus(id, want)
	}
	f.wantNumber("sequences with a gap or a repeat", 0, `
		SELECT count(*) FROM (SELECT aggregate_id FROM outbox WHERE aggregate_seq > 0 GROUP BY aggregate_id
		HAVING count(DISTINCT aggregate_seq) <> max(aggregate_seq) OR count(*) <> max(aggregate_seq)) AS wrong`)
	t.Logf("the cancel came first in %d of %d rounds", cancelled, len(ids))
}
