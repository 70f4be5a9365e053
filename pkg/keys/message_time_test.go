package keys_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/throughline/throughline/pkg/keys"
)

func TestMessageTime(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		id   uuid.UUID
		want time.Time
	}{
		// RFC 9562, appendix A.6.
		{"example of the RFC", uuid.MustParse("017f22e2-79b0-7cc3-98c4-dc0c0c07398f"), time.Date(2022, 2, 22, 19, 22, 22, 0, time.UTC)},
		{"another version", keys.OrderID("c", "k"), time.Time{}},
		{"nil", uuid.Nil, time.Time{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if got := keys.MessageTime(tc.id); !got.Equal(tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestMessageBound(t *testing.T) {
	t.Parallel()
	id := keys.NewMessageID()
	minted := keys.MessageTime(id) // which may be ahead of the clock, where others mint many
	if low, high := keys.MessageBound(minted), keys.MessageBound(minted.Add(time.Millisecond)); bytes.Compare(low[:], id[:]) >= 0 || bytes.Compare(id[:], high[:]) >= 0 {
		t.Errorf("id %s: got bounds %s and %s, want one below and one above", id, low, high)
	}
	if got := keys.MessageBound(time.Time{}); got != uuid.Nil {
		t.Errorf("zero time: got %s, want the zero id", got)
	}
}
