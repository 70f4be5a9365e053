package keys

import (
	"encoding/binary"
	"time"

	"github.com/google/uuid"
)

// MessageTime returns when a message id was minted, by the clock of the process that minted it, to the millisecond. It
// is the zero time for an id that is not a UUIDv7.
func MessageTime(id uuid.UUID) time.Time {
	if id.Version() != 7 {
		return time.Time{}
	}
	// RFC 9562, section 5.7: the first 48 bits are Unix time in milliseconds.
	var ms [8]byte
	copy(ms[2:], id[:6])
	return time.UnixMilli(int64(binary.BigEndian.Uint64(ms[:]))).UTC()
}

// MessageBound returns an id that is below those of all messages minted at t or later, and above those minted in an earlier millisecond.
func MessageBound(t time.Time) uuid.UUID {
	var id uuid.UUID
	ms := max(t.UnixMilli(), 0)
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(ms))
	copy(id[:6], b[2:])
	return id
}
