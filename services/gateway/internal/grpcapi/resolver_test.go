package grpcapi

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	"github.com/throughline/throughline/services/internal/apikey"
	"github.com/throughline/throughline/services/internal/grpcx"
)

// table is an order service that knows one key.
type table struct {
	orderv1.AccessServiceClient
	key    apikey.Key
	client atomic.Value // string
	asked  atomic.Int64
	fails  atomic.Bool
}

func (t *table) ResolveKey(ctx context.Context, req *orderv1.ResolveKeyRequest, _ ...grpc.CallOption) (*orderv1.ResolveKeyResponse, error) {
	t.asked.Add(1)
	select {
	case <-time.After(10 * time.Millisecond):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if t.fails.Load() {
		return nil, errors.New("broken")
	}
	if req.GetPrefix() != t.key.Prefix || string(req.GetSha256()) != string(t.key.Hash[:]) {
		return &orderv1.ResolveKeyResponse{}, nil
	}
	client, _ := t.client.Load().(string)
	return &orderv1.ResolveKeyResponse{ClientId: client, Scopes: []orderv1.Scope{orderv1.Scope_SCOPE_ORDERS_READ, 99}}, nil
}

// A key is asked for once, by all who come with it, and again when its time is over: soon when it was unknown.
func TestDirectoryRemembers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		service := &table{key: apikey.Mint()}
		d := NewDirectory(&KeyList{}, service)
		ask := func(want string, questions int64) {
			t.Helper()
			var wg sync.WaitGroup
			for range 20 {
				wg.Go(func() {
					got, err := d.Authenticate(t.Context(), service.key.Text)
					if got.ID != want || (err == nil) != (want != "") {
						t.Errorf("got %v, %v, want %q", got, err, want)
					}
					if want != "" && (!got.May(apikey.OrdersRead) || got.May(apikey.OrdersWrite) || len(got.Scopes) != 1) {
						t.Errorf("got scopes %v, want %s", got.Scopes, apikey.OrdersRead)
					}
				})
			}
			wg.Wait()
			if got := service.asked.Load(); got != questions {
				t.Errorf("got %d questions, want %d", got, questions)
			}
		}
		service.client.Store("")
		ask("", 1)
		service.client.Store("shop")
		ask("", 1) // not yet
		time.Sleep(unknownLife)
		ask("shop", 2)
		service.client.Store("") // revoked
		time.Sleep(knownLife - time.Second)
		ask("shop", 2)
		time.Sleep(time.Second)
		ask("", 3)

		time.Sleep(unknownLife)
		service.fails.Store(true)
		if _, err := d.Authenticate(t.Context(), service.key.Text); grpcx.ReasonOf(err) != grpcx.Unavailable {
			t.Errorf("got %v while nobody can say, want %s", err, grpcx.Unavailable)
		}
		service.fails.Store(false)
		service.client.Store("shop")
		ask("shop", 5)
	})
}

// Whoever tries many keys fills neither the memory nor the connection.
func TestDirectoryIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		service := &table{key: apikey.Mint()}
		service.client.Store("shop")
		d := NewDirectory(&KeyList{}, service)
		if _, err := d.Authenticate(t.Context(), service.key.Text); err != nil {
			t.Fatal(err)
		}
		for i := range 2 * maxCached {
			d.remember(apikey.Hash(strconv.Itoa(i)), cachedClient{until: d.now().Add(time.Second)})
		}
		if got := len(d.cached); got > maxCached {
			t.Errorf("got %d keys remembered, want at most %d", got, maxCached)
		}
		if _, err := d.Authenticate(t.Context(), service.key.Text); err != nil || service.asked.Load() != 1 {
			t.Errorf("got %v after %d questions, want the known key remembered", err, service.asked.Load())
		}
		var wg sync.WaitGroup
		var refused atomic.Int64
		for range 4 * maxAsking {
			wg.Go(func() {
				if _, err := d.Authenticate(t.Context(), apikey.Mint().Text); grpcx.ReasonOf(err) == grpcx.Unavailable {
					refused.Add(1)
				}
			})
		}
		wg.Wait()
		if got := service.asked.Load() - 1; got != maxAsking || refused.Load() != 3*maxAsking {
			t.Errorf("got %d questions and %d refusals, want %d and %d", got, refused.Load(), maxAsking, 3*maxAsking)
		}
	})
}

func TestLimitsAreBounded(t *testing.T) {
	t.Parallel()
	now := time.Unix(1, 0)
	l := newLimits(1, 2)
	l.now = func() time.Time { return now }
	for i := range maxLimited {
		if err := l.allow(strconv.Itoa(i)); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []grpcx.Reason{"", grpcx.RateLimited} {
		if got := grpcx.ReasonOf(l.allow("0")); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	now = now.Add(time.Second)
	if err := l.allow("another"); err != nil {
		t.Fatal(err)
	}
	// All have their burst again but the one who has just used his up.
	if got := len(l.clients); got != 2 {
		t.Errorf("got %d clients counted, want 2", got)
	}
	if err := newLimits(-1, 1).allow("x"); err != nil {
		t.Errorf("got %v without a limit, want none", err)
	}
}
