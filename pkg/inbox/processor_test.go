package inbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/nats-io/nats.go"

	"github.com/throughline/throughline/pkg/inbox"
	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/pkg/postgres/pgtest"
)

func TestRepeatsDoNothing(t *testing.T) {
	t.Parallel()
	pool, conn := pgtest.Open(t, newURL(t)), broker(t)
	m, other := command(), command()
	publish(t, conn, m)
	for range 3 {
		publishCopy(t, conn, m) // these are in one batch
	}
	publish(t, conn, other)
	consume(t, conn, &inbox.Processor{Pool: pool, Consumer: consumerName, Apply: apply(pool, nil)})
	eventually(t, "all are acknowledged", func() bool { return waiting(t, conn) == 0 })
	publishCopy(t, conn, m) // in a batch of its own
	eventually(t, "it is acknowledged", func() bool { return waiting(t, conn) == 0 })
	if got := count(t, pool, `SELECT count(*) FROM effect`); got != 2 {
		t.Errorf("got %d effects of 2 messages, want 2", got)
	}
	if got := count(t, pool, `SELECT count(*) FROM inbox WHERE consumer = $1 AND message_id IN ($2, $3)`, consumerName, m.ID, other.ID); got != 2 {
		t.Errorf("got %d inbox rows, want 2", got)
	}
}

func TestBatchHoldsEachMessageOnce(t *testing.T) {
	t.Parallel()
	m, other := command(), command()
	var got [][]uuid.UUID
	p := &inbox.Processor{Consumer: consumerName, Apply: func(_ context.Context, batch []messaging.Delivery) error {
		var ids []uuid.UUID
		for _, d := range batch {
			ids = append(ids, d.ID)
		}
		got = append(got, ids)
		return nil
	}}
	p.Handle(t.Context(), deliveries(m, m, other, m))
	if len(got) != 1 || !slices.Equal(got[0], []uuid.UUID{m.ID, other.ID}) {
		t.Errorf("got %v, want one batch of %s and %s", got, m.ID, other.ID)
	}
}

// A repeat within a batch is given back when its first copy failed, not acknowledged with the failure.
func TestRepeatSharesTheFateOfTheFirst(t *testing.T) {
	t.Parallel()
	pool, conn := pgtest.Open(t, newURL(t)), broker(t)
	m := command()
	publish(t, conn, m)
	publishCopy(t, conn, m)
	var calls int
	p := &inbox.Processor{Pool: pool, Consumer: consumerName, Apply: apply(pool, func(messaging.Delivery) error {
		if calls++; calls == 1 {
			return errors.New("not yet")
		}
		return nil
	})}
	var both []messaging.Delivery // until there are two
	failed := make(chan struct{})
	consumeWith(t, conn, func(ctx context.Context, batch []messaging.Delivery) {
		if both = append(both, batch...); len(both) < 2 {
			return
		}
		p.Handle(ctx, both)
		if calls == 1 {
			close(failed)
		}
		both = nil
	})
	select {
	case <-failed:
	case <-time.After(patience):
		t.Fatal("the first attempt did not fail")
	}
	if got := waiting(t, conn); got != 2 {
		t.Errorf("got %d messages with the broker after a failure, want both copies", got)
	}
	eventually(t, "both are acknowledged", func() bool { return waiting(t, conn) == 0 })
	if got := count(t, pool, `SELECT count(*) FROM effect`); got != 1 {
		t.Errorf("got %d effects, want 1", got)
	}
	eventually(t, "the failure is forgotten", func() bool { return count(t, pool, `SELECT count(*) FROM inbox_failure`) == 0 })
}

// Both have read that the message is new before either writes.
func TestTwoConsumersAtTheSameMoment(t *testing.T) {
	t.Parallel()
	dbURL := newURL(t)
	pool := pgtest.Open(t, dbURL)
	messages := []messaging.Message{command(), command(), command()}
	var meet sync.WaitGroup
	meet.Add(2)
	var running sync.WaitGroup
	for i := range 2 {
		mine := pgtest.Open(t, dbURL)
		batch := deliveries(messages...)
		if i == 1 {
			slices.Reverse(batch)
		}
		once := sync.OnceFunc(func() { meet.Done(); meet.Wait() })
		p := &inbox.Processor{Pool: mine, Consumer: consumerName, Apply: apply(mine, func(messaging.Delivery) error { once(); return nil })}
		running.Go(func() { p.Handle(t.Context(), batch) })
	}
	running.Wait()
	for _, m := range messages {
		if got := count(t, pool, `SELECT count(*) FROM effect WHERE message_id = $1`, m.ID); got != 1 {
			t.Errorf("got %d effects of message %s, want 1", got, m.ID)
		}
	}
}

