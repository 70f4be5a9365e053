package inbox_test

import (
	"testing"
	"time"

	"github.com/throughline/throughline/pkg/inbox"
)

// Replays take turns: the first second's worth at once, the others at the rate, so that thousands are not felt.
func TestReplaysAreLimited(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	m := command()
	d := newDesk(t, time.Hour, nil, m)
	d.p.Handle(ctx, deliveries(m))
	letter := d.only(t)
	const more = inbox.DefaultReplayRate / 2
	began := time.Now()
	for range inbox.DefaultReplayRate + more {
		if _, err := d.Replay(ctx, letter.ID, inbox.Order{DryRun: true}); err != nil {
			t.Fatal(err)
		}
	}
	if took, least := time.Since(began), more*time.Second/inbox.DefaultReplayRate-time.Millisecond; took < least {
		t.Errorf("%d replays: took %s, want at least %s", inbox.DefaultReplayRate+more, took, least)
	}
}
