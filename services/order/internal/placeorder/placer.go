package placeorder

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/throughline/throughline/pkg/fault"
	"github.com/throughline/throughline/pkg/idempotency"
	pg "github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/pkg/saga"
	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	"github.com/throughline/throughline/services/order/internal/postgres"
)

const (
	// lanes is how many transactions place orders at one time in one process. While one waits for its commit to reach the disk
	// the other is filled; a third would only make each of them smaller.
	lanes = 2
	// laneBatch bounds one transaction. Beyond it the cost of the commit is spread thin enough.
	laneBatch = 64
	// gatePatience is how long a lane waits for other writers. It is less than a commit takes under load: somebody waits for the answer.
	gatePatience = 2 * time.Millisecond
	// placeTimeout bounds one transaction. It is not bound to a caller's context: one that goes away must not undo the
	// orders of the others.
	placeTimeout = 10 * time.Second
	// laneLockTimeout is how long a lane waits for a lock, in milliseconds: longer than another instance's transaction takes. Who has
	// to wait longer waits alone, and holds up nobody.
	laneLockTimeout = 100
	// patientPlaces bounds those who wait alone at one time, since each of them takes a connection. More are told to come back.
	patientPlaces = 2
	// patientTimeout is above the lock timeout of the database connection.
	patientTimeout = 4 * time.Second
	// maxRaces is how often a batch is tried again without the orders that somebody else placed meanwhile, before it is split.
	maxRaces = 3
)

// Placement is an order that is about to be placed: its row, its saga, and the answer of the request.
type Placement struct {
	Row    postgres.Row
	Birth  *saga.Birth
	Record idempotency.Record
}

// Placer places orders, those that come at once in one transaction: it takes what is there and never waits for more.
type Placer struct {
	pool   *pgxpool.Pool
	gate   *pg.Gate
	engine *saga.Engine[*orderv1.PlaceOrder]
	log    *slog.Logger
	lately lately

	waiting chan *entry
	stopped chan struct{} // closed when nothing is taken any more
	patient chan struct{} // holds a value for each entry that waits alone
	alone   sync.WaitGroup
}

// entry is a placement that somebody waits for.
type entry struct {
	*Placement
	done chan error // has room for its one value
}

// NewPlacer makes a placer. It places nothing before [Placer.Run].
func NewPlacer(pool *pgxpool.Pool, gate *pg.Gate, engine *saga.Engine[*orderv1.PlaceOrder], log *slog.Logger) *Placer {
	return &Placer{
		pool: pool, gate: gate, engine: engine, log: log,
		waiting: make(chan *entry, lanes*laneBatch), stopped: make(chan struct{}), patient: make(chan struct{}, patientPlaces),
	}
}

// Place places an order: its row, its saga with the first messages, and the record of the answer are committed together, or not
// at all. It returns nil when they are. When ctx ends first the order may be placed all the same.
//
// The other errors: [ErrExists]; [ErrInProgress]; postgres.ErrCommitUnknown, after which reading the order may tell; all others
// say that nothing was placed.
func (p *Placer) Place(ctx context.Context, pl *Placement) error {
	e := &entry{Placement: pl, done: make(chan error, 1)}
	select {
	case <-p.stopped:
		return ErrStopped
	default:
	}
	select {
	case p.waiting <- e:
	case <-p.stopped:
		return ErrStopped
	case <-ctx.Done():
		return fmt.Errorf("waiting to place order %s: %w", pl.Row.OrderID, ctx.Err())
	}
	select {
	case err := <-e.done:
		return err
	case <-p.stopped:
		// The lanes have ended: what they have not answered by now they never took.
		select {
		case err := <-e.done:
			return err
		default:
			return ErrStopped
		}
	case <-ctx.Done():
		return fmt.Errorf("placing order %s: %w", pl.Row.OrderID, ctx.Err())
	}
}

// Run places orders until stop ends, and then those that have been handed in. Whoever calls Place must have been told to stop
// before.
func (p *Placer) Run(stop, work context.Context) error {
	defer close(p.stopped)
	var running sync.WaitGroup
	for range lanes {
		running.Go(func() {
			for {
				select {
				case e := <-p.waiting:
					p.turn(work, e)
				case <-stop.Done():
					select {
					case e := <-p.waiting:
						p.turn(work, e)
						continue
					default:
						return
					}
				}
			}
		})
	}
	running.Wait()
	p.alone.Wait()
	return nil
}

// turn places what waits when it is this lane's turn at the database.
func (p *Placer) turn(work context.Context, first *entry) {
	defer p.gate.Enter(work, gatePatience)()
	p.place(work, p.fill(first))
}

// fill takes what waits beside the first.
func (p *Placer) fill(first *entry) []*entry {
	batch := append(make([]*entry, 0, laneBatch), first)
	for len(batch) < laneBatch {
		select {
		case e := <-p.waiting:
			batch = append(batch, e)
		default:
			return batch
		}
	}
	return batch
}

// place folds the entries of one order: the first is placed, the others share its fate and then read what became of it, since
// they may ask for something else under the same key.
func (p *Placer) place(work context.Context, batch []*entry) {
	ctx, cancel := context.WithTimeout(work, placeTimeout)
	defer cancel()
	leaders := make([]*entry, 0, len(batch))
	followers := make(map[uuid.UUID][]*entry)
	seen := make(map[uuid.UUID]*entry, len(batch))
	for _, e := range batch {
		id := e.Row.OrderID
		if seen[id] != nil {
			followers[id] = append(followers[id], e)
			continue
		}
		seen[id] = e
		leaders = append(leaders, e)
	}
	p.settle(ctx, leaders, func(e *entry, err error) {
		e.done <- err
		if err == nil {
			err = ErrExists
		}
		for _, f := range followers[e.Row.OrderID] {
			f.done <- err
		}
	})
}

