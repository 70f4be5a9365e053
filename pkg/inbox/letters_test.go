package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/throughline/throughline/pkg/inbox"
	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/postgres/pgtest"
)

var someone = inbox.Order{Actor: "someone", Reason: "a test"}

// desk is a consumer that cannot deal with some messages until they are mended.
type desk struct {
	*inbox.DeadLetters
	pool *pgxpool.Pool
	p    *inbox.Processor
	bad  atomic.Pointer[map[uuid.UUID]bool]
}

func newDesk(t *testing.T, ttl time.Duration, options func(*inbox.Processor), bad ...messaging.Message) *desk {
	t.Helper()
	d := &desk{pool: pgtest.Open(t, newURL(t))}
	ids := make(map[uuid.UUID]bool)
	for _, m := range bad {
		ids[m.ID] = true
	}
	d.bad.Store(&ids)
	d.p = &inbox.Processor{Pool: d.pool, Consumer: consumerName, Apply: apply(d.pool, func(m messaging.Delivery) error {
		if (*d.bad.Load())[m.ID] {
			return fmt.Errorf("%w: broken", inbox.ErrPermanent)
		}
		return nil
	})}
	if options != nil {
		options(d.p)
	}
	d.DeadLetters = inbox.NewDeadLetters(d.pool, ttl, "test", nil, d.p)
	return d
}

func (d *desk) mend() { d.bad.Store(&map[uuid.UUID]bool{}) }

func (d *desk) open(t *testing.T) []inbox.Letter {
	t.Helper()
	letters, err := d.List(t.Context(), inbox.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	return letters
}

func (d *desk) only(t *testing.T) inbox.Letter {
	t.Helper()
	letters := d.open(t)
	if len(letters) != 1 {
		t.Fatalf("got %d open dead letters, want 1", len(letters))
	}
	return letters[0]
}

func (d *desk) effects(t *testing.T) int {
	t.Helper()
	return count(t, d.pool, `SELECT count(*) FROM effect`)
}

func (d *desk) want(t *testing.T, what string, r inbox.Report, err error, want inbox.Outcome, effects int) {
	t.Helper()
	if err != nil || r.Outcome != want || d.effects(t) != effects {
		t.Errorf("%s: got %q (%s), %v and %d effects, want %q and %d", what, r.Outcome, r.Detail, err, d.effects(t), want, effects)
	}
}

// TestReplay goes through the life of a dead letter: a dry run, a replay that fails, one that does not, and another.
func TestReplay(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	m := command()
	d := newDesk(t, time.Hour, nil, m)
	d.p.Handle(ctx, deliveries(m))
	letter := d.only(t)
	if got, err := letter.Message(); err != nil || got.ID != m.ID || string(got.Payload) != string(m.Payload) || letter.State != inbox.StateDead {
		t.Errorf("got %+v, %v in state %s, want the message as it was, dead", got, err, letter.State)
	}

	r, err := d.Replay(ctx, letter.ID, inbox.Order{DryRun: true})
	d.want(t, "dry run", r, err, inbox.Would, 0)
	if _, err := d.Replay(ctx, letter.ID, inbox.Order{Actor: "someone"}); !errors.Is(err, inbox.ErrAnonymous) {
		t.Errorf("replay without a reason: got %v, want %v", err, inbox.ErrAnonymous)
	}
	r, err = d.Replay(ctx, letter.ID, someone)
	d.want(t, "replay of what is still broken", r, err, inbox.Failed, 0)
	d.mend()
	r, err = d.Replay(ctx, letter.ID, someone)
	d.want(t, "replay of what is mended", r, err, inbox.Done, 1)
	r, err = d.Replay(ctx, letter.ID, someone)
	d.want(t, "replay of what is settled", r, err, inbox.Refused, 1)

	got, actions, err := d.Get(ctx, letter.ID)
	if err != nil || got.State != inbox.StateReplayed || got.Attempts != 2 {
		t.Errorf("got state %s after %d attempts, %v, want replayed after 2", got.State, got.Attempts, err)
	}
	if len(actions) != 2 || actions[0].Outcome != "failed" || actions[1].Outcome != "done" || actions[1].Actor != "someone" || actions[1].Reason != "a test" {
		t.Errorf("got actions %+v, want one that failed and one done, by someone for a test", actions)
	}
	if _, _, err := d.Get(ctx, letter.ID+1); !errors.Is(err, inbox.ErrNoLetter) {
		t.Errorf("another letter: got %v, want %v", err, inbox.ErrNoLetter)
	}
}

// A copy of the message was dealt with meanwhile; or it is to be dealt with by nobody.
func TestReplayOfWhatIsDone(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	done, dropped := command(), command()
	d := newDesk(t, time.Hour, nil, done, dropped)
	d.p.Handle(ctx, deliveries(done, dropped))
	letters := d.open(t)
	d.mend()
	d.p.Handle(ctx, deliveries(done))
	for _, l := range letters {
		if l.MessageID == done.ID {
			r, err := d.Replay(ctx, l.ID, someone)
			d.want(t, "replay beside a copy that was dealt with", r, err, inbox.AlreadyDone, 1)
			continue
		}
		r, err := d.Discard(ctx, l.ID, inbox.Order{DryRun: true})
		d.want(t, "dry run of a discard", r, err, inbox.Would, 1)
		r, err = d.Discard(ctx, l.ID, someone)
		d.want(t, "discard", r, err, inbox.Done, 1)
	}
	if got := d.open(t); len(got) != 0 {
		t.Errorf("got %d open dead letters, want none", len(got))
	}
	// A copy that ends as a dead letter again opens it again.
	d.bad.Store(&map[uuid.UUID]bool{dropped.ID: true})
	d.p.Handle(ctx, deliveries(dropped))
	if got := d.only(t); got.MessageID != dropped.ID || got.State != inbox.StateDead {
		t.Errorf("got %+v, want the message dead again", got)
	}
}

// Beyond the life of inbox rows only a handler with a record of its own can know a repeat.
func TestReplayBeyondTheBudget(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		recorded bool
		want     inbox.Outcome
		effects  int
	}{"inbox rows only": {false, inbox.Refused, 0}, "a record": {true, inbox.Done, 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := command()
			d := newDesk(t, time.Hour, func(p *inbox.Processor) { p.Recorded = tt.recorded }, m)
			d.p.Handle(t.Context(), deliveries(m))
			exec(t, d.pool, `UPDATE dead_letter SET stored_at = now() - interval '2 h'`)
			d.mend()
			r, err := d.Replay(t.Context(), d.only(t).ID, someone)
			d.want(t, "replay of what is older than inbox rows", r, err, tt.want, tt.effects)
		})
	}
}

