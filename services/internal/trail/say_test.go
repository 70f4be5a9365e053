package trail_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	trailv1 "github.com/throughline/throughline/proto/gen/throughline/trail/v1"
	"github.com/throughline/throughline/services/internal/trail"
)

// What is shown can be read again, and is as near as its last digit says, at the edges of units too.
func TestBrief(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0.0ms", 49 * time.Microsecond: "0.0ms", 50 * time.Microsecond: "0.1ms", 35_449 * time.Microsecond: "35.4ms", -1500 * time.Microsecond: "-1.5ms",
		999_949 * time.Microsecond: "999.9ms", 999_950 * time.Microsecond: "1.000s", 2_050_400 * time.Microsecond: "2.050s",
		59_999_400 * time.Microsecond: "59.999s", 59_999_500 * time.Microsecond: "1m0s", 90 * time.Minute: "1h30m0s",
	} {
		if got := trail.Brief(d); got != want {
			t.Errorf("%s: got %s, want %s", d, got, want)
		}
	}
}

// A story is told from when the order was placed, whatever clock is behind, and is as long as its saga: not as what is said days later.
func TestLength(t *testing.T) {
	t.Parallel()
	at := func(d time.Duration) *timestamppb.Timestamp {
		return timestamppb.New(time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC).Add(d))
	}
	story := &trailv1.Timeline{Entries: []*trailv1.Entry{
		{At: at(-time.Second), Kind: trailv1.EntryKind_ENTRY_KIND_STEP},
		{At: at(0), Kind: trailv1.EntryKind_ENTRY_KIND_ORDER},
		{At: at(time.Second), Kind: trailv1.EntryKind_ENTRY_KIND_ATTEMPT, Duration: durationpb.New(3 * time.Second)},
		{At: at(2 * time.Second), Kind: trailv1.EntryKind_ENTRY_KIND_TRANSITION},
		{At: at(72 * time.Hour), Kind: trailv1.EntryKind_ENTRY_KIND_WEBHOOK},
	}}
	if got, want := trail.Zero(story), at(0).AsTime(); !got.Equal(want) {
		t.Errorf("zero: got %s, want %s", got, want)
	}
	if got := trail.Length(story); got != 2*time.Second {
		t.Errorf("length: got %s, want that of the saga, 2s", got)
	}
	story.Entries = story.GetEntries()[:3:3] // the order service tells nothing but the order
	if got := trail.Length(story); got != 4*time.Second {
		t.Errorf("length without the saga: got %s, want until the attempt's end, 4s", got)
	}
	story.Entries = story.GetEntries()[:1]
	if got, want := trail.Zero(story), at(-time.Second).AsTime(); !got.Equal(want) {
		t.Errorf("zero without the order: got %s, want the earliest, %s", got, want)
	}
}
