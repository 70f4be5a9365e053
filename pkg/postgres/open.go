package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"
)

// MinServerVersion is the lowest major version of the server. Since version 15 only the owner of a database may create
// tables in its public schema, which each service having its own role relies on.
const MinServerVersion = 15

const (
	defaultLockTimeout      = 2 * time.Second
	defaultStatementTimeout = 30 * time.Second
	defaultIdleInTxTimeout  = 30 * time.Second
)

// Config says how to reach a database. Only URL is required.
type Config struct {
	// URL is a connection URL or a keyword string as libpq knows them, with the PG* environment as defaults.
	URL string

	// MaxConns bounds the pool. 0 takes four per core, at least 8 and at most 32: while one connection waits for its
	// commit to reach the disk others can work, and their commits share the flush.
	MaxConns int32

	// AppName is shown as application_name in pg_stat_activity and in the server's log.
	AppName string

	// StatementTimeout bounds a statement; 0 means 30 s, negative none.
	StatementTimeout time.Duration

	// LockTimeout bounds each wait for a lock; 0 means 2 s, negative none. A statement that waits longer fails with
	// [LockTimeout]: another transaction holds the same key, and the caller answers "still running" rather than queue.
	LockTimeout time.Duration

	// IdleInTxTimeout bounds how long a transaction may sit between statements; 0 means 30 s, negative none. It frees
	// the locks of a process that was frozen in a transaction.
	IdleInTxTimeout time.Duration

	// PlanOnce says that every statement that recurs finds its rows by an index, whatever its arguments and however many rows there
	// are. Then it is planned once per connection, not at each execution, which takes as long as the execution or longer for
	// a statement with joins and a row or two in its arrays. And no plan reads a whole table, also none that was made
	// when the table was new and empty: the server would keep it until it has counted the table's rows, a minute later.
	PlanOnce bool

	// Tracer sees each query; nil sees nothing.
	Tracer pgx.QueryTracer

	// Logger is told while the database cannot be reached; nil means [slog.Default].
	Logger *slog.Logger
}

// Open connects to the database and waits until it answers or ctx ends, so services and database may start in any
// order. It does not wait for what waiting cannot cure, and returns at once: a malformed URL, a refused password, a
// database or role that does not exist, a server below [MinServerVersion] ([ErrServerTooOld]). Errors never contain the
// password.
//
// Sessions use time zone UTC, and can write: a server that is read-only counts as one that cannot be reached. When a context ends during a statement, the server is asked to cancel it and has a second
// to answer before the connection is given up: so the outcome is known nearly always, and the connection stays usable.
func Open(ctx context.Context, cfg Config) (*pgxpool.Pool, error) {
	pc, err := cfg.poolConfig()
	if err != nil {
		return nil, err
	}
	logger := cfg.Logger
	if logger == nil {
		logger = slog.Default()
	}
	pool, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", describe(pc.ConnConfig), err)
	}
	if err := waitForServer(ctx, pool, logger); err != nil {
		pool.Close()
		return nil, fmt.Errorf("opening %s: %w", describe(pc.ConnConfig), err)
	}
	return pool, nil
}

func (cfg Config) poolConfig() (*pgxpool.Config, error) {
	pc, err := pgxpool.ParseConfig(cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("reading the database URL: %w", err) // pgx has masked the password
	}
	pc.MaxConns = cfg.MaxConns
	if pc.MaxConns <= 0 {
		pc.MaxConns = int32(min(max(8, 4*runtime.GOMAXPROCS(0)), 32))
	}
	params := pc.ConnConfig.RuntimeParams
	params["timezone"] = "UTC"
	if cfg.AppName != "" {
		params["application_name"] = cfg.AppName
	}
	params["lock_timeout"] = milliseconds(cfg.LockTimeout, defaultLockTimeout)
	params["statement_timeout"] = milliseconds(cfg.StatementTimeout, defaultStatementTimeout)
	params["idle_in_transaction_session_timeout"] = milliseconds(cfg.IdleInTxTimeout, defaultIdleInTxTimeout)
	if cfg.PlanOnce {
		params["plan_cache_mode"] = "force_generic_plan"
		params["enable_seqscan"] = "off"
		// What can only be read as a whole, such as a table of one row, has an immense cost now, for which it would be compiled.
		params["jit"] = "off"
	}
	if cfg.Tracer != nil {
		pc.ConnConfig.Tracer = cfg.Tracer
	}
	if pc.ConnConfig.ConnectTimeout == 0 {
		pc.ConnConfig.ConnectTimeout = 5 * time.Second // a host that swallows packets must not use up the caller's time
	}
	pc.ConnConfig.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: conn, DeadlineDelay: time.Second}
	}
	refuseReadOnly(pc.ConnConfig, cfg.URL)
	pc.AfterConnect = func(_ context.Context, conn *pgx.Conn) error {
		registerUUIDs(conn.TypeMap())
		return nil
	}
	return pc, nil
}

