package sagasim

import (
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/throughline/throughline/pkg/participant"
	"github.com/throughline/throughline/pkg/participant/participanttest"
	"github.com/throughline/throughline/pkg/saga/sagatest"
)

// Databases are where the services of a schedule keep what they know.
type Databases struct {
	order             sagaDatabase
	payment, shipping participantDatabase
	// began is the time at which the schedule begins.
	began time.Time
}

// InMemory gives databases that nothing is in.
func InMemory() Databases {
	now := epoch
	clock := func() time.Time { return now }
	set := func(at time.Time) { now = at }
	sagas := sagatest.NewMemory(clock)
	order := &dues{read: func() (time.Time, bool) {
		timers := sagas.Timers()
		if len(timers) == 0 {
			return time.Time{}, false
		}
		return timers[0].Due, true
	}}
	steps := func() participantDatabase {
		m := participanttest.NewMemory(clock)
		d := &dues{read: func() (time.Time, bool) { return earliest(m.Steps()) }}
		return participantDatabase{
			Store: m, at: func(at time.Time) { set(at); d.known = false }, due: d.next,
			open: func() []participant.Record { return openOf(m.Steps()) },
		}
	}
	return Databases{
		order: sagaDatabase{
			Store: sagas, at: func(at time.Time) { set(at); order.known = false },
			due: func(time.Time) (time.Time, bool) { return order.next() },
		},
		payment: steps(), shipping: steps(), began: epoch,
	}
}

// dues remembers when something is due, until something is done to the store.
type dues struct {
	read  func() (time.Time, bool)
	at    time.Time
	ok    bool
	known bool
}

func (d *dues) next() (time.Time, bool) {
	if !d.known {
		d.at, d.ok = d.read()
		d.known = true
	}
	return d.at, d.ok
}

// openOf gives the steps that are not finished and not undone.
func openOf(all []participant.Record) []participant.Record {
	open := all[:0]
	for _, r := range all {
		if r.DueAt != nil || !r.State.Finished() {
			open = append(open, r)
		}
	}
	return open
}

// earliest gives when the first step can be claimed.
func earliest(all []participant.Record) (at time.Time, ok bool) {
	for _, r := range all {
		if r.DueAt != nil && (r.Kind == participant.KindUndo || !r.Undone()) && (!ok || r.DueAt.Before(at)) {
			at, ok = *r.DueAt, true
		}
	}
	return at, ok
}

// Result is how a schedule went.
type Result struct {
	Seed  uint64
	Err   error
	Table Table
	// Statuses counts how the sagas ended.
	Statuses map[string]int
	Moves    int
	// Log tells what happened, if it was asked for.
	Log   []string
	taken []uint16
}

// Run runs the schedule of a seed to its end.
func Run(seed uint64, m Mutation, db Databases) Result {
	return run(seed, fromSeed(seed), m, db, false)
}

func run(seed uint64, c *choices, m Mutation, db Databases, loud bool) Result {
	w := &world{choices: c, now: db.began, table: make(Table), loud: loud, mutation: m, databases: db}
	w.broker, w.provider, w.carrier = newBroker(w), newProvider(w), &carrier{world: w}
	w.order = newOrderService(w)
	w.payment = newParticipantService(w, paymentName, db.payment, payments{w}.steps())
	w.shipping = newParticipantService(w, shippingName, db.shipping, shipments{w}.steps())
	for _, s := range w.services {
		s.start()
	}
	w.plan(seed)
	w.run()
	if w.failed == nil {
		w.settled()
	}
	r := Result{Seed: seed, Err: w.failed, Table: w.table, Moves: w.moves, Log: w.log, taken: c.taken, Statuses: make(map[string]int)}
	for _, o := range w.orders {
		status := string(o.last.Status)
		if parked(&o.last) {
			status = "parked"
		}
		r.Statuses[status]++
	}
	w.stop()
	return r
}