// settle brings every entry to its answer. Those whose order is known already cost no transaction. A batch that fails is split,
// so that one order cannot keep the others from being placed.
func (p *Placer) settle(ctx context.Context, batch []*entry, answer func(*entry, error)) {
	for race := range maxRaces {
		var err error
		// An order that comes alone and is new here is taken for new: to look first would cost it a round trip, and to be wrong costs one
		// transaction that fails, and nobody else's.
		if fresh := p.lately.add(batch); race > 0 || len(batch) > 1 || !fresh {
			if batch, err = p.unknown(ctx, batch, answer); err != nil {
				answerAll(batch, err, answer)
				return
			}
		}
		if len(batch) == 0 {
			return
		}
		err = p.commit(ctx, batch, laneLockTimeout)
		switch {
		case err == nil:
			answerAll(batch, nil, answer)
			p.born(batch)
			return
		case errors.Is(err, pg.ErrCommitUnknown), pg.Classify(err) == pg.Unavailable, ctx.Err() != nil:
			answerAll(batch, err, answer) // never run again: it may be committed
			return
		case pg.IsUniqueViolation(err), pg.Classify(err) == pg.Conflict:
			continue // somebody else placed some of them meanwhile
		case len(batch) > 1:
		case pg.Classify(err) == pg.LockTimeout:
			p.placeAlone(ctx, batch[0], answer)
			return
		default:
			answerAll(batch, err, answer)
			return
		}
		break
	}
	if len(batch) == 1 {
		// It lost each race, and is not there: somebody else's transaction on it begins and fails again and again.
		answer(batch[0], ErrInProgress)
		return
	}
	p.log.WarnContext(ctx, "placing orders one by one", "count", len(batch))
	half := len(batch) / 2
	p.settle(ctx, batch[:half], answer)
	p.settle(ctx, batch[half:], answer)
}

func answerAll(batch []*entry, err error, answer func(*entry, error)) {
	for _, e := range batch {
		answer(e, err)
	}
}

// placeAlone places an order whose key another transaction is at work on, outside of the lane, and waits for a lock as long as the
// connection does.
func (p *Placer) placeAlone(ctx context.Context, e *entry, answer func(*entry, error)) {
	select {
	case p.patient <- struct{}{}:
	default:
		answer(e, ErrInProgress)
		return
	}
	p.alone.Go(func() {
		defer func() { <-p.patient }()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patientTimeout)
		defer cancel()
		err := p.commit(ctx, []*entry{e}, 0)
		placed := err == nil
		switch {
		case pg.IsUniqueViolation(err):
			err = ErrExists
		case pg.Classify(err) == pg.LockTimeout:
			err = ErrInProgress
		}
		answer(e, err)
		if placed {
			p.born([]*entry{e})
		}
	})
}

// unknown answers those whose order exists and gives the others, or all of them with an error. It is a fast path: a transaction that fails costs far more than
// this read. The primary key is the truth.
func (p *Placer) unknown(ctx context.Context, batch []*entry, answer func(*entry, error)) ([]*entry, error) {
	ids := make([]uuid.UUID, len(batch))
	for i, e := range batch {
		ids[i] = e.Row.OrderID
	}
	known, err := postgres.Known(ctx, p.pool, ids)
	if err != nil {
		return batch, err
	}
	rest := make([]*entry, 0, len(batch))
	for _, e := range batch {
		if known[e.Row.OrderID] {
			answer(e, ErrExists)
			continue
		}
		rest = append(rest, e)
	}
	return rest, nil
}

// setLockTimeout holds for its transaction.
const setLockTimeout = `SELECT set_config('lock_timeout', $1, true)`

// commit writes orders, sagas, messages and records in one transaction and one round trip. Their messages stay where they are until
// [Placer.born]. lockTimeout is in milliseconds; 0 is that of the connection.
func (p *Placer) commit(ctx context.Context, batch []*entry, lockTimeout int) error {
	rows, births, records := make([]postgres.Row, len(batch)), make([]*saga.Birth, len(batch)), make([]idempotency.Record, len(batch))
	for i, e := range batch {
		rows[i], births[i], records[i] = e.Row, e.Birth, e.Record
	}
	var b pgx.Batch
	if lockTimeout > 0 {
		b.Queue(setLockTimeout, strconv.Itoa(lockTimeout))
	}
	postgres.QueueInsert(&b, rows)
	if err := p.engine.QueueBirths(&b, births); err != nil {
		return err
	}
	idempotency.QueueInsert(&b, records...)
	for _, e := range batch {
		fault.At(fault.IdempotencyClaiming, e.Row.OrderID, "create")
	}
	if err := pg.SendAtomic(ctx, p.pool, &b); err != nil {
		return fmt.Errorf("placing %d orders: %w", len(batch), err)
	}
	for _, e := range batch {
		fault.At(fault.IdempotencyClaimed, e.Row.OrderID, "create")
	}
	return nil
}

// born lets the first messages of orders that are committed go. Whoever waits for an answer has it by then.
func (p *Placer) born(batch []*entry) {
	births := make([]*saga.Birth, len(batch))
	for i, e := range batch {
		births[i] = e.Birth
	}
	p.engine.Born(births)
}