// Whatever the order in which groups of messages arrive, their rows are locked in one order. Both writers here are kept in
// the middle until each has locked what comes before it in its own order.
func TestAdversarialOrdersDoNotDeadlock(t *testing.T) {
	t.Parallel()
	pool := pgtest.Open(t, newURL(t))
	ids := make([]uuid.UUID, 41)
	for i := range ids {
		ids[i] = uuid.Must(uuid.NewV7())
	}
	middle, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer middle.Rollback(t.Context())
	if _, err := inbox.Mark(t.Context(), middle, consumerName, ids[20]); err != nil {
		t.Fatal(err)
	}
	reversed := slices.Clone(ids)
	slices.Reverse(reversed)
	results := make(chan error, 2)
	for _, order := range [][]uuid.UUID{ids, reversed} {
		go func() {
			var b pgx.Batch
			inbox.QueueMarks(&b, consumerName, order)
			results <- postgres.SendAtomic(t.Context(), pool, &b)
		}()
	}
	eventually(t, "both wait", func() bool {
		return count(t, pool, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) == 2
	})
	if err := middle.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	committed := 0
	for range 2 {
		switch err := <-results; {
		case err == nil:
			committed++
		case !postgres.IsUniqueViolation(err, inbox.Constraint):
			t.Errorf("got error %v, want a violation of %s", err, inbox.Constraint)
		}
	}
	if committed != 1 {
		t.Errorf("got %d of two committed, want one", committed)
	}
}

func TestOneBadMessageCostsOnlyItself(t *testing.T) {
	t.Parallel()
	pool, conn := pgtest.Open(t, newURL(t)), broker(t)
	var messages []messaging.Message
	for range 16 {
		messages = append(messages, command())
	}
	bad := messages[5]
	bad.IdempotencyKey = "cart-17"
	messages[5] = bad
	publish(t, conn, messages...)
	var calls atomic.Int64
	check := func(d messaging.Delivery) error {
		if d.ID == bad.ID {
			calls.Add(1)
			return fmt.Errorf("%w: no such thing", inbox.ErrPermanent)
		}
		return nil
	}
	consume(t, conn, &inbox.Processor{Pool: pool, Consumer: consumerName, Apply: apply(pool, check)})
	eventually(t, "all are dealt with", func() bool { return waiting(t, conn) == 0 })
	if got := count(t, pool, `SELECT count(*) FROM effect`); got != 15 {
		t.Errorf("got %d effects, want 15", got)
	}
	if got := calls.Load(); got > 5 {
		t.Errorf("the bad message was tried %d times, want the batch of at most 16 halved until it stands alone", got)
	}
	var (
		headers           []byte
		payload           []byte
		cause, subject    string
		attempts, sequnce int64
		aggregate         uuid.UUID
	)
	err := pool.QueryRow(t.Context(), `
		SELECT headers, payload, error, subject, attempts, stream_sequence, aggregate_id
		  FROM dead_letter WHERE consumer = $1 AND message_id = $2`, consumerName, bad.ID).
		Scan(&headers, &payload, &cause, &subject, &attempts, &sequnce, &aggregate)
	if err != nil {
		t.Fatal(err)
	}
	if string(payload) != "payload" || !strings.Contains(cause, "no such thing") || subject != bad.Subject || attempts != 1 || sequnce != 6 || aggregate != bad.AggregateID {
		t.Errorf("got dead letter %q %q %s %d %d %s", payload, cause, subject, attempts, sequnce, aggregate)
	}
	var kept map[string][]string
	if err := json.Unmarshal(headers, &kept); err != nil {
		t.Fatal(err)
	}
	again, err := messaging.Parse(subject, kept, payload)
	if err != nil || again.ID != bad.ID || again.IdempotencyKey != "cart-17" || again.StepKey != bad.StepKey {
		t.Errorf("got %+v, %v from the dead letter, want the message", again, err)
	}
	if got := count(t, pool, `SELECT count(*) FROM inbox WHERE message_id = $1`, bad.ID); got != 0 {
		t.Error("got an inbox row for a dead letter, want none")
	}
}

