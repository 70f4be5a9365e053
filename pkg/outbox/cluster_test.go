package outbox

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/throughline/throughline/pkg/messaging"
	"github.com/throughline/throughline/pkg/messaging/messagingtest"
	"github.com/throughline/throughline/pkg/messaging/natsserver"
	"github.com/throughline/throughline/pkg/postgres"
	"github.com/throughline/throughline/pkg/postgres/pgtest"
)

// In a cluster the server that forgets need not be the one that we are connected to: then nothing disconnects, and it is the
// stream's leader that tells.
func TestRowsAreKeptWhenTheLeaderMayHaveForgotten(t *testing.T) {
	t.Parallel()
	servers := messagingtest.NewCluster(t, 3)
	nc, err := nats.Connect(natsserver.URLs(servers), nats.MaxReconnects(-1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		replicas int
		forget   func(ctx context.Context, t *testing.T, stream messaging.Stream)
	}{
		"three replicas, led anew": {3, func(ctx context.Context, t *testing.T, stream messaging.Stream) {
			was := led(ctx, t, js, stream.Name, time.Time{})
			if _, err := nc.RequestWithContext(ctx, "$JS.API.STREAM.LEADER.STEPDOWN."+stream.Name, nil); err != nil {
				t.Fatal(err)
			}
			led(ctx, t, js, stream.Name, was)
		}},
		"one replica, made again": {1, func(ctx context.Context, t *testing.T, stream messaging.Stream) {
			if err := js.DeleteStream(ctx, stream.Name); err != nil {
				t.Fatal(err)
			}
			if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: stream.Name, Subjects: stream.Subjects}); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			word := "one"
			if tt.replicas == 3 {
				word = "three"
			}
			stream := messaging.Stream{Name: word, Subjects: []string{"evt." + word + ".>"}, Replicas: tt.replicas}
			pool := pgtest.New(t, Migrations())
			conn, err := messaging.Connect(messaging.Config{URL: natsserver.URLs(servers)})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(conn.Close)
			if err := conn.EnsureStreams(ctx, stream); err != nil {
				t.Fatal(err)
			}
			led(ctx, t, js, stream.Name, time.Time{})
			a := Aggregate{ID: uuid.New()}
			chains := []Chain{a.Begin(uuid.Nil)}
			a.Append(&chains[0], messaging.Message{Kind: messaging.Event, Subject: "evt." + word + ".changed"})
			if err := postgres.InTx(ctx, pool, pgx.TxOptions{}, func(tx pgx.Tx) error { return Write(ctx, tx, chains) }); err != nil {
				t.Fatal(err)
			}
			// The relay does not run: each of its moves is made here.
			r := NewRelay(pool, conn, Config{FlushHorizon: 1})
			publish := func() {
				t.Helper()
				if err := conn.WaitConnected(ctx); err != nil {
					t.Fatal(err)
				}
				if f := r.publish(ctx, conn.Session(), chains, handOff); f != nil {
					t.Fatalf("publishing: %v", f[0].err)
				}
			}
			publish()
			before := conn.Session()
			tt.forget(ctx, t, stream)
			if n, err := r.removeOnce(ctx); n != 0 || !errors.Is(err, messaging.ErrForgotten) {
				t.Errorf("after the leader changed: got %d removed, %v, want none and %v", n, err, messaging.ErrForgotten)
			}
			select {
			case <-before.Changed: // so everything that is pending is published again
			case <-ctx.Done():
				t.Fatal("the session did not end")
			}
			publish()
			if n, err := r.removeOnce(ctx); n != 1 || err != nil {
				t.Errorf("after another acknowledgement: got %d removed, %v, want the row gone", n, err)
			}
		})
	}
}

// led waits until a stream has had a leader for a while who was not elected at the time given, and tells when he was.
func led(ctx context.Context, t *testing.T, js jetstream.JetStream, stream string, other time.Time) (since time.Time) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if s, err := js.Stream(ctx, stream); err == nil {
			info := s.CachedInfo()
			switch c := info.Cluster; {
			case c == nil || c.Leader == "":
			case c.LeaderSince == nil: // of a stream with one replica it is not known
				return since
			case !c.LeaderSince.Equal(other) && info.TimeStamp.Sub(*c.LeaderSince) > 100*time.Millisecond:
				return *c.LeaderSince
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("stream %s: no leader other than that of %s", stream, other)
		}
	}
}
