// Package pgclock gives tests databases whose now() is set by hand, so that what depends on the database's time is tested without
// waiting, with the statements that production runs.
package pgclock

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/pkg/postgres/pgtest"
)

// Clock is the clock of one database.
type Clock struct {
	pool *pgxpool.Pool
	now  atomic.Int64 // in microseconds
}

// schema puts a function of our own before the one of Postgres, for statements and for the defaults of columns.
const schema = `
CREATE SCHEMA clock;
CREATE TABLE clock.hand (at timestamptz NOT NULL);
INSERT INTO clock.hand VALUES ('2026-01-05 09:00:00Z');
CREATE FUNCTION clock.now() RETURNS timestamptz LANGUAGE sql STABLE AS 'SELECT at FROM clock.hand';
DO $$
DECLARE c record;
BEGIN
    FOR c IN SELECT a.attrelid::regclass AS tbl, a.attname AS col
               FROM pg_attrdef d JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
              WHERE pg_get_expr(d.adbin, d.adrelid) IN ('now()', 'pg_catalog.now()')
    LOOP
        EXECUTE format('ALTER TABLE %s ALTER COLUMN %I SET DEFAULT clock.now()', c.tbl, c.col);
    END LOOP;
END $$;`

// New makes a database for one test, on which the migrations have run, with a clock that stands still.
func New(tb testing.TB, migrations ...postgres.Migrations) (*pgxpool.Pool, *Clock) {
	tb.Helper()
	url := pgtest.URL(tb, migrations...)
	conn, err := pgx.Connect(context.Background(), url)
	if err != nil {
		tb.Fatalf("connecting: %v", err)
	}
	_, err = conn.Exec(context.Background(), schema)
	if closed := conn.Close(context.Background()); err != nil || closed != nil {
		tb.Fatalf("making the clock: %v, %v", err, closed)
	}
	separator := "?"
	if strings.Contains(url, "?") {
		separator = "&"
	}
	// Named first, our schema hides what pg_catalog has of the same name.
	c := &Clock{pool: pgtest.Open(tb, url+separator+"search_path=clock,pg_catalog,public")}
	c.now.Store(time.Date(2026, time.January, 5, 9, 0, 0, 0, time.UTC).UnixMicro())
	return c.pool, c
}

// Now gives the time.
func (c *Clock) Now() time.Time { return time.UnixMicro(c.now.Load()).UTC() }

// Set sets the time.
func (c *Clock) Set(tb testing.TB, at time.Time) {
	tb.Helper()
	if c.now.Swap(at.UnixMicro()) == at.UnixMicro() {
		return
	}
	if _, err := c.pool.Exec(context.Background(), `UPDATE clock.hand SET at = $1`, at); err != nil {
		tb.Fatalf("setting the clock: %v", err)
	}
}

// Pass lets time pass.
func (c *Clock) Pass(tb testing.TB, d time.Duration) {
	tb.Helper()
	c.Set(tb, c.Now().Add(d))
}
