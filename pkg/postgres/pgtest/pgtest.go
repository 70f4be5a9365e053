//go:build unix

package pgtest

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/throughline/throughline/pkg/postgres"
)

// EnvClusterURL names the environment variable with the superuser's URL of a cluster to use.
const EnvClusterURL = "THROUGHLINE_TEST_CLUSTER_URL"

// setupTimeout bounds all that is done for one database. The longest part is installing Postgres, once per machine.
const setupTimeout = 5 * time.Minute

// maxConns bounds the pool of one test: enough to show races, few enough for many tests at once.
const maxConns = 10

// databases numbers the databases of this process.
var databases atomic.Int64

// New returns a pool on a database that only this test uses, migrated with the base set of pkg/postgres and the sets
// given. Pool and database are closed and dropped at the end of the test. A failure ends the test.
func New(tb testing.TB, migrations ...postgres.Migrations) *pgxpool.Pool {
	tb.Helper()
	return Open(tb, URL(tb, migrations...))
}

// Open returns a further pool for a URL, as [New] does; it is closed at the end of the test.
func Open(tb testing.TB, url string) *pgxpool.Pool {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	defer cancel()
	pool, err := postgres.Open(ctx, postgres.Config{
		URL: url, MaxConns: maxConns, AppName: tb.Name(), Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	tb.Cleanup(pool.Close)
	return pool
}

// URL returns the connection URL (TCP, loopback) of a database as [New] makes it, for tests that need their own pools or
// put a proxy between. Sessions that are left open at the end of the test are ended.
func URL(tb testing.TB, migrations ...postgres.Migrations) string {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	defer cancel()
	s, err := sharedServer(ctx)
	if err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	template, err := s.template(ctx, migrations)
	if err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	name := fmt.Sprintf("test_%d_%d", os.Getpid(), databases.Add(1))
	if err := execNamed(ctx, s.admin, `CREATE DATABASE %s TEMPLATE %s`, name, template); err != nil {
		tb.Fatalf("pgtest: creating a database for the test: %v", err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
		defer cancel()
		if err := execNamed(ctx, s.admin, `DROP DATABASE IF EXISTS %s WITH (FORCE)`, name); err != nil {
			tb.Errorf("pgtest: dropping the test's database: %v", err)
		}
	})
	return s.databaseURL(name)
}

// server is the cluster that this process uses, with a pool for its administration.
type server struct {
	url   *url.URL // of database postgres, as superuser
	admin *pgxpool.Pool
}

// databaseURL returns the superuser's URL of a database.
func (s *server) databaseURL(name string) string {
	u := *s.url
	u.Path = "/" + name
	return u.String()
}

// querier is a pool or one of its connections.
type querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// execNamed runs a statement that takes no parameters, with names quoted into the places of %s.
func execNamed(ctx context.Context, q querier, format string, names ...string) error {
	quoted := make([]any, len(names))
	for i, n := range names {
		quoted[i] = pgx.Identifier{n}.Sanitize()
	}
	_, err := q.Exec(ctx, fmt.Sprintf(format, quoted...))
	return err
}