func TestTransientFailureEndsAsDeadLetter(t *testing.T) {
	t.Parallel()
	pool, conn := pgtest.Open(t, newURL(t)), broker(t)
	publish(t, conn, command())
	var mu sync.Mutex
	var at []time.Time
	check := func(messaging.Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		at = append(at, time.Now())
		return errors.New("not now")
	}
	consume(t, conn, &inbox.Processor{
		Pool: pool, Consumer: consumerName, Apply: apply(pool, check), MaxAttempts: 2, MinAge: time.Second,
	})
	eventually(t, "it is given up", func() bool { return waiting(t, conn) == 0 })
	mu.Lock()
	defer mu.Unlock()
	// After 0.5 s there were two attempts, but not yet the age.
	if len(at) != 3 {
		t.Fatalf("got %d attempts, want 3", len(at))
	}
	if first, second := at[1].Sub(at[0]), at[2].Sub(at[1]); first < 450*time.Millisecond || second < 900*time.Millisecond {
		t.Errorf("got delays %s and %s, want 0.5 and 1 s", first, second)
	}
	if got := count(t, pool, `SELECT sum(attempts) FROM dead_letter WHERE error LIKE '%not now%'`); got != 3 {
		t.Errorf("got a dead letter after %d attempts, want 3", got)
	}
	if got := count(t, pool, `SELECT count(*) FROM inbox_failure`); got != 0 {
		t.Errorf("got %d failures on record beside the dead letter, want none", got)
	}
}

// What the broker counts are deliveries; many of them happen while a consumer is stopped or paused.
// A message for another release waits for it, however often it fails, and costs the others nothing.
func TestMessageForAnotherReleaseIsKept(t *testing.T) {
	t.Parallel()
	pool, conn := pgtest.Open(t, newURL(t)), broker(t)
	strange, known := command(), command()
	var knows atomic.Bool
	var tried atomic.Int64
	p := &inbox.Processor{Pool: pool, Consumer: consumerName, MaxAttempts: 1, MinAge: time.Nanosecond, Apply: apply(pool, func(d messaging.Delivery) error {
		if d.ID == strange.ID && !knows.Load() {
			tried.Add(1)
			return fmt.Errorf("%w: it says something new", inbox.ErrElsewhere)
		}
		return nil
	})}
	publish(t, conn, strange, known)
	consume(t, conn, p)
	eventually(t, "it was delivered more often than it may fail", func() bool { return tried.Load() >= 3 })
	if got := count(t, pool, `SELECT count(*) FROM effect`); got != 1 {
		t.Errorf("got %d effects beside a message for another release, want 1", got)
	}
	if got := count(t, pool, `SELECT (SELECT count(*) FROM dead_letter) + (SELECT count(*) FROM inbox_failure)`); got != 0 {
		t.Errorf("got %d dead letters and failures, want none", got)
	}
	knows.Store(true)
	eventually(t, "it is dealt with by a release that knows it", func() bool { return waiting(t, conn) == 0 })
	if got := count(t, pool, `SELECT count(*) FROM effect`); got != 2 {
		t.Errorf("got %d effects, want 2", got)
	}
}

func TestDeliveriesAreNotAttempts(t *testing.T) {
	t.Parallel()
	pool := pgtest.Open(t, newURL(t))
	p := &inbox.Processor{
		Pool: pool, Consumer: consumerName, MaxAttempts: 3, MinAge: time.Nanosecond,
		Apply: apply(pool, func(messaging.Delivery) error { return errors.New("not now") }),
	}
	d := messaging.NewDelivery(command(), 1000)
	d.StoredAt = time.Now().Add(-time.Hour)
	for failure, want := range []int{0, 0, 1} {
		p.Handle(t.Context(), []messaging.Delivery{d})
		if got := count(t, pool, `SELECT count(*) FROM dead_letter`); got != want {
			t.Errorf("got %d dead letters after failure %d, want %d", got, failure+1, want)
		}
	}
}

