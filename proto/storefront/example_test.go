package storefront_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	"github.com/throughline/throughline/proto/storefront"
)

// The answer to the first attempt is lost on its way. The second attempt learns what the first one did.
func ExampleClient_PlaceOrder() {
	service := httptest.NewServer(answerLost())
	defer service.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	client, err := storefront.New(service.URL, "tl_dev_storefront")
	if err != nil {
		fmt.Println(err)
		return
	}
	key := storefront.NewKey() // kept with the cart, before the first call
	placed, err := client.PlaceOrder(ctx, key, storefront.NewOrder{
		Currency:      "EUR",
		Lines:         []storefront.Line{{SKU: "BOOK-1", Quantity: 2, UnitPrice: 1250}},
		ShipTo:        storefront.Address{Name: "A. Buyer", Line1: "1 High St", City: "Berlin", PostalCode: "10115", Country: "DE"},
		PaymentMethod: "pm_card_visa",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("placed by an earlier attempt:", placed.Replayed)
	order, err := client.WaitFinal(ctx, placed.Order.ID)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(order.Status, order.Total, order.Currency)
	// Output:
	// placed by an earlier attempt: true
	// CONFIRMED 2500 EUR
}

// answerLost stands for the order service, behind a network that loses the first answer.
func answerLost() http.Handler {
	var attempts atomic.Int32
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status := "PENDING"
		switch {
		case r.Method == http.MethodGet:
			status = "CONFIRMED"
		case attempts.Add(1) == 1:
			panic(http.ErrAbortHandler)
		default:
			w.Header().Set("Idempotency-Replayed", "true")
			w.WriteHeader(http.StatusCreated)
		}
		_, _ = fmt.Fprintf(w, `{"order_id":"o-1","status":%q,"currency":"EUR","total":2500}`, status)
	})
}