func events(service string, order uuid.UUID, n int) []messaging.Message {
	list := make([]messaging.Message, n)
	for i := range list {
		id := keys.NewMessageID()
		list[i] = messaging.Message{
			ID: id, Kind: messaging.Event, Subject: "evt." + service + ".happened", Type: "test.v1.Happened", AggregateID: order,
			AggregateSeq: int64(i + 1), CreatedAt: keys.MessageTime(id), Payload: []byte("payload"),
		}
	}
	return list
}

// TestEventsWaitBehindADeadLetter sequences a consumer of events: what follows a dead letter of one order and service waits,
// across batches, and is dealt with in sequence once that is settled. Everything else goes on.
func TestEventsWaitBehindADeadLetter(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"replay", "discard"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			order := uuid.New()
			mine, others, another := events("payment", order, 5), events("shipping", order, 2), events("payment", uuid.New(), 2)
			d := newDesk(t, time.Hour, func(p *inbox.Processor) { p.Sequenced = true }, mine[1])
			d.p.Handle(ctx, deliveries(slices.Concat(mine[:3], others, another)...))
			d.p.Handle(ctx, deliveries(mine[3:]...))
			if got, want := d.effects(t), 1+len(others)+len(another); got != want {
				t.Fatalf("got %d effects with an event dead, want %d: only its followers wait", got, want)
			}
			letters := d.open(t)
			var states []inbox.State
			for _, l := range letters {
				states = append(states, l.State)
			}
			slices.Sort(states)
			if want := []inbox.State{inbox.StateDead, inbox.StateWaiting, inbox.StateWaiting, inbox.StateWaiting}; !slices.Equal(states, want) {
				t.Fatalf("got states %v, want %v", states, want)
			}
			running := make(chan error, 1)
			go func() { running <- d.Run(ctx) }()
			d.mend()
			var head int64
			for _, l := range letters {
				if l.State == inbox.StateDead {
					head = l.ID
					continue
				}
				r, err := d.Replay(ctx, l.ID, someone)
				d.want(t, "replay of what waits", r, err, inbox.Refused, 5)
				r, err = d.Discard(ctx, l.ID, someone)
				d.want(t, "discard of what waits", r, err, inbox.Refused, 5)
			}
			act, effects := d.Replay, 9
			if how == "discard" {
				act, effects = d.Discard, 8
			}
			r, err := act(ctx, head, someone)
			if err != nil || r.Outcome != inbox.Done || r.Followers != 3 {
				t.Fatalf("got %q with %d followers, %v, want it done with 3", r.Outcome, r.Followers, err)
			}
			eventually(t, "the followers are dealt with", func() bool { return d.effects(t) == effects })
			eventually(t, "nothing waits", func() bool { return len(d.open(t)) == 0 })
			rows, err := d.pool.Query(ctx, `SELECT e.message_id FROM effect e JOIN dead_letter l USING (message_id) WHERE l.state = 'followed' ORDER BY e.ctid`)
			if err != nil {
				t.Fatal(err)
			}
			var got []uuid.UUID
			for rows.Next() {
				var id uuid.UUID
				if err := rows.Scan(&id); err != nil {
					t.Fatal(err)
				}
				got = append(got, id)
			}
			if want := []uuid.UUID{mine[2].ID, mine[3].ID, mine[4].ID}; rows.Err() != nil || !slices.Equal(got, want) {
				t.Errorf("followers: got %v, %v, want %v in this sequence", got, rows.Err(), want)
			}
			cancel()
			if err := <-running; err != nil {
				t.Errorf("got %v at the end, want none", err)
			}
		})
	}
}

