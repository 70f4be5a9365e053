// Command payment runs the payment service.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/throughline/throughline/services/payment"
)

func main() {
	if err := payment.Run(context.Background(), os.Args, os.Environ()); err != nil {
		fmt.Fprintln(os.Stderr, "payment:", err)
		os.Exit(1)
	}
}