// refuseReadOnly keeps sessions that cannot write out of the pool, unless the URL says by target_session_attrs which ones it wants: after
// a failover an address may still lead to the old server, and sessions on a server that was demoted live on. A session that turns
// out to be one of these is closed, so that the next statement gets one that can write.
func refuseReadOnly(c *pgx.ConnConfig, url string) {
	if c.ValidateConnect == nil && !strings.Contains(url, "target_session_attrs") {
		c.ValidateConnect = func(_ context.Context, conn *pgconn.PgConn) error {
			// Every server that is new enough reports both by itself, so that this costs no question.
			if conn.ParameterStatus("in_hot_standby") == "on" || conn.ParameterStatus("default_transaction_read_only") == "on" {
				return errReadOnly
			}
			return nil
		}
	}
	before := c.OnPgError
	c.OnPgError = func(conn *pgconn.PgConn, err *pgconn.PgError) bool {
		return err.Code != codeReadOnly && before(conn, err)
	}
}

// milliseconds formats a timeout setting for the server: 0 there means none.
func milliseconds(d, byDefault time.Duration) string {
	switch {
	case d == 0:
		d = byDefault
	case d < 0:
		return "0"
	}
	return strconv.FormatInt(max(1, d.Milliseconds()), 10)
}

// describe names the database without the password.
func describe(c *pgx.ConnConfig) string {
	return fmt.Sprintf("database %s on %s:%d as %s", c.Database, c.Host, c.Port, c.User)
}

// waitForServer returns once the server has answered, after a growing delay between attempts.
func waitForServer(ctx context.Context, pool *pgxpool.Pool, logger *slog.Logger) error {
	const first, longest = 50 * time.Millisecond, 2 * time.Second
	for delay := first; ; delay = min(2*delay, longest) {
		err := checkServer(ctx, pool)
		if err == nil || !worthWaiting(err) {
			return err
		}
		if ctx.Err() == nil {
			logger.WarnContext(ctx, "waiting for the database", "database", describe(pool.Config().ConnConfig), "error", err)
		}
		// Half to one and a half of the delay, so that instances that lost their database together do not return together.
		timer := time.NewTimer(delay/2 + rand.N(delay))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("waiting for it: %w (last attempt: %w)", ctx.Err(), err)
		}
	}
}

// worthWaiting reports whether a later attempt to connect can succeed without anybody changing the configuration.
func worthWaiting(err error) bool {
	if errors.Is(err, ErrServerTooOld) {
		return false
	}
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		return classifyCode(pgErr.Code) == Unavailable // "starting up" is, "password refused" and "no such database" are not
	}
	return true
}

func checkServer(ctx context.Context, pool *pgxpool.Pool) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	if err := checkVersion(conn.Conn().PgConn().ParameterStatus("server_version")); err != nil {
		return err
	}
	return conn.Ping(ctx)
}

// checkVersion reads the version that the server reports when a session begins, such as "15.13 (Debian 15.13-1)" or
// "18beta1".
func checkVersion(reported string) error {
	digits := reported
	if i := strings.IndexFunc(reported, func(r rune) bool { return r < '0' || r > '9' }); i >= 0 {
		digits = reported[:i]
	}
	major, err := strconv.Atoi(digits)
	if err != nil {
		return fmt.Errorf("%w: it reports version %q, and %d or newer is needed", ErrServerTooOld, reported, MinServerVersion)
	}
	if major < MinServerVersion {
		return fmt.Errorf("%w: it has version %s, and %d or newer is needed", ErrServerTooOld, reported, MinServerVersion)
	}
	return nil
}