// Commands and replies never wait: an undo gets through although its action is a dead letter.
func TestCommandsNeverWait(t *testing.T) {
	t.Parallel()
	action, undo := command(), command()
	undo.AggregateID, undo.Subject = action.AggregateID, "cmd.payment.void_payment"
	d := newDesk(t, time.Hour, func(p *inbox.Processor) { p.Sequenced = true }, action)
	d.p.Handle(t.Context(), deliveries(action))
	d.p.Handle(t.Context(), deliveries(undo))
	if got := d.effects(t); got != 1 {
		t.Errorf("got %d effects, want that of the undo", got)
	}
}

// An event that fails for a while holds up what follows, which is given back and not kept.
func TestEventsWaitForAFailingOne(t *testing.T) {
	t.Parallel()
	conn := broker(t)
	if err := conn.EnsureStreams(t.Context(), messaging.Stream{Name: "EVENTS", Subjects: []string{"evt.>"}}); err != nil {
		t.Fatal(err)
	}
	list := events("payment", uuid.New(), 3)
	publish(t, conn, list...)
	pool := pgtest.Open(t, newURL(t))
	var fails atomic.Int32
	p := &inbox.Processor{Pool: pool, Consumer: consumerName, Sequenced: true, Apply: apply(pool, func(m messaging.Delivery) error {
		if m.ID == list[0].ID && fails.Add(1) < 4 { // in the batch, in its half, alone, and once more
			return errors.New("not yet")
		}
		return nil
	})}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- conn.Consume(ctx, t.Context(), messaging.ConsumerConfig{Stream: "EVENTS", Name: consumerName}, p.Handle)
	}()
	eventually(t, "all are dealt with", func() bool { return count(t, pool, `SELECT count(*) FROM effect`) == 3 })
	cancel()
	<-ended
	rows, err := pool.Query(t.Context(), `SELECT message_id FROM effect ORDER BY ctid`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for i := 0; rows.Next(); i++ {
		var id uuid.UUID
		if err := rows.Scan(&id); err != nil || id != list[i].ID {
			t.Errorf("effect %d: got message %s, %v, want %s", i, id, err, list[i].ID)
		}
	}
	if n := count(t, pool, `SELECT count(*) FROM dead_letter`); n != 0 || rows.Err() != nil {
		t.Errorf("got %d dead letters, %v, want none", n, rows.Err())
	}
}

// TestReaper removes what is older than the TTL, but nothing that a message which is not acknowledged could repeat.
func TestReaper(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	pool := pgtest.Open(t, newURL(t))
	insert := func(consumer string, age time.Duration) {
		id := idOf(time.Now().Add(-age))
		exec(t, pool, `INSERT INTO inbox (consumer, message_id, received_at) VALUES ($1, $2, now() - $3::interval)`, consumer, id, age)
		exec(t, pool, `INSERT INTO inbox_failure (consumer, message_id, failed, error, first_failed_at) VALUES ($1, $2, 1, '', now() - $3::interval)`, consumer, id, age)
	}
	const day = 24 * time.Hour
	for _, consumer := range []string{"idle", "behind", "unknown", "webhooks"} {
		for _, age := range []time.Duration{time.Hour, 8 * day, 20 * day} {
			insert(consumer, age)
		}
	}
	errAway := errors.New("away")
	at := func(age time.Duration, err error) inbox.Floor {
		return func(context.Context) (time.Time, error) { return time.Now().Add(-age), err }
	}
	r := &inbox.Reaper{Pool: pool, TTL: 7 * day, Floors: map[string]inbox.Floor{
		"idle": at(0, nil), "behind": at(10*day, nil), "unknown": at(0, errAway),
	}}
	n, err := r.Reap(ctx)
	if n != 2+1+0+2 || !errors.Is(err, errAway) {
		t.Errorf("got %d removed, %v, want 5 and %v", n, err, errAway)
	}
	for consumer, want := range map[string]int{"idle": 1, "behind": 2, "unknown": 3, "webhooks": 1} {
		for _, table := range []string{"inbox", "inbox_failure"} {
			if got := count(t, pool, `SELECT count(*) FROM `+table+` WHERE consumer = $1`, consumer); got != want {
				t.Errorf("%s of %s: got %d rows, want %d", table, consumer, got, want)
			}
		}
	}
}

// idOf is a UUIDv7 of a time.
func idOf(at time.Time) (id uuid.UUID) {
	id = keys.NewMessageID()
	ms := at.UnixMilli()
	for i := range 6 {
		id[i] = byte(ms >> (8 * (5 - i)))
	}
	return id
}
