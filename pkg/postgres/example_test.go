package postgres_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/pkg/postgres/pgtest"
)

// An account is debited and the debit written down, in one round trip. Both happen only if the account still has the
// version that the caller has seen.
func ExampleSendAtomic() {
	pgtest.Example(func(tb testing.TB, pool *pgxpool.Pool) {
		ctx := context.Background()
		mustExec(tb, pool, `CREATE TABLE account (id int PRIMARY KEY, balance int, version bigint)`)
		mustExec(tb, pool, `CREATE TABLE debit (account_id int, amount int)`)
		mustExec(tb, pool, `INSERT INTO account VALUES (1, 100, 7)`)

		debit := func(amount int, seen int64) error {
			var b pgx.Batch
			b.Queue(`
				WITH changed AS (
					UPDATE account SET balance = balance - $2, version = version + 1 WHERE id = $1 AND version = $3 RETURNING 1
				)
				SELECT throughline_require(count(*), 1, 'account at the version seen') FROM changed`, 1, amount, seen)
			b.Queue(`INSERT INTO debit (account_id, amount) VALUES ($1, $2)`, 1, amount)
			return postgres.SendAtomic(ctx, pool, &b)
		}
		fmt.Println("first: ", debit(30, 7))
		fmt.Println("second:", postgres.Classify(debit(50, 7)))

		var balance, debits int
		if err := pool.QueryRow(ctx, `SELECT balance, (SELECT count(*) FROM debit) FROM account`).Scan(&balance, &debits); err != nil {
			fmt.Println(err)
		}
		fmt.Println("balance", balance, "debits", debits)
	})
	// Output:
	// first:  <nil>
	// second: conflict
	// balance 70 debits 1
}
