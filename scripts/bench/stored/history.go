package stored

import (
	"time"

	"github.com/throughline/throughline/pkg/idempotency"
	"github.com/throughline/throughline/pkg/inbox"
	"github.com/throughline/throughline/pkg/outbox"
)

// Youngest is how many of the stored orders still have what is kept for a time; those before them have only what is kept for good. Such rows
// are more than half of what an order takes, and those of a million are eight times what the measured server's memory holds: more of them
// would fill the disk, and change nothing in what is looked up.
const Youngest = 1_000_000

const (
	// spacing is how far apart the youngest orders were placed, and longest how long ago the first of them at most: answers are kept
	// for a day, and none of them is to expire while the system is measured.
	spacing = 20 * time.Millisecond
	longest = 12 * time.Hour
	// formerSpacing is how far apart the orders before them were placed: four million of them are 46 days of a busy shop.
	formerSpacing = time.Second
	// lapsed is older than anything that is kept for a time, of which inboxes remember longest. Reapers come once an hour, and partitions go by
	// the day.
	lapsed = inbox.DefaultTTL + 24*time.Hour
)

// passing are the tables whose rows an order does not leave behind for good.
var passing = []string{"outbox", "saga_timer"}

// retentions are the tables that the services remove old rows from, and how long these stay, by the defaults that the measured services
// run with. They are those that the reapers of pkg/inbox and pkg/idempotency delete from, and those whose days the upkeep of pkg/outbox drops.
func retentions() map[string]time.Duration {
	return map[string]time.Duration{
		"outbox_message":     outbox.DefaultRetention,
		"outbox_sent":        outbox.DefaultRetention,
		"inbox":              inbox.DefaultTTL,
		"inbox_failure":      inbox.DefaultTTL,
		"idempotency_record": idempotency.DefaultLifetime,
	}
}

// history says when stored orders were placed, from the oldest, number 0, on.
type history struct {
	// n is how many there are, youngest how many of them have what is kept for a time.
	n, youngest int
}

// former is how many orders have lost what is kept for a time.
func (h history) former() int { return max(h.n-h.youngest, 0) }

// back is how long before the template the order i was placed. All that was kept of a former one for a time has expired.
func (h history) back(i int) time.Duration {
	former := h.former()
	if i < former {
		return lapsed + time.Duration(former-i)*formerSpacing
	}
	return time.Duration(h.n-i) * min(spacing, longest/time.Duration(h.n-former))
}

// What a stored order takes of the disk, indexes included, and what loading takes besides. Measured with 200,000 orders, and with a million of
// which 200,000 were young: 6,750 bytes for good and 8,520 for a time.
const (
	bytesForGood = 6_800
	bytesForTime = 8_600
	// bytesAside are the log, which may grow to 13 GB before a checkpoint, what indexes are sorted in, and the databases that are copied.
	bytesAside = 15_000_000_000
)

// Room is how many bytes of the disk n stored orders take in all databases together, at the most while they are loaded.
func Room(n int) int64 {
	return bytesAside + int64(n)*bytesForGood + int64(min(n, Youngest))*bytesForTime
}
