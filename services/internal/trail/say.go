package trail

import (
	"fmt"
	"time"

	trailv1 "github.com/throughline/throughline/proto/gen/throughline/trail/v1"
)

// Brief writes a duration of a story, the same wherever a story is told, so that what one shows is found in the other: tenths of a
// millisecond below a second, milliseconds below a minute, and seconds above.
func Brief(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + Brief(-d)
	case d < time.Second-50*time.Microsecond:
		return fmt.Sprintf("%.1fms", float64(d)/float64(time.Millisecond))
	case d < time.Minute-500*time.Microsecond:
		return fmt.Sprintf("%.3fs", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// Zero is the time that a story's times are told from: when the order was placed, or the earliest that is known.
func Zero(t *trailv1.Timeline) time.Time {
	var zero time.Time
	for _, e := range t.GetEntries() {
		if e.GetKind() == trailv1.EntryKind_ENTRY_KIND_ORDER {
			return e.GetAt().AsTime()
		}
		if at := e.GetAt().AsTime(); zero.IsZero() || at.Before(zero) {
			zero = at
		}
	}
	return zero
}

// Length is from [Zero] to the last change of the order's saga, which is its end if it has ended: what the outside says and what operators look at
// may come days later. Where no change is known it is to the end of what ended last.
func Length(t *trailv1.Timeline) time.Duration {
	zero := Zero(t)
	var changed, last time.Duration
	for _, e := range t.GetEntries() {
		end := e.GetAt().AsTime().Sub(zero) + e.GetDuration().AsDuration()
		last = max(last, end)
		if e.GetKind() == trailv1.EntryKind_ENTRY_KIND_TRANSITION {
			changed = max(changed, end)
		}
	}
	if changed > 0 {
		return changed
	}
	return last
}
