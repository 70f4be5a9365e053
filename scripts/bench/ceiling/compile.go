package ceiling

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/google/uuid"
)

// actor is one order that is being played.
type actor struct {
	ids   []uuid.UUID
	key   string
	began time.Time
	next  int           // the visit that comes next
	place chan struct{} // closed after the first visit
	done  chan struct{} // closed after the last one that an order waits for
}

// entry is one order's share of a statement.
type entry struct {
	who *actor
	st  *statement
}

// source makes one argument of a statement for several orders.
type source interface {
	gather(entries []entry, arg int) any
}

// same is an argument that does not depend on the order.
type same struct{ value any }

func (s same) gather([]entry, int) any { return s.value }

// counted is the number of rows that the statement is about.
type counted struct{ n int }

func (c counted) gather(entries []entry, arg int) any {
	sum := 0
	for _, e := range entries {
		sum += e.st.args[arg].(counted).n
	}
	return sum
}

// single is an argument of a statement that is about one order.
type single[T any] struct{ at func(*actor) T }

func (s single[T]) gather(entries []entry, _ int) any { return s.at(entries[0].who) }

// array is an argument with a value for each row.
type array[T any] struct {
	n  int
	at func(who *actor, k int) T
}

func (a array[T]) gather(entries []entry, arg int) any {
	all := make([]T, 0, len(entries)*a.n)
	for _, e := range entries {
		own := e.st.args[arg].(array[T])
		for k := range own.n {
			all = append(all, own.at(e.who, k))
		}
	}
	return all
}

// constants is an argument with a value for each row, which is the same for every order.
type constants struct{ values reflect.Value }

func (c constants) gather(entries []entry, arg int) any {
	all := reflect.MakeSlice(c.values.Type(), 0, len(entries)*c.values.Len())
	for _, e := range entries {
		all = reflect.AppendSlice(all, e.st.args[arg].(constants).values)
	}
	return all.Interface()
}

// plain tells whether a type can hold no id and no key.
func plain(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint8, reflect.Uint16, reflect.Uint32,
		reflect.Uint64, reflect.Float32, reflect.Float64:
		return true
	default:
		return t == reflect.TypeFor[time.Time]()
	}
}

// compiler turns recorded arguments into sources.
type compiler struct {
	known []uuid.UUID
	index map[uuid.UUID]int
	kinds []idKind
	seen  []bool // ids that a statement has had
	fresh []int
	key   []byte
	began time.Time
}

func newCompiler(known []uuid.UUID, key string, began time.Time) *compiler {
	c := &compiler{known: known, index: make(map[uuid.UUID]int), key: []byte(key), began: began, seen: make([]bool, len(known))}
	const ordered = 7
	for i, id := range known {
		c.index[id] = i
		c.kinds = append(c.kinds, idKind{ordered: id.Version() == ordered})
	}
	return c
}

// takeFresh gives the ids, that grow with time, which the statements since the last call were the first to have.
func (c *compiler) takeFresh() []int {
	fresh := c.fresh
	c.fresh = nil
	// In the sequence in which the product minted them, which is that of its rows.
	slices.SortFunc(fresh, func(a, b int) int { return slices.Compare(c.known[a][:], c.known[b][:]) })
	return fresh
}

func (c *compiler) id(id uuid.UUID) int {
	i, ok := c.index[id]
	if !ok {
		return -1 // the zero id
	}
	if c.kinds[i].ordered && !c.seen[i] {
		c.seen[i] = true
		c.fresh = append(c.fresh, i)
	}
	return i
}

func (c *compiler) statement(from call) (statement, error) {
	st := statement{sql: from.sql, args: make([]source, len(from.args)), shared: true}
	count := countArgument(from.sql)
	arrays := false
	for i, a := range from.args {
		if n, ok := a.(int); ok && i == count {
			st.args[i], st.shared = counted{n}, false
			continue
		}
		s, err := c.source(a)
		if err != nil {
			return st, fmt.Errorf("argument %d of %q: %w", i+1, abridged(from.sql), err)
		}
		st.args[i] = s
		switch s.(type) {
		case same:
		case single[uuid.UUID], single[*uuid.UUID], single[string], single[[]byte]:
			st.alone, st.shared = true, false
		default:
			arrays, st.shared = true, false
		}
	}
	if st.alone && arrays {
		return st, fmt.Errorf("%w: %q has arrays, and beside them the id of one order", ErrDrifted, abridged(from.sql))
	}
	return st, nil
}

