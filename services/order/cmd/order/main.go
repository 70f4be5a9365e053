// Command order runs the order service; see package order.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/throughline/throughline/services/order"
)

func main() {
	if err := order.Run(context.Background(), os.Args, os.Environ()); err != nil {
		fmt.Fprintln(os.Stderr, "order:", err)
		os.Exit(1)
	}
}
