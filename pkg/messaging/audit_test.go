package messaging_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/messaging/messagingtest"
)

func TestTakes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		filter, subject string
		want            bool
	}{
		{"cmd.payment.*", "cmd.payment.authorize", true},
		{"cmd.payment.*", "cmd.payment.a.b", false},
		{"cmd.payment.*", "cmd.payment", false},
		{"cmd.payment.*", "cmd.shipping.authorize", false},
		{"rpl.order.place-order", "rpl.order.place-order", true},
		{"rpl.order.place-order", "rpl.order.place", false},
		{"evt.>", "evt.order.created", true},
		{"evt.>", "cmd.order.created", false},
		{"*.order.created", "evt.order.created", true},
	} {
		c := messaging.ConsumerConfig{Filter: []string{"x.y", tc.filter}}
		if got := c.Takes(tc.subject); got != tc.want {
			t.Errorf("%s takes %s: got %v, want %v", tc.filter, tc.subject, got, tc.want)
		}
	}
	if c := (messaging.ConsumerConfig{}); !c.Takes("any.thing") {
		t.Error("a consumer without a filter: got false, want that it takes everything")
	}
}

func TestProgressOf(t *testing.T) {
	t.Parallel()
	c := connect(t, messagingtest.New(t))
	ensure(t, c, commands)
	acked := consume(t, c, messaging.ConsumerConfig{Stream: commands.Name, Name: "payment", Filter: []string{"cmd.payment.*"}}, nil)
	for range 3 {
		publish(t, c, command())
		receive(t, "a batch", acked.batches)
	}
	other := command()
	other.Subject = "cmd.shipping.create"
	publish(t, c, other)
	var got messaging.Progress
	eventually(t, "three are acknowledged", func() bool {
		var err error
		if got, err = c.ProgressOf(within(t), commands.Name, "payment"); err != nil {
			t.Fatal(err)
		}
		return got.Floor >= 3
	})
	if got.Last != 4 {
		t.Errorf("last of the stream: got %d, want 4", got.Last)
	}
	if _, err := c.ProgressOf(within(t), commands.Name, "nobody"); err == nil {
		t.Error("progress of a consumer that is not there: got none, want an error")
	}
}

func TestMissingAt(t *testing.T) {
	t.Parallel()
	c := connect(t, messagingtest.New(t))
	ensure(t, c, events)
	event := func(subject string) messaging.Place {
		id := keys.NewMessageID()
		m := messaging.Message{
			ID: id, Kind: messaging.Event, Subject: subject, AggregateID: uuid.New(), AggregateSeq: 1, CreatedAt: keys.MessageTime(id), Payload: []byte("x"),
		}
		return messaging.Place{ID: id, Sequence: publish(t, c, m).Sequence}
	}
	var ours []messaging.Place
	for range 600 { // more than one fetch
		ours = append(ours, event("evt.thing.changed"))
		event("evt.other.changed")
	}
	stream, err := c.JetStream().Stream(t.Context(), events.Name)
	if err != nil {
		t.Fatal(err)
	}
	look := func(places ...messaging.Place) map[messaging.Place]string {
		t.Helper()
		got, err := c.MissingAt(within(t), events.Name, "evt.thing.>", places)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := look(ours...); len(got) != 0 {
		t.Errorf("nothing is gone: got %v", got)
	}
	deleted, last := ours[300], ours[len(ours)-1]
	moved := messaging.Place{ID: uuid.New(), Sequence: ours[5].Sequence}
	beyond := messaging.Place{ID: uuid.New(), Sequence: 5000}
	for _, p := range []messaging.Place{deleted, last} {
		if err := stream.DeleteMsg(t.Context(), p.Sequence); err != nil {
			t.Fatal(err)
		}
	}
	got := look(append(slices.Clone(ours), moved, beyond)...)
	for _, p := range []messaging.Place{deleted, last, moved, beyond} {
		if got[p] == "" {
			t.Errorf("place %d: got nothing, want that it is missed", p.Sequence)
		}
	}
	if !strings.Contains(got[beyond], "ends at") {
		t.Errorf("behind the end: got %q, want where the stream ends", got[beyond])
	}
	if len(got) != 4 {
		t.Errorf("got %d missing, want 4: %v", len(got), slices.Collect(maps.Values(got)))
	}
	if got := look(deleted); got[deleted] == "" {
		t.Errorf("one place alone: got nothing, want that it is missed")
	}
	// What the stream has dropped from its beginning was too old.
	if err := stream.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	event("evt.thing.changed")
	if got := look(ours...); len(got) != 0 {
		t.Errorf("before the stream's first: got %v, want nothing", got)
	}
}
