package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/time/rate"
)

// releaseTimeout bounds giving the lease up; where that fails, it ends by itself.
const releaseTimeout = 2 * time.Second

// Lease lets one of many processes do something: one holder per name and database, for a time that it renews. The
// others stand by. The database's clock decides when a lease has ended; the holder decides for itself by its own
// monotonic clock, and earlier, since it counts from before it asked.
//
// Holding a lease is no proof: a process that was frozen acts once more when it wakes, before its timer does. The
// token, which grows with each tenure, is the proof: whatever the holder writes must check that no higher token has been
// there, or be harmless when done twice.
type Lease struct {
	// Logger is told about each tenure; nil means [slog.Default]. Set it before use.
	Logger *slog.Logger

	pool  *pgxpool.Pool
	name  string
	owner string
	ttl   time.Duration
	quiet *rate.Sometimes
}

// NewLease returns a lease that is not held. Owner is for people who look into table lease: each value of this type is
// a rival of every other, whatever its owner is called. ttl is how long a holder that died keeps the others waiting; it
// is renewed every third of it.
func NewLease(pool *pgxpool.Pool, name, owner string, ttl time.Duration) *Lease {
	return &Lease{
		pool: pool, name: name, owner: owner + "/" + rand.Text(), ttl: ttl,
		quiet: &rate.Sometimes{First: 1, Interval: 10 * time.Second}, // an outage is one line each ten seconds, not one each try
	}
}

// The clock is read after the wait for the row, which now() would not do.
const acquireLease = `
INSERT INTO lease AS l (name, owner, token, until)
VALUES ($1, $2, 1, clock_timestamp() + $3::interval)
ON CONFLICT ON CONSTRAINT lease_pkey DO UPDATE
SET owner = excluded.owner,
    token = CASE WHEN l.owner = excluded.owner AND l.until > clock_timestamp() THEN l.token ELSE l.token + 1 END,
    until = clock_timestamp() + $3::interval
WHERE l.owner = excluded.owner OR l.until <= clock_timestamp()
RETURNING token`

// TryAcquire takes the lease if nobody holds it, renews it if this value does, and says whether it is held now. The token
// is the same for one tenure; it is higher by one after a change of owner, and after this owner let the lease end and
// took it again. After an error the lease may be held or not.
//
// The lease lasts for its ttl from the moment that TryAcquire was called: that is what the caller's own clock has to
// count from.
func (l *Lease) TryAcquire(ctx context.Context) (held bool, token int64, err error) {
	err = l.pool.QueryRow(ctx, acquireLease, l.name, l.owner, l.ttl).Scan(&token)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, 0, nil
	}
	if err != nil {
		return false, 0, fmt.Errorf("acquiring lease %s: %w", l.name, err)
	}
	return true, token, nil
}

const releaseLease = `
UPDATE lease
SET owner = '', until = clock_timestamp()
WHERE name = $1 AND owner = $2`

// Release gives the lease up, so that another can take it at once. When it is not held it does nothing.
func (l *Lease) Release(ctx context.Context) error {
	if _, err := l.pool.Exec(ctx, releaseLease, l.name, l.owner); err != nil {
		return fmt.Errorf("releasing lease %s: %w", l.name, err)
	}
	return nil
}

// Run tries to take the lease every third of its ttl and calls fn while it is held, with the token of that tenure. The
// context given to fn ends when ctx does, and, with [ErrLeaseLost] as its cause, when the lease could not be renewed in
// time; fn must then return. While fn finishes its work after ctx has ended the lease is still renewed. After a loss
// Run waits for fn and tries again: fn is called once per tenure and never twice at once.
//
// Run returns when ctx has ended, or when fn has returned by itself; the lease is then released. It returns fn's error,
// or nil where that only says that ctx has ended. Failures of the database are logged and tried again.
func (l *Lease) Run(ctx context.Context, fn func(ctx context.Context, token int64) error) error {
	for {
		asked := time.Now()
		held, token, err := l.tryFor(ctx, l.ttl)
		switch {
		case held:
			lost, err := l.hold(ctx, asked, token, fn)
			if !lost || ctx.Err() != nil {
				return err
			}
		case err != nil && ctx.Err() == nil:
			l.warn(ctx, "acquiring lease", "error", err)
		}
		timer := time.NewTimer(l.ttl / 3)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			l.release(ctx) // the answer to an acquisition may have been lost
			return nil
		}
	}
}

// tryFor is TryAcquire with a bound: a network that swallows packets must not keep a standby waiting for ever.
func (l *Lease) tryFor(ctx context.Context, d time.Duration) (bool, int64, error) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return l.TryAcquire(ctx)
}

// hold calls fn and renews the lease until it returns. It reports whether the lease was lost before that.
func (l *Lease) hold(ctx context.Context, asked time.Time, token int64, fn func(context.Context, int64) error) (lost bool, err error) {
	l.logger().InfoContext(ctx, "lease acquired", "lease", l.name, "token", token)
	fnCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	until := asked.Add(l.ttl)
	// The timer alone ends fn's context in time: a renewal may hang for longer than the lease lasts.
	expiry := time.AfterFunc(time.Until(until), func() { cancel(ErrLeaseLost) })
	defer expiry.Stop()

	// Renewals go on while fn finishes its work after ctx has ended, and stop when it has returned.
	renewCtx, stopRenewing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopRenewing()
	done := make(chan error, 1)
	go func() {
		defer stopRenewing()
		done <- fn(fnCtx, token)
	}()

	renew := time.NewTimer(l.ttl / 3)
	defer renew.Stop()
	for {
		select {
		case err := <-done:
			return l.finish(ctx, fnCtx, token, err)
		case <-renew.C:
			asked := time.Now()
			held, current, err := l.tryFor(renewCtx, time.Until(until))
			ok := held && current == token // another token is another tenure
			switch {
			case renewCtx.Err() != nil: // fn has returned
			case ok && expiry.Stop():
				until = asked.Add(l.ttl)
				expiry.Reset(time.Until(until))
				renew.Reset(l.ttl / 3)
			case err != nil && time.Now().Before(until):
				l.warn(ctx, "renewing lease", "error", err)
				renew.Reset(l.ttl / 10) // time for some more tries
			default:
				cancel(ErrLeaseLost)
			}
		}
	}
}

// finish ends a tenure after fn has returned err.
func (l *Lease) finish(ctx, fnCtx context.Context, token int64, err error) (lost bool, _ error) {
	lost = errors.Is(context.Cause(fnCtx), ErrLeaseLost)
	if lost {
		l.logger().WarnContext(ctx, "lease lost", "lease", l.name, "token", token)
	} else {
		l.logger().InfoContext(ctx, "lease given up", "lease", l.name, "token", token)
	}
	l.release(ctx)
	if fnCtx.Err() != nil && isContextError(err) {
		err = nil
	}
	if lost && err != nil && ctx.Err() == nil {
		l.warn(ctx, "work under a lost lease", "error", err)
	}
	return lost, err
}

// release gives the lease up also after ctx has ended.
func (l *Lease) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	if err := l.Release(ctx); err != nil {
		l.warn(ctx, "releasing lease", "error", err)
	}
}

func (l *Lease) logger() *slog.Logger {
	if l.Logger != nil {
		return l.Logger
	}
	return slog.Default()
}

func (l *Lease) warn(ctx context.Context, msg string, args ...any) {
	l.quiet.Do(func() { l.logger().WarnContext(ctx, msg, append([]any{"lease", l.name}, args...)...) })
}
