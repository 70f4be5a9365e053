package idempotency_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/throughline/throughline/pkg/idempotency"
	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/pkg/postgres/pgtest"
)

func record(key string) idempotency.Record {
	return idempotency.Record{
		ID: keys.RequestID("client", "test", key), Operation: "test",
		Fingerprint: idempotency.Fingerprint(1, []byte("request of "+key)), FingerprintVersion: 1, Request: []byte("request of " + key),
		Status: 201, Header: []byte("h"), Body: []byte(`{"a":"` + key + `"}`), Response: []byte{1, 2, 0, 3},
	}
}

func insert(ctx context.Context, pool *pgxpool.Pool, records ...idempotency.Record) error {
	var b pgx.Batch
	idempotency.QueueInsert(&b, records...)
	return postgres.SendAtomic(ctx, pool, &b)
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, idempotency.Migrations())
	a, b := record("a"), record("b")
	b.Request, b.Header, b.Response, b.Lifetime = nil, nil, nil, time.Hour
	if err := insert(t.Context(), pool, a, b); err != nil {
		t.Fatal(err)
	}
	found, err := idempotency.Find(t.Context(), pool, a.ID, b.ID, uuid.New())
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != 2 {
		t.Fatalf("got %d records, want 2", len(found))
	}
	for _, want := range []idempotency.Record{a, b} {
		got := found[want.ID]
		if !got.Same(1, want.Fingerprint) || !bytes.Equal(got.Body, want.Body) || !bytes.Equal(got.Header, want.Header) ||
			!bytes.Equal(got.Response, want.Response) || !bytes.Equal(got.Request, want.Request) || got.Status != want.Status || got.Operation != want.Operation {
			t.Errorf("got %+v, want %+v", got, want)
		}
		lifetime := want.Lifetime
		if lifetime == 0 {
			lifetime = idempotency.DefaultLifetime
		}
		if got.ExpiresAt.Sub(got.CreatedAt) != lifetime {
			t.Errorf("got lifetime %s, want %s", got.ExpiresAt.Sub(got.CreatedAt), lifetime)
		}
	}
	if got := found[a.ID]; got.Same(2, a.Fingerprint) || got.Same(1, b.Fingerprint) {
		t.Error("got another version or fingerprint as the same, want not")
	}
}

// A repeat must undo all that its transaction did, and must not touch what is stored.
func TestRepeatUndoesItsTransaction(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, idempotency.Migrations())
	first, fresh := record("a"), record("b")
	if err := insert(t.Context(), pool, first); err != nil {
		t.Fatal(err)
	}
	again := first
	again.Body = []byte("other")
	err := insert(t.Context(), pool, fresh, again)
	if !postgres.IsUniqueViolation(err, idempotency.Constraint) {
		t.Fatalf("got error %v, want a violation of %s", err, idempotency.Constraint)
	}
	found, err := idempotency.Find(t.Context(), pool, first.ID, fresh.ID)
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != 1 || !bytes.Equal(found[first.ID].Body, first.Body) {
		t.Errorf("got %v, want only the first record, unchanged", found)
	}
}

// Of many at once exactly one is first, and the effect in its transaction happens once.
func TestOneOfManyIsFirst(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, idempotency.Migrations())
	if _, err := pool.Exec(t.Context(), `CREATE TABLE effect (n int)`); err != nil {
		t.Fatal(err)
	}
	const many = 20
	errs := make([]error, many)
	var wg sync.WaitGroup
	for i := range many {
		wg.Go(func() {
			var b pgx.Batch
			b.Queue(`INSERT INTO effect VALUES ($1)`, i)
			idempotency.QueueInsert(&b, record("a"))
			errs[i] = postgres.SendAtomic(t.Context(), pool, &b)
		})
	}
	wg.Wait()
	first := 0
	for _, err := range errs {
		switch {
		case err == nil:
			first++
		case !postgres.IsUniqueViolation(err, idempotency.Constraint):
			t.Errorf("got error %v, want a violation of %s", err, idempotency.Constraint)
		}
	}
	var effects int
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM effect`).Scan(&effects); err != nil {
		t.Fatal(err)
	}
	if first != 1 || effects != 1 {
		t.Errorf("got %d first requests and %d effects, want 1 and 1", first, effects)
	}
}

func TestExpiry(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, idempotency.Migrations())
	const expired = 2500 // more than two batches of the reaper
	old := make([]idempotency.Record, expired)
	ids := make([]uuid.UUID, expired)
	for i := range old {
		old[i] = record(time.Duration(i).String())
		ids[i] = old[i].ID
	}
	live := record("live")
	if err := insert(t.Context(), pool, append(old, live)...); err != nil {
		t.Fatal(err)
	}
	_, err := pool.Exec(t.Context(),
		`UPDATE idempotency_record SET created_at = now() - interval '2 days', expires_at = now() - interval '1 second' WHERE record_id = ANY ($1)`, ids)
	if err != nil {
		t.Fatal(err)
	}
	found, err := idempotency.Find(t.Context(), pool, append(ids, live.ID)...)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := found[live.ID]; len(found) != 1 || !ok {
		t.Errorf("got %d records, want only the live one", len(found))
	}
	// The reaper has not come yet.
	if err := insert(t.Context(), pool, old[1]); !postgres.IsUniqueViolation(err, idempotency.Constraint) {
		t.Errorf("got error %v for an expired record, want a violation of %s", err, idempotency.Constraint)
	}
	var anew pgx.Batch
	idempotency.QueueForget(&anew, old[1].ID, live.ID)
	idempotency.QueueInsert(&anew, old[1])
	if err := postgres.SendAtomic(t.Context(), pool, &anew); err != nil {
		t.Errorf("inserting an expired record anew: %v", err)
	}
	n, err := idempotency.Reap(t.Context(), pool)
	if err != nil || n != expired-1 {
		t.Errorf("got %d reaped, %v, want %d", n, err, expired-1)
	}
	var left int
	if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM idempotency_record`).Scan(&left); err != nil {
		t.Fatal(err)
	}
	if left != 2 {
		t.Errorf("got %d records left, want 2", left)
	}
	// The key is free again, for whoever does not have a better arbiter.
	if err := insert(t.Context(), pool, old[0]); err != nil {
		t.Errorf("inserting a reaped record again: %v", err)
	}
}

func TestReaperRuns(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, idempotency.Migrations())
	gone := record("gone")
	gone.Lifetime = time.Microsecond
	if err := insert(t.Context(), pool, gone); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	reaper := idempotency.Reaper{Pool: pool, Owner: "test", Interval: time.Millisecond}
	go func() { done <- reaper.Run(ctx) }()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for left := 1; left > 0; <-tick.C {
		if err := pool.QueryRow(t.Context(), `SELECT count(*) FROM idempotency_record`).Scan(&left); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want none", err)
	}
}

func TestFingerprint(t *testing.T) {
	t.Parallel()
	base := idempotency.Fingerprint(1, []byte("request"))
	for _, tc := range []struct {
		name    string
		version int16
		request string
		same    bool
	}{
		{"same", 1, "request", true},
		{"other request", 1, "request2", false},
		{"other version", 2, "request", false},
		{"empty", 1, "", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if got := bytes.Equal(base, idempotency.Fingerprint(tc.version, []byte(tc.request))); got != tc.same {
				t.Errorf("got same %v, want %v", got, tc.same)
			}
		})
	}
}
