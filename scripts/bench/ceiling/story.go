package ceiling

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// ErrDrifted says that the product no longer does what this package is made for.
var ErrDrifted = errors.New("the product and the ceiling program have drifted apart")

// Story is all that the product sent to its databases for one order.
type Story struct {
	// Known are the ids that the order's rows and messages have, the order's own first, and Key is its idempotency key.
	Known []uuid.UUID
	Key   string

	began  time.Time
	visits []visit
	ids    []idKind // of Known
}

// visit is what one part does to an order, from the message that calls it to the last commit.
type visit struct {
	database, part string
	transactions   [][]statement
	// fresh are the ids that are minted in this visit: those that grow with time and are new in it.
	fresh []int
}

type idKind struct {
	ordered bool // a UUIDv7, whose place in an index is at the right end
}

// statement is a call whose arguments can be made for any order.
type statement struct {
	sql  string
	args []source
	// alone says that it is executed once per order, since it has no arrays to put several into.
	alone bool
	// shared says that it is the same for every order, so that once is enough.
	shared bool
}

// Part sums up what a part does for one order.
type Part struct {
	Database, Name                   string
	Visits, Transactions, Statements int
}

// Parts sums the story up.
func (s *Story) Parts() []Part {
	var sums []Part
	for _, v := range s.visits {
		i := slices.IndexFunc(sums, func(p Part) bool { return p.Database == v.database && p.Name == v.part })
		if i < 0 {
			i = len(sums)
			sums = append(sums, Part{Database: v.database, Name: v.part})
		}
		sums[i].Visits++
		sums[i].Transactions += len(v.transactions)
		for _, t := range v.transactions {
			sums[i].Statements += len(t)
		}
	}
	return sums
}

// Async gives the last statements of transactions that do not wait for the disk, whatever they find. Reads that would count a repeat without
// waiting for it, if there was one, are not among them.
func (s *Story) Async() []string {
	var found []string
	for _, v := range s.visits {
		for _, t := range v.transactions {
			if !slices.ContainsFunc(t, func(st statement) bool {
				return strings.HasPrefix(st.sql, "SELECT set_config('synchronous_commit', 'off'")
			}) {
				continue
			}
			if sql := t[len(t)-1].sql; !slices.Contains(found, sql) {
				found = append(found, sql)
			}
		}
	}
	return found
}

// Story makes the story of an order of what has been recorded. key is the idempotency key of its client. The error wraps
// [ErrDrifted] if a part of the product was never seen, or sent something that cannot be repeated for other orders.
func (r *Recorder) Story(order uuid.UUID, key string) (*Story, error) {
	r.mu.Lock()
	notes := slices.Clone(r.notes)
	r.mu.Unlock()
	notes, known := concerning(notes, order)
	if len(notes) == 0 {
		return nil, fmt.Errorf("%w: nothing was recorded of order %s", ErrDrifted, order)
	}
	for _, p := range parts {
		if !slices.ContainsFunc(notes, func(t transaction) bool { return t.part == p.name }) {
			return nil, fmt.Errorf("%w: no statement came from %s: say in package ceiling which function does its work now", ErrDrifted, p.function)
		}
	}
	c := newCompiler(known, key, notes[0].at)
	s := &Story{Known: known, Key: key, began: notes[0].at}
	var removals []visit
	for _, t := range notes {
		statements := make([]statement, len(t.calls))
		for i, call := range t.calls {
			st, err := c.statement(call)
			if err != nil {
				return nil, err
			}
			statements[i] = st
		}
		v := visit{t.database, t.part, [][]statement{statements}, c.takeFresh()}
		if t.part == partRemove {
			removals = append(removals, v)
			continue
		}
		// What one part does without a break belongs together: the reading, and then the writing.
		if n := len(s.visits); n > 0 && s.visits[n-1].database == t.database && s.visits[n-1].part == t.part {
			last := &s.visits[n-1]
			last.transactions, last.fresh = append(last.transactions, statements), append(last.fresh, v.fresh...)
			continue
		}
		s.visits = append(s.visits, v)
	}
	s.visits = append(s.visits, removals...)
	s.ids = c.kinds
	return s, nil
}

// concerning gives the transactions that have to do with an order: those that name it, or another id that such a
// transaction names. All else is the product's housekeeping.
func concerning(notes []transaction, order uuid.UUID) ([]transaction, []uuid.UUID) {
	known := map[uuid.UUID]bool{order: true}
	list := []uuid.UUID{order}
	chosen := make([]bool, len(notes))
	for more := true; more; {
		more = false
		for i, t := range notes {
			if chosen[i] {
				continue
			}
			ids := t.ids()
			if !slices.ContainsFunc(ids, func(id uuid.UUID) bool { return known[id] }) {
				continue
			}
			chosen[i], more = true, true
			for _, id := range ids {
				if !known[id] {
					known[id] = true
					list = append(list, id)
				}
			}
		}
	}
	var kept []transaction
	for i, t := range notes {
		if chosen[i] {
			kept = append(kept, t)
		}
	}
	return kept, list
}

// ids are all ids among the arguments.
func (t *transaction) ids() []uuid.UUID {
	var ids []uuid.UUID
	add := func(id *uuid.UUID) {
		if id != nil && *id != uuid.Nil {
			ids = append(ids, *id)
		}
	}
	for _, c := range t.calls {
		for _, a := range c.args {
			switch a := a.(type) {
			case uuid.UUID:
				add(&a)
			case *uuid.UUID:
				add(a)
			case []uuid.UUID:
				for i := range a {
					add(&a[i])
				}
			case []*uuid.UUID:
				for _, id := range a {
					add(id)
				}
			}
		}
	}
	return ids
}

// required finds the argument that says how many rows a compare-and-set must change.
var required = regexp.MustCompile(`throughline_require\([^$]*\$(\d+)`)

// countArgument is the index of that argument, or -1.
func countArgument(sql string) int {
	m := required.FindStringSubmatch(sql)
	if m == nil {
		return -1
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		return -1
	}
	return n - 1
}

// abridged is the beginning of a statement on one line.
func abridged(sql string) string {
	const most = 100
	line := strings.Join(strings.Fields(sql), " ")
	return line[:min(len(line), most)]
}