func TestDatabaseAwayPausesAndCountsNothing(t *testing.T) {
	t.Parallel()
	dbURL, conn := newURL(t), broker(t)
	pool := pgtest.Open(t, dbURL)
	proxy, mine := newProxy(t, dbURL)
	proxy.setAway(true)
	var calls atomic.Int64
	do := apply(mine, nil)
	consume(t, conn, &inbox.Processor{
		Pool: mine, Consumer: consumerName, MaxAttempts: 1, MinAge: time.Nanosecond,
		Apply: func(ctx context.Context, batch []messaging.Delivery) error {
			calls.Add(1)
			return do(ctx, batch)
		},
	})
	m := command()
	publish(t, conn, m)
	eventually(t, "it was tried some times", func() bool { return calls.Load() >= 3 })
	if got := waiting(t, conn); got != 1 {
		t.Errorf("got %d messages with the broker, want 1", got)
	}
	proxy.setAway(false)
	eventually(t, "it is dealt with", func() bool { return waiting(t, conn) == 0 })
	effects, dead := count(t, pool, `SELECT count(*) FROM effect`), count(t, pool, `SELECT count(*) FROM dead_letter`)
	if failures := count(t, pool, `SELECT count(*) FROM inbox_failure`); effects != 1 || dead != 0 || failures != 0 {
		t.Errorf("got %d effects, %d dead letters and %d failures, want 1, 0 and 0", effects, dead, failures)
	}
}

// The transaction commits, but nobody hears of it: the inbox tells.
func TestLostCommitAnswer(t *testing.T) {
	t.Parallel()
	dbURL := newURL(t)
	pool := pgtest.Open(t, dbURL)
	proxy, mine := newProxy(t, dbURL)
	m := command()
	var checks, unknown int
	do := apply(mine, func(messaging.Delivery) error { // between the read and the write
		if checks++; checks == 1 {
			proxy.loseAnswerTo(string(m.ID[:]))
		}
		return nil
	})
	p := &inbox.Processor{Pool: mine, Consumer: consumerName, Apply: func(ctx context.Context, batch []messaging.Delivery) error {
		err := do(ctx, batch)
		if errors.Is(err, postgres.ErrCommitUnknown) {
			unknown++
		}
		return err
	}}
	// The statements are prepared by this one, so that the next write goes in one piece. Its check does not arm the proxy.
	checks = 1
	p.Handle(t.Context(), deliveries(command()))
	checks = 0
	p.Handle(t.Context(), deliveries(m))
	if unknown != 1 || checks != 1 || !proxy.lost() {
		t.Errorf("got %d unknown commits after %d writes, answer lost %t; want one write, whose answer was lost", unknown, checks, proxy.lost())
	}
	if got := count(t, pool, `SELECT count(*) FROM effect WHERE message_id = $1`, m.ID); got != 1 {
		t.Errorf("got %d effects, want 1", got)
	}
	if got := count(t, pool, `SELECT count(*) FROM dead_letter`) + count(t, pool, `SELECT count(*) FROM inbox_failure`); got != 0 {
		t.Errorf("got %d dead letters and failures, want none", got)
	}
}

func TestMalformedMessageIsDeadLettered(t *testing.T) {
	t.Parallel()
	pool, conn := pgtest.Open(t, newURL(t)), broker(t)
	consume(t, conn, &inbox.Processor{Pool: pool, Consumer: consumerName, Apply: apply(pool, nil)})
	for _, msg := range []*nats.Msg{
		{Subject: "cmd.payment.x"},
		{Subject: "cmd.payment.\xff", Header: nats.Header{"ce-id": {"17"}}, Data: []byte{0, 0xff}},
		{Subject: "cmd.payment.x", Header: nats.Header{"ce-id": {"\xff"}, "Zero": {"a\x00b"}}},
	} {
		if _, err := conn.JetStream().PublishMsg(t.Context(), msg); err != nil {
			t.Fatal(err)
		}
	}
	good := command()
	publish(t, conn, good)
	eventually(t, "all are dealt with", func() bool { return waiting(t, conn) == 0 })
	if got := count(t, pool, `SELECT count(*) FROM dead_letter WHERE error LIKE 'malformed message%'`); got != 3 {
		t.Errorf("got %d dead letters, want 3", got)
	}
	if got := count(t, pool, `SELECT count(*) FROM effect WHERE message_id = $1`, good.ID); got != 1 {
		t.Errorf("got %d effects of the sound message, want 1", got)
	}
}

