package postgres_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/pkg/postgres/pgtest"
)

func open(t *testing.T, cfg postgres.Config) (*pgxpool.Pool, error) {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	pool, err := postgres.Open(ctx, cfg)
	if err == nil {
		t.Cleanup(pool.Close)
	}
	return pool, err
}

func TestOpenSettings(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	cases := []struct {
		name string
		cfg  postgres.Config
		want [5]string
	}{
		{"defaults", postgres.Config{}, [5]string{"UTC", "", "30s", "2s", "30s"}},
		{"set", postgres.Config{AppName: "order", StatementTimeout: time.Minute, LockTimeout: 250 * time.Millisecond, IdleInTxTimeout: time.Hour},
			[5]string{"UTC", "order", "1min", "250ms", "1h"}},
		{"none", postgres.Config{StatementTimeout: -1, LockTimeout: -1, IdleInTxTimeout: -1}, [5]string{"UTC", "", "0", "0", "0"}},
		{"below a millisecond", postgres.Config{LockTimeout: 1}, [5]string{"UTC", "", "30s", "1ms", "30s"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.cfg.URL = url
			pool, err := open(t, c.cfg)
			if err != nil {
				t.Fatalf("Open: %v", err)
			}
			var got [5]string
			err = pool.QueryRow(t.Context(), `SELECT current_setting('timezone'), current_setting('application_name'),
				current_setting('statement_timeout'), current_setting('lock_timeout'), current_setting('idle_in_transaction_session_timeout')`).
				Scan(&got[0], &got[1], &got[2], &got[3], &got[4])
			if err != nil || got != c.want {
				t.Errorf("settings: got %q, %v; want %q", got, err, c.want)
			}
			if got, want := pool.Config().MaxConns, int32(min(max(8, 4*runtime.GOMAXPROCS(0)), 32)); got != want {
				t.Errorf("connections: got %d, want %d", got, want)
			}
		})
	}
}

// Each of these is an answer that waiting does not change, so Open gives it at once, without the password.
func TestOpenRefusal(t *testing.T) {
	t.Parallel()
	const secret = "hunter2secret"
	good, err := url.Parse(pgtest.URL(t))
	if err != nil {
		t.Fatalf("parsing: %v", err)
	}
	with := func(change func(*url.URL)) string {
		u := *good
		u.User = url.UserPassword("postgres", secret)
		change(&u)
		return u.String()
	}
	cases := []struct {
		name, url, want string
	}{
		{"no such database", with(func(u *url.URL) { u.Path = "/missing" }), "3D000"},
		{"no such role", with(func(u *url.URL) { u.User = url.UserPassword("nobody", secret) }), "28000"},
		{"malformed", with(func(u *url.URL) { u.RawQuery = "sslmode=sometimes" }), "sslmode"},
		{"old server", with(func(u *url.URL) { u.Host = oldServer(t) }), postgres.ErrServerTooOld.Error()},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := open(t, postgres.Config{URL: c.url})
			if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("error: got %v, want one with %q", err, c.want)
			}
			if strings.Contains(err.Error(), secret) {
				t.Errorf("the error shows the password: %v", err)
			}
		})
	}
}

// oldServer answers as a Postgres 14 does, as far as the beginning of a session.
func oldServer(t *testing.T) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listening: %v", err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				b := pgproto3.NewBackend(conn, conn)
				if _, err := b.ReceiveStartupMessage(); err != nil {
					return
				}
				b.Send(&pgproto3.AuthenticationOk{})
				b.Send(&pgproto3.ParameterStatus{Name: "server_version", Value: "14.11 (Debian 14.11-1)"})
				b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
				if b.Flush() == nil {
					_, _ = io.Copy(io.Discard, conn)
				}
			}()
		}
	}()
	return l.Addr().String()
}

// The services and the database may start in any order.
func TestOpenWaitsForServer(t *testing.T) {
	t.Parallel()
	p, through := newProxy(t, pgtest.URL(t))
	address := p.listener.Addr().String()
	if err := p.listener.Close(); err != nil {
		t.Fatalf("closing: %v", err)
	}
	waiting := make(chan struct{}, 100)
	logger := slog.New(slog.NewTextHandler(writerFunc(func(b []byte) (int, error) { waiting <- struct{}{}; return len(b), nil }), nil))
	type result struct {
		pool *pgxpool.Pool
		err  error
	}
	opened := make(chan result, 1)
	go func() {
		pool, err := postgres.Open(t.Context(), postgres.Config{URL: through, Logger: logger})
		opened <- result{pool, err}
	}()
	<-waiting
	<-waiting
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatalf("listening again: %v", err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(conn)
		}
	}()
	r := <-opened
	if r.err != nil {
		t.Fatalf("Open: %v", r.err)
	}
	r.pool.Close()
}

func TestOpenStopsWaiting(t *testing.T) {
	t.Parallel()
	p, through := newProxy(t, pgtest.URL(t))
	if err := p.listener.Close(); err != nil {
		t.Fatalf("closing: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	logger := slog.New(slog.NewTextHandler(writerFunc(func(b []byte) (int, error) { cancel(); return len(b), nil }), nil))
	_, err := postgres.Open(ctx, postgres.Config{URL: through, Logger: logger})
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "refused") {
		t.Errorf("error: got %v, want the end of the context and the last failure", err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }
