package outbox_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/throughline/throughline/pkg/outbox"
)

// TestRepublish sends again what the broker has lost: by aggregate, by a gap in the stream, and by time.
func TestRepublish(t *testing.T) {
	t.Parallel()
	pool, conn := newPool(t), connect(t, newServer(t), all)
	r := start(t, pool, conn, outbox.Config{})
	r.open(t)
	one, two := uuid.New(), uuid.New()
	first := mustChange(t, pool, one, uuid.Nil, event(), event(), command())
	second := mustChange(t, pool, two, uuid.Nil, event(), command())
	r.HandOff(slices.Concat(first, second))
	sent := awaitStream(t, conn, 5)
	eventually(t, "all is removed", func() bool { return pending(t, pool) == 0 })
	s, err := conn.JetStream().Stream(t.Context(), all.Name)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Purge(t.Context()); err != nil { // the stream still remembers the ids
		t.Fatal(err)
	}
	archive := outbox.NewArchive(pool, conn, time.Hour)
	gap := outbox.Selection{Stream: all.Name, First: 2, Last: 3}
	found, err := archive.Find(t.Context(), gap)
	if err != nil {
		t.Fatal(err)
	}
	got, want := []uuid.UUID{}, []uuid.UUID{sent[1].id, sent[2].id}
	for _, f := range found {
		got = append(got, f.ID)
		if f.Stream != all.Name || f.SentAt.IsZero() || f.Pending || f.Expired {
			t.Errorf("got %+v, want it sent, neither pending nor expired", f)
		}
	}
	slices.SortFunc(want, func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) })
	slices.SortFunc(got, func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) })
	if !slices.Equal(got, want) {
		t.Errorf("messages of the gap: got %v, want %v", got, want)
	}
	if stream := stream(t, conn, all.Name); len(stream) != 0 {
		t.Errorf("got %d messages after a look, want none: it is no more than that", len(stream))
	}

	results, err := archive.Republish(t.Context(), outbox.Selection{AggregateID: one}, "someone", "a test")
	if err != nil {
		t.Fatal(err)
	}
	wantOrder(t, awaitStream(t, conn, 3), first[0])
	for _, res := range results {
		if res.Skipped != "" || res.Err != nil || res.NewSequence < 6 {
			t.Errorf("got %+v, want it sent behind the 5 of before", res)
		}
	}
	if n := count(t, pool, `SELECT count(*) FROM outbox_republish WHERE actor = 'someone' AND reason = 'a test'`); n != 3 {
		t.Errorf("got %d notes of who and why, want 3", n)
	}
	if _, err := archive.Republish(t.Context(), outbox.Selection{From: time.Now().Add(-time.Minute), Limit: 500}, "someone", "a test"); err != nil {
		t.Fatal(err)
	}
	awaitStream(t, conn, 8)
}

// What consumers no longer remember must not reach them again, and what is pending is the relay's.
func TestRepublishRefuses(t *testing.T) {
	t.Parallel()
	pool, conn := newPool(t), connect(t, newServer(t), all)
	r := start(t, pool, conn, outbox.Config{})
	r.open(t)
	old := mustChange(t, pool, uuid.New(), uuid.Nil, event())
	r.HandOff(old)
	awaitStream(t, conn, 1)
	eventually(t, "it is removed", func() bool { return pending(t, pool) == 0 })
	exec(t, pool, `UPDATE outbox_message SET created_at = created_at - interval '2 s'`)
	r.kill()
	<-r.done
	waiting := mustChange(t, pool, uuid.New(), uuid.Nil, event())
	results, err := outbox.NewArchive(pool, conn, time.Second).Republish(t.Context(), outbox.Selection{From: time.Now().Add(-time.Hour)}, "someone", "a test")
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[uuid.UUID]string)
	for _, res := range results {
		got[res.ID] = res.Skipped
	}
	if len(got) != 2 || got[lastOf(old)] != "expired" || got[lastOf(waiting)] != "pending" {
		t.Errorf("got skipped %v, want the old one expired and the other pending", got)
	}
	awaitStream(t, conn, 1)

	for name, s := range map[string]outbox.Selection{
		"nothing": {}, "sequences without a stream": {First: 1, Last: 2}, "a stream without sequences": {Stream: "ALL"},
		"an end before the beginning": {From: time.Now(), To: time.Now().Add(-time.Hour)}, "too much": {AggregateID: uuid.New(), Limit: 501},
	} {
		if _, err := outbox.NewArchive(pool, conn, time.Hour).Find(t.Context(), s); !errors.Is(err, outbox.ErrSelection) {
			t.Errorf("selecting %s: got %v, want %v", name, err, outbox.ErrSelection)
		}
	}
	if _, err := outbox.NewArchive(pool, conn, time.Hour).Republish(t.Context(), outbox.Selection{AggregateID: uuid.New()}, "", ""); !errors.Is(err, outbox.ErrSelection) {
		t.Errorf("publishing again without a name: got %v, want %v", err, outbox.ErrSelection)
	}
}

// Days past the retention go, but not before all that was written on them is out.
func TestRetentionKeepsWhatIsPending(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	sent, waiting := uuid.New(), mustChange(t, pool, uuid.New(), uuid.Nil, event())
	_ = mustChange(t, pool, sent, uuid.Nil, event())
	exec(t, pool, `DELETE FROM outbox WHERE aggregate_id = $1`, sent)
	days := func() int {
		return count(t, pool, `SELECT count(*) FROM pg_inherits WHERE inhparent = 'outbox_message'::regclass`)
	}
	before := days()
	if n := count(t, pool, `SELECT outbox_drop_partitions(now() + interval '10 days')`); n != 0 || days() != before {
		t.Errorf("with a pending row of today: got %d of %d partitions dropped, want none", n, before)
	}
	exec(t, pool, `DELETE FROM outbox WHERE message_id = $1`, lastOf(waiting))
	if n := count(t, pool, `SELECT outbox_drop_partitions(now())`); n != 0 {
		t.Errorf("at this day: got %d partitions dropped, want none", n)
	}
	if n := count(t, pool, `SELECT outbox_drop_partitions(now() + interval '1 day')`); n != 2 || days() != before-1 {
		t.Errorf("a day later: got %d dropped and %d left, want the two of today gone and %d left", n, days(), before-1)
	}
	// Without a partition rows go where they are found all the same, and expire from there.
	_ = mustChange(t, pool, sent, uuid.Nil, event())
	if n := count(t, pool, `SELECT count(*) FROM outbox_message`); n != 1 {
		t.Errorf("without a partition: got %d rows, want 1", n)
	}
	if n := count(t, pool, `SELECT outbox_add_partitions(3)`); n != 1 { // that of outbox_sent; today's messages are where they are
		t.Errorf("got %d partitions made, want 1", n)
	}
	exec(t, pool, `DELETE FROM outbox`)
	exec(t, pool, `SELECT outbox_drop_partitions(now() + interval '1 s')`)
	if n := count(t, pool, `SELECT count(*) FROM outbox_message`); n != 0 {
		t.Errorf("past the retention: got %d rows, want none", n)
	}
}
