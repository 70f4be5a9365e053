package sagasim

import (
	"context"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/throughline/throughline/pkg/inbox"
	"github.com/throughline/throughline/pkg/internal/pgclock"
	"github.com/throughline/throughline/pkg/outbox"
	"github.com/throughline/throughline/pkg/participant"
	"github.com/throughline/throughline/pkg/participant/participanttest"
	"github.com/throughline/throughline/pkg/saga"
)

const (
	// onPostgres is how many schedules a run of the tests makes on Postgres, where one takes about a hundred times as long as in
	// memory; with SCHEDULES it is one in two hundred of those.
	onPostgres = 50
	// sabotaged is how many schedules must find what is wrong with a database.
	sabotaged = 200
)

// cluster is three databases for one schedule after another.
type cluster struct {
	*testing.T
	order, payment, shipping *station
}

// station is one database, with its clock.
type station struct {
	*testing.T
	pool  *pgxpool.Pool
	clock *pgclock.Clock
	// next is when the next timer or step is due, as it was read last; stale says that something was done since.
	next  *time.Time
	stale bool
	query string
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{T: t}
	order, clock := pgclock.New(t, outbox.Migrations(), inbox.Migrations(), saga.Migrations())
	c.order = &station{T: t, pool: order, clock: clock, query: `SELECT min(due_at) FROM saga_timer`}
	participants := func() *station {
		pool, clock := pgclock.New(t, outbox.Migrations(), inbox.Migrations(), participant.Migrations())
		s := &station{T: t, pool: pool, clock: clock,
			query: `SELECT min(due_at) FROM step WHERE due_at IS NOT NULL AND (kind = 'undo' OR undone_at IS NULL)`}
		s.exec(participanttest.Schema)
		return s
	}
	c.payment, c.shipping = participants(), participants()
	return c
}

func (s *station) exec(sql string) {
	s.Helper()
	if _, err := s.pool.Exec(context.Background(), sql); err != nil {
		s.Fatalf("executing %s: %v", sql, err)
	}
}

// at sets the clock before an operation.
func (s *station) at(now time.Time) {
	s.clock.Set(s.T, now)
	s.stale = true
}

func (s *station) due() (time.Time, bool) {
	if s.stale {
		s.next, s.stale = nil, false
		if err := s.pool.QueryRow(context.Background(), s.query).Scan(&s.next); err != nil {
			s.Fatalf("reading what is due: %v", err)
		}
	}
	if s.next == nil {
		return time.Time{}, false
	}
	return *s.next, true
}

// open lists the steps that are not finished.
func (s *station) open() []participant.Record {
	found, _ := s.pool.Query(context.Background(), `
		SELECT order_id, step_name, state, undone_at, due_at, lease_owner FROM step
		 WHERE due_at IS NOT NULL OR state IN ('pending', 'waiting') ORDER BY order_id, step_name`) // CollectRows reports its error
	records, err := pgx.CollectRows(found, func(row pgx.CollectableRow) (r participant.Record, err error) {
		err = row.Scan(&r.OrderID, &r.StepName, &r.State, &r.UndoneAt, &r.DueAt, &r.LeaseOwner)
		return r, err
	})
	if err != nil {
		s.Fatalf("reading open steps: %v", err)
	}
	return records
}

// databases gives the databases with nothing in them.
func (c *cluster) databases() Databases {
	c.order.exec(`DELETE FROM saga_instance; DELETE FROM saga_timer; DELETE FROM saga_transition; DELETE FROM outbox; DELETE FROM inbox`)
	steps := func(s *station, name string) participantDatabase {
		s.exec(`DELETE FROM step; DELETE FROM business_row; DELETE FROM outbox; DELETE FROM inbox`)
		s.stale = true
		return participantDatabase{
			Store: participant.OnPostgres(s.pool, participanttest.Projector{Name: name}, consumer), at: s.at, due: s.due, open: s.open,
		}
	}
	c.order.stale = true
	return Databases{
		order: sagaDatabase{
			Store: saga.OnPostgres(c.order.pool, consumer), at: c.order.at, due: func(time.Time) (time.Time, bool) { return c.order.due() },
		},
		payment: steps(c.payment, paymentName), shipping: steps(c.shipping, shippingName), began: epoch,
	}
}

