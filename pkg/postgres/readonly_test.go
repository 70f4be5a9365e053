package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/pkg/postgres/pgtest"
)

// A failover leaves sessions on a server that has become read-only. Each fails once, and the pool works as soon as there is a server
// that takes writes, without anybody restarting anything.
func TestReadOnlySessions(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	admin := pgtest.Open(t, url)
	alter := func(what string) {
		t.Helper()
		_, err := admin.Exec(t.Context(), `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I `+what+`', current_database()); END $$`)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	if _, err := admin.Exec(t.Context(), `CREATE TABLE item (id int)`); err != nil {
		t.Fatal(err)
	}
	const conns = 3
	pool, err := open(t, postgres.Config{URL: url, MaxConns: conns})
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	write := func() error {
		_, err := pool.Exec(t.Context(), `INSERT INTO item (id) VALUES (1)`)
		return err
	}
	// Sessions that are there already, as on a server that is demoted.
	sessions := make([]*pgxpool.Conn, conns)
	for i := range sessions {
		if sessions[i], err = pool.Acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := sessions[i].Exec(t.Context(), `SET default_transaction_read_only = on`); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range sessions {
		s.Release()
	}
	failed := 0
	for range conns + 1 {
		err := write()
		if err == nil {
			break
		}
		failed++
		if got := postgres.Classify(err); got != postgres.Unavailable {
			t.Errorf("got %v (%v), want %v", got, err, postgres.Unavailable)
		}
	}
	if failed < 1 || failed > conns {
		t.Errorf("got %d failures, want one for each of at most %d sessions", failed, conns)
	}

	// New sessions, as while an address still leads to the old server.
	alter(`SET default_transaction_read_only = on`)
	pool.Reset()
	if err := write(); postgres.Classify(err) != postgres.Unavailable {
		t.Errorf("got %v on a read-only server, want %v", err, postgres.Unavailable)
	}
	if _, err := admin.Exec(t.Context(), `SET default_transaction_read_only = off`); err != nil {
		t.Fatal(err)
	}
	alter(`RESET default_transaction_read_only`)
	if err := write(); err != nil {
		t.Errorf("got %v when the server takes writes again, want none", err)
	}

	// Whoever wants to read only can say so.
	alter(`SET default_transaction_read_only = on`)
	readers, err := open(t, postgres.Config{URL: url + "&target_session_attrs=any"})
	if err != nil {
		t.Fatalf("Open for reading: %v", err)
	}
	var n int
	if err := readers.QueryRow(t.Context(), `SELECT count(*) FROM item`).Scan(&n); err != nil || n != 2 {
		t.Errorf("got %d, %v, want 2 rows", n, err)
	}
}
