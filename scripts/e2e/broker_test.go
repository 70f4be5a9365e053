package e2e_test

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/throughline/throughline/pkg/messaging/messagingtest"
	"github.com/throughline/throughline/scripts/e2e/system"
	"github.com/throughline/throughline/services/throughline/verify"
)

// TestBrokerForgets takes from the broker what it had acknowledged, in every way that we know of, in the middle of orders. Each of them
// ends as it should all the same, and nothing is done twice.
func TestBrokerForgets(t *testing.T) {
	t.Parallel()
	for name, forget := range map[string]func(ctx context.Context, t *testing.T, w *world){
		"an older copy of its files": func(ctx context.Context, t *testing.T, w *world) {
			store := w.broker.Config().StoreDir
			older := filepath.Join(t.TempDir(), "older")
			messagingtest.Stop(t, w.broker)
			copyTree(t, store, older)
			w.broker = messagingtest.Restart(t, w.broker)
			w.awaitConfirmed(ctx, t, 12)
			messagingtest.Stop(t, w.broker)
			if err := os.RemoveAll(store); err != nil {
				t.Fatal(err)
			}
			copyTree(t, older, store)
			w.broker = messagingtest.Restart(t, w.broker)
		},
		"the newest block cut off": func(_ context.Context, t *testing.T, w *world) {
			messagingtest.Stop(t, w.broker)
			cutNewestBlocks(t, w.broker.Config().StoreDir)
			w.broker = messagingtest.Restart(t, w.broker)
		},
		"all of its files gone": func(_ context.Context, t *testing.T, w *world) {
			messagingtest.Stop(t, w.broker)
			if err := os.RemoveAll(w.broker.Config().StoreDir); err != nil {
				t.Fatal(err)
			}
			w.broker = messagingtest.Restart(t, w.broker)
		},
		"streams deleted": func(ctx context.Context, t *testing.T, w *world) {
			js := w.jetstream(t)
			for _, stream := range []string{"CMD", "RPL", "EVT"} {
				if err := js.DeleteStream(ctx, stream); err != nil {
					t.Fatal(err)
				}
			}
		},
		"consumers deleted": func(ctx context.Context, t *testing.T, w *world) {
			js := w.jetstream(t)
			for consumer, stream := range map[string]string{"order-replies": "RPL", "payment-commands": "CMD", "shipping-commands": "CMD"} {
				if err := js.DeleteConsumer(ctx, stream, consumer); err != nil {
					t.Fatal(err)
				}
			}
		},
		"streams too small, until it restarts": func(ctx context.Context, t *testing.T, w *world) {
			js := w.jetstream(t)
			for _, name := range []string{"CMD", "RPL", "EVT"} {
				stream, err := js.Stream(ctx, name)
				if err != nil {
					t.Fatal(err)
				}
				cfg := stream.CachedInfo().Config
				cfg.MaxMsgs = 1
				if _, err := js.UpdateStream(ctx, cfg); err != nil {
					t.Fatal(err)
				}
			}
			// Full is an error: what is written meanwhile stays in the outbox.
			system.Eventually(ctx, t, "rows that wait", func() bool { return w.count("order", `SELECT count(*) FROM outbox`) > 3 })
			w.broker = messagingtest.Restart(t, w.broker)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, system.Options{})
			ctx := system.Context(t, patience)
			slow(ctx, t, w.System)
			const orders = 40
			var placed sync.WaitGroup
			turns := make(chan struct{}, 4)
			for i := range orders {
				placed.Go(func() {
					turns <- struct{}{}
					defer func() { <-turns }()
					o := system.Order{Quantity: 1 + i%9}
					switch {
					case i%5 == 4:
						o.PaymentMethod = "pm_card_visa_chargeDeclined"
					case i%7 == 6:
						o.PostalCode = "00000"
					}
					if a, err := w.shop.Place(ctx, fmt.Sprintf("forget-%d", i), o); err != nil || a.Status != http.StatusCreated {
						t.Errorf("placing order %d: got %v, %v, want 201", i, a, err)
					}
				})
			}
			w.awaitConfirmed(ctx, t, 4)
			forget(ctx, t, w)
			placed.Wait()
			if got := w.settled(ctx, t); got != orders {
				t.Errorf("got %d orders, want %d", got, orders)
			}
			assertEndings(t, w.byStatus(ctx, t), orders)
			system.Eventually(ctx, t, "all messages to leave the outboxes", func() bool {
				return w.count("order", `SELECT count(*) FROM outbox`)+w.count("payment", `SELECT count(*) FROM outbox`)+
					w.count("shipping", `SELECT count(*) FROM outbox`) == 0
			})
		})
	}
}

func (w *world) awaitConfirmed(ctx context.Context, t *testing.T, n int) {
	t.Helper()
	system.Eventually(ctx, t, fmt.Sprintf("%d confirmed orders", n), func() bool {
		return w.count("order", `SELECT count(*) FROM customer_order WHERE status = 'CONFIRMED'`) >= n
	})
}

func (w *world) byStatus(ctx context.Context, t *testing.T) map[string][]verify.Order {
	t.Helper()
	list, err := w.shop.Orders(ctx)
	if err != nil {
		t.Fatal(err)
	}
	byStatus := make(map[string][]verify.Order)
	for _, o := range list {
		byStatus[o.Status] = append(byStatus[o.Status], o)
	}
	return byStatus
}

func (w *world) jetstream(t *testing.T) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(w.brokerURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func copyTree(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatalf("copying the broker's files: %v", err)
	}
}

// cutNewestBlocks cuts the newest file of messages of each stream in half, as a power failure does with what was not flushed.
func cutNewestBlocks(t *testing.T, store string) {
	t.Helper()
	blocks := make(map[string][]string) // by folder
	err := filepath.WalkDir(store, func(path string, _ os.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".blk" {
			blocks[filepath.Dir(path)] = append(blocks[filepath.Dir(path)], path)
		}
		return err
	})
	if err != nil || len(blocks) == 0 {
		t.Fatalf("looking for the broker's blocks: got %v, %v, want some", blocks, err)
	}
	for _, files := range blocks {
		newest := slices.MaxFunc(files, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
		info, err := os.Stat(newest)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(newest, info.Size()/2); err != nil {
			t.Fatal(err)
		}
	}
}
