package inbox_test

import (
	"context"
	"testing"

	"github.com/throughline/throughline/pkg/inbox"
	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/postgres/pgtest"
)

// The broker has a message until what it leads to has committed.
func TestAckFollowsTheCommit(t *testing.T) {
	t.Parallel()
	pool, conn := pgtest.Open(t, newURL(t)), broker(t)
	commit := apply(pool, nil)
	entered, release := make(chan struct{}), make(chan struct{})
	consume(t, conn, &inbox.Processor{Pool: pool, Consumer: consumerName, Apply: func(ctx context.Context, batch []messaging.Delivery) error {
		close(entered)
		<-release
		return commit(ctx, batch)
	}})
	publish(t, conn, command())
	<-entered
	// An acknowledgement that was sent is dealt with when the broker answers.
	if err := conn.Session().Probe(t.Context()); err != nil {
		t.Error(err)
	}
	if got := waiting(t, conn); got != 1 {
		t.Errorf("got %d messages at the broker before the commit, want 1", got)
	}
	close(release)
	eventually(t, "the message is acknowledged", func() bool { return waiting(t, conn) == 0 })
	if got := count(t, pool, `SELECT count(*) FROM effect`); got != 1 {
		t.Errorf("got %d effects, want 1", got)
	}
}
