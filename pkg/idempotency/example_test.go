package idempotency_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/throughline/throughline/pkg/idempotency"
	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/pkg/postgres/pgtest"
)

// A deposit is made once, however often it is asked for, and its answer is always the first one.
func Example() {
	pgtest.Example(func(tb testing.TB, pool *pgxpool.Pool) {
		ctx := context.Background()
		if _, err := pool.Exec(ctx, `CREATE TABLE deposit (amount bigint NOT NULL)`); err != nil {
			tb.Fatal(err)
		}
		deposit := func(key string, amount int) string {
			id := keys.RequestID("client", "deposits.create", key)
			print := idempotency.Fingerprint(1, fmt.Append(nil, amount))
			var b pgx.Batch
			b.Queue(`INSERT INTO deposit (amount) VALUES ($1)`, amount)
			idempotency.QueueInsert(&b, idempotency.Record{
				ID: id, Operation: "deposits.create", Fingerprint: print, FingerprintVersion: 1,
				Status: 201, Body: fmt.Appendf(nil, "deposited %d", amount),
			})
			err := postgres.SendAtomic(ctx, pool, &b)
			if err == nil {
				return "first"
			}
			if !postgres.IsUniqueViolation(err, idempotency.Constraint) {
				return err.Error()
			}
			found, err := idempotency.Find(ctx, pool, id)
			if err != nil {
				return err.Error()
			}
			// One version of the form exists here, so other fingerprints are other requests.
			if r := found[id]; r.Same(1, print) {
				return "replay: " + string(r.Body)
			}
			return "the key was used for another request"
		}
		fmt.Println(deposit("k", 100))
		fmt.Println(deposit("k", 100))
		fmt.Println(deposit("k", 999))

		var sum int64
		if err := pool.QueryRow(ctx, `SELECT sum(amount) FROM deposit`).Scan(&sum); err != nil {
			tb.Fatal(err)
		}
		fmt.Println("sum", sum)
	}, idempotency.Migrations())
	// Output:
	// first
	// replay: deposited 100
	// the key was used for another request
	// sum 100
}
