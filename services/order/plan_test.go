package order_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	orderv1 "github.com/throughline/throughline/proto/gen/throughline/order/v1"
	"github.com/throughline/throughline/services/internal/grpcx"
	"github.com/throughline/throughline/services/internal/service"
	"github.com/throughline/throughline/services/order"
)

// TestOrdersOfAnotherRelease has an unfinished order whose saga is not defined here: it is left alone, none of its replies is lost, and an
// instance that is strict does not start.
func TestOrdersOfAnotherRelease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.start(w.url)
	strange := c.must(c.create("storefront", "strange", request())).order.GetOrderId()
	if _, err := w.db.Exec(t.Context(), `UPDATE saga_instance SET definition_version = 9 WHERE saga_id = $1`, strange); err != nil {
		t.Fatal(err)
	}

	bounded, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	refused := order.RunWith(bounded, order.Config{
		Strict: true,
		Config: service.Config{DatabaseURL: w.url, NATSURL: w.broker.URL(), ServiceCredential: credential, OperatorCredential: operatorCredential},
	}, order.Options{Logger: slog.New(slog.DiscardHandler)})
	for _, want := range []string{"starting strictly", "place-order version 9", "1 unfinished saga"} {
		if refused == nil || !strings.Contains(refused.Error(), want) {
			t.Errorf("strict start: got %v, want an error that says %q", refused, want)
		}
	}

	// The reply to the strange order comes first.
	w.participants(allDone)
	known := c.must(c.create("storefront", "known", request())).order.GetOrderId()
	c.await("storefront", known, orderv1.OrderStatus_ORDER_STATUS_CONFIRMED)
	if o, err := c.get("storefront", strange); err != nil || o.GetStatus() != orderv1.OrderStatus_ORDER_STATUS_PENDING {
		t.Errorf("order of another release: got %v, %v, want it pending", o, err)
	}
	c.wantReason(c.cancel("storefront", "cancel", strange, "changed my mind"), grpcx.Unavailable) // another release can
	if n := w.count(`SELECT count(*) FROM dead_letter`); n != 0 {
		t.Errorf("dead letters: got %d, want none", n)
	}
	if _, err := w.db.Exec(t.Context(), `UPDATE saga_instance SET definition_version = 1 WHERE saga_id = $1`, strange); err != nil {
		t.Fatal(err)
	}
	c.await("storefront", strange, orderv1.OrderStatus_ORDER_STATUS_CONFIRMED)
}

// TestStrictArgument shows that --strict is read as a setting.
func TestStrictArgument(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	environ := []string{"THROUGHLINE_STRICT=no such thing", "THROUGHLINE_SERVICE_CREDENTIAL=" + credential}
	if err := order.Run(ctx, []string{"order"}, environ); err == nil || !strings.Contains(err.Error(), "STRICT") {
		t.Errorf("with a setting that is none: got %v, want an error about STRICT", err)
	}
	if err := order.Run(ctx, []string{"order", "--strict"}, environ); err != nil && strings.Contains(err.Error(), "STRICT") {
		t.Errorf("with the argument: got %v, want the setting replaced", err)
	}
	if err := order.Run(ctx, []string{"order", "--lax"}, nil); err == nil {
		t.Error("with another argument: got no error, want one")
	}
}
