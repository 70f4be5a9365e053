package control_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/throughline/throughline/services/simulator/carrier"
	"github.com/throughline/throughline/services/simulator/control"
)

// The next create loses its answer; the ledger shows that it happened all the
// same.
func ExampleClient() {
	simulator, err := carrier.New(carrier.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		fmt.Println(err)
		return
	}
	server := httptest.NewServer(simulator.Handler())
	defer server.Close()

	ctx := context.Background()
	client := control.New(server.URL)
	_, err = client.AddFault(ctx, control.Fault{Operation: "shipments.create", Action: control.DropAfter, Times: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/v1/shipments", strings.NewReader(
		`{"reference":"r-1","order_id":"o-1","name":"A. Buyer","line1":"1 High St","city":"Berlin","country":"DE"}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	resp, err := server.Client().Do(req)
	if err == nil {
		err = resp.Body.Close()
	}
	fmt.Println("answered:", err == nil)

	ledger, err := client.CarrierLedger(ctx, "o-1")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, s := range ledger.Shipments {
		fmt.Println(s.Reference, s.Status)
	}
	for _, c := range ledger.Calls {
		fmt.Println(c.Operation, "effect:", c.Effect, "dropped:", c.Dropped)
	}
	// Output:
	// answered: false
	// r-1 created
	// shipments.create effect: true dropped: true
}
