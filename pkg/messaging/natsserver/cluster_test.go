package natsserver_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/throughline/throughline/pkg/messaging/natsserver"
)

func TestStartCluster(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	servers, err := natsserver.StartCluster(natsserver.Config{StoreDir: t.TempDir(), ServerName: "member"}, 3)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range servers {
		t.Cleanup(s.Shutdown)
	}
	_, js := connect(t, servers[0])
	stream, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}, Replicas: 3})
	if err != nil {
		t.Fatalf("creating a stream with three replicas: %v", err)
	}
	cluster := stream.CachedInfo().Cluster
	got := []string{cluster.Leader}
	for _, r := range cluster.Replicas {
		got = append(got, r.Name)
	}
	slices.Sort(got)
	if want := []string{"member-1", "member-2", "member-3"}; !slices.Equal(got, want) {
		t.Errorf("replicas: got %q, want %q", got, want)
	}
	if got := strings.Split(natsserver.URLs(servers), ","); len(got) != 3 || got[1] != servers[1].URL() {
		t.Errorf("URLs: got %q, want those of the three servers", got)
	}

	if _, err := js.Publish(ctx, "s", []byte("kept")); err != nil {
		t.Fatalf("publishing: %v", err)
	}
	servers[1].Shutdown()
	again := start(t, servers[1].Config())
	if again.URL() != servers[1].URL() {
		t.Errorf("url after restart: got %s, want %s", again.URL(), servers[1].URL())
	}
	// What the cluster has can be read through the server that came back.
	_, js = connect(t, again)
	for ctx.Err() == nil {
		// It has to find the leader first, and does not answer before.
		try, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		stream, err := js.Stream(try, "S")
		cancel()
		if err != nil {
			continue
		}
		msg, err := stream.GetLastMsgForSubject(ctx, "s")
		if err != nil {
			t.Fatalf("reading through the server that came back: %v", err)
		}
		if got, want := string(msg.Data), "kept"; got != want {
			t.Errorf("message: got %q, want %q", got, want)
		}
		return
	}
	t.Fatal("the server that came back did not join the cluster")
}

func TestStartClusterFails(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name string
		cfg  natsserver.Config
		n    int
		text string
	}{
		{"no store folder", natsserver.Config{}, 3, "no store folder"},
		{"one port for all", natsserver.Config{StoreDir: t.TempDir(), Port: 4222}, 3, "port"},
		{"one server", natsserver.Config{StoreDir: t.TempDir()}, 1, "1 servers"},
		{"no such address", natsserver.Config{StoreDir: t.TempDir(), Host: "192.0.2.1"}, 3, "192.0.2.1"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			servers, err := natsserver.StartCluster(c.cfg, c.n)
			if err == nil || !strings.Contains(err.Error(), c.text) {
				t.Errorf("StartCluster: got %d servers and %v, want an error with %q", len(servers), err, c.text)
			}
		})
	}
	_, err := natsserver.Start(natsserver.Config{StoreDir: t.TempDir(), Cluster: natsserver.Cluster{Name: "c"}})
	if err == nil || errors.Is(err, natsserver.ErrNotReady) {
		t.Errorf("Start of a member without its cluster: got %v, want an error of its configuration", err)
	}
}