// TestModelOnPostgres runs a part of the schedules with the statements that production runs.
func TestModelOnPostgres(t *testing.T) {
	t.Parallel()
	n := onPostgres
	if all, err := strconv.Atoi(os.Getenv("SCHEDULES")); err == nil {
		n = max(all/200, 1)
	}
	c := newCluster(t)
	moves := 0
	for seed := range uint64(n) {
		r := Run(seed+1, None, c.databases())
		if r.Err != nil {
			again := run(seed+1, fromSeed(seed+1), None, c.databases(), true)
			t.Fatalf("seed %d on Postgres: %v\nin memory: %v\n%s", seed+1, r.Err, Run(seed+1, None, InMemory()).Err, joined(again.Log))
		}
		if inMemory := Run(seed+1, None, InMemory()); inMemory.Moves != r.Moves {
			t.Errorf("seed %d: got %d moves on Postgres, and %d in memory", seed+1, r.Moves, inMemory.Moves)
		}
		moves += r.Moves
	}
	t.Logf("%d moves; %d schedules on Postgres", moves, n)
}

func joined(lines []string) string {
	text := ""
	for _, l := range lines {
		text += l + "\n"
	}
	return text
}

// sabotage takes from databases what the statements rely on: to the code it is as if the statement did not have it.
var sabotage = map[Mutation]struct{ order, participants string }{
	NoTombstone: {participants: `
		CREATE FUNCTION public.forget() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN IF NEW.undone_at IS NOT NULL THEN RETURN NULL; END IF; RETURN NEW; END $$;
		CREATE TRIGGER forget BEFORE INSERT ON step FOR EACH ROW EXECUTE FUNCTION public.forget();` + doNotRequire("intents and tombstones")},
	NoFence: {participants: `
		CREATE FUNCTION public.keep() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN IF OLD.token > 0 THEN NEW.token := OLD.token; END IF; RETURN NEW; END $$;
		CREATE TRIGGER keep BEFORE UPDATE ON step FOR EACH ROW EXECUTE FUNCTION public.keep()`},
	NoInbox: {participants: forgetInbox, order: forgetInbox},
	// The history's key would find it, too.
	NoCompareAndSet: {order: `ALTER TABLE saga_transition DROP CONSTRAINT saga_transition_pkey;` + doNotRequire("saga_instance")},
}

const forgetInbox = `
	CREATE FUNCTION public.forget_inbox() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
	CREATE TRIGGER forget BEFORE INSERT ON inbox FOR EACH ROW EXECUTE FUNCTION public.forget_inbox()`

// doNotRequire makes throughline_require content with anything, for one thing that it is asked to require.
func doNotRequire(what string) string {
	return `
	CREATE OR REPLACE FUNCTION public.throughline_require(actual bigint, expected bigint, what text) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
	BEGIN
	    IF actual IS DISTINCT FROM expected AND what <> '` + what + `' THEN
	        RAISE EXCEPTION USING ERRCODE = 'TL001', MESSAGE = what;
	    END IF;
	    RETURN actual;
	END $$`
}

// TestModelFindsKnownBugsOfStatements breaks what the statements on Postgres rely on, and shows that each is found.
func TestModelFindsKnownBugsOfStatements(t *testing.T) {
	t.Parallel()
	for m, broken := range sabotage {
		t.Run(string(m), func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			for _, s := range []*station{c.payment, c.shipping} {
				s.exec(broken.participants)
			}
			c.order.exec(broken.order)
			for _, seed := range candidates(m) {
				if r := Run(seed, None, c.databases()); r.Err != nil {
					t.Logf("found by schedule %d: %v", r.Seed, r.Err)
					return
				}
			}
			t.Errorf("not found in %d schedules", sabotaged)
		})
	}
}

// candidates are the seeds to try: first those that find the same bug in memory, where it costs little to look.
func candidates(m Mutation) []uint64 {
	const few = 5
	var seeds []uint64
	for seed := uint64(1); len(seeds) < few && seed <= 10_000; seed++ {
		if Run(seed, m, InMemory()).Err != nil {
			seeds = append(seeds, seed)
		}
	}
	for seed := range uint64(sabotaged) {
		seeds = append(seeds, seed+1)
	}
	return seeds
}
