package outbox_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/outbox"
)

// The process dies after the acknowledgement and before the row is removed. The next one publishes the row again, under the
// same id: within the stream's window that leaves one copy, after it two or, where an acknowledgement takes longer than so short
// a window, one more.
func TestCrashBetweenPublishAndRemoval(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		window time.Duration
		copies int
	}{
		"within the broker's memory": {time.Hour, 1},
		"beyond the broker's memory": {100 * time.Millisecond, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool, conn := newPool(t), connect(t, newServer(t))
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if err := conn.WaitConnected(ctx); err != nil {
				t.Fatal(err)
			}
			cfg := jetstream.StreamConfig{Name: all.Name, Subjects: all.Subjects, Duplicates: tt.window}
			if _, err := conn.JetStream().CreateStream(ctx, cfg); err != nil {
				t.Fatal(err)
			}
			first := start(t, pool, conn, outbox.Config{FlushHorizon: never})
			first.open(t)
			chains := mustChange(t, pool, uuid.New(), uuid.Nil, event())
			first.HandOff(chains)
			awaitStream(t, conn, 1)
			first.kill()
			<-first.done
			if tt.copies > 1 {
				awaitForgotten(t, conn, tt.window)
			}

			start(t, pool, conn, outbox.Config{})
			eventually(t, "the row is removed", func() bool { return pending(t, pool) == 0 })
			found := stream(t, conn, all.Name)
			if n := len(found); n < tt.copies || n > tt.copies && tt.window > patience {
				t.Errorf("got %d copies in the stream, want %d", n, tt.copies)
			}
			for _, s := range found {
				if s.id != lastOf(chains) {
					t.Errorf("got id %s, want %s on each copy", s.id, lastOf(chains))
				}
			}
		})
	}
}

// awaitForgotten waits until the stream has forgotten the ids of the messages it holds.
func awaitForgotten(t *testing.T, conn *messaging.Conn, window time.Duration) {
	t.Helper()
	s, err := conn.JetStream().Stream(t.Context(), all.Name)
	if err != nil {
		t.Fatal(err)
	}
	stored := s.CachedInfo().State.LastTime
	eventually(t, "the window has passed", func() bool { return time.Since(stored) > 2*window })
}

// A row that another program wrote past our check of its size.
func TestOversizedRowAmongOthers(t *testing.T) {
	t.Parallel()
	pool, conn := newPool(t), connect(t, newServer(t), all)
	r := start(t, pool, conn, outbox.Config{})
	r.open(t)
	before := mustChange(t, pool, uuid.New(), uuid.Nil, event())
	exec(t, pool, `
		WITH m AS (INSERT INTO outbox_message (message_id, aggregate_id, aggregate_seq, subject, payload)
		           VALUES ($1, $2, 1, 'evt.thing.changed', $3) RETURNING *)
		INSERT INTO outbox (message_id, aggregate_id, aggregate_seq, created_at) SELECT message_id, aggregate_id, aggregate_seq, created_at FROM m`,
		uuid.Must(uuid.NewV7()), uuid.New(), make([]byte, 2<<20))
	after := mustChange(t, pool, uuid.New(), uuid.Nil, event())
	awaitBoth := awaitStream(t, conn, 2)
	got := map[uuid.UUID]bool{awaitBoth[0].id: true, awaitBoth[1].id: true}
	if !got[lastOf(before)] || !got[lastOf(after)] {
		t.Errorf("got %v, want the rows before and after", got)
	}
	eventually(t, "the row is set aside", func() bool {
		return count(t, pool, `SELECT count(*) FROM outbox WHERE set_aside_at IS NOT NULL`) == 1 && pending(t, pool) == 1
	})
	if err := r.Ready(t.Context()); err != nil {
		t.Errorf("got ready %v with a row set aside, want ready", err)
	}
}