func (c *compiler) source(a any) (source, error) {
	switch a := a.(type) {
	case uuid.UUID:
		if i := c.id(a); i >= 0 {
			return single[uuid.UUID]{func(who *actor) uuid.UUID { return who.ids[i] }}, nil
		}
	case *uuid.UUID:
		if a != nil {
			if i := c.id(*a); i >= 0 {
				return single[*uuid.UUID]{func(who *actor) *uuid.UUID { return &who.ids[i] }}, nil
			}
		}
	case string:
		if t := c.template([]byte(a)); len(t.patches) > 0 {
			return single[string]{func(who *actor) string { return string(t.fill(who)) }}, nil
		}
	case []byte:
		if t := c.template(a); len(t.patches) > 0 {
			return single[[]byte]{t.fill}, nil
		}
	case nil:
	case []uuid.UUID:
		at := make([]int, len(a))
		for k, id := range a {
			at[k] = c.id(id)
		}
		return array[uuid.UUID]{len(a), func(who *actor, k int) uuid.UUID { return who.ids[at[k]] }}, c.all(at, "nil")
	case []*uuid.UUID:
		at := make([]int, len(a))
		for k, id := range a {
			at[k] = -1
			if id != nil {
				at[k] = c.id(*id)
			}
		}
		return array[*uuid.UUID]{len(a), func(who *actor, k int) *uuid.UUID {
			if at[k] < 0 {
				return nil
			}
			return &who.ids[at[k]]
		}}, nil
	case []string:
		parts := make([]template, len(a))
		for k, text := range a {
			parts[k] = c.template([]byte(text))
		}
		return array[string]{len(a), func(who *actor, k int) string {
			if len(parts[k].patches) == 0 {
				return a[k]
			}
			return string(parts[k].fill(who))
		}}, nil
	case [][]byte:
		parts := make([]template, len(a))
		for k, b := range a {
			parts[k] = c.template(b)
		}
		return array[[]byte]{len(a), func(who *actor, k int) []byte {
			if len(parts[k].patches) == 0 {
				return a[k]
			}
			return parts[k].fill(who)
		}}, nil
	case []time.Time:
		after := make([]time.Duration, len(a))
		for k, t := range a {
			after[k] = t.Sub(c.began)
		}
		return array[time.Time]{len(a), func(who *actor, k int) time.Time { return who.began.Add(after[k]) }}, nil
	default:
		// Numbers, times and the like are repeated as they were, from wherever they hang.
		v := reflect.ValueOf(a)
		t := v.Type()
		if v.Kind() == reflect.Slice {
			t = t.Elem()
		}
		if !plain(t) {
			return nil, fmt.Errorf("%w: there is no way yet to repeat a %T", ErrDrifted, a)
		}
		if v.Kind() == reflect.Slice {
			return constants{v}, nil
		}
	}
	return same{a}, nil
}

// all refuses indexes of ids that are not known.
func (c *compiler) all(at []int, what string) error {
	for _, i := range at {
		if i < 0 {
			return fmt.Errorf("%w: an id is %s", ErrDrifted, what)
		}
	}
	return nil
}

// template is bytes with the ids and the key of an order in them.
type template struct {
	raw     []byte
	patches []patch
}

// patch is a place in a template. id is -1 for the key.
type patch struct {
	at, id int
	text   bool
}

func (c *compiler) template(raw []byte) template {
	t := template{raw: raw}
	find := func(what []byte, p patch) {
		for from := 0; ; {
			i := bytes.Index(raw[from:], what)
			if i < 0 {
				return
			}
			p.at = from + i
			t.patches = append(t.patches, p)
			from += i + len(what)
		}
	}
	for i, id := range c.known {
		find([]byte(id.String()), patch{id: i, text: true})
		find(id[:], patch{id: i})
	}
	find(c.key, patch{id: -1})
	for _, p := range t.patches {
		if p.id >= 0 {
			c.id(c.known[p.id])
		}
	}
	return t
}

func (t template) fill(who *actor) []byte {
	b := bytes.Clone(t.raw)
	for _, p := range t.patches {
		switch {
		case p.id < 0:
			copy(b[p.at:], who.key)
		case p.text:
			copy(b[p.at:], who.ids[p.id].String())
		default:
			copy(b[p.at:], who.ids[p.id][:])
		}
	}
	return b
}