// A message leaves the broker only when its dead letter is committed.
func TestDeadLetterWaitsForTheDatabase(t *testing.T) {
	t.Parallel()
	dbURL, conn := newURL(t), broker(t)
	pool := pgtest.Open(t, dbURL)
	proxy, mine := newProxy(t, dbURL)
	var calls atomic.Int64
	consume(t, conn, &inbox.Processor{
		Pool: mine, Consumer: consumerName,
		Apply: func(context.Context, []messaging.Delivery) error {
			proxy.setAway(true)
			calls.Add(1)
			return inbox.ErrPermanent
		},
	})
	publish(t, conn, command())
	eventually(t, "it has failed", func() bool { return calls.Load() == 1 })
	if got := waiting(t, conn); got != 1 {
		t.Errorf("got %d messages with the broker before the dead letter is stored, want 1", got)
	}
	proxy.setAway(false)
	eventually(t, "it is dead-lettered", func() bool { return waiting(t, conn) == 0 })
	if got := count(t, pool, `SELECT count(*) FROM dead_letter`); got != 1 {
		t.Errorf("got %d dead letters, want 1", got)
	}
}

func TestCutShortLeavesTheMessageAlone(t *testing.T) {
	t.Parallel()
	pool := pgtest.Open(t, newURL(t))
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	p := &inbox.Processor{Pool: pool, Consumer: consumerName, Apply: func(context.Context, []messaging.Delivery) error {
		calls++
		cancel()
		return errors.New("cut short")
	}}
	p.Handle(ctx, deliveries(command(), command()))
	if calls != 1 {
		t.Errorf("got %d calls after the end of the context, want 1", calls)
	}
	if got := count(t, pool, `SELECT count(*) FROM inbox_failure`); got != 0 {
		t.Errorf("got %d failures counted, want none", got)
	}
}

func TestBlame(t *testing.T) {
	t.Parallel()
	code := func(code string) error { return fmt.Errorf("doing: %w", &pgconn.PgError{Code: code}) }
	for name, tt := range map[string]struct {
		err  error
		want inbox.Culprit
	}{
		"no error":             {nil, inbox.Nobody},
		"permanent":            {fmt.Errorf("x: %w", inbox.ErrPermanent), inbox.Message},
		"anything else":        {errors.New("x"), inbox.Message},
		"unknown commit":       {fmt.Errorf("x: %w: %w", postgres.ErrCommitUnknown, code("57P01")), inbox.Race},
		"unique violation":     {code("23505"), inbox.Race},
		"compare and set":      {code(postgres.CodeRequire), inbox.Race},
		"deadlock":             {code("40P01"), inbox.Race},
		"serialization":        {code("40001"), inbox.Race},
		"lock timeout":         {code("55P03"), inbox.Race},
		"check violation":      {code("23514"), inbox.Message},
		"database shuts down":  {code("57P01"), inbox.Ourselves},
		"disk full":            {code("53100"), inbox.Ourselves},
		"permanent beats race": {fmt.Errorf("%w: %w", inbox.ErrPermanent, code("23505")), inbox.Message},
	} {
		if got := inbox.Blame(tt.err); got != tt.want {
			t.Errorf("%s: got %d, want %d", name, got, tt.want)
		}
	}
}

func TestMark(t *testing.T) {
	t.Parallel()
	pool := pgtest.Open(t, newURL(t))
	id := uuid.New()
	for i, want := range []bool{true, false} {
		err := postgres.InTx(t.Context(), pool, pgx.TxOptions{}, func(tx pgx.Tx) error {
			got, err := inbox.Mark(t.Context(), tx, consumerName, id)
			if got != want {
				t.Errorf("call %d: got %t, want %t", i, got, want)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	err := postgres.InTx(t.Context(), pool, pgx.TxOptions{}, func(tx pgx.Tx) error {
		if got, err := inbox.Mark(t.Context(), tx, "another", id); err != nil || !got {
			t.Errorf("for another consumer: got %t, %v, want true", got, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
