package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
			insist(ctx, t, func(ctx context.Context) error { return stepDown(ctx, nc, stream.Name) }) // refused while the others are behind, for one
			led(ctx, t, js, stream.Name, was)
		}},
		"one replica, made again": {1, func(ctx context.Context, t *testing.T, stream messaging.Stream) {
			insist(ctx, t, func(ctx context.Context) error {
				if err := js.DeleteStream(ctx, stream.Name); !errors.Is(err, jetstream.ErrStreamNotFound) {
					return err
				}
				return nil // an earlier question whose answer was lost
			})
			insist(ctx, t, func(ctx context.Context) error {
				_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: stream.Name, Subjects: stream.Subjects})
				return err
			})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // an election takes ten seconds, and on a busy machine several of them
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
			insist(ctx, t, func(ctx context.Context) error { return conn.EnsureStreams(ctx, stream) })
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

// insist asks until the answer is yes. A cluster that has no leader just then does not answer at all, so no question waits long.
func insist(ctx context.Context, t *testing.T, ask func(context.Context) error) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		bounded, cancel := context.WithTimeout(ctx, 2*time.Second)
		err := ask(bounded)
		cancel()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal(err)
		}
	}
}

// stepDown asks the leader of a stream to give up.
func stepDown(ctx context.Context, nc *nats.Conn, stream string) error {
	answer, err := nc.RequestWithContext(ctx, "$JS.API.STREAM.LEADER.STEPDOWN."+stream, nil)
	if err != nil {
		return err
	}
	var said struct {
		Error *struct{ Description string }
	}
	if err := json.Unmarshal(answer.Data, &said); err != nil {
		return err
	}
	if said.Error != nil {
		return fmt.Errorf("stepping down: %s", said.Error.Description)
	}
	return nil
}

// led waits until a stream has had a leader for a while who was not elected at the time given, and tells when he was.
func led(ctx context.Context, t *testing.T, js jetstream.JetStream, stream string, other time.Time) (since time.Time) {
	t.Helper()
	insist(ctx, t, func(ctx context.Context) error {
		s, err := js.Stream(ctx, stream)
		if err != nil {
			return err
		}
		info := s.CachedInfo()
		switch c := info.Cluster; {
		case c == nil || c.Leader == "":
			return fmt.Errorf("stream %s has no leader", stream)
		case c.LeaderSince == nil: // of a stream with one replica it is not known
			return nil
		case c.LeaderSince.Equal(other) || info.TimeStamp.Sub(*c.LeaderSince) < 100*time.Millisecond:
			return fmt.Errorf("stream %s has no leader other than that of %s who has led for a while", stream, other)
		}
		since = *info.Cluster.LeaderSince
		return nil
	})
	return since
}
