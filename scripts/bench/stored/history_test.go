package stored

import (
	"encoding/binary"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
)

// Up to the number of the youngest, orders are spread as if there were no others.
func TestYoungestAreSpread(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name        string
		h           history
		first, last time.Duration
	}{
		{"few", history{1000, Youngest}, 20 * time.Second, 20 * time.Millisecond},
		{"a million", history{1_000_000, Youngest}, 20_000 * time.Second, 20 * time.Millisecond},
		{"the youngest of five million", history{5_000_000, Youngest}, 20_000 * time.Second, 20 * time.Millisecond},
		{"more than a day's", history{4_320_000, 4_320_000}, 12 * time.Hour, 10 * time.Millisecond},
		{"the youngest of few", history{1000, 10}, 200 * time.Millisecond, 20 * time.Millisecond},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if first, last := tc.h.back(tc.h.former()), tc.h.back(tc.h.n-1); first != tc.first || last != tc.last {
				t.Errorf("got from %s to %s back, want from %s to %s", first, last, tc.first, tc.last)
			}
		})
	}
}

func TestFormerHaveLostWhatIsKeptForATime(t *testing.T) {
	t.Parallel()
	for _, h := range []history{{5_000_000, Youngest}, {1_000_001, Youngest}, {30, 10}} {
		last := h.back(0) + 1
		for i := range h.n {
			if h.n > 1000 && i%997 != 0 && (i-h.former()+2)/4 != 0 {
				continue // around the border and here and there
			}
			back := h.back(i)
			if back >= last {
				t.Fatalf("order %d of %v: got %s back after %s, want times to grow", i, h, back, last)
			}
			last = back
			for table, kept := range retentions() {
				if former := i < h.former(); former && back <= kept+time.Hour || !former && back > kept-time.Hour {
					t.Fatalf("order %d of %v: got %s back, of which %s keeps %s; a former order: %t", i, h, back, table, kept, former)
				}
			}
		}
	}
}

// All tables name the same orders, where a table that rows lapse from has only the youngest.
func TestTablesAgree(t *testing.T) {
	t.Parallel()
	v7, err := uuid.NewV7()
	if err != nil {
		t.Fatal(err)
	}
	of := Template{Known: []uuid.UUID{uuid.New(), v7}, Key: "the-key"}
	h := history{n: 50_000, youngest: 300}
	read := func(lapses bool) []uuid.UUID {
		columns := []column{{"order_id", pgtype.UUIDOID, false}, {"message_id", pgtype.UUIDOID, false}}
		s, err := newStamp(written(of.Known[0][:], v7[:]), columns, of.Known, of.Key)
		if err != nil {
			t.Fatal(err)
		}
		all, err := io.ReadAll(&orders{stamp: s, template: of, history: h, lapses: lapses, progress: func(int) {}})
		if err != nil {
			t.Fatal(err)
		}
		const row = 2 + 2*(4+16)
		var ids []uuid.UUID
		for b := all[copyHeader:]; int16(binary.BigEndian.Uint16(b)) != -1; b = b[row:] {
			ids = append(ids, uuid.UUID(b[6:22]), uuid.UUID(b[26:42]))
		}
		return ids
	}
	good, lapsing := read(false), read(true)
	if len(good) != 2*(1+h.n) || len(lapsing) != 2*(1+h.youngest) {
		t.Fatalf("got %d and %d ids, want %d for good and %d for a time", len(good), len(lapsing), 2*(1+h.n), 2*(1+h.youngest))
	}
	if !slices.Equal(good[:2], lapsing[:2]) || !slices.Equal(good[:2], of.Known) {
		t.Errorf("got the template's ids as %v and %v, want %v", good[:2], lapsing[:2], of.Known)
	}
	if !slices.Equal(good[len(good)-2*h.youngest:], lapsing[2:]) {
		t.Error("the youngest orders have other ids where rows are kept for a time")
	}
	for i := 3; i+2 < len(good); i += 2 {
		if slices.Compare(good[i][:6], good[i+2][:6]) > 0 {
			t.Fatalf("got the id %s before %s, want ids to be ordered by time", good[i], good[i+2])
		}
	}
}

func TestRoom(t *testing.T) {
	t.Parallel()
	const million = 1_000_000
	for n, want := range map[int]int64{0: 15e9, million: 30.4e9, 5 * million: 57.6e9} {
		if got := Room(n); got != want {
			t.Errorf("%d orders: got %d bytes, want %d", n, got, want)
		}
	}
}
