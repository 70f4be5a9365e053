package ceiling

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
)

const key = "key-of-the-recorded"

// v7 makes an id that grows with n.
func v7(t *testing.T, n byte) uuid.UUID {
	t.Helper()
	id, err := uuid.NewV7()
	if err != nil {
		t.Fatal(err)
	}
	id[0], id[1] = n, 0 // far apart, in the sequence of n
	return id
}

func TestConcerning(t *testing.T) {
	t.Parallel()
	order, message, step, strange := uuid.New(), v7(t, 1), uuid.New(), uuid.New()
	notes := []transaction{
		{part: "replies", calls: []call{{"select", []any{[]uuid.UUID{message}}}}}, // names it only through the next
		{part: "place", calls: []call{{"insert", []any{[]uuid.UUID{order}, []*uuid.UUID{&message, nil}}}}},
		{part: "sweep", calls: []call{{"select", []any{10}}}},
		{part: "", calls: []call{{"select", []any{strange}}}},
		{part: partRemove, calls: []call{{"delete", []any{[]uuid.UUID{message, step}}}}},
	}
	kept, known := concerning(notes, order)
	var got []string
	for _, n := range kept {
		got = append(got, n.part)
	}
	if want := []string{"replies", "place", partRemove}; !slices.Equal(got, want) {
		t.Errorf("got transactions of %q, want of %q", got, want)
	}
	if len(known) != 3 || known[0] != order || !slices.Contains(known, message) || !slices.Contains(known, step) {
		t.Errorf("got the ids %v, want %v, %v and %v", known, order, message, step)
	}
}

// Two orders at different visits to one part share a statement: their rows follow each other, the count is the sum, and
// what is every order's own is in the place of what was recorded.
func TestMerge(t *testing.T) {
	t.Parallel()
	order, message := uuid.New(), v7(t, 1)
	c := newCompiler([]uuid.UUID{order, message}, key, time.Now())
	const sql = `SELECT throughline_require((SELECT count(*) FROM moved), $4, 'thing')`
	one, err := c.statement(call{sql, []any{[]uuid.UUID{order}, []string{"state of " + order.String()}, [][]byte{[]byte("a " + key)}, 1, "reader"}})
	if err != nil {
		t.Fatal(err)
	}
	two, err := c.statement(call{sql, []any{[]uuid.UUID{order, message}, []string{"x", "y"}, [][]byte{{1}, slices.Concat([]byte{7}, order[:])}, 2, "reader"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := c.takeFresh(); !slices.Equal(got, []int{1}) {
		t.Errorf("got fresh ids %v, want only the one that grows with time", got)
	}
	first := &actor{ids: []uuid.UUID{uuid.New(), v7(t, 2)}, key: "key-of-the-first!!!"}
	second := &actor{ids: []uuid.UUID{uuid.New(), v7(t, 3)}, key: "key-of-the-second!!"}
	m := newMerge()
	m.add(first, []statement{one})
	m.add(second, []statement{two})
	b := m.batch()
	if len(b.QueuedQueries) != 1 {
		t.Fatalf("got %d statements, want 1", len(b.QueuedQueries))
	}
	args := b.QueuedQueries[0].Arguments
	if got, want := args[0], []uuid.UUID{first.ids[0], second.ids[0], second.ids[1]}; !slices.Equal(got.([]uuid.UUID), want) {
		t.Errorf("got ids %v, want %v", got, want)
	}
	if got, want := args[1], []string{"state of " + first.ids[0].String(), "x", "y"}; !slices.Equal(got.([]string), want) {
		t.Errorf("got texts %q, want %q", got, want)
	}
	if got, want := args[2].([][]byte), [][]byte{[]byte("a " + first.key), {1}, slices.Concat([]byte{7}, second.ids[0][:])}; !slices.EqualFunc(got, want, bytes.Equal) {
		t.Errorf("got bytes %q, want %q", got, want)
	}
	if args[3] != 3 {
		t.Errorf("got the count %v, want 3", args[3])
	}
	if args[4] != "reader" {
		t.Errorf("got %v, want what was recorded", args[4])
	}
}

// What is the same for everybody is sent once, what is about one order once for each.
func TestMergeWithoutArrays(t *testing.T) {
	t.Parallel()
	order := uuid.New()
	c := newCompiler([]uuid.UUID{order}, key, time.Now())
	var statements []statement
	for _, recorded := range []call{{"SELECT now()", nil}, {"SELECT step", []any{order, "name"}}} {
		st, err := c.statement(recorded)
		if err != nil {
			t.Fatal(err)
		}
		statements = append(statements, st)
	}
	m := newMerge()
	for range 3 {
		m.add(&actor{ids: []uuid.UUID{uuid.New()}}, statements)
	}
	var got []string
	for _, q := range m.batch().QueuedQueries {
		got = append(got, q.SQL)
	}
	if want := []string{"SELECT now()", "SELECT step", "SELECT step", "SELECT step"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestDrift(t *testing.T) {
	t.Parallel()
	order := uuid.New()
	for _, tc := range []struct {
		name string
		args []any
	}{
		{"an argument of a new type", []any{struct{}{}}},
		{"arrays beside one order's id", []any{order, []uuid.UUID{order}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := newCompiler([]uuid.UUID{order}, key, time.Now())
			if _, err := c.statement(call{"SELECT", tc.args}); !errors.Is(err, ErrDrifted) {
				t.Errorf("got %v, want %v", err, ErrDrifted)
			}
		})
	}
	var r Recorder
	r.notes = []transaction{{part: "place", calls: []call{{"SELECT", []any{[]uuid.UUID{order}}}}}}
	if _, err := r.Story(order, key); !errors.Is(err, ErrDrifted) {
		t.Errorf("a part that was never seen: got %v, want %v", err, ErrDrifted)
	}
}
