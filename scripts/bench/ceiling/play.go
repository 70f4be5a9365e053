package ceiling

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/throughline/throughline/pkg/postgres"
)

// Config makes a [Player].
type Config struct {
	Story *Story
	// Pools are the databases by the names that the recorder knew them under.
	Pools map[string]*pgxpool.Pool
	// Batch is how many orders at most are in one transaction; 1 is one commit a message. Removals, which nobody waits for, are
	// batched as the product batches them.
	Batch int
	// Threads is how many transactions each part has under way at one time.
	Threads int
}

// Player plays a story for many orders at a time.
type Player struct {
	cfg   Config
	posts map[post]chan *actor
	ctx   context.Context
	stop  context.CancelFunc
	wg    sync.WaitGroup
	last  int // the visit that completes an order; removals come after it
	// begun are the orders that have visits left, removals included.
	begun sync.WaitGroup

	mu  sync.Mutex
	err error // the first failure, which ends everything
}

// post is where a part waits for orders.
type post struct{ database, part string }

const (
	// waiting is room for every order in flight at each post, so that handing over never blocks.
	waiting = 1 << 14
	// removeEvery and removeRows are how the product removes: not at once, and many rows at a time.
	removeEvery = 200 * time.Millisecond
	// patience is how long a part waits for its turn: for as long as it takes.
	patience   = time.Minute
	removeRows = 1000
)

// NewPlayer starts a player. Call [Player.Close] in the end.
func NewPlayer(cfg Config) *Player {
	ctx, stop := context.WithCancel(context.Background())
	p := &Player{cfg: cfg, ctx: ctx, stop: stop, posts: make(map[post]chan *actor)}
	for i, v := range cfg.Story.visits {
		at := post{v.database, v.part}
		if p.posts[at] == nil {
			p.posts[at] = make(chan *actor, waiting)
		}
		if v.part != partRemove {
			p.last = i
		}
	}
	for at := range p.posts {
		threads := cfg.Threads
		if at.part == partRemove {
			threads = 1
		}
		for range threads {
			p.wg.Go(func() { p.work(at) })
		}
	}
	return p
}

// Close ends the player, removals included.
func (p *Player) Close() {
	p.stop()
	p.wg.Wait()
}

// Settle waits until nothing is left to remove of the orders that were played. No order may be under way.
func (p *Player) Settle(ctx context.Context) error {
	over := make(chan struct{})
	go func() {
		p.begun.Wait()
		close(over)
	}()
	select {
	case <-over:
		return nil
	case <-p.ctx.Done():
		return p.failure()
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *Player) failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Errorf("playing the ceiling: %w", p.err)
}

// Do plays one order: placed after its first visit, complete when it returns.
func (p *Player) Do(ctx context.Context, placed func()) error {
	s := p.cfg.Story
	who := &actor{
		ids: make([]uuid.UUID, len(s.ids)), key: randomKey(len(s.Key)), began: time.Now(),
		done: make(chan struct{}), place: make(chan struct{}),
	}
	for i, kind := range s.ids {
		if !kind.ordered {
			who.ids[i] = uuid.New()
		}
	}
	p.begun.Add(1)
	p.pass(who)
	select {
	case <-who.place:
		placed()
	case <-p.ctx.Done():
	case <-ctx.Done():
	}
	select {
	case <-who.done:
		return nil
	case <-p.ctx.Done():
		return p.failure()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// pass hands an order to the part whose visit is next.
func (p *Player) pass(who *actor) {
	v := p.cfg.Story.visits[who.next]
	p.posts[post{v.database, v.part}] <- who
}

// work is one thread of one part.
func (p *Player) work(at post) {
	limit := p.cfg.Batch
	if at.part == partRemove {
		limit = removeRows
	}
	in := p.posts[at]
	batch := make([]*actor, 0, limit)
	for {
		if at.part == partRemove {
			select {
			case <-time.After(removeEvery):
			case <-p.ctx.Done():
				return
			}
		}
		select {
		case who := <-in:
			batch = append(batch[:0], who)
		case <-p.ctx.Done():
			return
		}
		for len(batch) < limit {
			select {
			case who := <-in:
				batch = append(batch, who)
				continue
			default:
			}
			break
		}
		if err := p.visit(at, batch); err != nil {
			p.mu.Lock()
			if p.err == nil {
				p.err = err
			}
			p.mu.Unlock()
			p.stop()
			return
		}
		p.moveOn(batch)
	}
}

func (p *Player) moveOn(batch []*actor) {
	for _, who := range batch {
		if who.next == 0 {
			close(who.place)
		}
		if who.next == p.last {
			close(who.done)
		}
		if who.next++; who.next < len(p.cfg.Story.visits) {
			p.pass(who)
		} else {
			p.begun.Done()
		}
	}
}

// visit runs the transactions of one visit for several orders, which may be at different visits to the same part.
func (p *Player) visit(at post, batch []*actor) error {
	visits := p.cfg.Story.visits
	for _, who := range batch {
		for _, i := range visits[who.next].fresh {
			if who.ids[i] != uuid.Nil {
				continue
			}
			id, err := uuid.NewV7()
			if err != nil {
				return fmt.Errorf("minting an id: %w", err)
			}
			who.ids[i] = id
		}
	}
	for k := 0; ; k++ {
		b := newMerge()
		for _, who := range batch {
			v := &visits[who.next]
			if k < len(v.transactions) {
				b.add(who, v.transactions[k])
			}
		}
		if len(b.groups) == 0 {
			return nil
		}
		if err := p.commit(at.database, b); err != nil {
			return fmt.Errorf("%s in %s: %w", at.part, at.database, err)
		}
	}
}

// commit runs a transaction. When it has waited too long for a lock, whose owner the disk holds up perhaps, it is undone and runs again, as
// clients of the product repeat an order.
func (p *Player) commit(database string, m *merge) error {
	for {
		err := p.cfg.Pools[database].SendBatch(p.ctx, m.batch()).Close()
		if err == nil || postgres.Classify(err) != postgres.LockTimeout {
			return err
		}
	}
}

// merge is one transaction for several orders.
type merge struct {
	groups []*group
	bySQL  map[string]*group
}

// group is one statement and whose rows are in it.
type group struct {
	entries       []entry
	alone, shared bool
}

func newMerge() *merge { return &merge{bySQL: make(map[string]*group)} }

func (m *merge) add(who *actor, statements []statement) {
	for i := range statements {
		st := &statements[i]
		g := m.bySQL[st.sql]
		if g == nil {
			g = &group{alone: st.alone, shared: st.shared}
			m.bySQL[st.sql] = g
			m.groups = append(m.groups, g)
		}
		if !g.shared || len(g.entries) == 0 {
			g.entries = append(g.entries, entry{who, st})
		}
	}
}

func (m *merge) batch() *pgx.Batch {
	var b pgx.Batch
	queue := func(entries []entry) {
		st := entries[0].st
		args := make([]any, len(st.args))
		for i, s := range st.args {
			args[i] = s.gather(entries, i)
		}
		b.Queue(st.sql, args...)
	}
	for _, g := range m.groups {
		if !g.alone {
			queue(g.entries)
			continue
		}
		for i := range g.entries {
			queue(g.entries[i : i+1])
		}
	}
	return &b
}

// randomKey is a key of n characters.
func randomKey(n int) string {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	b := make([]byte, n)
	for i := range b {
		b[i] = letters[rand.IntN(len(letters))]
	}
	return string(b)
}
