package live

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

func TestBoard(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	b := NewBoard(func() time.Time { return at })
	if err := b.Away(); err == nil {
		t.Error("before the first event: got no reason why none come, want one")
	}
	turned := b.Turned()
	b.Note(Created, "a", at)
	select {
	case <-turned:
	default:
		t.Error("an event has come: got no turn, want one")
	}
	for i := range 300 {
		b.Note(Created, fmt.Sprint(i), at)
	}
	b.Note(Created, "299", at) // again
	b.Note(Confirmed, "7", at)
	got := b.Newest()
	if len(got) != shown || got[0] != "299" || got[1] != "298" || got[shown-1] != fmt.Sprint(300-shown) {
		t.Errorf("newest: got %v, want the last %d, the newest first", got, shown)
	}
	if n, series := b.Rate(Created); n != 302 || slices.Max(series) != 0 {
		t.Errorf("rate within the ten seconds that are not over: got %d and %v, want 302 and nothing in the series yet", n, series)
	}
	at = at.Add(bucket)
	b.Note(Failed, "9", at.Add(-5*bucket))
	b.Note(Failed, "8", at.Add(-7*bucket))
	b.Note(Failed, "x", at.Add(-buckets*bucket)) // too old
	n, series := b.Rate(Created, Failed)
	if n != 302+1 {
		t.Errorf("rate of the last minute: got %d, want 303", n)
	}
	want := make([]float64, buckets-1)
	want[len(want)-1], want[len(want)-5], want[len(want)-7] = 302, 1, 1
	if !slices.Equal(series, want) {
		t.Errorf("rates: got %v, want %v", series, want)
	}
	at = at.Add(2 * buckets * bucket)
	b.Note(Created, "y", at)
	if n, series := b.Rate(Created); n != 1 || slices.Max(series) != 0 {
		t.Errorf("rate after a long silence: got %d and %v, want only what has just come", n, series)
	}
	b.forget()
	if got := b.Newest(); len(got) != 0 {
		t.Errorf("newest after forgetting: got %v, want none", got)
	}
}
