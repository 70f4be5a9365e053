package e2e_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"github.com/throughline/throughline/pkg/keys"
	"github.com/throughline/throughline/scripts/e2e/system"
	"github.com/throughline/throughline/services/gateway"
)

// betweenServices is the service credential of a world that a test adds a gateway to.
const betweenServices = "credential-between-the-services-of-a-test"

// open10ReplyHeld kills the order service when an order is committed and its reply is on the way, which a proxy between gateway and order
// service holds.
func open10ReplyHeld(ctx context.Context, t *testing.T, w *world) {
	proxy := toxiproxy.NewProxy(toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()), "replies", "127.0.0.1:0",
		fmt.Sprintf("127.0.0.1:%d", w.Ports()["order-grpc"]))
	if err := proxy.Start(); err != nil {
		t.Fatal(err)
	}
	defer proxy.Stop()
	shop := *w.shop
	shop.URLs = []string{"http://" + gatewayBefore(ctx, t, proxy.Listen)}
	wantCreated(t, "through the proxy", ask(ctx, t, &shop, 0, http.MethodPost, "/v1/orders", r0(), "Idempotency-Key", "open10 warm"), false)

	const key = "open10 reply held"
	id := keys.OrderID("storefront", key).String()
	// Nothing comes back any more, and the connection stays.
	if _, err := proxy.Toxics.AddToxicJson(strings.NewReader(`{"name":"held","type":"timeout","stream":"downstream","attributes":{"timeout":0}}`)); err != nil {
		t.Fatal(err)
	}
	first := make(chan answer, 1)
	go func() { first <- ask(ctx, t, &shop, 0, http.MethodPost, "/v1/orders", r0(), "Idempotency-Key", key) }()
	system.Eventually(ctx, t, "the order to be committed", func() bool {
		return w.count("order", `SELECT count(*) FROM customer_order WHERE order_id = $1`, id) == 1
	})
	w.Kill("order", 0)
	if err := proxy.Toxics.RemoveToxic(ctx, "held"); err != nil {
		t.Fatal(err)
	}
	// The gateway repeats the call by itself, or tells the client to.
	if a := <-first; a.err != nil || (a.Status < 500 && (a.Status != http.StatusCreated || !a.Replayed) && a.Problem.Reason != "KEY_IN_PROGRESS") {
		t.Errorf("reply held: got %d %s (%v), want a replay or what a client repeats", a.Status, a.Body, a.err)
	}
	a := w.eventuallyBy(ctx, t, &shop, key, r0())
	if a.Order.ID != id || !a.Replayed {
		t.Errorf("reply held: got order %s, replayed %v, want a replay of %s", a.Order.ID, a.Replayed, id)
	}
}

// gatewayBefore runs one more gateway, before the order service at an address, until the test ends. It gives where it serves HTTP.
func gatewayBefore(ctx context.Context, t *testing.T, orderAddr string) string {
	t.Helper()
	running, stop := context.WithCancel(ctx)
	serving, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		ended <- gateway.RunWith(running, gateway.Config{
			HTTPAddr: "127.0.0.1:0", GRPCAddr: "127.0.0.1:0", OrderAddr: orderAddr, ServiceCredential: betweenServices,
			APIKeys: "storefront=key-of-the-storefront",
		}, gateway.Options{
			Logger: slog.New(slog.DiscardHandler),
			Ready:  func(a gateway.Addresses) { serving <- a.HTTP },
		})
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the gateway of the test: %v", err)
		}
	})
	select {
	case addr := <-serving:
		return addr
	case err := <-ended:
		ended <- nil
		t.Fatalf("the gateway of the test: %v", err)
		return ""
	}
}