// plan chooses how much goes wrong, and what is to happen to the orders.
func (w *world) plan(seed uint64) {
	pick := func(values ...int) int { return values[w.pick(len(values))] }
	w.left = pick(0, 2, 5, 10, 20)
	// Half of the schedules leave most steps in peace, and more of those than others the steps that few schedules reach.
	w.focus = []string{"", "", "", "", "", "", "", "", "", authorize, create, capture, dispatch, dispatch, void, cancelShipment,
		cancelShipment, cancelShipment}[w.pick(18)]
	w.rates = rates{
		crash: pick(0, 10, 30, 100), lose: pick(0, 10, 50, 200), repeat: pick(0, 20, 100, 300), delay: pick(0, 20, 100, 300),
		ackLost: pick(0, 20, 100), request: pick(0, 30, 100, 300), freeze: pick(0, 5, 20, 60), jump: pick(0, 0, 1, 4), silent: pick(0, 50, 300),
		linger: pick(0, 20, 200), disorder: pick(0, 50, 300, 700),
	}
	if w.pick(10) == 1 {
		w.after(w.seconds(pick(1, 3, 20)), "nothing outside answers any more", func() { w.down = w.now.Add(time.Duration(1+w.pick(600)) * time.Second) })
	}
	for n := range 1 + pick(0, 0, 0, 1) {
		o := &order{amount: 2500 + int64(n)}
		var name [16]byte
		binary.BigEndian.PutUint64(name[:], seed)
		name[15] = byte(n) //nolint:gosec // few orders
		o.id = uuid.NewSHA1(uuid.NameSpaceOID, name[:])
		w.scripted(o)
		w.orders = append(w.orders, o)
		w.after(time.Duration(n)*w.seconds(3), "the client orders", func() { w.order.begin(o) })
		for range o.cancels {
			w.after(w.seconds(pick(1, 3, 20, 65)), "the client cancels", func() { w.order.cancel(o) })
		}
	}
}

func (w *world) scripted(o *order) {
	way := w.pick(16)
	switch {
	case w.focus == cancelShipment && way < 12:
		way = 7 + way%4
	case w.focus == dispatch:
		way %= 4
	}
	switch way {
	case 1, 2:
		o.declined = true
	case 3:
		o.customer = acts
	case 4:
		o.customer = staysAway
	case 5, 6:
		o.noSuchAddress = true
	case 7, 8:
		o.holdExpires = true
	case 9, 10:
		o.parcelLost = true
	case 11:
		o.dispatchedBy = true
	}
	o.cancels = []int{0, 0, 0, 1, 1, 2}[w.pick(6)]
	o.plan = w.order.plans[[]int{0, 0, 1}[w.pick(3)]]
}

// Shortest looks for the shortest schedule that fails as the one of a seed does, and tells its story.
func Shortest(seed uint64, m Mutation) string {
	try := func(script []uint16, loud bool) Result { return run(seed, fromScript(script), m, InMemory(), loud) }
	script := Run(seed, m, InMemory()).taken
	fails := func(s []uint16) bool { return try(s, false).Err != nil }
	// What is cut off or set to zero is a quiet day; the choices in between keep their places.
	for size := len(script) / 2; size > 0; size /= 2 {
		for len(script) > size && fails(script[:len(script)-size]) {
			script = script[:len(script)-size]
		}
	}
	for size := max(len(script)/2, 1); size > 0; size /= 2 {
		for from := 0; from < len(script); from += size {
			calmer := append([]uint16(nil), script...)
			clear(calmer[from:min(from+size, len(script))])
			if !same(calmer, script) && fails(calmer) {
				script = calmer
			}
		}
	}
	r := try(script, true)
	deviations := 0
	for _, v := range script {
		if v != 0 {
			deviations++
		}
	}
	return fmt.Sprintf("seed %d: %v\nthe shortest schedule that fails, with %d choices that are not the quiet ones:\n%s",
		seed, r.Err, deviations, strings.Join(r.Log, "\n"))
}

func same(a, b []uint16) bool {
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}
